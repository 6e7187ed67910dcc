"""The 276 published cells of Tables 2 to 5, each beside the runs that reproduce it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.papers import load
from dpfl.reporting.results import Results

CELL = ["model", "epsilon", "local_epochs", "rounds", "clients"]
_RUN = ["dataset", "stand_in_for", "data_note", "status", "accuracy_pct"]
_PRIVACY = [f"privacy_{name}" for name in ("noise_multiplier", "delta", "epsilon_rdp", "epsilon_pld", "sampling")]


def published_cells() -> pd.DataFrame:
    """Return a row a published cell: table, dataset, model, epsilon, local_epochs, rounds, clients,
    published_accuracy_pct; 72 rows for each of Tables 2 to 4, 60 for Table 5.
    """
    rows = []
    for table in (2, 3, 4):
        about = load("bhaskar2025").tables[f"table_{table}"]
        for model, budgets in about["published_accuracy_pct"].items():
            for epsilon, accuracies in budgets.items():
                for (local_epochs, rounds), accuracy in zip(about["splits"], accuracies, strict=True):
                    cell = (model, epsilon, local_epochs, rounds, about["clients"])
                    rows.append((table, about["dataset"], *cell, accuracy))
    about = load("bhaskar2025").tables["table_5"]
    for dataset, models in about["published_accuracy_pct"].items():
        epsilon = models["epsilon"]
        for model in [name for name in models if name != "epsilon"]:
            for clients, accuracy in zip(about["clients"], models[model], strict=True):
                rows.append((5, dataset, model, epsilon, *about["split"], clients, accuracy))
    return pd.DataFrame(rows, columns=["table", "dataset", *CELL, "published_accuracy_pct"])


def measured_cells(results: Results, table: int) -> pd.DataFrame:
    """Return the cells of one published table with what was measured for each.

    Added columns: ran_on (the dataset, "" where nothing ran), stand_in, data_note, runs, diverged, accuracy_pct (mean
    over runs), sd_pct, interval_pct (half-width of the 95 % interval by Student's t; nan below two runs),
    difference_pct (ours minus published; nan for stand-in data, which are not comparable), noise_multiplier, delta,
    epsilon_rdp, epsilon_pld, sampling.
    """
    published = published_cells().query("table == @table")
    runs = results.runs("bhaskar2025")
    if runs.empty:
        runs = pd.DataFrame(
            columns=["dataset", "stand_in_for", "data_note", "status", "accuracy_pct", *CELL, *_PRIVACY]
        )
    runs = runs.assign(ran_on=runs["dataset"], stand_in=runs["stand_in_for"] != "")
    runs["dataset"] = runs["stand_in_for"].where(runs["stand_in"], runs["dataset"])
    summary = runs.groupby(["dataset", *CELL], as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        data_note=("data_note", "first"),
        runs=("accuracy_pct", "size"),
        diverged=("status", lambda status: (status == "diverged").sum()),
        accuracy_pct=("accuracy_pct", "mean"),
        sd_pct=("accuracy_pct", "std"),
        **{name.removeprefix("privacy_"): (name, "first") for name in _PRIVACY},
    )
    cells = published.merge(summary, on=["dataset", *CELL], how="left")
    cells[["runs", "diverged"]] = cells[["runs", "diverged"]].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    text = ["ran_on", "data_note", "sampling"]
    cells[text] = cells[text].fillna("")
    cells["interval_pct"] = interval_half_width(cells["sd_pct"], cells["runs"])
    cells["difference_pct"] = (cells["accuracy_pct"] - cells["published_accuracy_pct"]).where(~cells["stand_in"])
    return cells


_PRIVACY = [
    "privacy_noise_multiplier",
    "privacy_delta",
    "privacy_epsilon_rdp",
    "privacy_epsilon_pld",
    "privacy_sampling",
]


def interval_half_width(sd: pd.Series, runs: pd.Series) -> pd.Series:
    """Return the half-width of the 95 % interval of a mean (Student's t); nan below two runs."""
    enough = runs >= 2
    freedom = (runs - 1).where(enough, 1)
    return (stats.t.ppf(0.975, freedom) * sd / np.sqrt(runs.where(enough, 1))).where(enough)
