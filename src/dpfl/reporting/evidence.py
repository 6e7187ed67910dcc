"""Evidence for claims: comparisons of a value computed by two routes, and means of runs with their intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from dpfl.reporting.cases import Case, ClaimKind, from_interval
from dpfl.reporting.claims import Check
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence
from dpfl.reporting.statistics import LEVEL
from dpfl.reporting.tables import TableLayout


class Relation(StrEnum):
    """Relation that the independent value should have to ours."""

    EQUALS = "equals"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Comparison:
    """One case of a claim: `independent` was computed by another route than `ours`, and `tolerance` is absolute."""

    claim: str
    case: str
    relation: Relation
    ours: float
    independent: float
    tolerance: float


def table(rows: list[Comparison]) -> pd.DataFrame:
    """Return one row per entry, those that fail first, one column per field, every number with all its digits."""
    data = pd.DataFrame([{name: as_plain(value) for name, value in asdict(row).items()} for row in rows])
    holds = passed(data)
    return pd.concat([data[~holds], data[holds]], ignore_index=True)


def as_plain(value: object) -> object:
    """Return text as plain text and a number of any kind as a float or an int."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, int) else float(value)


def checks_of(results: Results, paper: str, claim: str) -> pd.DataFrame:
    """Return the rows of a paper's table of checks that belong to a claim."""
    checks = results.table(paper, "checks")
    return checks[checks["claim"] == claim]


def errors(checks: pd.DataFrame) -> pd.Series:
    """Return the error of each check: the distance, or for a bound the amount by which it is exceeded."""
    excess = checks["independent"] - checks["ours"]
    return excess.abs().where(checks["relation"] == Relation.EQUALS, excess.clip(lower=0))


def passed(checks: pd.DataFrame) -> pd.Series:
    """Return which checks hold, from their two values; a missing number fails."""
    return errors(checks) <= checks["tolerance"]


def checks_page(data: pd.DataFrame) -> TableLayout:
    """Lay out checks for a reader, with how many fail of each claim."""
    holds = passed(data)
    body = pd.DataFrame(
        {
            "Claim": data["claim"].str.replace("_", " "),
            "Case": data["case"],
            "Ours": data["ours"].map("{:.6g}".format),
            "Independent": data["independent"].map("{:.6g}".format),
            "Wanted": data["relation"].map({"equals": "equal", "at most": "independent at most ours"}),
            "Off by": errors(data).map("{:.1e}".format),
            "Holds": holds.map({True: "yes", False: "no"}),
        }
    )
    failing = body.loc[~holds, "Claim"].value_counts(sort=False)
    named = ", ".join(f"{claim} {count}" for claim, count in failing.items())
    summary = f"{holds.sum()} of {len(data)} cases hold within their tolerance (in the CSV file)"
    return TableLayout(body, [f"{summary}; first those that fail: {named}." if named else f"{summary}."])


def cases_of(checks: pd.DataFrame) -> list[Case]:
    """Return the cases of checks: the independent number, held against ours within the tolerance."""
    kinds = {Relation.EQUALS: ClaimKind.FORMULA, Relation.AT_MOST: ClaimKind.BOUND}
    return [
        Case(row.case, row.independent, target=row.ours, margin=row.tolerance, kind=kinds[Relation(row.relation)])
        for row in checks.itertuples(index=False)
    ]


def checked(paper: str, claim: str, case: str = "", *, but: bool = False) -> Check:
    """Return the check of a claim that the rows of the table of checks decide whose case has this text (or has not)."""

    def check(results: Results) -> ClaimEvidence:
        rows = checks_of(results, paper, claim)
        return ClaimEvidence(cases_of(rows[rows["case"].str.contains(case, regex=False) != but]))

    return check


def interval_cases(
    rows: pd.DataFrame,
    named: str,
    estimate: pd.Series,
    half_width: pd.Series,
    *,
    runs: str = "runs",
    level: float = LEVEL,
    target: pd.Series | float = 0.0,
) -> list[Case]:
    """Return the case of every row: the mean of as many runs as its column `runs` says, with its interval at `level`.

    `named` is the format of a case's name, from the row's columns. A row with a `stand_in_for` is of stand-in data.
    """
    numbers = zip(estimate, half_width, np.broadcast_to(target, len(rows)), strict=True)
    return [
        from_interval(
            named.format(**row), row[runs], value, half, level=level, target=wanted,
            stand_in=row["dataset"] if row.get("stand_in_for") else "",
        )
        for row, (value, half, wanted) in zip(rows.to_dict("records"), numbers, strict=True)
    ]  # fmt: skip
