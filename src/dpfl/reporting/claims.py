"""Claims stage: a verdict on each claim of a paper, computed from this scale's tables and figures' data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from dpfl.catalog import load, module
from dpfl.errors import InputError
from dpfl.files import replacing, write_atomically
from dpfl.reporting.results import NotRunError, Results, read_csv, write_csv
from dpfl.reporting.tables import TableLayout, html_page


class Outcome(StrEnum):
    """Outcome of a claim, by its evidence."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    NOT_TESTABLE = "not testable at this scale"
    PENDING = "not yet evaluated"


@dataclass(frozen=True)
class Verdict:
    """An outcome and the evidence for it: one or two sentences with the numbers that decide."""

    outcome: Outcome
    evidence: str


Check = Callable[[Results], Verdict]


def counted(holds: int, of: int, evidence: str) -> Verdict:
    """Return the verdict on a claim that was tried in `of` cases and holds in `holds` of them."""
    if of == 0:
        return Verdict(Outcome.NOT_TESTABLE, f"No case was run. {evidence}".strip())
    outcome = Outcome.HOLDS if holds == of else Outcome.IN_PART if holds else Outcome.FAILS
    return Verdict(outcome, f"{holds} of {of}: {evidence}")


def on_stand_in(names: Iterable[str], verdict: Verdict) -> Verdict:
    """Return `verdict`, or, where stand-in data with these names took part, what it would be there: not testable."""
    known = ", ".join(sorted(set(names)))
    if not known or verdict.outcome is Outcome.NOT_TESTABLE:
        return verdict
    evidence = f"On stand-in data only ({known}), where the outcome would be '{verdict.outcome}': {verdict.evidence}"
    return Verdict(Outcome.NOT_TESTABLE, evidence)


def evaluate(paper: str, results: Results) -> pd.DataFrame:
    """Return one row a claim of the paper: paper, claim, text, settled_by, outcome, evidence.

    A claim without a check in the paper's claims.py is "not yet evaluated", with the reason in paper.yaml. Raises
    InputError for a claim with neither, and for a check without a claim.
    """
    checks: dict[str, Check] = module(paper, "claims").CLAIMS
    _require_matching(paper, checks)
    rows = []
    for key, claim in load(paper).claims.items():
        try:
            verdict = checks[key](results) if key in checks else Verdict(Outcome.PENDING, claim["pending"])
        except NotRunError as reason:
            verdict = Verdict(Outcome.NOT_TESTABLE, f"{str(reason)[:1].upper()}{str(reason)[1:]}.")
        rows.append(
            {
                "paper": paper,
                "claim": key,
                "text": claim["text"],
                "settled_by": claim["settled_by"],
                "outcome": str(verdict.outcome),
                "evidence": verdict.evidence,
            }
        )
    return pd.DataFrame(rows)


def _require_matching(paper: str, checks: Mapping[str, Check]) -> None:
    """Raise InputError unless every check has its claim, and every claim a check or a reason why it is pending."""
    claims = load(paper).claims
    if astray := [name for name in checks if name not in claims]:
        raise InputError(f"{paper}/claims.py checks {astray[0]}, which paper.yaml does not claim")
    if bare := [name for name, claim in claims.items() if name not in checks and "pending" not in claim]:
        raise InputError(f"{paper}/paper.yaml: claims.{bare[0]} needs a check in CLAIMS of claims.py, or a key pending")


def write(paper: str, verdicts: pd.DataFrame, folder: Path) -> list[Path]:
    """Write <folder>/<paper>.csv and .html; return the paths, the CSV first."""
    csv = folder / f"{paper}.csv"
    with replacing(csv) as temporary:
        write_csv(verdicts, temporary)
    return [csv, write_page(paper, csv)]


def write_page(paper: str, csv: Path) -> Path:
    """Write the page that shows a paper's verdicts, as HTML, from their CSV; return its path."""
    verdicts = read_csv(csv)
    body = pd.DataFrame(
        {
            "claim": verdicts["claim"] + ". " + verdicts["text"],
            "outcome": verdicts["outcome"],
            "evidence": verdicts["evidence"] + " (Settled by: " + verdicts["settled_by"].str.rstrip(".") + ".)",
        }
    )
    page = csv.with_suffix(".html")
    write_atomically(page, html_page(TableLayout(body), f"{paper}: what it claims, and what the evidence says"))
    return page
