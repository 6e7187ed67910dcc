"""Algorithm 2 against Algorithm 1 at equal privacy: excess risk of runs of R rounds, each calibrated to its own R."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021.theory_runs import by_seed, interval, seeds_text, study
from dpfl.papers.lowy2021.trial_statistics import paired
from dpfl.reporting import style
from dpfl.reporting.results import Results

FIGURE = "theory_acceleration"
_CURVES = {
    "minibatch": "Algorithm 1",
    "minibatch_smoothed": "Algorithm 1, smoothed loss",
    "accelerated": "Algorithm 2",
    "accelerated_smoothed": "Algorithm 2",
}
_TASKS = {
    ("least_squares", False): "least squares, convex",
    ("least_squares", True): "least squares, strongly convex",
    ("logistic", False): "logistic regression, convex",
    ("absolute", False): "absolute loss, not smooth",
}


def data(results: Results) -> pd.DataFrame:
    """Return one row per point: task, curve, epsilon, rounds, seeds, excess_risk, interval; start_risk of w = 0.

    plain_minus_this, with its interval, is the paired difference of the better Algorithm 1 with as many rounds, in rows
    of Algorithm 2; else nan.
    """
    runs = study(results, "acceleration")
    strong = runs["strong_convexity"] > 0
    runs["task"] = [_TASKS[pair] for pair in zip(runs["kind"], strong, strict=True)]
    runs["curve"] = runs["algorithm"] + (runs["sharpness"] > 0).map({True: "_smoothed", False: ""})
    rows = []
    for (task, epsilon, rounds), group in runs.groupby(["task", "epsilon", "rounds"], sort=False):
        risks = by_seed(group, ["curve"])
        bars, means = interval(risks), risks.mean(axis=1)
        plain = means[means.index.str.startswith("minibatch")]
        for curve, seeds in risks.iterrows():
            compared = curve.startswith("accelerated") and len(plain)
            gap = paired(seeds, risks.loc[plain.idxmin()]) if compared else {}
            point = {"task": task, "curve": curve, "epsilon": epsilon, "rounds": rounds, "seeds": len(seeds)}
            point |= {"excess_risk": means[curve], "interval": bars[curve], "start_risk": group["start_risk"].mean()}
            point["plain_minus_this"] = gap.get("difference", math.nan)
            rows.append({**point, "difference_interval": gap.get("interval", math.nan)})
    return pd.DataFrame(rows)


def draw(points: pd.DataFrame) -> Figure:
    """Draw one panel per task; noisy runs with bars, runs without noise as thin lines."""
    tasks = list(points.groupby("task", sort=False))
    figure, axes = style.panels(len(tasks), width=11, height=3.6, squeeze=False)
    for panel, (task, rows) in zip(axes[0], tasks, strict=True):
        for (curve, epsilon), line in rows.groupby(["curve", "epsilon"], sort=False):
            number = {"minibatch": 0, "minibatch_smoothed": 2}.get(curve, 1)
            line = line.sort_values("rounds")
            look = {"color": style.COLOURS[number], "label": _CURVES[curve]}
            private = {"marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            if math.isinf(epsilon):
                look["label"] += ", no noise"
                panel.plot(line["rounds"], line["excess_risk"], ":", linewidth=1.0, **look)
            else:
                panel.errorbar(line["rounds"], line["excess_risk"], line["interval"], **private, **look)
        panel.axhline(rows["start_risk"].mean(), color=style.BLACK, linestyle="--", linewidth=0.8, label="w = 0")
        panel.set(xscale="log", yscale="log", xlabel="rounds R", title=task)
        style.ticks_at(panel, rows["rounds"])
    axes[0][0].set_ylabel("excess empirical risk")
    handles = {label: h for a in axes[0] for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    budgets = ", ".join(f"{e:g}" for e in sorted(set(points["epsilon"])) if math.isfinite(e))
    text = f"{seeds_text(points)} Every private point spends ε = {budgets} over its own R rounds."
    style.footer(figure, f"{text}\n{_lost_rounds(points)}")
    return figure


def _lost_rounds(points: pd.DataFrame) -> str:
    """Say at which rounds Algorithm 2 lies above the better Algorithm 1 by more than the interval of the difference."""
    compared = points[(points["epsilon"] < math.inf) & points["difference_interval"].notna()]
    if compared.empty:
        return ""
    lost = compared[compared["plain_minus_this"] < -compared["difference_interval"]].sort_values("rounds")
    rounds = {task: lost.loc[lost["task"] == task, "rounds"] for task in compared["task"].unique()}
    texts = [f"{task}: R = {', '.join(f'{r:g}' for r in at)}" for task, at in rounds.items() if len(at)]
    above = "With noise, Algorithm 2 lies above the better Algorithm 1, with as many rounds and the same seeds,"
    return f"{above} by more than the 90 % interval of the difference: {'; '.join(texts) or 'nowhere'}."
