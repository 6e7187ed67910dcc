"""Claims stage: a verdict on each claim of a paper.

A claim is one entry of the paper's claims.yaml (its sentence, settings, rule and computed cases) and the function of
its key in the paper's claims.py, which makes its cases. docs/howto/new_paper.md has the form.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpfl.catalog import load, module
from dpfl.errors import InputError
from dpfl.files import write_atomically
from dpfl.grid import configuration, expansion
from dpfl.reporting.columns import COLUMNS
from dpfl.reporting.display_names import percent
from dpfl.reporting.results import NotRunError, Results, own_code, read_csv, write_table
from dpfl.reporting.rules import (
    ALPHA,
    LEVEL,
    OF_CLAIM,
    OF_QUESTION,
    Case,
    ClaimEvidence,
    ClaimKind,
    Judged,
    Judgement,
    Rule,
    Scope,
    Status,
    Verdict,
    judge,
    region,
    tolerated,
)
from dpfl.reporting.tables import TableLayout, html_page

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Verdicts from a part of the runs: what is decided already, and what the runs that are missing may still change.

SO_FAR = "So far"
"""Beginning of the reason of a claim that the runs so far would decide, and that more runs can still change."""
TEXTS = (
    "paper", "claim", "of", "text", "settings", "verdict", "reason", "case", "scope", "kind", "unit", "because",
    "settled_by", "places", "status", "within", "stand_in",
)  # fmt: skip
"""Columns of verdicts and evidence that are text, even if a case is called "1"."""
_FINAL = {(Scope.FOR_ALL, Verdict.REFUTED), (Scope.EXISTS, Verdict.AS_STATED)}
"""What one case decides: a counterexample to a claim for all, an example of what is claimed to exist."""


def as_far_as_run(
    judgement: Judgement, rule: Rule, paper: str, claim: Mapping[str, Any], results: Results
) -> Judgement:
    """Return a judgement as it is where all runs that decide the claim (its key `runs`) are there, else what is sure.

    A verdict that more runs cannot change stays; any other is undecided until they are there. The reason says how many
    jobs are missing. Results without a config.yaml have no grid to compare with.
    """
    needed = [job for job in _jobs(results.folder, paper) if decides(job, claim.get("runs"))]
    missing = sum(not expansion.run_table_path(results.folder, paper, job.name).is_file() for job in needed)
    if not missing:
        return judgement
    reason = f"Of the {len(needed)} jobs behind all cases, {missing} {'was' if missing == 1 else 'were'} not run."
    if missing == len(needed):
        reason = f"None of the {missing} jobs behind its cases was run." if missing > 1 else "Its job was not run."
    if judgement.verdict in (Verdict.NOT_RUN, Verdict.UNDECIDED) or (rule.scope, judgement.verdict) in _FINAL:
        return replace(judgement, reason=f"{judgement.reason} {reason}")
    return replace(
        judgement, verdict=Verdict.UNDECIDED, reason=f"{SO_FAR} {judgement.verdict}. {judgement.reason} {reason}"
    )


def decides(job: TrainingJob, runs: Mapping[str, list[Any]] | None) -> bool:
    """Return whether a job is among the `runs` of a claim: one of its cells has one of the values listed, of each.

    A name is that of a setting of the job or of its cells; one that there is not is "none". No job decides a claim
    without the key.
    """
    known = {**job.settings, "experiment": job.experiment}
    return runs is not None and any(
        all(_or_none({**known, **cell}.get(name)) in values for name, values in runs.items()) for cell in job.cells
    )


def _or_none(value: object) -> object:
    """Return the value of a setting; "none" if there is none."""
    return "none" if value is None else value


def require_jobs(paper: str, claims: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError where a value of the `runs` of a claim is that of no job at any scale: a slip of the pen.

    It would pass for a claim that fewer runs decide, or none, and that needs no more to be there.
    """
    if not any("runs" in claim for claim in claims.values()):
        return
    scales = configuration.schema()["properties"]["scale"]["enum"]
    grids = [configuration.resolve({"scale": scale, "papers": [paper]}) for scale in scales]
    jobs = [job for grid in grids for job in expansion.expand(grid)]
    for name, claim in claims.items():
        named = [(key, value) for key, values in claim.get("runs", {}).items() for value in values or [None]]
        for key, value in named:
            if not any(decides(job, {**claim["runs"], key: [value]}) for job in jobs):
                raise InputError(
                    f"{paper}/claims.yaml: {name}: runs names {key} {value!r}, which no job of any scale has"
                )


