"""Five papers on one task: accuracy and risk at equal epsilon, by who has to be trusted."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpfl.experiments.trust_models.trust_settings import TRUST_MODEL, TrustAlgorithm
from dpfl.papers.asoodeh2021.aggregator_runs import study
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import data_note
from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.statistics import mean_interval

NAMES = {
    TrustAlgorithm.CENTRAL: "DP-SGD, fresh batches",
    TrustAlgorithm.CENTRAL_FULL: "DP gradient descent, full batches",
    TrustAlgorithm.LAST_MODEL: "projected one pass (asoodeh2021)",
    TrustAlgorithm.PNSGD: "PNSGD (asoodeh2020)",
    TrustAlgorithm.SHUFFLED: "minibatch, shuffled (lowy2021)",
    TrustAlgorithm.MINIBATCH: "minibatch (lowy2021)",
    TrustAlgorithm.AVERAGING: "federated averaging (bhaskar2025)",
    TrustAlgorithm.ASYNCHRONOUS: "asynchronous DP-SGD (vandijk2023)",
}
COLOURS = dict(
    zip(dict.fromkeys(TRUST_MODEL.values()), (style.BLACK, style.GREEN, style.ORANGE, style.BLUE), strict=True)
)
MARKERS = (*style.MARKERS, "*")
TASK = ["dataset", "stand_in_for", "users", "clients", "optimum_accuracy_pct"]


def data(results: Results) -> pd.DataFrame:
    """Return each algorithm's best step at each epsilon: TASK, algorithm, trust, runs, accuracy, risk, intervals.

    The step is that of the least mean excess risk: a choice that no budget pays for.
    """
    columns = [*TASK, "algorithm", "trust", "epsilon", "step", "runs", "accuracy_pct", "accuracy_interval"]
    columns += ["excess_risk", "interval"]
    runs = study(results, "comparison")
    rows = []
    for key, group in runs.groupby([*TASK, "algorithm", "trust", "epsilon"], sort=False) if len(runs) else ():
        step = group.groupby("step")["excess_risk"].mean().idxmin()
        best = group[group["step"] == step]
        count, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        rows.append((*key, step, count, accuracy, accuracy_half, *mean_interval(best["excess_risk"])[1:]))
    return pd.DataFrame(rows, columns=columns)


def draw(table: pd.DataFrame) -> Figure:
    """Draw accuracy and excess risk against epsilon, colours by trust, markers by algorithm."""
    if (table["epsilon"] == math.inf).all():
        raise NotRunError("no private run of this study in this configuration")
    tasks = list(table.groupby(["dataset", "users", "clients"]))
    figure, axes = style.panels(2, len(tasks), height=4.0, width=10.5, squeeze=False)
    for row, ((dataset, users, clients), task) in zip(axes, tasks, strict=True):
        for axis, metric, bar in ((row[0], "accuracy_pct", "accuracy_interval"), (row[1], "excess_risk", "interval")):
            _lines(axis, task, metric, bar)
            axis.set_title(f"{dataset}, n = {users:g}, {clients:g} clients")
        row[0].axhline(task["optimum_accuracy_pct"].iloc[0], color=style.BLACK, linestyle=":", linewidth=0.8)
        row[0].set_ylabel("test accuracy (%)")
        row[1].set(ylabel="excess risk", yscale="log")
    _legend(figure, axes[0][0])
    legend = "Dotted: the optimum. Each algorithm at its best step. Federated: one client's budget for its own records."
    style.footer(figure, f"{legend} {data_note(table)}")
    return figure


def _lines(axis: Axes, task: pd.DataFrame, metric: str, bar: str) -> None:
    """Draw a metric against epsilon, one line per algorithm."""
    for number, algorithm in enumerate(TrustAlgorithm):
        line = task[(task["algorithm"] == algorithm) & (task["epsilon"] < math.inf)].sort_values("epsilon")
        look = {
            "color": COLOURS[TRUST_MODEL[algorithm]],
            "marker": MARKERS[number],
            "linestyle": style.DASHES[number % 7],
        }
        axis.errorbar(line["epsilon"], line[metric], line[bar], label=algorithm, **look)
    axis.set(xlabel="epsilon (replace one record, delta = 1e-5)", xscale="log")
    style.ticks_at(axis, set(task["epsilon"]) - {math.inf})


def _legend(figure: Figure, axis: Axes) -> None:
    """Write the legend next to the panels: the algorithms, grouped by who has to be trusted."""
    lines = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    entries = []
    for trust in dict.fromkeys(TRUST_MODEL.values()):
        entries.append((Line2D([], [], linestyle="none"), f"{trust}:"))
        entries += [(lines[each], NAMES[each]) for each in TrustAlgorithm if TRUST_MODEL[each] == trust]
    look = {"fontsize": 7, "title": "who has to be trusted", "title_fontsize": 8, "alignment": "left"}
    figure.legend(*zip(*entries, strict=True), loc="outside right upper", **look)


COMPARISON = {"five_papers": FigureRecipe(data, draw)}
