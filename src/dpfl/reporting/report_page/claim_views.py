"""Claims as the page shows them: the verdict, the case that decides it, the other cases, and where they come from."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.catalog import dataset_entries, load
from dpfl.files import is_regular, read_bytes, record_path
from dpfl.grid.expansion import page_path
from dpfl.reporting import claims
from dpfl.reporting.display_names import data_name, percent, with_greek_symbols
from dpfl.reporting.report_page.agreement import Row, TextTable
from dpfl.reporting.report_page.picture import CasePicture, case_picture
from dpfl.reporting.results import read_csv
from dpfl.reporting.rules import (
    LEVEL,
    OF_CLAIM,
    OF_QUESTION,
    Case,
    ClaimKind,
    Counts,
    Rule,
    Scope,
    Status,
    Verdict,
    Words,
    region,
)

if TYPE_CHECKING:
    import pandas as pd

# Origin of a shown number: the command that traces it, and the hash of the record next to its file.

_SIGN = "="
"""Of the conditions of `dpfl trace --where`: a value that has it cannot be asked for."""


@dataclass(frozen=True)
class Trace:
    """Origin of a file: its path in the project, and the SHA-256 of its record, "" if there is none."""

    file: str
    record_sha256: str

    @property
    def command(self) -> str:
        """The command that shows where all numbers of the file come from."""
        return f"dpfl trace {shlex.quote(self.file)}"


def trace_of(csv: Path, root: Path) -> Trace:
    """Return the origin of a CSV file below `root`, the folder of the project."""
    record = record_path(csv)
    digest = hashlib.sha256(read_bytes(record)).hexdigest() if is_regular(record) else ""
    return Trace(csv.absolute().relative_to(root.absolute()).as_posix(), digest)


def row_conditions(rows: pd.DataFrame) -> list[str]:
    """Return for each row the value of --where that names it and no other; "" if no column can tell rows apart.

    Columns are taken from the left until every row differs. Columns whose values contain an equals sign are passed
    over.
    """
    texts = rows.astype(object).map(_text)
    usable = [name for name in texts if not texts[name].str.contains(_SIGN, regex=False).any()]
    chosen: list[str] = []
    for name in usable:
        if texts[name].nunique() < 2:
            continue
        chosen.append(name)
        if not texts.duplicated(chosen).any():
            return [",".join(f"{name}={row[name]}" for name in chosen) for _, row in texts.iterrows()]
    return [""] * len(rows)


def _text(value: object) -> str:
    """Return a cell as it is compared with a condition."""
    return repr(value) if isinstance(value, float) else str(value)


# Claims.

_DATASETS = re.compile(rf"(?:(?<=^)|(?<=, )|(?<=: ))(?:{'|'.join(dataset_entries())})(?=[,:]|$)")
"""Key of a dataset in the name of a case."""
_ROUNDING = 1e-9
"""Relative excess over a bound up to which a computed number is said to equal it."""
_MANY = 2
"""Multiple of a bound from which on it is said how many times a number exceeds it."""
_LARGEST_TOLERANCE = 1e-3
"""Margin of a bound of 0 up to which it is what rounding may add, not a part of the claim."""


@dataclass(frozen=True)
class VerdictStyle:
    """A verdict with the class that colours it and the sign that tells it without colour."""

    word: str
    style: str
    sign: str


STYLES = {
    Verdict.AS_STATED: VerdictStyle(str(Verdict.AS_STATED), "stated", "✓"),
    Verdict.WEAKER: VerdictStyle(str(Verdict.WEAKER), "weaker", "~"),
    Verdict.REFUTED: VerdictStyle(str(Verdict.REFUTED), "refuted", "✗"),
    Verdict.UNDECIDED: VerdictStyle(str(Verdict.UNDECIDED), "undecided", "?"),
    Verdict.NOT_RUN: VerdictStyle(str(Verdict.NOT_RUN), "notrun", "–"),
}


ANSWERS = {
    verdict: VerdictStyle(claims.answer(verdict, our_question=True), "asked", style.sign)
    for verdict, style in STYLES.items()
}
"""Verdicts on questions of ours, which are no claims of the paper."""


@dataclass(frozen=True)
class Place:
    """A table or figure with a claim's evidence; `is_there`: it is finished, so that the page shows it; `has_card`: it
    has a privacy card."""

    kind: str
    name: str
    title: str
    is_there: bool
    has_card: bool


@dataclass(frozen=True)
class ClaimView:
    """A claim on the page.

    `in_short` is the `reason` in one or two sentences. `deciding` is the case that decides, with its numbers; `cases`
    has all of them, and `drawn` is their picture, None if a picture would show nothing. `of` is the key of the claim
    that this one belongs to, its own if it is none, and `part_of` that claim's text, then "". `judged_by` is what
    judges it in place of our runs, "" for our runs. `needs` says which cases it needs: "all", "one" or "most". `figure`
    is the name of the paper's figure that shows it, "" without one. `runs` is how many runs the deciding case has, 0 if
    it is computed. `our_question`: it is a question of ours, not a claim.
    """

    key: str
    text: str
    settings: str
    our_question: bool
    of: str
    part_of: str
    judged_by: str
    verdict: VerdictStyle
    reason: str
    in_short: str
    deciding: str
    decides: str
    runs: int
    needs: str
    rule: str
    settled_by: str
    because: str
    figure: str
    drawn: CasePicture | None
    cases: TextTable | None
    places: tuple[Place, ...]
    trace: Trace

    @property
    def is_refuted(self) -> bool:
        """True for a claim of the paper that is refuted."""
        return self.verdict == STYLES[Verdict.REFUTED] and not self.our_question

    @property
    def counted_in_words(self) -> str:
        """How many cases its table has: "12 cases", or "12 cases, and 36 that do not count"."""
        rows = self.cases.rows if self.cases else ()
        beside = sum(row.style == f"c-{Status.BESIDE.replace(' ', '-')}" for row in rows)
        counted = f"{len(rows) - beside} {'case' if len(rows) - beside == 1 else 'cases'}"
        return f"{counted}, and {beside} that {'does' if beside == 1 else 'do'} not count" if beside else counted

    @property
    def marks_case(self) -> bool:
        """True if the picture of its cases marks the one that decides: it goes before the figure of the paper."""
        return self.drawn is not None and any(line.label for line in self.drawn.lines)


_NOT_RUN = re.compile(r"(?:\d+ more case|Of the \d+ jobs|None of the \d+ jobs|Its job)[^.]* run\.")
"""What the reason of a verdict says of cases and jobs that were not run."""


def claim_views(folder: Path, paper: str) -> tuple[ClaimView, ...]:
    """Return the claims of a paper with their verdicts, in the order of claims.yaml; none before the claims stage."""
    verdicts, evidence = claims.files(paper, folder / "claims")
    if not verdicts.is_file():
        return ()
    table = read_csv(verdicts, claims.TEXTS)
    rows = table.to_dict("records")
    trace = trace_of(verdicts, folder.absolute().parents[1])
    cases = {claim: rows_of for claim, rows_of in read_csv(evidence, claims.TEXTS).groupby("claim", sort=False)}
    texts = {row["claim"]: row["text"] for row in rows}
    return tuple(_view(folder, paper, row, cases.get(row["claim"]), texts, trace) for row in rows)


def _view(
    folder: Path,
    paper: str,
    row: Mapping[str, Any],
    cases: pd.DataFrame | None,
    texts: Mapping[str, str],
    trace: Trace,
) -> ClaimView:
    """Return one claim."""
    places = tuple(each for place in row["places"].split() if (each := _place(folder, paper, place)))
    claim = load(paper).claims.get(row["claim"], {})
    caveat = with_greek_symbols(claim.get("caveat", ""))
    reason = " ".join(filter(None, [row["reason"], shown_by(cases, _words(row)), caveat]))
    undecided = why_undecided(row, cases)
    not_run = " ".join(_NOT_RUN.findall(row["reason"]))
    return ClaimView(
        key=row["claim"],
        text=with_greek_symbols(row["text"]),
        settings=with_greek_symbols(row.get("settings", "")),
        our_question=row["our_question"],
        of=row["of"],
        part_of=with_greek_symbols(texts.get(row["of"], "")) if row["of"] != row["claim"] else "",
        judged_by=claim.get("judged_by", ""),
        verdict=(ANSWERS if row["our_question"] else STYLES)[Verdict(row["verdict"])],
        reason=reason,
        in_short=" ".join(filter(None, [undecided, not_run, caveat])) if undecided else reason,
        deciding=deciding_case(row, _claimed(row, cases)),
        decides=_decides(row),
        runs=int(row["n"]),
        needs=_NEEDS[row["scope"]],
        rule=f"{_SCOPES[row['scope']]} {_KINDS[row['kind']]}{_margin(row)}",
        settled_by=with_greek_symbols(row["settled_by"]),
        because=with_greek_symbols(row["because"]),
        figure=_figure(folder, paper, row["claim"], places),
        drawn=case_picture(
            cases,
            row["unit"],
            case_name,
            our_question=row["our_question"],
            labels={row["case"]: _label(row, _claimed(row, cases))} if row["verdict"] == str(Verdict.REFUTED) else {},
        ),
        cases=_cases(cases, row["unit"]) if cases is not None else None,
        places=places,
        trace=trace,
    )


_SCOPES = {
    str(Scope.FOR_ALL): "The claim is about every case, so one case that contradicts it refutes it.",
    str(Scope.EXISTS): "The claim is that something can happen, so one case that shows it is enough.",
    str(Scope.IN_EXPERIMENTS): "The claim is about the experiments together, so most cases decide.",
}
"""Scopes of claims in words."""
_NEEDS = {str(Scope.FOR_ALL): "all", str(Scope.EXISTS): "one", str(Scope.IN_EXPERIMENTS): "most"}
"""Scopes of claims in a word."""
_WITHIN = "In each case the number must be within the margin of its target."
_KINDS = {
    str(ClaimKind.DIFFERENCE): "In each case the number must be above its target.",
    str(ClaimKind.NOT_WORSE): "In each case the number may be below its target by at most the margin.",
    str(ClaimKind.BOUND): "In each case the number must be at most its target.",
    str(ClaimKind.EQUIVALENCE): _WITHIN,
    str(ClaimKind.RATE): _WITHIN,
    str(ClaimKind.FORMULA): _WITHIN,
}
"""Kinds of claims in words."""


def why_undecided(row: Mapping[str, Any], cases: pd.DataFrame | None) -> str:
    """Say why a claim is undecided, with the size of its margin unless cases have margins of their own.

    "" if it is decided, has fewer than two cases, or would be decided if all runs were there: then the reason says so.
    """
    if row["verdict"] != str(Verdict.UNDECIDED) or str(row["reason"]).startswith(claims.SO_FAR):
        return ""
    named = set() if cases is None else set(cases["within"].str.extract(r", margin (\S+)", expand=False).dropna())
    rule = Rule(Scope(row["scope"]), ClaimKind(row["kind"]), row["margin"], row["unit"])
    margin = rule.margin_in_words([]) if named == {f"{rule.margin:g}"} else "the margin"
    counts = Counts.of(row)
    if rule.scope is Scope.EXISTS:
        return counts.none_shows(margin, _words(row)) if counts.judged > 1 else ""
    return counts.why_undecided(margin, _words(row))


def _decides(row: Mapping[str, Any]) -> str:
    """Return what the deciding case of a claim is: the counterexample; of an open claim the least certain case, if its
    number is on the side of the claim; else, where it does not decide, the strongest case against the claim."""
    verdict = Verdict(row["verdict"])
    if verdict is Verdict.REFUTED:
        return "Deciding case" if row["our_question"] else "Counterexample"
    if verdict not in (Verdict.UNDECIDED, Verdict.AS_STATED) or row["scope"] == str(Scope.EXISTS):
        return "Deciding case"
    rule = Rule(Scope(row["scope"]), ClaimKind(row["kind"]), row["margin"])
    low, high = region(Case(row["case"], row["estimate"], target=row["target"]), rule)
    if not low <= row["estimate"] <= high:
        return "Strongest case against it"
    return "Least certain case" if verdict is Verdict.UNDECIDED else "Deciding case"


def _words(row: Mapping[str, Any]) -> Words:
    """Return the words for the cases of a claim, or of a question of ours."""
    return OF_QUESTION if row["our_question"] else OF_CLAIM


def _margin(row: Mapping[str, Any]) -> str:
    """Return the margin of a claim as a sentence, "" if it has none."""
    if not row["margin"]:
        return ""
    unit = "" if claims.names_quantity(row["unit"]) else row["unit"]
    return with_greek_symbols(f" Margin: {row['margin']:g} {unit}".rstrip() + ".")


def _figure(folder: Path, paper: str, claim: str, places: Iterable[Place]) -> str:
    """Return the name of a claim's figure: the one in claims.yaml, else the first that its cases were read from."""
    named = load(paper).claims.get(claim, {}).get("figure")
    first = _place(folder, paper, f"figures/{named}") if named else None
    return next((each.name for each in (first, *places) if each and each.kind == "figure" and each.is_there), "")