def _jobs(folder: Path, paper: str) -> list[TrainingJob]:
    """Return the jobs of a paper in the configuration of results/<scale>; none if there is no configuration."""
    path = folder / "config.yaml"
    return list(_expanded(path, path.stat().st_mtime_ns, paper)) if path.is_file() else []


@lru_cache(maxsize=8)
def _expanded(path: Path, _time: int, paper: str) -> tuple[TrainingJob, ...]:
    """Return the jobs of a paper in a configuration, expanded once."""
    return tuple(job for job in expansion.expand(configuration.read(path)) if job.paper == paper)


Check = Callable[[Results], ClaimEvidence]
"""Gives the evidence for a claim from the data of the finished tables and figures."""

NUMBERS = ("n", "estimate", "low", "high", "target", "p_value", "adjusted_p", "published")
"""Columns of a case in both files: runs behind it, its number with its interval at LEVEL, what the claim compares it
with, its p-values, and the same number as the paper prints it."""


def rule_of(claim: Mapping[str, Any]) -> Rule:
    """Return the rule that an entry of claims.yaml declares."""
    margin, unit = float(claim.get("margin", 0.0)), claim.get("unit", "")
    words = OF_QUESTION if claim.get("our_question") else OF_CLAIM
    return Rule(Scope(claim["scope"]), ClaimKind(claim["kind"]), margin, unit, words)


