"""Figures: the mean excess risk against noise."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.sixth2026.tables import risks
from dpfl.reporting.figures import FigureRecipe


def draw_risks(data: pd.DataFrame) -> Figure:
    """Draw the means with their intervals."""
    figure = Figure()
    axis = figure.subplots()
    axis.errorbar(data["noise_std"], data["excess_risk"], data["interval"])
    axis.set(xlabel="noise_std", ylabel="excess risk")
    return figure


FIGURES = {"risk": FigureRecipe(risks, draw_risks)}
