"""Three readings of how the central model of Table 5 was trained, and a rule from before the runs that decides.

The central model is one client with the whole training set. grid.yaml has the rule in words, committed before any run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from dpfl.papers.bhaskar2025.cells import CELL, PUBLISHED, each_once, numbers, published_cells, runs_of, with_runs
from dpfl.reporting.display_names import data_name, model_name
from dpfl.reporting.results import ORIGIN, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

STUDY = "central_model"
SEEDS = 3  # of each counted cell, before the rule decides
READINGS = {
    "program": "batch 64, federated program",
    "older": "batch 64, older program's defaults",
    "rate": "batch 640, the clients' sampling rate",
}
"""The candidates; the first is shipped unless the rule chooses another."""
RATE_BATCH = 640
OLDER_RATE = (0.1, 0.9)  # learning rate and momentum of the older central program; its clip norm is 0.1 for ScatterNet
COUNTED = (
    ("fashion_mnist", "scatter_cnn"),
    ("fashion_mnist", "scatter_linear"),
    ("cifar10", "scatter_cnn"),
    ("cifar10", "scatter_linear"),
    ("mnist", "scatter_cnn"),
)
_KEY = ["dataset", *CELL, "seed"]
_USED = ["study", "batch_size", "learning_rate", "momentum", "accuracy_pct", "ran_on", "stand_in", ORIGIN]


def central_cells(results: Results) -> pd.DataFrame:
    """Return a row for each central model of Table 5, from the seeds that ran with all three readings.

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, published_accuracy_pct, <reading>_pct (mean accuracy) and
    <reading>_distance_pct (to the published value; nan on stand-in data) for each of `READINGS`, counted (by the rule),
    origins.
    """
    runs = runs_of(results, PUBLISHED, STUDY).reindex(columns=[*_KEY, *_USED])
    runs = runs[runs["clients"] == 1]
    runs = runs.assign(reading=[reading_of(run) for run in runs.to_dict("records")])
    older = runs["reading"] == "older"
    runs.loc[older, ["local_epochs", "rounds"]] = 1, 20  # it stands for the cell that the paper prints
    runs = each_once(runs, "reading")
    complete = runs.groupby(_KEY)["reading"].transform("nunique") == len(READINGS)
    by = ["dataset", *CELL]
    cells = published_cells().query("table == 5 and clients == 1")
    cells = with_runs(cells, runs[complete], by)
    for reading in READINGS:
        own = runs[complete & (runs["reading"] == reading)].groupby(by)["accuracy_pct"].mean()
        keys = cells[by].itertuples(index=False, name=None)
        cells[f"{reading}_pct"] = [own.get(key, math.nan) for key in keys]
        distance = (cells[f"{reading}_pct"] - cells["published_accuracy_pct"]).abs()
        cells[f"{reading}_distance_pct"] = distance.where(~cells["stand_in"])
    cells["counted"] = [key in COUNTED for key in zip(cells["dataset"], cells["model"], strict=True)]
    return cells.drop(columns=["table", "local_epochs", "rounds", "clients"])


def reading_of(run: Mapping[str, object]) -> str:
    """Return the reading that a run of one client belongs to: by its batch size, learning rate and momentum."""
    if run["batch_size"] == RATE_BATCH:
        return "rate"
    is_older = (run["learning_rate"], run["momentum"], run["local_epochs"]) == (*OLDER_RATE, 20)
    return "older" if is_older else "program"


@dataclass(frozen=True)
class CentralDecision:
    """Outcome of the rule: counted cells without all readings at `SEEDS` seeds, each reading's median distance, in how
    many of the counted cells each is the nearest, whether the rule chooses one, and the reading that is shipped."""

    missing: tuple[str, ...]
    counted: int
    medians_pct: Mapping[str, float]
    nearest: Mapping[str, int]
    chosen: bool
    shipped: str


def decide(cells: pd.DataFrame) -> CentralDecision:
    """Return what the rule says of `central_cells`.

    The reading with the smallest median distance over the counted cells is chosen if it is the nearest in more than
    half of them; else, and while counted cells are missing, the federated program's is shipped.
    """
    counted = cells[cells["counted"]]
    distances = counted[[f"{reading}_distance_pct" for reading in READINGS]].set_axis(list(READINGS), axis="columns")
    missing = tuple(
        f"{data_name(row.dataset)}, {model_name(row.model)}"
        for row, lacks in zip(counted.itertuples(), distances.isna().any(axis=1), strict=True)
        if lacks or row.runs < SEEDS
    )
    ran = distances.dropna()
    medians = {reading: float(ran[reading].median()) for reading in READINGS}
    nearest = {reading: int((ran.idxmin(axis=1) == reading).sum()) if len(ran) else 0 for reading in READINGS}
    default = next(iter(READINGS))
    best = min(READINGS, key=medians.__getitem__) if len(ran) else default
    chosen = not missing and 2 * nearest[best] > len(counted)
    return CentralDecision(missing, len(counted), medians, nearest, chosen, best if chosen else default)


def central_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader, with what is decided."""
    body = pd.DataFrame(
        {
            "Data": [data_name(name) for name in cells["ran_on"].where(cells["ran_on"] != "", cells["dataset"])],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map("{:g}".format),
            "Seeds": cells["runs"].map(str).replace("0", "not run all ways"),
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"]), "{:.2f}"),
            **{name[0].upper() + name[1:]: _with_distance(cells, reading) for reading, name in READINGS.items()},
            "Counts": cells["counted"].map({True: "yes", False: "no"}),
        }
    )
    notes = [
        verdict(decide(cells)),
        "Accuracy in per cent over the seeds that ran all three ways, and in brackets its distance to the published "
        "value in points. The older central program's defaults are a learning rate of 0.1, momentum 0.9 and, for "
        "ScatterNet, a clip norm of 0.1.",
        "Counts: the rule counts ScatterNet models, except ScatterNet + linear on MNIST, which had been looked at "
        "before the rule was written.",
    ]
    if stand_ins := sorted(set(cells.loc[cells["stand_in"], "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(stand_ins)}) cannot be compared and do not count.")
    return TableLayout(body, notes)


def _with_distance(cells: pd.DataFrame, reading: str) -> list[str]:
    """Return the accuracy of a reading with its distance, where it ran."""
    pairs = zip(cells[f"{reading}_pct"], cells[f"{reading}_distance_pct"], strict=True)
    return [
        "–" if math.isnan(value) else f"{value:.2f}" + ("" if math.isnan(distance) else f" ({distance:.2f})")
        for value, distance in pairs
    ]


def verdict(decision: CentralDecision) -> str:
    """Return what is decided, with its numbers."""
    score = "; ".join(
        f"{name}: median {decision.medians_pct[reading]:.2f} points, nearest in {decision.nearest[reading]}"
        for reading, name in READINGS.items()
    )
    shipped = READINGS[decision.shipped]
    if decision.missing:
        so_far = "" if math.isnan(decision.medians_pct[decision.shipped]) else f" So far: {score}."
        return (
            f"Undecided: {len(decision.missing)} of {decision.counted} counted cells have yet to run all ways with "
            f"{SEEDS} seeds ({'; '.join(decision.missing)}).{so_far} "
            f"Without a decision the rule keeps its default: {shipped}."
        )
    nearest = "has the smallest median and is the nearest in more than half of the cells"
    why = f"it {nearest}" if decision.chosen else f"no reading {nearest}"
    return f"Of {decision.counted} counted cells: {score}. Shipped: {shipped} ({why})."


TABLES = {"central_model": TableRecipe(central_cells, central_page)}
