"""Evidence for the claims, from the data of the table."""

from __future__ import annotations

import math

from dpfl.reporting.cases import Case
from dpfl.reporting.claims import Check
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence


def noise_costs(results: Results) -> ClaimEvidence:
    """Every step up in noise gives a larger mean excess risk."""
    rows = results.table("sixth2026", "risk").sort_values("noise_std")
    stand_in = " ".join(sorted(set(rows.loc[rows["stand_in_for"] != "", "dataset"])))
    pairs = zip(rows.itertuples(), rows.iloc[1:].itertuples(), strict=False)
    return ClaimEvidence(
        [
            Case(
                f"noise {more.noise_std:g} against {less.noise_std:g}",
                more.excess_risk - less.excess_risk,
                error=math.nan,
                n=more.runs,
                stand_in=stand_in,
            )
            for less, more in pairs
        ]
    )


CLAIMS: dict[str, Check] = {"noise_costs": noise_costs}
