"""Cases for the claims: one function for each claim that is not pending, from the data of the table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from dpfl.reporting.rules import ClaimEvidence, difference, from_interval
from dpfl.reporting.statistics import LEVEL

if TYPE_CHECKING:
    from dpfl.reporting.results import Results


def noise_costs(results: Results) -> ClaimEvidence:
    """Every step up in noise gives a larger mean excess risk."""
    rows = results.table("sixth2026", "risk").sort_values("noise_std")
    stand_in = " ".join(sorted(set(rows.loc[rows["stand_in_for"] != "", "dataset"])))
    means = [
        from_interval(f"{row.noise_std:g}", row.runs, row.excess_risk, row.interval, level=LEVEL)
        for row in rows.itertuples(index=False)
    ]
    return ClaimEvidence(
        [
            difference(f"noise {more.case} against {less.case}", more, less, stand_in=stand_in)
            for less, more in itertools.pairwise(means)
        ]
    )
