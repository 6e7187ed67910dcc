"""Verdicts on the claims, from the data of the table."""

from __future__ import annotations

from dpfl.reporting.claims import Check, Verdict, counted, on_stand_in
from dpfl.reporting.notes import stand_ins
from dpfl.reporting.results import Results


def noise_costs(results: Results) -> Verdict:
    """Every step up in noise gives a larger mean excess risk."""
    rows = results.table("sixth2026", "risk").sort_values("noise_std")
    steps = rows["excess_risk"].diff().dropna()
    verdict = counted(int((steps > 0).sum()), len(steps), f"mean excess risks {rows['excess_risk'].round(4).tolist()}.")
    return on_stand_in(stand_ins(rows), verdict)


CLAIMS: dict[str, Check] = {"noise_costs": noise_costs}
