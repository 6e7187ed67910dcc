"""The figure of the candidates: what each open setting changes, cell by cell, and what is missing to the print."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from dpfl.papers.bhaskar2025.figure_parts import footer, runs_text
from dpfl.papers.bhaskar2025.identification import CHOSEN
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES
from dpfl.reporting import style
from dpfl.reporting.results import NotRunError

PUBLISHED = "published"
LARGEST_PCT, LINEAR_PCT = 50.0, 0.5  # of the colour scale: its ends, and where it is linear
DARK_PCT = 3.5  # beyond which numbers are written in white
_COLUMN = ["epsilon", "local_epochs"]


def draw_candidates(cells: pd.DataFrame) -> Figure:
    """Draw one panel per dataset and model that has more than the chosen settings; rows candidates, columns cells."""
    panels = [(key, group) for key, group in cells.groupby(["ran_on", "model"]) if group["candidate"].nunique() > 1]
    if not panels:
        raise NotRunError("no candidate other than the chosen settings was run at this scale")
    grids = [(key, _grid(group)) for key, group in panels]
    rows = [len(grid) for _, grid in grids]
    figure, axes = style.panels(
        1, len(grids), width=10, height=0.8 + 0.27 * max(rows), squeeze=False, height_ratios=rows
    )
    for axis, ((ran_on, model), grid) in zip(axes[:, 0], grids, strict=True):
        image = _panel(axis, grid)
        axis.set_title(f"{ran_on}, {MODEL_NAMES[model]}", loc="left")
    bar = figure.colorbar(
        image, ax=axes, shrink=0.8, pad=0.01, extend="both", ticks=[-50, -10, -1, 0, 1, 10, 50], format="%g"
    )
    bar.set_label("accuracy minus that of the chosen settings (points)", fontsize=8)
    footer(figure, _footer(cells))
    return figure


def _grid(cells: pd.DataFrame) -> pd.DataFrame:
    """Return differences to the chosen settings, one row per candidate (the print first), one column per cell."""
    chosen = cells[cells["candidate"] == CHOSEN]
    others = cells[cells["candidate"] != CHOSEN]
    wide = others.pivot(index="candidate", columns=_COLUMN, values="effect_pct")
    if chosen["residual_pct"].notna().any():
        print_less_ours = -chosen.set_index(_COLUMN)["residual_pct"]
        wide = pd.concat([print_less_ours.to_frame(PUBLISHED).T, wide])
        wide.columns = pd.MultiIndex.from_tuples(wide.columns, names=_COLUMN)
    return wide[sorted(wide.columns, key=lambda column: (-column[0], column[1]))]


def _panel(axis: Axes, grid: pd.DataFrame):
    """Draw one grid with its numbers; return the image."""
    norm = SymLogNorm(LINEAR_PCT, vmin=-LARGEST_PCT, vmax=LARGEST_PCT, base=10)
    image = axis.imshow(grid.to_numpy(float), cmap="PuOr_r", norm=norm, aspect="auto")
    for row, values in enumerate(grid.to_numpy(float)):
        for column, value in enumerate(values):
            if not math.isnan(value):
                light = "white" if abs(value) > DARK_PCT else "black"
                axis.text(column, row, f"{value:+.1f}", ha="center", va="center", fontsize=6.5, color=light)
    names = [f"ε {'∞' if math.isinf(epsilon) else f'{epsilon:g}'}\nE = {local}" for epsilon, local in grid]
    axis.set_xticks(range(len(names)), labels=names, fontsize=7)
    axis.set_yticks(range(len(grid)), labels=list(grid.index), fontsize=8)
    axis.grid(False)
    budgets = [epsilon for epsilon, _ in grid]
    for column in range(1, len(budgets)):
        if budgets[column] != budgets[column - 1]:
            axis.axvline(column - 0.5, color="white", linewidth=4)
    if grid.index[0] == PUBLISHED:
        axis.axhline(0.5, color="white", linewidth=4)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    return image


def _footer(cells: pd.DataFrame) -> str:
    """Say how many runs there are, and what was run on stand-in data."""
    text = f"{runs_text(cells)} a cell; differences on the seeds that both ran. ε ∞: no noise. Blank: not run."
    if cells["stand_in"].any():
        text += f" Stand-in data ({', '.join(sorted(set(cells.loc[cells['stand_in'], 'ran_on'])))}): no published row."
    return text
