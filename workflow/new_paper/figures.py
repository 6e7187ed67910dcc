"""Figures: the mean excess risk against noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from dpfl.papers.sixth2026.tables import risks
from dpfl.reporting.figures import FigureRecipe

if TYPE_CHECKING:
    import pandas as pd


def draw_risks(data: pd.DataFrame) -> Figure:
    """Draw the means with their intervals."""
    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.errorbar(data["noise_std"], data["excess_risk"], data["interval"])
    axis.set(xlabel="noise_std", ylabel="excess risk")
    return figure


def message(data: pd.DataFrame) -> str:
    """Say what the picture shows, from its numbers: new runs change it. If all runs diverged, it shows nothing."""
    if data["excess_risk"].isna().all():
        return ""
    best = data.loc[data["excess_risk"].idxmin()]
    return f"The excess risk is least, {best['excess_risk']:.2g}, at noise {best['noise_std']:g}"


FIGURES = {"risk": FigureRecipe(risks, draw_risks, message)}
