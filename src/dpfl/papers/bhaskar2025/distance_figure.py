"""The figure of the distances to the noise-free run: against local epochs, and against the number of clients."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.papers.bhaskar2025.distances import FIRST, LAST, NOISELESS, PLAIN
from dpfl.papers.bhaskar2025.figure_parts import BARS, data_lines, heights, runs_text
from dpfl.reporting import style
from dpfl.reporting.notes import model_name
from dpfl.reporting.results import NotRunError

_LOCAL = {"color": style.RED, "marker": "s", "linestyle": "-"}
_AVERAGE = {"color": style.BLUE, "marker": "o", "linestyle": "-"}


def draw_distances(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and model: first round against E at the largest budget, then (1, 20) against k."""
    measured = cells[cells["reference"] == NOISELESS]
    rows = list(measured.groupby(["ran_on", "model"]))
    if not rows:
        raise NotRunError("distances to noise-free runs were not measured at this scale")
    figure, axes = style.panels(2, len(rows), width=9.5, height=3.4, squeeze=False)
    for (left, right), ((ran_on, model), group) in zip(axes, rows, strict=True):
        private = group[group["epsilon"] == group["epsilon"].max()]
        plain = cells[(cells["reference"] == PLAIN) & (cells["ran_on"] == ran_on) & (cells["model"] == model)]
        _against_epochs(left, private, plain[plain["epsilon"] == private["epsilon"].iloc[0]])
        left.set_title("end of the first round, ten clients", fontsize=9)
        budget = f"{data_lines(ran_on)}\n{model_name(model)}, ε = {private['epsilon'].iloc[0]:g}"
        left.set_ylabel(f"{budget}\ndistance to the noise-free run", fontsize=8.5)
        _against_clients(right, private)
        right.set_title("one local epoch a round, k clients", fontsize=9)
    style.footer(figure, _footer(cells))
    return figure


def _against_epochs(axis: Axes, cells: pd.DataFrame, plain: pd.DataFrame) -> None:
    """Draw both distances of ten clients after E epochs from one start, and the bounds, each with its name."""
    axis.set_xlabel("local epochs E of the round")
    line = cells[(cells["clients"] == 10) & (cells["round"] == FIRST)].sort_values("local_epochs")
    if line.empty:
        style.mark_not_run(axis)
        return
    epochs, thin = line["local_epochs"], {"color": style.BLACK, "linewidth": 1}
    axis.errorbar(epochs, line["local_distance"], line["local_distance_interval"], **_LOCAL)
    axis.errorbar(epochs, line["distance"], line["distance_interval"], **_AVERAGE)
    names = [("local_distance", "clients' models", style.RED), ("distance", "their average", style.BLUE)]
    for column, name, dashes in (
        ("bound_steps", "bound, E in steps", "-"),
        ("bound_momentum", "the same with momentum", "--"),
        ("bound_epochs", "bound, E in passes", ":"),
    ):
        axis.plot(epochs, line[column], linestyle=dashes, **thin)
        names.append((column, name, style.BLACK))
    unclipped = plain[(plain["clients"] == 10) & (plain["round"] == FIRST)].sort_values("local_epochs")
    if len(unclipped):
        look = {**_LOCAL, "markerfacecolor": "white", "linestyle": ":", "linewidth": 1}
        axis.plot(unclipped["local_epochs"], unclipped["local_distance"], **look)
    axis.set_xscale("log")
    style.ticks_at(axis, epochs)
    heights(axis)
    style.name_lines(axis, epochs.iloc[-1], [(line[column].iloc[-1], name, colour) for column, name, colour in names])


def _against_clients(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw both distances of (1, 20) after the first and the last round, and 1/sqrt(k) through the first point."""
    axis.set_xlabel("clients k")
    names, often = [], cells[cells["local_epochs"] == 1].sort_values("clients")
    if often.empty:
        style.mark_not_run(axis)
        return
    for round, fill in ((FIRST, "white"), (LAST, None)):
        line = often[often["round"] == round]
        clients = line["clients"]
        for name, look, label in (("local_distance", _LOCAL, "clients' models"), ("distance", _AVERAGE, "average")):
            style_of = {**look, "linestyle": "-" if fill is None else "--", "markerfacecolor": fill or look["color"]}
            axis.errorbar(clients, line[name], line[f"{name}_interval"], **style_of)
            names += [(line[name].iloc[-1], f"{label}, {round} round", look["color"])] if len(line) else []
        if len(line) > 1:
            law = line["distance"].iloc[0] * (clients / clients.iloc[0]) ** -0.5
            axis.plot(clients, law, color=style.BLACK, linestyle=":", linewidth=1.2, zorder=3)
    axis.set_xscale("log")
    style.ticks_at(axis, often["clients"])
    heights(axis)
    style.name_lines(axis, often["clients"].max(), names)


def _footer(cells: pd.DataFrame) -> str:
    """Say from how many runs, and what they ran on."""
    stand_in = " Stand-in data, named at the left." if cells["stand_in"].any() else ""
    unclipped = " (hollow on the left: no clipping either)" if (cells["reference"] == PLAIN).any() else ""
    what = (
        "Euclidean distances of all parameters; noise-free run: same start, batches and clipping, no noise"
        f"{unclipped}. Dotted on the right: falling as 1/√k."
    )
    bars = f" {BARS}" if cells["runs"].max() > 1 else ""
    return f"{what} {runs_text(cells)} a point.{bars}{stand_in}"
