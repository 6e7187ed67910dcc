"""Summarise the theory studies' runs: mean risks with intervals, the worst of a family, fitted slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dpfl.reporting.notes import count_range
from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.statistics import half_width, t_quantile

EXPERIMENT = "ldp_theory"
FAMILY = "signal"
"""Problems that differ in it make up a family; the theorems speak of the worst of one."""


def study(results: Results, names: Sequence[str] = ()) -> pd.DataFrame:
    """Return the finished runs of the studies `names` (all, if empty); raises NotRunError if there is none."""
    runs = results.runs("lowy2021", experiment=EXPERIMENT)
    runs = runs[runs["study"].isin(list(names))] if len(runs) and names else runs
    if runs.empty:
        told = f" {', '.join(names)}" if names else ""
        raise NotRunError(f"no run of lowy2021's theory studies{told} in this configuration")
    return runs[runs["status"] == "finished"].reset_index(drop=True)


def by_seed(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return one row per setting (index `keys`), one column per seed; seeds that a setting lacks are left out."""
    return runs.pivot_table(index=list(keys), columns="seed", values="excess_risk", sort=False).dropna(axis=1)


def worst(table: pd.DataFrame) -> pd.DataFrame:
    """Return, of a `by_seed` table whose index ends in FAMILY, the member with the largest mean in each setting."""
    means = table.mean(axis=1)
    keys = [name for name in table.index.names if name != FAMILY]
    return table.loc[means.groupby(level=keys, sort=False).idxmax().to_list()]


def interval(table: pd.DataFrame) -> pd.Series:
    """Return the half-width of the 90 % interval of each row's mean over the seeds, by Student's t."""
    return half_width(table.std(axis=1), table.shape[1])


def slope(axis: Sequence[float], risks: np.ndarray, against: np.ndarray | None = None) -> tuple[float, float]:
    """Return the slope of log mean risk by log axis, and the half-width of its 90 % interval.

    risks (settings, seeds); with `against`, (settings,) numbers or the (settings, seeds) risks of the same seeds, of
    the log of their quotient. Least squares through the means; the interval is the jackknife's over the seeds, by
    Student's t, so it holds the runs' chance and not the curve's departure from a power. nan below two settings.
    """
    logs, count = np.log(np.asarray(axis, dtype=np.float64)), risks.shape[1]
    below = np.ones((len(logs), 1)) if against is None else np.asarray(against).reshape(len(logs), -1)
    if len(logs) < 2 or np.any(risks.mean(axis=1) <= 0):
        return math.nan, math.nan
    centred = logs - logs.mean()

    def fit(values: np.ndarray, others: np.ndarray) -> float:
        heights = np.log(values.mean(axis=1)) - np.log(others.mean(axis=1))
        return float(centred @ heights / (centred @ centred))

    exponent = fit(risks, below)
    if count < 3:
        return exponent, math.nan
    fixed = below.shape[1] == 1
    left = np.array(
        [
            fit(np.delete(risks, seed, axis=1), below if fixed else np.delete(below, seed, axis=1))
            for seed in range(count)
        ]
    )
    error = math.sqrt((count - 1) / count * float(np.sum((left - left.mean()) ** 2)))
    return exponent, float(t_quantile(count)) * error


def ratio(left: pd.Series, right: pd.Series) -> tuple[float, float]:
    """Return mean(left)/mean(right) over the seeds that both have, and the half-width of its 90 % interval.

    The interval is the jackknife's: `slope` of two settings, whose log ratio it is, carried to the ratio.
    """
    both = pd.concat([right, left], axis=1).dropna().to_numpy().T
    log_ratio, half = slope([1.0, math.e], both)
    return math.exp(log_ratio), math.exp(log_ratio) * half


def seeds_text(points: pd.DataFrame) -> str:
    """Return what the bars are and how many seeds are behind each point."""
    number = count_range(points["seeds"])
    return f"Synthetic data. Means over {number} seeds; bars: 90 % interval of the mean (Student's t)."
