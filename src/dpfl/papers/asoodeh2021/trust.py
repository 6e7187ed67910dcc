"""Figure: five papers on one task, excess risk at equal epsilon, by who has to be trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.lines import Line2D

from dpfl.convex.trust_models import TRUST_MODEL, TrustAlgorithm
from dpfl.reporting import style
from dpfl.reporting.display_names import data_name, data_note, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
_SHOWN_BELOW = 0.9
"""Longest lower bar, as a share of the risk: one that reaches below 0 has no place on a logarithmic axis."""
TASK = ["dataset", "stand_in_for", "users", "clients", "optimum_accuracy_pct"]


def trust_data(results: Results) -> pd.DataFrame:
    """Return each algorithm's best step at each epsilon: TASK, algorithm, trust, runs, accuracy, risk, intervals.

    The step is that of the least mean excess risk: a choice that no budget pays for. least_step and most_step are the
    ends of the steps that were run.
    """
    columns = [*TASK, "algorithm", "trust", "epsilon", "step", "least_step", "most_step", "runs"]
    columns += ["accuracy_pct", "accuracy_interval", "excess_risk", "interval", ORIGINS]
    runs = results.runs("asoodeh2021", study="comparison")
    rows = []
    for key, group in runs.groupby([*TASK, "algorithm", "trust", "epsilon"], sort=False) if len(runs) else ():
        step = group.groupby("step")["excess_risk"].mean().idxmin()
        best = group[group["step"] == step]
        count, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        risk = mean_interval(best["excess_risk"])[1:]
        ends = group["step"].min(), group["step"].max()
        rows.append((*key, step, *ends, count, accuracy, accuracy_half, *risk, origins(best)))
    return pd.DataFrame(rows, columns=columns)


def draw_trust(table: pd.DataFrame) -> Figure:
    """Draw excess risk at every epsilon, a row per algorithm below its level of trust, a panel per task."""
    private = table[table["epsilon"] < math.inf]
    if private.empty:
        raise NotRunError("no private run of this study in this configuration")
    tasks, rows = list(private.groupby(["dataset", "stand_in_for", "users"])), _rows(private)
    figure, axes = style.panels(
        len(tasks), height=0.6 + 0.27 * len(rows), width=style.WIDTH, squeeze=False, sharey=True
    )
    colours = dict(zip(dict.fromkeys(TRUST_MODEL.values()), style.COLOURS, strict=False))
    for axis, ((dataset, stand_in_for, users), task) in zip(axes[0], tasks, strict=True):
        for height, name in enumerate(rows):
            line = task[task["algorithm"] == name].sort_values("epsilon")
            if len(line):
                _dumbbell(axis, height, line, colours[TRUST_MODEL[name]])
        best = f"best model {task['optimum_accuracy_pct'].iloc[0]:.1f} %"
        axis.set_title(
            f"{data_name(dataset, stand_in_for)}: odd against even labels,\nn = {users:g}, {best}", fontsize=9
        )
        axis.set(xlabel="excess risk", xscale="log", ylim=(len(rows) - 0.4, -0.6))
        axis.set_xlim(right=axis.get_xlim()[1] * 40)  # room for the accuracies
    names = [NAMES.get(each, each) for each in rows]
    axes[0][0].set_yticks(range(len(rows)), names)
    for label, each in zip(axes[0][0].get_yticklabels(), rows, strict=True):
        if each in colours:
            label.set(color=colours[each], weight="bold")
    ends = [f"ε = {epsilon:g}" for epsilon in (private["epsilon"].min(), private["epsilon"].max())]
    keys = [Line2D([], [], color=style.BLACK, marker="o", linestyle="none", markerfacecolor=style.WHITE, label=ends[0])]
    keys.append(Line2D([], [], color=style.BLACK, marker="o", linestyle="none", label=ends[1]))
    keys.append(Line2D([], [], color=style.BLACK, marker=".", markersize=3, label="budgets between"))
    figure.legend(handles=keys, loc="outside upper center", ncols=3)
    text = f"Right of each row: test accuracy at {ends[0]} and {ends[1]} in %; guessing has about 50 %."
    text += " ε is for replacing one record, δ = 10⁻⁵; each algorithm at the best of its steps."
    ends_of_grid = (private["step"] == private["least_step"]) | (private["step"] == private["most_step"])
    if at_end := int((ends_of_grid & (private["least_step"] < private["most_step"])).sum()):
        text += f" At {at_end} of {len(private)} points it is an end of the grid: one beyond might do better."
    if (private["interval"] > _SHOWN_BELOW * private["excess_risk"]).any():
        text += " A bar that would reach below 0 is cut."
    style.footer(figure, f"{text} {data_note(private)}")
    return figure


def five_papers_message(data: pd.DataFrame) -> str:
    """Say how much more risk the best way without trust has than the best with a trusted aggregator."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    least, factors = private["epsilon"].min(), []
    for _, task in private[private["epsilon"] == least].groupby("dataset"):
        trusted, alone = (
            task[task["trust"] == trust] for trust in ("trusted aggregator", "no trust outside the client")
        )
        if trusted.empty or alone.empty:
            return ""
        best, own = (rows.loc[rows["excess_risk"].idxmin()] for rows in (trusted, alone))
        factors.append(own["excess_risk"] / best["excess_risk"])
    return (
        f"At ε = {least:g} the best way (by risk) that trusts nobody has {span(factors, '{:.2g}')} times the excess "
        "risk of the best with a trusted aggregator"
    )


def _rows(private: pd.DataFrame) -> list[str]:
    """Return the rows from top to bottom: each level of trust as a heading, below it the algorithms that ran."""
    ran, rows = set(private["algorithm"]), []
    for trust in dict.fromkeys(TRUST_MODEL.values()):
        own = [str(each) for each in TrustAlgorithm if TRUST_MODEL[each] == trust and each in ran]
        rows += [trust, *own] if own else []
    return rows


def _dumbbell(axis: Axes, height: float, line: pd.DataFrame, colour: str) -> None:
    """Draw the risks of one algorithm: hollow at the least epsilon, full at the largest, dots between."""
    axis.plot(
        line["excess_risk"], [height] * len(line), color=colour, marker=".", markersize=3, linestyle="-", linewidth=1
    )
    for place, face in ((0, style.WHITE), (-1, colour)):
        end = line.iloc[place]
        below = min(end["interval"], _SHOWN_BELOW * end["excess_risk"])
        bar = None if math.isnan(end["interval"]) else [[below], [end["interval"]]]
        look = {"color": colour, "marker": "o", "markersize": 6, "markerfacecolor": face, "linestyle": "none"}
        axis.errorbar([end["excess_risk"]], [height], xerr=bar, **look)
    first, last = line["accuracy_pct"].iloc[[0, -1]]
    words = f"{first:.1f}, {last:.1f}"
    axis.annotate(words, (1, height), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=style.SMALL)


FIGURES = {"five_papers": FigureRecipe(trust_data, draw_trust, five_papers_message)}
