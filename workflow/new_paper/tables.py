"""Tables: the mean excess risk for each noise level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dpfl.reporting.display_names import stand_ins
from dpfl.reporting.statistics import summarised
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from dpfl.reporting.results import Results

KEY = "sixth2026"


def risks(results: Results) -> pd.DataFrame:
    """Return one row for each noise level: runs, mean excess risk, half-width of its 90 % interval, origins."""
    runs = results.runs(KEY, study="risk")
    if runs.empty:
        return pd.DataFrame()  # the page says that nothing was run
    return summarised(runs, ["dataset", "stand_in_for", "noise_std"], "excess_risk")


def risk_page(data: pd.DataFrame) -> TableLayout:
    """Return the means as a page for readers."""
    body = pd.DataFrame(
        {
            "noise_std": data["noise_std"].map("{:g}".format),
            "risk": data["excess_risk"].map("{:.4f}".format),
            "±": data["interval"].map("{:.4f}".format),
            "runs": data["runs"].map(str),
        }
    )
    return TableLayout(body, [f"Stand-in data: {name}." for name in stand_ins(data)])


TABLES = {"risk": TableRecipe(risks, risk_page)}