def _claimed(row: Mapping[str, Any], cases: pd.DataFrame | None) -> str:
    """Return the range in which the claim says that its deciding case is."""
    if cases is None:
        return ""
    return next((each["within"] for each in cases.to_dict("records") if each["case"] == row["case"]), "")


def deciding_case(row: Mapping[str, Any], claimed: str) -> str:
    """Return the deciding case as one line: its name, estimate, interval and the range that the claim needs.

    The line is "" if there is no such case. The runs and the p-value are in the table of cases.
    """
    if not row["case"]:
        return ""
    needs = "a yes needs" if row["our_question"] else "the claim needs"
    needed = f"; {needs} {claimed_words(claimed, row)}" if claimed else ""
    runs = {0: " (computed)", 1: " (one run)"}.get(row["n"], "")
    interval = _interval(row).rstrip(")")
    interval += f", {percent(LEVEL)} interval of {row['n']:g} runs)" if interval else ""
    said = f"{claims.in_unit(_number(row['estimate']), row['unit'])}{interval}{runs}{needed}"
    return f"{case_name(row['case'])}: {with_greek_symbols(said)}"


def _label(row: Mapping[str, Any], claimed: str) -> str:
    """Return what the number of the case is that refutes a claim, and what the claim, or a yes to a question, needs."""
    kind, needs = ("deciding case", "a yes needs") if row["our_question"] else ("counterexample", "the claim needs")
    needed = claimed_words(claimed, row).partition(",")[0].partition(" (")[0]
    return with_greek_symbols(f"{kind}: {_number(row['estimate'])}; {needs} {needed}")


