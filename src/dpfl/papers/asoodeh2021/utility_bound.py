"""Corollary 1's bound on the excess risk without the dimension: a simulated counterexample, and its figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpfl.accounting import contraction
from dpfl.randomness import generator
from dpfl.reporting import style
from dpfl.reporting.display_names import percent
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.rules import LEVEL
from dpfl.reporting.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

CONSTANTS = {"smoothness": 1.0, "strong_convexity": 1.0, "gradient_bound": 1.0, "gradient_variance": 0.0}
"""Of the loss |w|^2/2 in the unit ball."""
DIMENSIONS = (1, 3, 10, 30, 100, 300)
DIMENSION, ROUNDS, REPEATS = 100, 20_000, 5
"""Dimension, rounds and runs of the entry of errata.yaml."""


def bounds(dimension: int, rounds: int) -> tuple[float, float]:
    """Return Corollary 1's bound on the excess risk as published, and with the dimension put in; m = sigma = 1."""
    values = {"n": rounds, "m": 1, "sigma": 1.0} | CONSTANTS
    published, right = (float(contraction.last_iterate_rate(dimension=each, **values)) for each in (1, dimension))
    return published, right


def simulated_excess(seed: int, dimension: int, rounds: int) -> float:
    """Run w -> projected(w - (w + noise)/t) and return |w|^2/2 after the last round."""
    noise = generator(seed, "noise").standard_normal((rounds, dimension))
    w = np.zeros(dimension)
    for t in range(1, rounds + 1):
        w = w - (w + noise[t - 1]) / t
        w = w / max(1.0, math.sqrt(w @ w))
    return float(w @ w / 2)


def counterexamples(_results: Results) -> pd.DataFrame:
    """Return a row for each dimension: runs, mean excess_risk, half-width `interval` at LEVEL, and both bounds."""
    rows = []
    for dimension in DIMENSIONS:
        risks = mean_interval([simulated_excess(seed, dimension, ROUNDS) for seed in range(REPEATS)], LEVEL)
        rows.append((dimension, *risks, *bounds(dimension, ROUNDS)))
    columns = ["features", "runs", "excess_risk", "interval", "bound_as_printed", "excess_bound"]
    return pd.DataFrame(rows, columns=columns)


def draw_counterexamples(data: pd.DataFrame) -> Figure:
    """Draw the excess risk against the dimension with both bounds; the case of errata.yaml is circled and named."""
    figure, axis = style.panels(width=6.5, height=3.6)
    axis.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="excess risk of the last model")
    x = data["features"]
    for column, name, dash in (("excess_bound", "bound with d", "--"), ("bound_as_printed", "published bound", "-")):
        axis.plot(x, data[column], color=style.GREY if dash == "--" else style.RED, linestyle=dash, label=name)
    bars = {"color": style.BLUE, "marker": "o", "linestyle": "none", "label": "simulated runs"}
    axis.errorbar(x, data["excess_risk"], data["interval"], **bars)
    marked = _of_erratum(data)
    place = marked["features"], marked["excess_risk"]
    axis.plot(*place, marker="o", markersize=13, markerfacecolor="none", color=style.RED, linestyle="none")
    label = f"counterexample, d = {marked['features']:g}:\n{_compared(marked)}"
    axis.annotate(label, place, (8, -12), textcoords="offset points", ha="center", va="top", color=style.RED)
    style.ticks_at(axis, x)
    style.legend(figure, [axis], ncols=3)
    runs = f"Mean of {data['runs'].max():g} runs; bars: {percent(LEVEL)} intervals."
    runs += " A bar that would reach below 0 is cut." if (data["interval"] >= data["excess_risk"]).any() else ""
    style.footer(figure, f"Loss |w|²/2 in the unit ball, n = T = {ROUNDS:,}, m = 1, sigma = 1. {runs}")
    return figure


def counterexample_message(data: pd.DataFrame) -> str:
    """Say by how much the risk of the deciding case exceeds the published bound; "" without that case."""
    if DIMENSION not in set(data["features"]):
        return ""
    marked = _of_erratum(data)
    times = marked["excess_risk"] / marked["bound_as_printed"]
    return f"At d = {marked['features']:g} the excess risk is {times:.2g} times Corollary 1's bound, which has no d"


def _of_erratum(data: pd.DataFrame) -> pd.Series:
    """Return the row of the erratum's case."""
    return data[data["features"] == DIMENSION].iloc[0]


def _compared(row: pd.Series) -> str:
    """Return a risk beside the published bound."""
    return f"{row['excess_risk']:.2g}, published bound {row['bound_as_printed']:.2g}"


COUNTEREXAMPLE = {
    "counterexample": FigureRecipe(counterexamples, draw_counterexamples, counterexample_message),
}
