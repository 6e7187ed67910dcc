"""Five papers on one task: excess risk at equal epsilon, by who has to be trusted."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.experiments.trust_models.trust_settings import TRUST_MODEL, TrustAlgorithm
from dpfl.papers.asoodeh2021.aggregator_runs import study
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import data_name, data_note
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import mean_interval

NAMES = {
    TrustAlgorithm.CENTRAL: "DP-SGD, fresh batches",
    TrustAlgorithm.CENTRAL_FULL: "DP gradient descent",
    TrustAlgorithm.LAST_MODEL: "one pass (Asoodeh 2021)",
    TrustAlgorithm.PNSGD: "PNSGD (Asoodeh 2020)",
    TrustAlgorithm.SHUFFLED: "minibatch SGD (Lowy 2021)",
    TrustAlgorithm.MINIBATCH: "minibatch SGD (Lowy 2021)",
    TrustAlgorithm.AVERAGING: "averaging (Bhaskar 2025)",
    TrustAlgorithm.ASYNCHRONOUS: "asynchronous (van Dijk 2023)",
}
LOOKS = {
    name: {"color": colour, "marker": marker, "linestyle": dashes}
    for name, colour, marker, dashes in zip(
        dict.fromkeys(NAMES.values()), style.COLOURS, style.MARKERS, style.DASHES, strict=True
    )
}
"""Look of an algorithm by its name, the same in every panel."""
_GREY = "#BBBBBB"
_SHOWN_BELOW = 0.9
"""Longest lower bar, as a share of the risk: one that reaches below 0 has no place on a logarithmic axis."""
TASK = ["dataset", "stand_in_for", "users", "clients", "optimum_accuracy_pct"]


def data(results: Results) -> pd.DataFrame:
    """Return each algorithm's best step at each epsilon: TASK, algorithm, trust, runs, accuracy, risk, intervals.

    The step is that of the least mean excess risk: a choice that no budget pays for.
    """
    columns = [*TASK, "algorithm", "trust", "epsilon", "step", "runs", "accuracy_pct", "accuracy_interval"]
    columns += ["excess_risk", "interval", ORIGINS]
    runs = study(results, "comparison")
    rows = []
    for key, group in runs.groupby([*TASK, "algorithm", "trust", "epsilon"], sort=False) if len(runs) else ():
        step = group.groupby("step")["excess_risk"].mean().idxmin()
        best = group[group["step"] == step]
        count, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        risk = mean_interval(best["excess_risk"])[1:]
        rows.append((*key, step, count, accuracy, accuracy_half, *risk, origins(best)))
    return pd.DataFrame(rows, columns=columns)


def draw(table: pd.DataFrame) -> Figure:
    """Draw excess risk against epsilon, a row a task and a panel for each level of trust, the other levels in grey."""
    if (table["epsilon"] == math.inf).all():
        raise NotRunError("no private run of this study in this configuration")
    tasks, trusts = list(table.groupby(["dataset", "stand_in_for", "users"])), list(dict.fromkeys(TRUST_MODEL.values()))
    figure, axes = style.panels(len(trusts), len(tasks), height=3.9, width=11, squeeze=False, sharey="row", sharex=True)
    named = min(trusts, key=lambda trust: sum(each == trust for each in TRUST_MODEL.values()))
    for row, ((dataset, stand_in_for, users), task) in zip(axes, tasks, strict=True):
        for axis, trust in zip(row, trusts, strict=True):
            _panel(axis, task, trust)
        row[0].set_ylabel(f"{data_name(dataset, stand_in_for)}, n = {users:g}\nexcess risk")
        low = task.loc[task["excess_risk"] > 0, "excess_risk"].min()
        row[0].set(yscale="log", ylim=(low / 30, 3 * task["excess_risk"].max()))  # below: room for the names
        _name_grey(row[trusts.index(named)], task, named)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon (replace one record)")
    legend = "In %: test accuracy at the least and the largest epsilon. delta = 1e-5; each algorithm at its best step."
    legend += f" Grey: the ways of the other panels, named once, beside {named}."
    if (table["interval"] > _SHOWN_BELOW * table["excess_risk"]).any():
        legend += " A bar that would reach below 0 is cut."
    style.footer(figure, f"{legend} {data_note(table)}")
    return figure


def _panel(axis: Axes, task: pd.DataFrame, trust: str) -> None:
    """Draw the algorithms of one level of trust with their names and accuracies, and the others in grey."""
    for algorithm in TrustAlgorithm:
        line = task[(task["algorithm"] == algorithm) & (task["epsilon"] < math.inf)].sort_values("epsilon")
        if TRUST_MODEL[algorithm] != trust:
            axis.plot(line["epsilon"], line["excess_risk"], color=_GREY, linestyle="-", linewidth=0.9, zorder=1)
        elif len(line):
            ends = line["accuracy_pct"].iloc[[0, -1]]
            name = f"{NAMES[algorithm]}:\n{ends.iloc[0]:.1f} to {ends.iloc[1]:.1f} %"
            below = np.minimum(line["interval"], _SHOWN_BELOW * line["excess_risk"])
            look = LOOKS[NAMES[algorithm]]
            axis.errorbar(line["epsilon"], line["excess_risk"], [below, line["interval"]], label=name, **look)
    axis.set(title=trust.replace(", ", ",\n"), xscale="log")
    style.ticks_at(axis, set(task["epsilon"]) - {math.inf})
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="lower left", fontsize=7, handlelength=3)
    else:
        axis.text(0.5, 0.1, "no private run of it", transform=axis.transAxes, ha="center", fontsize=7)


def _name_grey(axis: Axes, task: pd.DataFrame, trust: str) -> None:
    """Write the names of the grey lines beside the panel of one level of trust, each at the end of its line."""
    private = task[(task["epsilon"] < math.inf) & (task["algorithm"].map(TRUST_MODEL) != trust)]
    ends = private.sort_values("epsilon").drop_duplicates("algorithm", keep="last")
    ends = ends[ends["excess_risk"] > 0]
    if len(ends):
        names = [(row.excess_risk, NAMES[TrustAlgorithm(row.algorithm)], "#777777") for row in ends.itertuples()]
        style.name_lines(axis, ends["epsilon"].max(), names, size=6)


COMPARISON = {"five_papers": FigureRecipe(data, draw)}
