"""Claims as the page shows them: the verdict, the case that decides it, the other cases, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfl.catalog import load
from dpfl.reporting.report_page.parts import Grid, Part
from dpfl.reporting.report_page.traces import Trace, trace_of
from dpfl.reporting.results import read_csv


@dataclass(frozen=True)
class VerdictStyle:
    """A verdict: its word, the class that colours it, and the sign that tells it without colour."""

    word: str
    style: str
    sign: str


STYLES = (
    VerdictStyle("as stated", "stated", "✓"),
    VerdictStyle("weaker than stated", "weaker", "~"),
    VerdictStyle("refuted", "refuted", "✗"),
    VerdictStyle("undecided", "undecided", "?"),
    VerdictStyle("not run", "notrun", "–"),
)
_OLD = {"holds": 0, "holds in part": 1, "does not hold": 2, "not testable at this scale": 4, "not yet evaluated": 4}


@dataclass(frozen=True)
class ClaimView:
    """A claim on the page; `evidence` is what decides, `cases` all of it as a table, `shown_in` where it is shown."""

    key: str
    text: str
    settled_by: str
    verdict: VerdictStyle
    evidence: str
    cases: Grid | None
    shown_in: tuple[Part, ...]
    trace: Trace


def claim_views(folder: Path, paper: str, parts: Sequence[Part]) -> tuple[ClaimView, ...]:
    """Return the claims of a paper with their verdicts, in the order of paper.yaml; none before the claims stage."""
    csv = folder / "claims" / f"{paper}.csv"
    if not csv.is_file():
        return ()
    trace = trace_of(csv, folder.absolute().parents[1])
    rows = {row["claim"]: row for _, row in read_csv(csv).iterrows()}
    return tuple(
        ClaimView(
            key=key,
            text=claim["text"],
            settled_by=claim["settled_by"],
            verdict=STYLES[_OLD[rows[key]["outcome"]]],
            evidence=rows[key]["evidence"],
            cases=None,
            shown_in=tuple(part for part in parts if _names(part, claim)),
            trace=trace,
        )
        for key, claim in load(paper).claims.items()
        if key in rows
    )


def _names(part: Part, claim: dict[str, str]) -> bool:
    """Return whether a claim speaks of a table or figure."""
    number = re.match(r"(figure|table)_(\d+)$", part.name)
    text = f"{claim['text']} {claim['settled_by']}".lower()
    return bool(number and re.search(rf"{number[1]}s? {number[2]}\b|{number[1][:3]}\. {number[2]}\b", text))


def tally(claims: Iterable[ClaimView]) -> list[tuple[VerdictStyle, int]]:
    """Return how many claims have each verdict, from "as stated" on, without those that none has."""
    words = [claim.verdict.word for claim in claims]
    return [(style, words.count(style.word)) for style in STYLES if style.word in words]
