"""What the paper's figures share: the number of runs in words, the ends of axes, a figure without data."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from dpfl.reporting import style

LETTERS_AN_INCH = 17  # of a footer
BARS = "Bars: 95 % interval where there are two runs or more."


def runs_words(cells: pd.DataFrame) -> str:
    """Return how many runs each of the cells that ran has, as "1 run" or "2 to 10 runs"."""
    runs = cells.loc[cells["runs"] > 0, "runs"]
    least, most = runs.min(), runs.max()
    return f"{least} run{'s' if least > 1 else ''}" if least == most else f"{least} to {most} runs"


def ticks(axis: Axes, values: pd.Series) -> None:
    """Scale the horizontal axis logarithmically, with a tick at each of the values and nowhere else."""
    axis.set_xscale("log")
    places = sorted(set(values))
    axis.set_xticks(places, labels=[f"{place:g}" for place in places])
    axis.minorticks_off()


def heights(axis: Axes) -> None:
    """Scale the vertical axis logarithmically, with plain numbers at 1, 2 and 5 of each decade."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.minorticks_off()


def footer(figure: Figure, text: str) -> None:
    """Write the footer in as many lines as the figure's width asks for."""
    style.footer(figure, textwrap.fill(text, int(LETTERS_AN_INCH * figure.get_figwidth())))


def without_data(text: str) -> Figure:
    """Return a figure that says why it is empty."""
    figure, axes = style.panels(width=6, height=1.2)
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center")
    return figure
