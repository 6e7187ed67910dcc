"""The ablation of where clients start: one common model or one each, with and without noise, local and averaged."""

from __future__ import annotations

import json

import pandas as pd

from dpfl.catalog import load
from dpfl.papers.bhaskar2025.paper_runs import (
    LEVEL,
    all_runs,
    each_once,
    published_cells,
    table_settings,
    with_settings,
)
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width

COMMON, PER_CLIENT = "common", "per_client"
_CELL = ["dataset", "ran_on", "stand_in", "model", "epsilon", "local_epochs", "rounds"]


def initialisation_cells(results: Results) -> pd.DataFrame:
    """Return a row for each initialisation and each cell (ten clients), from the seeds that ran with both.

    Columns: dataset, ran_on, stand_in, model, epsilon, local_epochs, rounds, initialisation, runs, accuracy_pct and
    interval_pct (averaged model; mean and half-width of its 95 % interval), local_accuracy_pct and local_interval_pct
    (the clients' own models before the last averaging, mean over clients), run_accuracies_pct
    (the averaged models' accuracy by seed, as JSON), published_accuracy_pct (nan on stand-ins), origins.
    """
    settings = {name: value for name, value in load("bhaskar2025").settings.items() if name != "initialisation"}
    runs = with_settings(all_runs(results), {**settings, "clients": table_settings(2)["clients"]})
    runs = each_once(runs, "initialisation")
    both = runs.groupby([*_CELL, "seed"])["initialisation"].transform("nunique") == 2
    runs = runs[both].assign(run=list(runs.loc[both, ["seed", "accuracy_pct"]].itertuples(index=False, name=None)))
    cells = runs.groupby([*_CELL, "initialisation"], as_index=False, sort=False).agg(
        runs=("accuracy_pct", "size"),
        accuracy_pct=("accuracy_pct", "mean"),
        sd=("accuracy_pct", "std"),
        local_accuracy_pct=("local_accuracy_pct", "mean"),
        local_sd=("local_accuracy_pct", "std"),
        run_accuracies_pct=("run", lambda pairs: json.dumps(dict(sorted(pairs)))),
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells["interval_pct"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    cells["local_interval_pct"] = half_width(cells.pop("local_sd"), cells["runs"], LEVEL)
    published = published_cells().query("table < 5").drop(columns=["table", "clients"])
    cells = cells.merge(published, on=["dataset", "model", "epsilon", "local_epochs", "rounds"], how="left")
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    return cells.sort_values([*_CELL, "initialisation"], ignore_index=True)
