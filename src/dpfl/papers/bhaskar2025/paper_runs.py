"""Published cells of Tables 2 to 5, and the runs that the paper has here: 276 cells, one row per run.

The runs are entries of grid.yaml: dpfl.experiments.fedavg_images trains them with dpfl.algorithms.fedavg.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpfl.catalog import load
from dpfl.experiments.shared.run_table import as_columns
from dpfl.reporting.canary_table import EXPERIMENT
from dpfl.reporting.results import ORIGIN, Results

CELL = ["model", "epsilon", "local_epochs", "rounds", "clients"]
PUBLISHED_RUNS = 10
LEVEL = 0.95  # of every interval
PRIVACY = [f"privacy_{name}" for name in ("noise_multiplier", "delta", "epsilon_proven", "epsilon_refuted", "sampling")]
_RUN = [
    "dataset",
    "stand_in_for",
    "data_note",
    "seed",
    "status",
    "accuracy_pct",
    "local_accuracy_pct",
    *CELL,
    *PRIVACY,
    ORIGIN,
]


def table_settings(table: int) -> dict[str, Any]:
    """Return what published table 2, 3, 4 or 5 is of, as paper.yaml says it: clients, dataset and splits, or split."""
    return load("bhaskar2025").tables[f"table_{table}"]["settings"]


def published_cells() -> pd.DataFrame:
    """Return one row per published cell: table, dataset, model, epsilon, local_epochs, rounds, clients,
    published_accuracy_pct; 72 rows for each of Tables 2 to 4, 60 for Table 5.
    """
    rows = []
    for table in (2, 3, 4):
        settings = table_settings(table)
        for model, budgets in load("bhaskar2025").tables[f"table_{table}"]["published_accuracy_pct"].items():
            for epsilon, accuracies in budgets.items():
                for (local_epochs, rounds), accuracy in zip(settings["splits"], accuracies, strict=True):
                    cell = (model, epsilon, local_epochs, rounds, settings["clients"])
                    rows.append((table, settings["dataset"], *cell, accuracy))
    settings = table_settings(5)
    for dataset, models in load("bhaskar2025").tables["table_5"]["published_accuracy_pct"].items():
        epsilon = models["epsilon"]
        for model in [name for name in models if name != "epsilon"]:
            for clients, accuracy in zip(settings["clients"], models[model], strict=True):
                rows.append((5, dataset, model, epsilon, *settings["split"], clients, accuracy))
    return pd.DataFrame(rows, columns=["table", "dataset", *CELL, "published_accuracy_pct"])


def all_runs(results: Results) -> pd.DataFrame:
    """Return every run of the paper, one row per run, with two more columns: ran_on (the dataset) and stand_in.

    `dataset` names the published data that a stand-in was run for. Runs with canaries, those that clip without noise
    (references of distances) and those of uneven rounds are left out: they belong to no cell. Where nothing ran
    there are no rows.
    """
    runs = results.runs("bhaskar2025")
    if "experiment" in runs:
        runs = runs[runs["experiment"] != EXPERIMENT].drop(columns="experiment").dropna(axis="columns", how="all")
    if runs.empty:
        return pd.DataFrame(columns=[*_RUN, *load("bhaskar2025").settings, "ran_on", "stand_in"])
    if "clip" in runs:
        runs = runs[~(runs["clip"].eq(True) & np.isinf(runs["epsilon"]))]
    runs = runs[runs["local_epochs"] > 0]
    local = runs.get("local_accuracy_pct", math.nan)
    runs = runs.assign(ran_on=runs["dataset"], stand_in=runs["stand_in_for"] != "", local_accuracy_pct=local)
    runs["dataset"] = runs["stand_in_for"].where(runs["stand_in"], runs["dataset"])
    return runs


def with_settings(runs: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return the runs that have these settings, as a copy; a setting that no run table names is passed over.

    So is `measure`, which says what was recorded and changes no model.
    """
    for name, value in as_columns(settings).items():
        runs = runs[runs[name] == value] if name in runs and name != "measure" else runs
    return runs.copy()


def each_once(runs: pd.DataFrame, *settings: str) -> pd.DataFrame:
    """Return every run once: it is known by `settings`, cell and seed, whichever entries of the grid asked for it."""
    return runs.drop_duplicates([*settings, "dataset", *CELL, "seed"])