def claimed_words(claimed: str, row: Mapping[str, Any]) -> str:
    """Return the claimed range; where a computed number reads like an end of it, also how far it is from its target.

    For example "at most 0.7672 (3.8e-12 below)" or "0.5359 (equal within 4e-13)". Of a number that the claim bounds by
    0, all above 0 is our tolerance: "at most 0 (our tolerance: 1e-09)".
    """
    first, comma, tested = claimed.partition(",")
    kind = next((word for word in ("at most ", "at least ", "above ") if first.startswith(word)), "")
    values = first.removeprefix(kind).split(" to ")
    if kind == "at most " and not row["target"] and 0 < float(values[0]) <= _LARGEST_TOLERANCE:
        return f"{kind}0 (our tolerance: {values[0]}){comma}{tested}"
    if kind == "at most " and math.inf > row["estimate"] >= _MANY * float(values[0]) > 0:
        return f"{first} (exceeded by a factor of {row['estimate'] / float(values[0]):.2g}){comma}{tested}"
    gap = row["estimate"] - row["target"]
    if _number(row["estimate"]) in values and row["low"] == row["high"] and math.isfinite(gap):
        rounding = 0 <= gap <= _ROUNDING * abs(row["target"])
        tolerated = ", within our tolerance" if kind == "at most " and 0 < gap <= row.get("margin", 0) else ""
        first += f" ({_equal_within(gap) if rounding or not kind else _apart(gap) + tolerated})"
    return f"{first}{comma}{tested}"


