"""The figure of where clients start: their own models and the average of these, a line a start and budget."""

from __future__ import annotations

import json
import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpfl.papers.bhaskar2025.figure_parts import data_lines, runs_text
from dpfl.papers.bhaskar2025.initialisation import COMMON, PER_CLIENT
from dpfl.reporting import style
from dpfl.reporting.bounds import at_most
from dpfl.reporting.notes import model_name

_SEEN_PCT = 1.0
"""Least distance at which a run's stroke is seen beside the mark of the mean."""
_STARTS = {COMMON: ("one common start", style.BLUE), PER_CLIENT: ("a start for each client", style.RED)}


def draw_initialisation(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and model, one column per split that all of them ran: a line per budget and start."""
    rows = list(cells.groupby(["ran_on", "model"], sort=False))
    splits = [set(zip(group["local_epochs"], group["rounds"], strict=True)) for _, group in rows]
    shown = sorted(set.intersection(*splits)) or sorted(set.union(*splits))
    lines = [_lines(group) for _, group in rows]
    height = max(1.9, 0.7 + 0.24 * max(map(len, lines)))
    figure, axes = style.panels(
        len(shown), len(rows), width=min(10, 2.6 * len(shown) + 2.2), height=height,
        squeeze=False, sharex=True, sharey="row", height_ratios=[len(line) + 1 for line in lines],
    )  # fmt: skip
    axes[0][0].set_xlim(_least_shown(cells), 100.5)
    for row, ((ran_on, model), group), order in zip(axes, rows, lines, strict=True):
        for axis, (local_epochs, rounds) in zip(row, shown, strict=True):
            split = group[(group["local_epochs"] == local_epochs) & (group["rounds"] == rounds)]
            _panel(axis, split, order)
            if group is rows[0][1]:
                axis.set_title(f"E = {local_epochs}, R = {rounds}", fontsize=9)
        row[0].set_yticks(range(len(order)), labels=[_line_name(*line) for line in order], fontsize=8)
        row[0].set_ylabel(f"{data_lines(ran_on)},\n{model_name(model)}", fontsize=7.5)
    for axis in axes[-1]:
        axis.set_xlabel("test accuracy (%)")
    figure.legend(handles=_keys(cells), loc="outside upper center", ncols=5, fontsize=8)
    style.footer(figure, _footer(cells))
    return figure


def _least_shown(cells: pd.DataFrame) -> float:
    """Return where the axis of accuracies begins: at 0, or where all are high, up to 5 points below the lowest."""
    lowest = cells[["local_accuracy_pct", "accuracy_pct", "published_accuracy_pct"]].min(axis=None)
    return 5.0 * math.floor((lowest - 0.5) / 5) if lowest > 50 else 0.0


def _lines(cells: pd.DataFrame) -> list[tuple[float, str]]:
    """Return the lines of a panel from bottom to top: budgets from small to none, the common start above."""
    return [(epsilon, start) for epsilon in sorted(cells["epsilon"].unique()) for start in (PER_CLIENT, COMMON)]


def _line_name(epsilon: float, start: str) -> str:
    """Return the name of a line."""
    budget = "no noise" if math.isinf(epsilon) else f"ε = {epsilon:g}"
    return f"{budget}, {'common' if start == COMMON else 'each'}"


def _panel(axis: Axes, cells: pd.DataFrame, order: list[tuple[float, str]]) -> None:
    """Draw a line for each budget and start: hollow the clients' own models, filled their average, dots its runs."""
    for cell in cells.itertuples():
        height, colour = order.index((cell.epsilon, cell.initialisation)), _STARTS[cell.initialisation][1]
        axis.plot([cell.local_accuracy_pct, cell.accuracy_pct], [height] * 2, color=colour, linestyle="-", linewidth=1)
        runs = list(json.loads(cell.run_accuracies_pct).values())
        dots = {"color": colour, "marker": "|", "linestyle": "none", "markersize": 6, "alpha": 0.6}
        axis.plot(runs, [height] * len(runs), **dots)
        axis.plot(cell.local_accuracy_pct, height, color=colour, marker="o", markerfacecolor="white", markersize=5)
        axis.plot(cell.accuracy_pct, height, color=colour, marker="o", markersize=5)
        if not math.isnan(cell.published_accuracy_pct):
            look = {"color": style.BLACK, "marker": "D", "markerfacecolor": "none", "markersize": 4.5}
            axis.plot(cell.published_accuracy_pct, height, **look, linestyle="none")
    axis.set_ylim(-0.6, len(order) - 0.4)
    axis.tick_params(axis="y", length=0)


def _keys(cells: pd.DataFrame) -> list[Line2D]:
    """Return what colours and markers mean."""
    keys = [Line2D([], [], color=colour, linestyle="-", label=name) for name, colour in _STARTS.values()]
    grey = {"color": style.BLACK, "marker": "o", "linestyle": "none"}
    keys.append(Line2D([], [], **grey, markerfacecolor="white", label="clients alone"))
    keys.append(Line2D([], [], **grey, label="their average"))
    if cells["published_accuracy_pct"].notna().any():
        diamond = {"marker": "D", "markerfacecolor": "none", "linestyle": "none", "color": style.BLACK}
        keys.append(Line2D([], [], **diamond, label="published"))
    return keys


def _footer(cells: pd.DataFrame) -> str:
    """Say what is drawn and from how many runs."""
    stand_in = " Stand-in data: not comparable with the published values." if cells["stand_in"].any() else ""
    start = _least_shown(cells)
    axis = f" The axis begins at {start:g} %." if start else ""
    return (
        f"Ten clients. Means over {runs_text(cells)}{_spread(cells)}. Clients alone: mean over the clients' own models "
        f"before the last average.{_left_of_clients(cells)}{axis}{stand_in}"
    )


def _spread(cells: pd.DataFrame) -> str:
    """Say how far runs lie from their mean, and what the strokes are where some lie beside the mark of the mean."""
    pairs = zip(cells["run_accuracies_pct"], cells["accuracy_pct"], strict=True)
    farthest = max(abs(run - mean) for runs, mean in pairs for run in json.loads(runs).values())
    if farthest >= _SEEN_PCT:
        return "; strokes: the runs of the average"
    return (
        f"; the average's runs lie within {at_most(farthest, places=2)} points of it" if cells["runs"].max() > 1 else ""
    )


def _left_of_clients(cells: pd.DataFrame) -> str:
    """Say on how many of the lines with both marks the average is worse than the clients alone."""
    measured = cells.dropna(subset=["local_accuracy_pct", "accuracy_pct"])
    worse = int((measured["accuracy_pct"] < measured["local_accuracy_pct"]).sum())
    return f" The average is worse than the clients alone on {worse} of {len(measured)} lines." if len(measured) else ""
