"""Epsilons of a paper's private settings: claimed and by what, proven, and refuted."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from dpfl.grid.expansion import noise_table_path
from dpfl.reporting.display_names import EpsilonVerdict, at_least, epsilon_verdict, in_words, with_greek_symbols
from dpfl.reporting.results import read_csv

_OTHER = "a bound for "
"""How a source begins that is a bound for other batches than were drawn."""
OWN_BOUND = "an accountant for these batches"
_SOURCES = (
    (r"calibrated for (\w+) sampling[^;]*, the batches are", f"{_OTHER}{{}} batches"),
    (r"noise as published \(moments\)", "the authors' later script"),
    (
        r"noise as published \(advanced_composition\).*mean is clipped",
        "the scripts' form of Theorem 2.1 with the batch mean clipped",
    ),
    (r"noise as published \(advanced_composition\)|noise 'theorem'", "the paper's formula"),
    (r"which no guarantee covers; the updates alone", "an accountant of the updates alone"),
    (r"for moves of the sum along one axis", "an accountant for moves along one axis"),
)
_NOISE_CHANGES = "segments with"
ONE_NOISE = "an accountant that leaves out the rounds with less noise"
"""What gave the noise for the claimed epsilon, by what `privacy_note` of the experiments says; else `OWN_BOUND`."""


@dataclass(frozen=True)
class EpsilonStatement:
    """One private setting; `sampling`, `neighbouring` and `observer` say what its epsilons belong to.

    `stated_by` is what gave the noise for the claimed epsilon; `of_study`: only studies of ours have the setting.
    `proven` is inf if nothing is proven, `refuted` is 0 if nothing is exceeded.
    """

    sampling: str
    stated_by: str
    neighbouring: str
    observer: str
    records: int
    steps: int
    delta: float
    noise_multiplier: float
    claimed: float
    proven: float
    proven_by: str
    refuted: float
    refuted_by: str
    verdict: EpsilonVerdict
    of_study: bool


def statements(
    folder: Path, paper: str, studies: Collection[str] = (), keys: Collection[str] | None = None
) -> list[EpsilonStatement]:
    """Return each different private setting of results/<scale> that claims an epsilon, once, from its table of noise.

    `studies` are the calibration keys of jobs that belong to a study of ours and to nothing that the paper prints.
    `keys`: those that count, all if None; the noise of an earlier, wider configuration stays in the table.
    Settings without noise and those that are given a noise instead of an epsilon claim nothing. Where only the last
    model is released, what the contraction bounds prove counts.
    """
    csv = noise_table_path(folder, paper)
    if not csv.is_file():
        return []
    rows = read_csv(csv)
    if "epsilon" not in rows:
        return []
    if keys is not None:
        rows = rows[rows["calibration_key"].isin(keys)]
    rows = rows[(rows["epsilon"] < math.inf) & (rows["privacy_noise_multiplier"] > 0)]
    last_model = rows.get("privacy_epsilon_contraction", pd.Series(math.inf, rows.index)).fillna(math.inf)
    rows = rows.assign(proven=rows["privacy_epsilon_proven"].fillna(math.inf), last_model=last_model)
    rows = rows.assign(
        stated_by=[_stated_by(row) for _, row in rows.iterrows()],
        of_study=rows["calibration_key"].isin(studies) if studies else False,
    )
    ordered = rows.sort_values(["privacy_sampling", "epsilon"], kind="stable")
    known: dict[tuple[object, ...], EpsilonStatement] = {}
    for _, row in ordered.iterrows():
        each = _statement(row)
        seen = known.setdefault(_shown(each), each)
        known[_shown(each)] = replace(seen, of_study=seen.of_study and each.of_study)
    return list(known.values())


def _shown(statement: EpsilonStatement) -> tuple[object, ...]:
    """Return what a reader sees of a statement: noise of the same setting can differ in its last bits."""
    values = asdict(replace(statement, of_study=False)).values()
    return tuple(f"{value:.9g}" if isinstance(value, float) else value for value in values)


def _stated_by(row: pd.Series) -> str:
    """Return what gave the noise, by the note of a privacy statement.

    No accountant for these batches states an epsilon that is refuted: if the noise changes, it knew one noise alone.
    """
    note = str(row["privacy_note"])
    for pattern, words in _SOURCES:
        if found := re.search(pattern, note):
            return words.format(*(in_words(group).capitalize() for group in found.groups()))
    return ONE_NOISE if _NOISE_CHANGES in note and row["privacy_epsilon_refuted"] > row["epsilon"] else OWN_BOUND


def _statement(row: pd.Series) -> EpsilonStatement:
    hidden = row["last_model"] < row["proven"]
    proven = min(row["proven"], row["last_model"])
    return EpsilonStatement(
        sampling=in_words(row["privacy_sampling"]),
        stated_by=row["stated_by"],
        neighbouring=in_words(row["privacy_neighbouring"]),
        observer="last model" if hidden else in_words(row["privacy_observer"]),
        records=int(row["privacy_records"]),
        steps=int(row["privacy_steps"]),
        delta=float(row["privacy_delta"]),
        noise_multiplier=float(row["privacy_noise_multiplier"]),
        claimed=float(row["epsilon"]),
        proven=float(proven),
        proven_by="contraction, last model alone" if hidden else str(row["privacy_proven_by"]),
        refuted=float(row["privacy_epsilon_refuted"]),
        refuted_by=str(row["privacy_refuted_by"]),
        verdict=epsilon_verdict(row["epsilon"], proven, row["privacy_epsilon_refuted"]),
        of_study=bool(row["of_study"]),
    )


def counts(known: Iterable[EpsilonStatement]) -> dict[EpsilonVerdict, int]:
    """Return how many statements have each verdict."""
    verdicts = [each.verdict for each in known]
    return {each: verdicts.count(each) for each in EpsilonVerdict}


def counts_in_words(known: Iterable[EpsilonStatement]) -> str:
    """Return how many statements have each verdict, without those that none has, as text."""
    return ", ".join(f"{count} {each}" for each, count in counts(known).items() if count)


Group = tuple[str, str, str, str]
"""Sampler, what the epsilon is stated by, neighbouring relation, observer."""


def by_sampling(known: Iterable[EpsilonStatement]) -> dict[Group, list[EpsilonStatement]]:
    """Return the statements by what their epsilons belong to (`Group`), in alphabetical order."""
    groups: dict[Group, list[EpsilonStatement]] = {}
    for each in known:
        groups.setdefault((each.sampling, each.stated_by, each.neighbouring, each.observer), []).append(each)
    return dict(sorted(groups.items()))


def with_verdict(
    known: Iterable[EpsilonStatement], wanted: EpsilonVerdict, name_neighbours: bool = True
) -> list[tuple[int, str]]:
    """Return how many statements have a verdict, and which: a pair for each sampler, neighbouring relation and source,
    the largest first.

    For example (33, "with replacement, replace one, ε from the authors' later script"); the relation is left out where
    the sentence before has said it.
    """
    groups = Counter(
        (each.sampling, each.neighbouring, each.stated_by, each.of_study) for each in known if each.verdict is wanted
    )
    ordered = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    return [
        (
            count,
            f"{sampling}{f', {neighbours}' if name_neighbours else ''}, ε from {source}"
            f"{', in our own studies' if of_study else ''}",
        )
        for (sampling, neighbours, source, of_study), count in ordered
    ]


def in_sentences(known: Sequence[EpsilonStatement], limit: Mapping[str, str] | None = None) -> str:
    """Return how many claimed epsilons have each verdict, our own studies apart, and what refutes the refuted
    ones; "" for none.

    `limit` is the `limits_epsilons` of a claim: the verdicts are `for` some records, `but` not so for others.
    """
    of_paper, of_studies = ([each for each in known if each.of_study is own] for own in (False, True))
    values = sorted({each.claimed for each in of_paper})
    few = f" {', '.join(f'{value:g}' for value in values)}" if 1 < len(values) <= _FEW else ""
    groups = {f"Epsilons{few} of the paper's settings": of_paper, "Epsilons of our own studies": of_studies}
    records = f", for {limit['for']}" if limit else ""
    said = [
        (f"{lead}{_conditions(group)}: {_verdicts(group)}{records}", _why_refuted(group))
        for lead, group in groups.items()
        if group
    ]
    spends_more = f"; {limit['but']}" if limit else ""
    return " ".join(
        f"{verdicts}{'' if number else spends_more}.{refuted}" for number, (verdicts, refuted) in enumerate(said)
    )


_FEW = 4
"""Claimed epsilons up to which a sentence lists them."""


def _verdicts(group: Sequence[EpsilonStatement]) -> str:
    """Return the verdicts of a group in words: "all 16 proven", or counts."""
    if len(group) > 1 and len({each.verdict for each in group}) == 1:
        return f"{'both' if len(group) == 2 else f'all {len(group)}'} {group[0].verdict}"
    return counts_in_words(group)


def _why_refuted(group: Sequence[EpsilonStatement]) -> str:
    """Return which epsilons of a group are refuted, by which factors they are exceeded, and why, in sentences."""
    refuted = [each for each in group if each.verdict is EpsilonVerdict.REFUTED]
    if not refuted:
        return ""
    of_any_runs = (replace(each, of_study=False) for each in refuted)
    already_said = len({each.neighbouring for each in group}) == 1  # by `_conditions`
    groups = with_verdict(of_any_runs, EpsilonVerdict.REFUTED, name_neighbours=not already_said)
    which = "; ".join(f"{count} ({what})" for count, what in groups)
    return f" Refuted: {which}. The noise of these runs is too small for the claimed ε{exceeded(group)}."


def exceeded(group: Iterable[EpsilonStatement]) -> str:
    """Return how many times the claimed epsilon the refuted ones spend, in a bracket; "" if none is refuted."""
    factors = sorted(each.refuted / each.claimed for each in group if each.verdict is EpsilonVerdict.REFUTED)
    if not factors:
        return ""
    least, most = (f"{_rounded_down(each):,}" for each in (factors[0], factors[-1]))
    worst = f", in the worst case at least {most} times" if most != least else ""
    return f" (the ε spent is at least {least} times the claimed one{worst})"


def _conditions(group: Sequence[EpsilonStatement]) -> str:
    """Return the δ and the neighbouring relation that all of a group share, in a bracket; "" if there are none."""
    deltas, relations = {each.delta for each in group}, {each.neighbouring for each in group}
    shared = [with_greek_symbols(f"δ = {delta:g}") for delta in deltas] if len(deltas) == 1 else []
    shared += [f"neighbours: {relation}" for relation in relations] if len(relations) == 1 else []
    return f" ({', '.join(shared)})" if shared else ""


def _rounded_down(factor: float) -> float:
    """Return a factor of 1 or more, rounded down to tenths, or to a whole number from 10 on."""
    return math.floor(factor) if factor >= 10 else math.floor(10 * factor) / 10


def under_other_batches(known: Iterable[EpsilonStatement]) -> list[str]:
    """Return what became of epsilons that are stated by a bound for other batches than were drawn, a sentence for each
    sampler: how many are refuted, and what the least and the largest of those spend at least."""
    groups: dict[tuple[str, str], list[EpsilonStatement]] = {}
    for each in known:
        if each.stated_by.startswith(_OTHER):
            groups.setdefault((each.sampling, each.stated_by), []).append(each)
    ordered = sorted(groups.items(), key=lambda item: -counts(item[1])[EpsilonVerdict.REFUTED])
    return [
        f"{sampling[:1].upper()}{sampling[1:]} with the ε for {by.removeprefix(_OTHER)}: {_outcome(group)}."
        for (sampling, by), group in ordered
    ]


def _outcome(group: list[EpsilonStatement]) -> str:
    """Return the verdicts of a group of statements; of refuted ones also what is stated and what is spent."""
    refuted = sorted((each for each in group if each.verdict is EpsilonVerdict.REFUTED), key=lambda each: each.claimed)
    alike = len({each.verdict for each in group}) == 1
    words = f"{group[0].verdict} in {_all_of(len(group))}" if alike else counts_in_words(group)
    ends = dict.fromkeys((refuted[0], refuted[-1])) if refuted else ()
    spent = "; ".join(f"claimed {each.claimed:.4g}, in truth at least {at_least(each.refuted)}" for each in ends)
    return f"{words} ({spent})" if spent else words


def _all_of(count: int) -> str:
    """Return "all 5 settings", "both settings" or "its only setting"."""
    return {1: "its only setting", 2: "both settings"}.get(count, f"all {count} settings")