def _apart(gap: float) -> str:
    """Return how far a number is from its target."""
    return f"{abs(gap):.2g} {'above' if gap > 0 else 'below'}"


def _equal_within(gap: float) -> str:
    """Return within what a number equals its target: the distance, rounded up to one digit."""
    if not gap:
        return "equal"
    power = math.floor(math.log10(abs(gap)))
    return f"equal within {math.ceil(abs(gap) / 10**power) * 10**power:.1g}"


def case_name(case: str) -> str:
    """Return the name of a case with titles of data sets and signs: "MNIST, ε = 2" for "mnist, epsilon = 2"."""
    return with_greek_symbols(_DATASETS.sub(lambda found: data_name(found[0]), case))


def _interval(row: Mapping[str, Any]) -> str:
    """Return an interval in brackets, nothing for a computed number or a single run."""
    if row["low"] != row["low"] or row["low"] == row["high"]:
        return ""
    return f" ({_number(row['low'])} to {_number(row['high'])})"


def _number(value: float) -> str:
    """Return a number with four digits; a dash if there is none."""
    return "–" if value != value else f"{value:.4g}"


_LEAST_CASES, _LEAST_GROUP, _LEAST_SPREAD, _MOST_VALUES = 6, 3, 0.5, 7
"""Cases, cases of a value, difference of shares and values from and up to which `shown_by` names a setting."""


