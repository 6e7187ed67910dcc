"""Means over seeds with their intervals: what a figure's bars and a claim's counts rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.90
"""Of every interval."""


def mean_interval(values: Iterable[float]) -> tuple[int, float, float]:
    """Return how many values there are, their mean and the half-width of its 90 % interval by Student's t.

    A missing value (nan) is left out; the half-width is nan for fewer than two.
    """
    known = np.asarray([value for value in values if not math.isnan(value)], dtype=np.float64)
    if len(known) < 2:
        return len(known), float(known.mean()) if len(known) else math.nan, math.nan
    half = stats.t.ppf(0.5 + LEVEL / 2, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known))
    return len(known), float(known.mean()), float(half)


def summarised(runs: pd.DataFrame, by: list[str], metric: str) -> pd.DataFrame:
    """Return one row a group of runs, in the order of their first rows: `by`, runs, the metric's mean, interval."""
    rows = [(*key, *mean_interval(group[metric])) for key, group in runs.groupby(by, sort=False, dropna=False)]
    return pd.DataFrame(rows, columns=[*by, "runs", metric, "interval"])


def slope(x: Iterable[float], y: Iterable[float]) -> float:
    """Return the least-squares slope of ln y against ln x; nan where a y is not above 0."""
    x, y = np.log(np.asarray(x, dtype=np.float64)), np.asarray(y, dtype=np.float64)
    return math.nan if np.any(y <= 0) else float(np.polyfit(x, np.log(y), 1)[0])