def evaluate(paper: str, results: Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the verdicts on a paper's claims, and the evidence for them: a row for each claim, and for each case.

    Verdicts: paper, claim, of (the claim that it is a part of, or itself), text (the sentence with its source),
    settings (where the paper says it, and what was run instead), our_question (by us), verdict, reason (a sentence),
    cases, the fields of `Counts`, case (the deciding one) with NUMBERS, scope, kind, margin, unit, alpha, level,
    because, settled_by, places (what its function read, as "tables/errata figures/price").
    Evidence: paper, claim, case, status, NUMBERS, within (the range that the claim allows, in words), stand_in; the
    deciding case first.

    A verdict that runs decide of which a part is still to come is undecided, unless they cannot change it
    (`as_far_as_run`). A claim that is `pending` is not run, with that reason. Raises InputError where
    `require_usable` does, and for a function that returns something else than evidence.
    """
    require_usable(paper)
    verdicts, evidence = [], []
    for key, claim in load(paper).claims.items():
        reader = _Reader(results, paper)
        judgement = _judgement(paper, key, claim, reader)
        judgement = as_far_as_run(judgement, rule_of(claim), paper, claim, results)
        verdicts.append(_verdict_row(paper, key, claim, judgement) | {"places": " ".join(reader.places)})
        rows = [_case_row(each, rule_of(claim)) for each in judgement.cases]
        evidence += [{"paper": paper, "claim": key, **row} for row in rows]
    columns = ["paper", "claim", "case", "status", *NUMBERS, "within", "stand_in"]
    # A paper without claims has tables without rows.
    heads = None if verdicts else [*COLUMNS["claims"]]
    return pd.DataFrame(verdicts, columns=heads), pd.DataFrame(evidence, columns=columns)


class _Reader(Results):
    """Results that note in `places` which tables and figures of a paper were read."""

    def __init__(self, results: Results, paper: str) -> None:
        super().__init__(results.folder, results.run_tables)
        object.__setattr__(self, "places", [])
        object.__setattr__(self, "_paper", paper)

    def table(self, paper: str, name: str) -> pd.DataFrame:
        self._note(paper, f"tables/{name}")
        return super().table(paper, name)

    def figure(self, paper: str, name: str) -> pd.DataFrame:
        self._note(paper, f"figures/{name}")
        return super().figure(paper, name)

    def _note(self, paper: str, place: str) -> None:
        if paper == self._paper and place not in self.places:
            self.places.append(place)


def check_of(paper: str, key: str) -> Check | None:
    """Return the function that gives the evidence for a claim; None where the claim is pending.

    It is the function of the claim's key in the paper's claims.py. Where the claim has `cases`, that function is called
    for each of them (`each_of`) and returns its Case; else it is called with the results and returns ClaimEvidence.
    Raises InputError where claims.py has no such function, or one that does not take a case's arguments.
    """
    claim = load(paper).claims[key]
    function, place = getattr(module(paper, "claims"), key, None), f"{paper}/claims.py: {key}"
    if "pending" in claim:
        if function is not None:
            raise InputError(f"{place} has cases, but claims.yaml says that the claim is pending")
        return None
    if not callable(function):
        raise InputError(f"{paper}/claims.yaml: {key} needs a function of this name in claims.py, or a key pending")
    if "cases" not in claim:
        try:
            signature(function).bind(None)
        except TypeError as slip:
            raise InputError(f"{place} takes the results: {slip}") from None
        return function
    sets = [arguments for each in claim["cases"] for arguments in each_of(each)]
    for arguments in sets:
        try:
            signature(function).bind(**arguments)
        except TypeError as slip:
            raise InputError(f"{paper}/claims.yaml: {key}: cases: its function in claims.py: {slip}") from None
    return lambda results: ClaimEvidence([_case(place, function(**arguments)) for arguments in sets])


def each_of(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values of a mapping; a value that is not a list is the same in all of them."""
    lists = [value if isinstance(value, list) else [value] for value in arguments.values()]
    for values in itertools.product(*lists):
        yield dict(zip(arguments, values, strict=True))


def _case(place: str, case: object) -> Case:
    """Return the case that the function at `place` made."""
    if not isinstance(case, Case):
        raise InputError(f"{place} returned a {type(case).__name__}; with cases in claims.yaml it must return a Case")
    return case


def _judgement(paper: str, key: str, claim: Mapping[str, Any], results: Results) -> Judgement:
    """Return the judgement on one claim."""
    check = check_of(paper, key)
    if check is None:
        return Judgement(Verdict.NOT_RUN, claim["pending"])
    try:
        with own_code(paper, f"claim {key}"):
            evidence = check(results)
        if not isinstance(evidence, ClaimEvidence):
            raise InputError(
                f"{paper}/claims.py: {key} returned a {type(evidence).__name__}; it must return a ClaimEvidence"
            )
        return judge(evidence, rule_of(claim))
    except NotRunError as reason:
        return Judgement(Verdict.NOT_RUN, f"{str(reason)[:1].upper()}{str(reason)[1:]}.")


def _verdict_row(paper: str, key: str, claim: Mapping[str, Any], judgement: Judgement) -> dict[str, Any]:
    rule = rule_of(claim)
    decided = [each for each in judgement.cases if each.status is not Status.BESIDE]
    numbers = _case_row(decided[0], rule) if decided else dict.fromkeys(NUMBERS, math.nan) | {"case": "", "n": 0}
    return {
        "paper": paper,
        "claim": key,
        "of": claim.get("of", key),
        "text": said(claim),
        "settings": claim["settings"],
        "our_question": bool(claim.get("our_question", False)),
        "verdict": str(judgement.verdict),
        "reason": judgement.reason,
        "cases": judgement.counts.judged,
        **asdict(judgement.counts),
        "case": numbers["case"],
        **{name: numbers[name] for name in NUMBERS},
        "scope": str(rule.scope),
        "kind": str(rule.kind),
        "margin": rule.margin,
        "unit": claim.get("unit", ""),
        "alpha": ALPHA,
        "level": LEVEL,
        "because": claim["because"],
        "settled_by": claim["settled_by"],
    }


def said(claim: Mapping[str, Any]) -> str:
    """Return the sentence of a claim with its source; a question of ours begins with "Our question"."""
    asked = "Our question: " if claim.get("our_question") else ""
    return f"{asked}{claim['sentence']} ({claim['source']})"


ANSWERS = {Verdict.AS_STATED: "yes", Verdict.WEAKER: "in part", Verdict.REFUTED: "no"}
"""Verdicts on a question of ours in words, where they differ from those on a claim."""


def answer(verdict: Verdict, our_question: bool) -> str:
    """Return a verdict in words: on a claim of the paper, or on a question of ours."""
    return ANSWERS.get(verdict, str(verdict)) if our_question else str(verdict)


def _case_row(judged: Judged, rule: Rule) -> dict[str, Any]:
    """Return the row of a case; `within` is the range in which the claim says that the number is, as text.

    Where a difference has a margin, it is named too; where the case fails, so is the range that its p-values test,
    which is wider by it (narrower, for a claim that something exists).
    """
    case, within = judged.case, ""
    low, high = case.interval()
    if judged.status is not Status.BESIDE:
        strict = (case.kind or rule.kind) is ClaimKind.DIFFERENCE
        within = range_text(*region(case, rule), strict=strict)
        if tolerated(case, rule) != region(case, rule):
            fails = judged.status is Status.FAILS
            margin = rule.margin if case.margin is None else case.margin
            within += f", tested: {range_text(*tolerated(case, rule))}" if fails else f", margin {margin:g}"
    return {
        "case": case.case,
        "status": str(judged.status),
        "n": case.n,
        "estimate": float(case.estimate),
        "low": low,
        "high": high,
        "target": float(case.target),
        "p_value": judged.p_value,
        "adjusted_p": judged.adjusted_p,
        "published": float(case.published),
        "within": within,
        "stand_in": case.stand_in,
    }


def range_text(low: float, high: float, *, strict: bool = False) -> str:
    """Return a range as text: "at least 0", "above 0" where it is strict, "at most 1.2", "0.9 to 1.1", and "0.5" where
    both ends read alike."""
    first, last = f"{low:.4g}", f"{high:.4g}"
    if math.isinf(high):
        return f"{'above' if strict else 'at least'} {first if abs(low) > sys.float_info.min else 0}"
    if math.isinf(low):
        return f"at most {last}"
    return first if first == last else f"{first} to {last}"


def require_usable(paper: str) -> None:
    """Raise InputError unless every claim has a rule that can say no, and a function in claims.py or a key pending.

    Every function of claims.py that makes cases needs its claim; `of` names a claim, `runs` those of some job.
    """
    claims = load(paper).claims
    for key, claim in claims.items():
        where = f"{paper}/claims.yaml: {key}"
        _require_rule(where, claim)
        if claim.get("of", key) not in claims:
            raise InputError(f"{where}: of is {claim['of']!r}, which is not a claim of the paper")
        check_of(paper, key)
    for name in _makers(paper):
        if name not in claims:
            raise InputError(f"{paper}/claims.py: {name} makes cases, but claims.yaml has no claim of this name")
    require_jobs(paper, claims)


def _makers(paper: str) -> list[str]:
    """Return the names of the public functions of claims.py that say that they make cases."""
    code = module(paper, "claims")
    own = {name: value for name, value in vars(code).items() if getattr(value, "__module__", "") == code.__name__}
    makers = ("Case", "ClaimEvidence")
    return [
        name
        for name, value in own.items()
        if not name.startswith("_") and str(getattr(value, "__annotations__", {}).get("return")) in makers
    ]


def _require_rule(where: str, claim: Mapping[str, Any]) -> None:
    """Raise InputError unless the margin of a claim is a number that its kind can use, in a unit."""
    rule = rule_of(claim)
    if not 0 <= rule.margin < math.inf:  # .nan and .inf are numbers to the schema
        raise InputError(f"{where}: margin is {claim['margin']!r}, not a number of 0 or more")
    if not rule.margin and rule.kind in (ClaimKind.EQUIVALENCE, ClaimKind.RATE):
        raise InputError(f"{where}: kind {rule.kind} needs a margin above 0: no run shows that two numbers are equal")
    if rule.margin and not claim.get("unit"):
        raise InputError(f"{where}: margin is {claim['margin']!r} of what? The claim needs a unit")
    if rule.scope is Scope.EXISTS and rule.kind is not ClaimKind.DIFFERENCE:
        raise InputError(f"{where}: scope {rule.scope} needs kind {ClaimKind.DIFFERENCE}, not {rule.kind}")


def files(paper: str, folder: Path) -> tuple[Path, Path]:
    """Return the paths of a paper's verdicts and of the evidence for them, in the folder claims/ of a scale."""
    return folder / f"{paper}.csv", folder / f"{paper}_evidence.csv"


def write(paper: str, evaluated: tuple[pd.DataFrame, pd.DataFrame], folder: Path) -> list[Path]:
    """Write <folder>/<paper>.csv, <paper>_evidence.csv and <paper>.html; return the paths in this order."""
    paths = files(paper, folder)
    for path, data in zip(paths, evaluated, strict=True):
        write_table(data, path)
    return [*paths, write_page(paper, paths[0])]


def write_page(paper: str, csv: Path) -> Path:
    """Write the page that shows a paper's verdicts, as HTML, from their CSV; return its path."""
    verdicts = read_csv(csv, TEXTS)
    body = pd.DataFrame(
        {
            "Claim": verdicts["claim"] + ". " + verdicts["text"],
            "Verdict": [answer(Verdict(row["verdict"]), row["our_question"]) for row in verdicts.to_dict("records")],
            "Reason": verdicts["reason"],
            "Deciding case": [_case_text(row) for row in verdicts.to_dict("records")],
            "Rule": verdicts["scope"] + ", " + verdicts["kind"] + ". " + verdicts["because"],
        }
    )
    page = csv.with_suffix(".html")
    notes = [
        f"Intervals: {percent(LEVEL)}. Tests: at {percent(ALPHA)}, adjusted by Holm for the cases of a claim, not for "
        "several claims. Rules: reporting/rules.py."
    ]
    write_atomically(page, html_page(TableLayout(body, notes), f"{paper}: claims and verdicts"))
    return page


def _case_text(row: Mapping[str, Any]) -> str:
    """Return the deciding case of a verdict as a reader sees it."""
    if not row["case"]:
        return ""
    interval = "" if row["low"] == row["high"] else f" ({row['low']:.4g} to {row['high']:.4g})"
    runs = f", n = {row['n']:g}" if row["n"] else ""
    number = f"{row['estimate']:.4g}"
    return f"{row['case']}: {in_unit(number, row['unit'])}{interval}{runs}"


_EQUALS = " ="
"""End of a unit that names a quantity, as "delta ="."""


def in_unit(number: str, unit: str) -> str:
    """Return a number with its unit: "1.2 points", "delta = 0.5" for the unit "delta =", the number if unit is ""."""
    return f"{unit} {number}" if names_quantity(unit) else f"{number} {unit}".rstrip()


def names_quantity(unit: str) -> bool:
    """Return whether a unit names a quantity and stands before its number."""
    return unit.endswith(_EQUALS)


def unit_name(unit: str) -> str:
    """Return a unit as the heading of a column: "delta" for the unit "delta ="."""
    return unit.removesuffix(_EQUALS)
