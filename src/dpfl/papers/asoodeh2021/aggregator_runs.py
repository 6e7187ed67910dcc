"""Summarise runs of Algorithm 1, one study at a time: means, paired differences, slopes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dpfl.reporting.results import ORIGINS, Results, origins
from dpfl.reporting.statistics import mean_interval, slope, summarised

KEY = "asoodeh2021"
TASK = ["dataset", "stand_in_for", "batch_size"]
COLUMNS = [*TASK, "regularisation", "noise_std", "users", "dimension", "idle_excess_risk", "excess_bound"]
FEWEST = 3
"""Points that a slope is fitted to, at least."""


def study(results: Results, name: str) -> pd.DataFrame:
    """Return the runs of one study of the paper's grid; empty where this configuration has none."""
    return results.runs(KEY, study=name)


def mean_risks(results: Results) -> pd.DataFrame:
    """Return one row per (task, regularisation, noise_std, users): runs, mean risk, interval, constants and bounds.

    `study` is price or curvature.
    """
    parts = []
    for name in ("price", "curvature"):
        runs = study(results, name)
        if not runs.empty:
            parts.append(summarised(runs, COLUMNS, "excess_risk").assign(study=name))
    if not parts:
        return pd.DataFrame(columns=[*COLUMNS, "runs", "excess_risk", "interval", "study"])
    return pd.concat(parts, ignore_index=True)


RATES = ["study", *TASK, "against", "fixed", "expected", "points", "runs", "slope", "interval", ORIGINS]


def slopes(results: Results) -> pd.DataFrame:
    """Return the fitted exponents that the paper states, one row per line of points.

    Columns: study, TASK, against ("users" or "sigma^2"), fixed (what else a line shares, in words), expected, points,
    runs, slope (mean of the seeds' slopes), interval.
    """
    rows = [
        *_noise_slopes(study(results, "price")),
        *(each for name in SCHEDULES for each in _rate_slopes(results, name)),
    ]
    return pd.DataFrame(rows, columns=RATES)


def _noise_slopes(runs: pd.DataFrame) -> list[tuple]:
    """Return the exponents of the noise's excess risk: a run's less that of the noiseless run with the same seed,
    users and batches.

    Only points where the mean excess risk is below that of w = 0 count: beyond, the projection on the ball limits the
    model and hides what the noise would cost.
    """
    if runs.empty:
        return []
    cell = [*TASK, "users", "seed"]
    silent = runs[runs["noise_std"] == 0].set_index(cell)["excess_risk"]
    noisy = runs[runs["noise_std"] > 0].copy()
    noisy["share"] = noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[cell])).to_numpy()
    noisy["sigma^2"] = noisy["noise_std"] ** 2
    mean = noisy.groupby([*TASK, "noise_std", "users"])["excess_risk"].transform("mean")
    noisy = noisy[mean < noisy["idle_excess_risk"]]
    rows = []
    for against, fixed, word, expected in (("users", "noise_std", "sigma", -1.0), ("sigma^2", "users", "users", 1.0)):
        for (*task, value), line in noisy.groupby([*TASK, fixed]):
            rows += _fitted(["price", *task, against, f"{word} = {value:g}", expected], line, against, "share")
    return rows


SCHEDULES = {"example": "sigma^2 = sqrt(n), over ln T", "convex": "sigma = {noise_std:g}"}
"""Studies whose excess risk should fall as T to the power -1/2, and what a line of theirs shares."""


def _rate_slopes(results: Results, name: str) -> list[tuple]:
    """Return the exponents of the whole excess risk in the number of users; the example's is over ln T."""
    runs = study(results, name)
    if runs.empty:
        return []
    over = np.log(runs["rounds"]) if name == "example" else 1.0
    runs = runs.assign(
        rate=runs["excess_risk"] / over, fixed=[SCHEDULES[name].format(**run) for _, run in runs.iterrows()]
    )
    rows = []
    for (*task, fixed), line in runs.groupby([*TASK, "fixed"]):
        rows += _fitted([name, *task, "users", fixed, -0.5], line, "users", "rate")
    return rows


def _fitted(key: list, line: pd.DataFrame, against: str, value: str) -> list[tuple]:
    """Return the row of one line of points: the mean of its seeds' exponents; none where it has too few points."""
    points = line[against].nunique()
    if points < FEWEST:
        return []
    fits = [slope(own[against], own[value]) for _, own in line.groupby("seed")]
    return [(*key, points, *mean_interval(fits), origins(line))]


def replacement(results: Results) -> pd.DataFrame:
    """Return one row per (task, users, noise_std, release): excess risk by way of drawing users, and difference.

    Columns one_pass, with_replacement (means), difference (one pass less with replacement, paired by seed), interval.
    """
    measures = ["runs", "one_pass", "with_replacement", "difference", "interval", ORIGINS]
    columns = [*TASK, "users", "noise_std", "release", *measures]
    runs = study(results, "sampling")
    if runs.empty:
        return pd.DataFrame(columns=columns)
    rows = []
    for key, group in runs.groupby([*TASK, "users", "noise_std", "release"], sort=False):
        wide = group.pivot(index="seed", columns="draw", values="excess_risk")
        count, difference, half = mean_interval(wide["one_pass"] - wide["with_replacement"])
        means = (float(wide[name].mean()) for name in ("one_pass", "with_replacement"))
        rows.append((*key, count, *means, difference, half, origins(group)))
    return pd.DataFrame(rows, columns=columns)


def frontier(results: Results) -> pd.DataFrame:
    """Return the best point of every way to spend a budget, one row per (task, users, way, epsilon).

    Ways: hidden (one pass, last model only, noise by Theorem 2), shown (one pass, every model), composed (fresh
    batches, every model, noise by composition). Step size and batch size are those of the least mean excess risk:
    a choice that no budget pays for. Columns: runs, excess_risk, interval, accuracy_pct, step, batch_size, noise_std.
    """
    names = ["runs", "excess_risk", "interval", "accuracy_pct", "accuracy_interval"]
    names += ["step", "batch_size", "noise_std", ORIGINS]
    columns = ["dataset", "stand_in_for", "users", "optimum_accuracy_pct", "way", "epsilon", *names]
    runs = study(results, "frontier")
    if runs.empty:
        return pd.DataFrame(columns=columns)
    runs = runs.assign(way=[WAYS[pair] for pair in zip(runs["draw"], runs["release"], strict=True)])
    rows = []
    for key, group in runs.groupby(["dataset", "stand_in_for", "users", "optimum_accuracy_pct", "way", "epsilon"]):
        points = group.groupby(["step", "batch_size", "noise_std"])["excess_risk"].mean()
        step, size, sigma = points.idxmin()
        best = group[(group["step"] == step) & (group["batch_size"] == size)]
        count, risk, half = mean_interval(best["excess_risk"])
        _, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        rows.append((*key, count, risk, half, accuracy, accuracy_half, step, size, sigma, origins(best)))
    return pd.DataFrame(rows, columns=columns)


WAYS = {("one_pass", "last"): "hidden", ("one_pass", "all"): "shown", ("fresh", "all"): "composed"}
