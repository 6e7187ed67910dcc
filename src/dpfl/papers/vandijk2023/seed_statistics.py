"""What the training runs say together: means, intervals, and differences within a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting import style
from dpfl.reporting.results import Results

LEVEL = 0.95
DATA = ["dataset", "stand_in_for"]
MEASURES = [
    "runs",
    "accuracy_pct",
    "interval_pct",
    "difference_pct",
    "difference_interval_pct",
    "privacy_epsilon_proven",
]


def study(results: Results, name: str) -> pd.DataFrame:
    """Return the runs of one study, a row a run; empty where it was not run."""
    runs = results.runs(KEY)
    return runs[runs["study"] == name] if len(runs) else runs


def half_width(values: pd.Series) -> float:
    """Return the half-width of the 95 % interval of the mean (Student's t); nan below two values."""
    known = values.dropna()
    if len(known) < 2:
        return math.nan
    return float(stats.t.ppf(0.5 + LEVEL / 2, len(known) - 1) * known.std() / math.sqrt(len(known)))


def summarise(runs: pd.DataFrame, keys: list[str], baseline: Mapping[str, Any], within: list[str]) -> pd.DataFrame:
    """Return a row a dataset and value of `keys`: DATA, keys and MEASURES.

    difference_pct is the mean over seeds of a run's accuracy minus that of the run with the `baseline` values of the
    same dataset, seed and values of `within`. Empty in, empty out.
    """
    columns = [*DATA, *keys, *MEASURES]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    same = ["dataset", "seed", *within]
    chosen = runs
    for column, value in baseline.items():
        chosen = chosen[chosen[column] == value]
    reference = chosen.drop_duplicates(same)[[*same, "accuracy_pct"]]
    paired = runs.merge(reference.rename(columns={"accuracy_pct": "reference"}), on=same, how="left")
    paired["difference"] = paired["accuracy_pct"] - paired["reference"]
    rows = []
    for values, group in paired.groupby([*DATA, *keys], sort=False, dropna=False):
        accuracy, difference = group["accuracy_pct"], group["difference"]
        measured = (len(group), accuracy.mean(), half_width(accuracy), difference.mean(), half_width(difference))
        rows.append((*values, *measured, group["privacy_epsilon_proven"].iloc[0]))
    return pd.DataFrame(rows, columns=columns)


def title(dataset: str, stand_in_for: str) -> str:
    """Return a dataset's name, with what it stands in for."""
    return f"{dataset} (stand-in for {stand_in_for})" if stand_in_for else dataset


def counted_runs(data: pd.DataFrame) -> str:
    """Return how many runs a point has, and what its bar is."""
    runs = data["runs"].astype(int)
    number = f"{runs.min()}" if runs.nunique() == 1 else f"{runs.min()} to {runs.max()}"
    if runs.max() < 2:
        return "One run a point, so no intervals."
    return f"Means over {number} seeds; bars: 95 % interval of the mean (Student's t)."


def nothing_run() -> Figure:
    """Return the picture of an experiment that this configuration leaves out."""
    figure, axis = style.panels(1, height=1.5)
    axis.set(xlabel="not run", ylabel="not run", xticks=[], yticks=[])
    style.footer(figure, "This configuration leaves the experiment out.")
    return figure
