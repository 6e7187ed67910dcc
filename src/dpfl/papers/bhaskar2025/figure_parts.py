"""Parts that the paper's figures share: the number of runs as text, and logarithmic heights."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, StrMethodFormatter

from dpfl.reporting.notes import count_range, data_name

BARS = "Bars: 95 % interval where there are two runs or more."


def runs_text(cells: pd.DataFrame) -> str:
    """Return how many runs each of the cells that ran has, as "1 run" or "2 to 10 runs"."""
    runs = cells.loc[cells["runs"] > 0, "runs"]
    return f"{count_range(runs)} run{'s' if runs.max() > 1 else ''}"


def data_lines(dataset: str) -> str:
    """Return the name of a dataset for the side of a panel: what it stands in for on a line of its own."""
    return data_name(dataset).replace(" (", "\n(")


def heights(axis: Axes) -> None:
    """Scale the vertical axis logarithmically, with plain numbers at 1, 2 and 5 of each decade."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.minorticks_off()