def shown_by(cases: pd.DataFrame | None, words: Words = OF_CLAIM) -> str:
    """Return the setting that tells the cases which show a claim from the others, as a sentence; "" if none does.

    For example "Shown in 1 of 6 cases for ε = 12.5, 5 of 6 for ε = 18." A case is named by its settings, between
    commas; the setting is the one for which the share of cases that show the claim differs most between its values.
    """
    if cases is None:
        return ""
    counted = cases[cases["status"] != str(Status.BESIDE)]
    shows = (counted["status"] == str(Status.HOLDS)).reset_index(drop=True)
    if len(shows) < _LEAST_CASES or shows.all() or not shows.any():
        return ""
    named = [_settings_of(case_name(case)) for case in counted["case"]]
    best, sentence = _LEAST_SPREAD, ""
    for name in named[0]:
        if not all(name in each for each in named):
            continue
        groups = shows.groupby([each[name] for each in named], sort=False)
        shares, sizes = groups.mean(), groups.size()
        if not 2 <= len(sizes) <= _MOST_VALUES or sizes.min() < _LEAST_GROUP or shares.max() - shares.min() < best:
            continue
        best = shares.max() - shares.min()
        of = f"{name} = " if isinstance(name, str) else ""
        ordered = sorted(groups, key=lambda each: _size(each[0]))
        counts = [
            f"{own.sum()} of {len(own)}{'' if number else ' cases'} for {of}{value}"
            for number, (value, own) in enumerate(ordered)
        ]
        sentence = f"{words.everywhere} in {', '.join(counts)}."
    return sentence


def _settings_of(case: str) -> dict[str | int, str]:
    """Return the settings in a case's name: "ε = 2" by "ε", words by their place."""
    parts = re.split(r", (?![^()]*\))", case)
    pairs = (part.partition(" = ") for part in parts)
    return {name if value else place: value or name for place, (name, _, value) in enumerate(pairs)}


def _size(value: str) -> float:
    """Return the first number in a value, by which values are put in order; 0 without one."""
    found = re.search(r"\d+(\.\d+)?", value)
    return float(found[0]) if found else 0.0


_OUTCOMES = {
    Status.HOLDS: "shown",
    Status.WITHIN_MARGIN: "within the margin",
    Status.FAILS: "contradicts",
    Status.OPEN: "undecided",
    Status.STAND_IN: "stand-in data",
    Status.BESIDE: "not counted",
}
"""Status of a case in words."""


def _cases(cases: pd.DataFrame, unit: str) -> TextTable:
    """Return the cases of a claim as a table; columns that say nothing in any case are left out."""
    columns = {
        "case": cases["case"].map(case_name),
        "outcome": cases["status"].map(_OUTCOMES),
        "estimate": cases["estimate"].map(_number),
        "interval": [_interval(row).strip(" ()") for row in cases.to_dict("records")],
        "the claim needs": [with_greek_symbols(claimed_words(row["within"], row)) for row in cases.to_dict("records")],
        "runs": cases["n"].map(lambda n: f"{n:.0f}" if n else ""),
        "p (Holm)": cases["adjusted_p"].map(lambda p: "" if p != p else f"{p:.2g}"),
        "published": cases["published"].map(lambda value: "" if value != value else _number(value)),
        "stand-in data": cases["stand_in"],
    }
    shown = {name: list(map(str, values)) for name, values in columns.items() if any(map(str, values))}
    estimate = with_greek_symbols(f"estimate, {claims.unit_name(unit)}" if unit else "estimate")
    titles = [estimate if name == "estimate" else name for name in shown]
    styles = [f"c-{status.replace(' ', '-')}" for status in cases["status"]]
    rows = [Row(cells, style=style) for cells, style in zip(zip(*shown.values(), strict=True), styles, strict=True)]
    return TextTable(tuple(titles), tuple(rows))


def _place(folder: Path, paper: str, place: str) -> Place | None:
    """Return the table or figure that a place names, as "figures/price"; None where today's paper has no such one."""
    part, _, name = place.partition("/")
    known = getattr(load(paper), part)
    if name not in known:  # verdicts of an earlier version
        return None
    path = page_path(folder, part, paper, name)
    is_there, has_card = path.is_file(), path.with_suffix(".privacy.md").is_file()
    return Place(part.removesuffix("s"), name, with_greek_symbols(known[name]["title"]), is_there, has_card)


def tally(known: Iterable[ClaimView]) -> list[tuple[VerdictStyle, int]]:
    """Return how many claims have each verdict, from "as stated" on, without those that none has; questions of ours are
    not counted."""
    words = [claim.verdict.word for claim in known if not claim.our_question]
    return [(style, words.count(style.word)) for style in STYLES.values() if style.word in words]
