"""The 276 published cells of Tables 2 to 5, each with the runs that reproduce it.

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
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import half_width

CELL = ["model", "epsilon", "local_epochs", "rounds", "clients"]
PUBLISHED_RUNS = 10
LEVEL = 0.95  # of every interval
ROUNDING_PCT = 0.005  # published values have two decimals
INSIDE, OUTSIDE, UNDECIDED = "inside", "outside", "undecided"
WIDE_PCT = 10.0  # half-width of a prediction interval beyond which a value inside says nothing
CONSTANT_PCT = 12.0  # accuracy that a constant answer does not exceed: ten classes, the largest with 11.35 % of MNIST
_PRIVACY = [
    f"privacy_{name}" for name in ("noise_multiplier", "delta", "epsilon_proven", "epsilon_refuted", "sampling")
]
_RUN = [
    "dataset",
    "stand_in_for",
    "data_note",
    "seed",
    "status",
    "accuracy_pct",
    "local_accuracy_pct",
    *CELL,
    *_PRIVACY,
]


def published_cells() -> pd.DataFrame:
    """Return one row per published cell: table, dataset, model, epsilon, local_epochs, rounds, clients,
    published_accuracy_pct; 72 rows for each of Tables 2 to 4, 60 for Table 5.
    """
    rows = []
    for table in (2, 3, 4):
        printed = load("bhaskar2025").tables[f"table_{table}"]
        for model, budgets in printed["published_accuracy_pct"].items():
            for epsilon, accuracies in budgets.items():
                for (local_epochs, rounds), accuracy in zip(printed["splits"], accuracies, strict=True):
                    cell = (model, epsilon, local_epochs, rounds, printed["clients"])
                    rows.append((table, printed["dataset"], *cell, accuracy))
    printed = load("bhaskar2025").tables["table_5"]
    for dataset, models in printed["published_accuracy_pct"].items():
        epsilon = models["epsilon"]
        for model in [name for name in models if name != "epsilon"]:
            for clients, accuracy in zip(printed["clients"], models[model], strict=True):
                rows.append((5, dataset, model, epsilon, *printed["split"], clients, accuracy))
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


def measured_cells(results: Results, table: int) -> pd.DataFrame:
    """Return the cells of one published table with what was measured for each, under the settings of paper.yaml.

    Added columns: ran_on (the dataset, "" where nothing ran), stand_in, data_note, runs, diverged (runs that reached
    numbers that are none), constant (runs no better than one answer to everything), accuracy_pct (mean over all
    runs), sd_pct, local_accuracy_pct (the clients' own models before the last average; nan where not measured),
    interval_pct (half-width of the 95 % interval by Student's t; nan below two runs), difference_pct (ours minus
    published; nan for stand-in data, which are not comparable), prediction_pct and prediction (see
    `prediction_half_width`, `predicted`), noise_multiplier, delta, epsilon_proven, epsilon_refuted, sampling; in
    Tables 2 to 4 over_first_pct and over_first_interval_pct (mean advantage over (1, 20) on the seeds that both ran,
    and half-width).
    """
    published = published_cells().query("table == @table")
    runs = each_once(with_settings(all_runs(results), load("bhaskar2025").settings))
    runs["constant"] = (runs["accuracy_pct"] < CONSTANT_PCT) & (runs["status"] != "diverged")
    summary = runs.groupby(["dataset", *CELL], as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        data_note=("data_note", "first"),
        runs=("accuracy_pct", "size"),
        diverged=("status", lambda status: (status == "diverged").sum()),
        constant=("constant", "sum"),
        accuracy_pct=("accuracy_pct", "mean"),
        sd_pct=("accuracy_pct", "std"),
        local_accuracy_pct=("local_accuracy_pct", "mean"),
        **{name.removeprefix("privacy_"): (name, "first") for name in _PRIVACY},
    )
    cells = published.merge(summary, on=["dataset", *CELL], how="left")
    if table < 5:
        cells = cells.merge(_over_first(runs), on=["dataset", *CELL], how="left")
    counts = ["runs", "diverged", "constant"]
    cells[counts] = cells[counts].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    text = ["ran_on", "data_note", "sampling"]
    cells[text] = cells[text].fillna("")
    cells["interval_pct"] = half_width(cells["sd_pct"], cells["runs"], LEVEL)
    cells["difference_pct"] = (cells["accuracy_pct"] - cells["published_accuracy_pct"]).where(~cells["stand_in"])
    cells["prediction_pct"] = prediction_half_width(cells["sd_pct"], cells["runs"]).where(~cells["stand_in"])
    cells["prediction"] = predicted(cells["difference_pct"], cells["prediction_pct"])
    return cells


def _over_first(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each cell's advantage over (1, 20), seed by seed: columns as `measured_cells` says."""
    column = ["dataset", "model", "epsilon", "clients", "seed"]
    local_epochs, rounds = load("bhaskar2025").tables["table_5"]["split"]
    first = runs[(runs["local_epochs"] == local_epochs) & (runs["rounds"] == rounds)]
    pairs = runs.merge(first[[*column, "accuracy_pct"]], on=column, suffixes=("", "_first"), validate="m:1")
    pairs["over"] = pairs["accuracy_pct"] - pairs["accuracy_pct_first"]
    known = pairs.groupby(["dataset", *CELL], as_index=False)
    over = known.agg(over_first_pct=("over", "mean"), sd=("over", "std"), shared=("over", "size"))
    over["over_first_interval_pct"] = half_width(over.pop("sd"), over.pop("shared"), LEVEL)
    return over


def prediction_half_width(sd: pd.Series, runs: pd.Series) -> pd.Series:
    """Return the half-width of the 95 % interval in which the mean of ten other runs falls; nan below two runs.

    From n runs with standard deviation s: t s sqrt(1/n + 1/10), t of Student's law with n - 1 degrees of freedom.
    """
    return half_width(sd, runs, LEVEL) * np.sqrt(1 + runs / PUBLISHED_RUNS)


def predicted(difference: pd.Series, prediction: pd.Series) -> pd.Series:
    """Return where each published value is, "" where there is no prediction interval: "inside", "outside", or
    "undecided" where it is in an interval of more than `WIDE_PCT` to each side, which takes in nearly anything."""
    known = prediction.notna() & difference.notna()
    inside = difference.abs() <= prediction + ROUNDING_PCT
    where = inside.map({True: INSIDE, False: OUTSIDE}).mask(inside & (prediction > WIDE_PCT), UNDECIDED)
    return where.where(known, "")
