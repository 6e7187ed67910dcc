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
STUDIES = ("acceleration", "acceleration_theorem", "acceleration_noise")
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
    ("absolute", False): "absolute loss, condition {condition:g}",
}
NOT_SMOOTH = "absolute loss"
"""Begins the names of the problems that Theorem 2.3, as the main text has it, is about."""
_COLUMNS = 3


def data(results: Results) -> pd.DataFrame:
    """Return one row per point: task, curve, epsilon, rounds, theorem, seeds, excess_risk, interval, start_risk.

    theorem: whether the rounds are those of Theorem 2.3. In rows of Algorithm 2 plain_minus_this is the paired
    difference of the better Algorithm 1 in as many rounds, and more_minus_this that of the better one in more_rounds,
    the most that were run; each with its interval, nan where there is none.
    """
    runs = study(results, STUDIES)
    strong = runs["strong_convexity"] > 0
    named = zip(runs["kind"], strong, runs["condition"], strict=True)
    tasks = [_TASKS[kind, strongly].format(condition=condition) for kind, strongly, condition in named]
    noise = [", the theorem's noise" if noise == "theorem" else "" for noise in runs["noise"]]
    runs["task"] = [task + more for task, more in zip(tasks, noise, strict=True)]
    runs["curve"] = runs["algorithm"] + (runs["sharpness"] > 0).map({True: "_smoothed", False: ""})
    runs["of_theorem"] = runs["theorem"].notna() & (runs["rounds_factor"] == 1)
    rows = []
    for (task, epsilon), every in runs.groupby(["task", "epsilon"], sort=False):
        table = by_seed(every, ["rounds", "curve"])
        known = set(every.loc[every["of_theorem"], "rounds"])
        most = every["rounds"].max()
        for rounds, risks in table.groupby(level="rounds", sort=True):
            risks = risks.droplevel("rounds")
            bars, start = interval(risks), every.loc[every["rounds"] == rounds, "start_risk"].mean()
            for curve, seeds in risks.iterrows():
                point = {"task": task, "curve": curve, "epsilon": epsilon, "rounds": rounds, "theorem": rounds in known}
                point |= {
                    "seeds": len(seeds),
                    "excess_risk": seeds.mean(),
                    "interval": bars[curve],
                    "start_risk": start,
                }
                fast = curve.startswith("accelerated")
                point |= _against(seeds, risks if fast else None, "plain", "difference_interval")
                later = table.loc[[most]].droplevel("rounds") if fast and most > rounds else None
                rows.append({**point, **_against(seeds, later, "more", "more_interval"), "more_rounds": most})
    return pd.DataFrame(rows)


def _against(seeds: pd.Series, risks: pd.DataFrame | None, name: str, bar: str) -> dict[str, float]:
    """Return the paired difference of the better Algorithm 1 among `risks`, less the `seeds` of Algorithm 2."""
    plain = pd.Series(dtype=float) if risks is None else risks[risks.index.str.startswith("minibatch")].mean(axis=1)
    if plain.empty:
        return {f"{name}_minus_this": math.nan, bar: math.nan}
    gap = paired(seeds, risks.loc[plain.idxmin()])
    return {f"{name}_minus_this": gap["difference"], bar: gap["interval"]}


def draw(points: pd.DataFrame) -> Figure:
    """Draw one panel per task; noisy runs with bars, runs without noise as thin lines."""
    tasks = list(points.groupby("task", sort=False))
    rows = -(-len(tasks) // _COLUMNS)
    figure, axes = style.panels(min(_COLUMNS, len(tasks)), rows, width=10.5, height=3.2, squeeze=False)
    for panel in axes.flat[len(tasks) :]:
        panel.set_axis_off()
    for panel, (task, group) in zip(axes.flat, tasks, strict=False):
        for (curve, epsilon), line in group.groupby(["curve", "epsilon"], sort=False):
            number = {"minibatch": 0, "minibatch_smoothed": 2}.get(curve, 1)
            line = line.sort_values("rounds")
            look = {"color": style.COLOURS[number], "label": _CURVES[curve]}
            private = {"marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            if math.isinf(epsilon):
                look["label"] += ", no noise"
                panel.plot(line["rounds"], line["excess_risk"], ":", linewidth=1.0, **look)
            else:
                panel.errorbar(line["rounds"], line["excess_risk"], line["interval"], **private, **look)
        for place in sorted(set(group.loc[group["theorem"], "rounds"])):
            panel.axvline(place, color=style.BLACK, linestyle="-.", linewidth=0.7, label="R of Theorem 2.3")
        panel.axhline(group["start_risk"].mean(), color=style.BLACK, linestyle="--", linewidth=0.8, label="w = 0")
        panel.set(xscale="log", yscale="log", xlabel="rounds R")
        panel.set_title(task, fontsize=9)
        style.ticks_at(panel, group["rounds"])
    for row in axes:
        row[0].set_ylabel("excess empirical risk")
    handles = {label: h for a in axes.flat for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
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
