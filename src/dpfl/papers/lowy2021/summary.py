"""What the trials of Fig. 2 say together: means, intervals and paired differences."""

from __future__ import annotations

import math

import pandas as pd
from scipy import stats

from dpfl.errors import InputError
from dpfl.reporting.results import Results

LEVEL = 0.90
TASK = ["dataset", "stand_in_for", "clients"]


def trials(results: Results) -> pd.DataFrame:
    """Return the run table of the regression task, a row an (algorithm, epsilon, trial); raises InputError if empty."""
    runs = results.runs("lowy2021")
    if runs.empty:
        raise InputError(f"no run of lowy2021 in {results.folder}: train it first (run make)")
    return runs.sort_values(["dataset", "clients"], kind="stable", ignore_index=True)


def mean_interval(values: pd.Series) -> pd.Series:
    """Return trials, mean and the half-width of its 90 % interval (Student's t; nan below two trials)."""
    known = values.dropna()
    freedom = max(len(known) - 1, 1)
    half = stats.t.ppf(0.5 + LEVEL / 2, freedom) * known.std() / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return pd.Series({"trials": len(known), "mean": known.mean(), "interval": half})
