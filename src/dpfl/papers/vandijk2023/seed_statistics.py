"""Summarise training runs over seeds: means, intervals, and differences within a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dpfl.reporting.notes import count_range
from dpfl.reporting.results import ORIGINS, origins
from dpfl.reporting.statistics import mean_interval

LEVEL = 0.95
DATA = ["dataset", "stand_in_for"]
MEASURES = [
    "runs",
    "accuracy_pct",
    "interval_pct",
    "difference_pct",
    "difference_interval_pct",
    "difference_runs",
    "privacy_epsilon_proven",
    ORIGINS,
]


def summarise(runs: pd.DataFrame, keys: list[str], baseline: Mapping[str, Any], within: list[str]) -> pd.DataFrame:
    """Return one row per dataset and value of `keys`: DATA, keys and MEASURES.

    difference_pct is the mean of a run's accuracy minus that of the run with the `baseline` values of the same dataset,
    seed and values of `within`, over the `difference_runs` seeds that both ran. Empty in, empty out.
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
        _, *accuracy = mean_interval(group["accuracy_pct"], LEVEL)
        pairs, *difference = mean_interval(group["difference"], LEVEL)
        proven = group["privacy_epsilon_proven"].iloc[0]
        rows.append((*values, len(group), *accuracy, *difference, pairs, proven, origins(group)))
    return pd.DataFrame(rows, columns=columns)


def counted_runs(data: pd.DataFrame) -> str:
    """Return how many runs a point has, and what its bar is."""
    if data["runs"].max() < 2:
        return "One run a point, so no intervals."
    return f"Means over {count_range(data['runs'])} seeds; bars: 95 % interval of the mean (Student's t)."
