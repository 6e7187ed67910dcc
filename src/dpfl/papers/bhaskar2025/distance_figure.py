"""The figure of the distances to the noise-free run: against local epochs, and against the number of clients."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.papers.bhaskar2025.distances import FIRST, LAST, NOISELESS, PLAIN
from dpfl.papers.bhaskar2025.figure_parts import BARS, footer, heights, runs_text
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES
from dpfl.reporting import style
from dpfl.reporting.results import NotRunError

_LOCAL = {"color": style.RED, "marker": "s", "linestyle": "-"}
_AVERAGE = {"color": style.BLUE, "marker": "o", "linestyle": "-"}


def draw_distances(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and model: first round against E at the largest budget, then (1, 20) against k."""
    measured = cells[cells["reference"] == NOISELESS]
    rows = list(measured.groupby(["ran_on", "model"]))
    if not rows:
        raise NotRunError("distances to noise-free runs were not measured at this scale")
    figure, axes = style.panels(2, len(rows), width=9, height=3.3, squeeze=False)
    for (left, right), ((ran_on, model), group) in zip(axes, rows, strict=True):
        private = group[group["epsilon"] == group["epsilon"].max()]
        plain = cells[(cells["reference"] == PLAIN) & (cells["ran_on"] == ran_on) & (cells["model"] == model)]
        budget = f"{ran_on}, {MODEL_NAMES[model]}, ε = {private['epsilon'].iloc[0]:g}"
        _against_epochs(left, private, plain[plain["epsilon"] == private["epsilon"].iloc[0]])
        left.set_title(f"{budget}: end of the first round")
        _against_clients(right, private)
        right.set_title(f"{budget}: E = 1")
    for number, axis in enumerate(axes[0]):
        handles, labels = axis.get_legend_handles_labels()
        side = ("left", "right")[number]
        figure.legend(handles, labels, loc=f"outside upper {side}", fontsize=7.5, ncols=2)
    footer(figure, _footer(cells))
    return figure


def _against_epochs(axis: Axes, cells: pd.DataFrame, plain: pd.DataFrame) -> None:
    """Draw both distances of ten clients after E epochs from one start, and the bounds."""
    line = cells[(cells["clients"] == 10) & (cells["round"] == FIRST)].sort_values("local_epochs")
    epochs = line["local_epochs"]
    axis.errorbar(epochs, line["local_distance"], line["local_distance_interval"], label="clients' models", **_LOCAL)
    axis.errorbar(epochs, line["distance"], line["distance_interval"], label="their average", **_AVERAGE)
    unclipped = plain[(plain["clients"] == 10) & (plain["round"] == FIRST)].sort_values("local_epochs")
    if len(unclipped):
        look = {**_LOCAL, "markerfacecolor": "white", "linestyle": ":", "linewidth": 1}
        axis.plot(unclipped["local_epochs"], unclipped["local_distance"], label="clients' models to plain SGD", **look)
    axis.plot(epochs, line["bound_steps"], color=style.BLACK, linestyle="-", linewidth=1, label="bound, E in steps")
    axis.plot(epochs, line["bound_momentum"], color=style.BLACK, linestyle="--", linewidth=1, label="with momentum")
    axis.plot(epochs, line["bound_epochs"], color=style.BLACK, linestyle=":", linewidth=1.2, label="bound, E in passes")
    axis.set_xscale("log")
    style.ticks_at(axis, epochs)
    heights(axis)
    axis.set_xlabel("local epochs E of the round")
    axis.set_ylabel("distance to the\nnoise-free run")


def _against_clients(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw both distances of (1, 20) after the first and the last round, and 1/sqrt(k) through the first point."""
    for round, fill in ((FIRST, "white"), (LAST, None)):
        line = cells[(cells["local_epochs"] == 1) & (cells["round"] == round)].sort_values("clients")
        clients = line["clients"]
        for name, look, label in (("local_distance", _LOCAL, "clients' models"), ("distance", _AVERAGE, "average")):
            style_of = {**look, "linestyle": "-" if fill is None else "--", "markerfacecolor": fill or look["color"]}
            axis.errorbar(clients, line[name], line[f"{name}_interval"], label=f"{label}, {round} round", **style_of)
        if len(line) > 1:
            law = line["distance"].iloc[0] * (clients / clients.iloc[0]) ** -0.5
            label = "falling as 1/√k" if round == LAST else None
            axis.plot(clients, law, color=style.BLACK, linestyle=":", linewidth=1.2, label=label, zorder=3)
    axis.set_xscale("log")
    style.ticks_at(axis, cells.loc[cells["local_epochs"] == 1, "clients"])
    heights(axis)
    axis.set_xlabel("clients k")


def _footer(cells: pd.DataFrame) -> str:
    """Say from how many runs, and what they ran on."""
    stand_in = " Stand-in data, named in the titles." if cells["stand_in"].any() else ""
    what = "Euclidean distances of all parameters; noise-free run: same start, batches and clipping, no noise."
    return f"{what} {runs_text(cells)} a point. {BARS}{stand_in}"
