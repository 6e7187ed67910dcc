"""Summarise runs over seeds: means with Student's intervals, slopes on logarithmic axes, families of tests."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.reporting.results import ORIGINS, origins

LEVEL = 0.90
"""Of an interval in tables and figures whose level is not given: that of the bars which lowy2021 prints, the only ones
of the five papers. Claims are judged at one level, dpfl.reporting.rules.LEVEL, whatever bars a figure has."""


def t_quantile(count: pd.Series | int, level: float = LEVEL) -> pd.Series | float:
    """Return Student's quantile of a two-sided interval of this level with count - 1 degrees of freedom, count >= 2."""
    return stats.t.ppf(0.5 + level / 2, count - 1)


def half_width(std: pd.Series | float, count: pd.Series | int, level: float = LEVEL) -> pd.Series | float:
    """Return the half-width of the interval of a mean by Student's t; nan below two values.

    `std` is the standard deviation of `count` values (divisor count - 1); series are matched by their index.
    """
    if isinstance(count, pd.Series):
        enough = count.where(count >= 2)
        return t_quantile(enough, level) * std / np.sqrt(enough)
    return t_quantile(count, level) * std / math.sqrt(count) if count >= 2 else math.nan * std


def mean_interval(values: Iterable[float], level: float = LEVEL) -> tuple[int, float, float]:
    """Return how many values there are, their mean and the half-width of its interval by Student's t.

    A missing value (nan) is left out; the half-width is nan for fewer than two.
    """
    known = pd.Series(values, dtype=np.float64).dropna()
    return len(known), float(known.mean()), float(half_width(known.std(), len(known), level))


def summarised(runs: pd.DataFrame, by: list[str], metric: str) -> pd.DataFrame:
    """Return one row per group of runs, in the order of their first rows: `by`, runs, the metric's mean, interval,
    and the origins of the group's runs."""
    groups = runs.groupby(by, sort=False, dropna=False)
    rows = [(*key, *mean_interval(group[metric]), origins(group)) for key, group in groups]
    return pd.DataFrame(rows, columns=[*by, "runs", metric, "interval", ORIGINS])


def slope(x: Iterable[float], y: Iterable[float]) -> float:
    """Return the least-squares slope of ln y against ln x; nan where a y is not above 0."""
    x, y = np.log(np.asarray(x, dtype=np.float64)), np.asarray(y, dtype=np.float64)
    return math.nan if np.any(y <= 0) else float(np.polyfit(x, np.log(y), 1)[0])


def holm(p_values: Iterable[float], to_come: int = 0) -> np.ndarray:
    """Return Holm's adjusted p-values of one family, nan (not tested) left out.

    `to_come`: tests of the family that are yet to be made. Whatever they give, no adjusted p-value becomes larger.
    """
    p = np.asarray(list(p_values), dtype=float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(len(p), math.nan)
    steps = np.arange(len(order), 0, -1) + to_come
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps * p[order]))
    return adjusted
