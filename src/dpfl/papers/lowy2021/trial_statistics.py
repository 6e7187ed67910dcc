"""Summarise the trials of an experiment: paired differences, their tests, and names for readers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.statistics import mean_interval

REGRESSION, CLASSIFICATION = "ldp_regression", "ldp_classification"
NOISES = {
    "advanced_composition": "noise of Theorem 2.1",
    "moments": "noise of the later script",
    "tight": "tight noise",
}
# Columns that other experiments lack become floats when the run tables are read as one.
_COUNTS = ("clients", "participating", "rounds", "batch_size", "privacy_records", "privacy_steps", "seed")


def trials(results: Results, experiment: str) -> pd.DataFrame:
    """Return the runs of an experiment, one row per (algorithm, epsilon, trial). Raises NotRunError without runs."""
    runs = results.runs("lowy2021", experiment=experiment).dropna(axis="columns", how="all")
    if runs.empty:
        raise NotRunError(f"no run of lowy2021's {experiment} in this configuration")
    runs = runs.astype({name: int for name in _COUNTS if name in runs})
    order = runs["noise"].map(list(NOISES).index)
    by = [name for name in ("dataset", "clients") if name in runs]
    return runs.assign(order=order).sort_values([*by, "order"], kind="stable", ignore_index=True).drop(columns="order")


def paired(first: pd.Series, second: pd.Series) -> dict[str, float]:
    """Compare two series of the same trials: second minus first.

    Returns trials (with both finished), the mean difference, the half-width of its 90 % interval, the two-sided
    p-value of Student's paired t-test (nan below two trials; 0 or 1 where all differences are equal), and in how many
    trials the first is the smaller.
    """
    differences = (second - first).dropna()
    count, mean, half = mean_interval(differences)
    if len(differences) < 2:
        p_value = math.nan
    elif np.ptp(differences) == 0:
        p_value = float(mean == 0)
    else:
        p_value = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return {
        "trials": count,
        "difference": mean,
        "interval": half,
        "p_value": p_value,
        "first_smaller": int((differences > 0).sum()),
    }


def stand_in_notes(data: pd.DataFrame) -> list[str]:
    """Return a note for every stand-in among the data."""
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return [f"{dataset} stands in for {real}: not the paper's numbers." for dataset, real in pairs if real]


def noise_name(noise: str, clipping: str = "record") -> str:
    """Return a noise as text, and whether the authors' clipping of means went with it."""
    return NOISES[noise] + (", means clipped" if clipping == "mean" else "")
