"""Figure of the bound on the last iterate that is smallest, over settings of the paper's pass."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from dpfl.papers.asoodeh2020.bound_map import BOUNDS, bound_map
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results

LOOKS = {
    "composition": ("no gain:\ncomposition", "#BBBBBB"),
    "theorem_4": ("Theorem 4", style.SKY),
    "proposition_1": ("Proposition 1", style.PURPLE),
    "shifted_interpolation": ("shifted\ninterpolation", style.YELLOW),
}
"""Label and colour of each bound; the regions differ in lightness, too."""
_LEAST_TILES = 8  # of a region that is labelled


def bounds(results: Results) -> pd.DataFrame:
    """Return `bound_map`: a row for each of 1,000 settings."""
    return bound_map()


def draw_bounds(data: pd.DataFrame) -> Figure:
    """Draw a panel of tiles over noise and diameter for each number of later steps and strong convexity."""
    convexities, later = sorted(data["strong_convexity"].unique()), sorted(data["later_steps"].unique())
    figure, axes = style.panels(
        len(later), len(convexities), width=11, height=2.5, sharex=True, sharey=True, squeeze=False
    )
    for row, convexity in zip(axes, convexities, strict=True):
        for axis, steps in zip(row, later, strict=True):
            rows = data[(data["strong_convexity"] == convexity) & (data["later_steps"] == steps)]
            _tiles(axis, rows)
            axis.set_title(f"{steps} later step{'s' if steps != 1 else ''}, rho = {convexity:g}", fontsize=9)
        row[0].set_ylabel("diameter (units of L)")
    for axis in axes[-1]:
        axis.set_xlabel("noise sigma (units of L)")
    style.footer(figure, f"{len(data):,} settings, one tile each; delta = 1e-5, eta = 0.5, beta = 1, L = 1.")
    return figure


def _tiles(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw one panel and write each region's name into it."""
    table = rows.pivot(index="diameter", columns="sigma", values="smallest")
    kinds = table.map(BOUNDS.index).to_numpy()
    colours = ListedColormap([LOOKS[name][1] for name in BOUNDS])
    axis.pcolormesh(
        table.columns, table.index, kinds, cmap=colours, vmin=-0.5, vmax=len(BOUNDS) - 0.5, shading="nearest",
        edgecolors="white", linewidth=0.4, rasterized=True,
    )  # fmt: skip
    axis.set(xscale="log", yscale="log")
    axis.set_xticks([1, 10], ["1", "10"])
    axis.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    axis.grid(visible=False)
    for number, name in enumerate(BOUNDS):
        cells = np.argwhere(kinds == number)
        if len(cells) >= _LEAST_TILES:
            height, width = _inside(cells)
            where = (table.columns[width], table.index[height])
            axis.annotate(LOOKS[name][0], where, ha="center", va="center", fontsize=7.5)


def _inside(cells: np.ndarray) -> np.ndarray:
    """Return the place that is nearest to the mean of its region."""
    return cells[np.argmin(np.sum((cells - cells.mean(axis=0)) ** 2, axis=1))]


HIDDEN_STATE_FIGURES = {"hidden_state_map": FigureRecipe(bounds, draw_bounds)}
