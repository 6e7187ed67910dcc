"""The 276 published cells of Tables 2 to 5, each with the runs that reproduce it and two prediction intervals.

The paper says that each is a mean of ten runs (5.2). Some scatter more than such means do
(dpfl.papers.bhaskar2025.single_runs), so each cell is compared on both readings, as a mean of ten and as a single run.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dpfl.catalog import load
from dpfl.papers.bhaskar2025 import central_model
from dpfl.papers.bhaskar2025.paper_runs import (
    CELL,
    LEVEL,
    PRIVACY,
    PUBLISHED_RUNS,
    all_runs,
    each_once,
    published_cells,
    table_settings,
    with_settings,
)
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width

ROUNDING_PCT = 0.005  # published values have two decimals
INSIDE, OUTSIDE, UNDECIDED = "inside", "outside", "undecided"
WIDE_PCT = 10.0  # half-width of a prediction interval beyond which a value inside says nothing
CHANCE_PCT = 12.0  # accuracy that one answer to everything does not exceed: the largest of ten classes has 11.35 %


def chosen_runs(results: Results) -> tuple[pd.DataFrame, central_model.CentralDecision]:
    """Return the runs behind the published cells, each once, and what is decided on the central model.

    They have the settings of paper.yaml; those of the central model (one client) keep the clients' sampling rate once
    the study `central_model` has decided so.
    """
    settings, everything = load("bhaskar2025").settings, all_runs(results)
    decision = central_model.decide(central_model.central_cells(results))
    runs = with_settings(everything, settings)
    if decision.reading is central_model.CentralReading.RATE:
        rate = with_settings(everything, {**settings, "batch_size": central_model.RATE_BATCH})
        runs = pd.concat([runs[runs["clients"] != 1], rate[rate["clients"] == 1]])
    return each_once(runs), decision


def measured_cells(results: Results, table: int) -> pd.DataFrame:
    """Return the cells of one published table with what was measured for each by `chosen_runs`.

    Added columns: ran_on (the dataset, "" where nothing ran), stand_in, data_note, runs, diverged (runs that reached
    numbers that are none), at_chance (runs no better than one answer to everything), accuracy_pct (mean over all
    runs), sd_pct, least_pct and most_pct (of the runs), local_accuracy_pct (the clients' own models before the last
    average; nan where not measured), interval_pct (half-width of the 95 % interval by Student's t; nan below two
    runs), difference_pct (ours minus published; nan for stand-in data, which are not comparable), prediction_pct and
    prediction (see `prediction_half_width`, `predicted`) were the published value a mean of ten runs, and
    prediction_single_pct and prediction_single were it a single run, noise_multiplier, delta, epsilon_proven,
    epsilon_refuted, sampling, batch_size; in Tables 2 to 4 over_first_pct, over_first_runs and over_first_interval_pct
    (mean advantage over (1, 20), seeds that both ran, half-width); in Table 5 central_reading (of the cells of one
    client: what `central_model.decide` says, else ""), origins.
    """
    runs, decision = chosen_runs(results)
    published = published_cells().query("table == @table")
    cells = published.merge(_summary(runs), on=["dataset", *CELL], how="left")
    if table < 5:
        cells = cells.merge(_over_first(runs), on=["dataset", *CELL], how="left")
    else:
        cells["central_reading"] = np.where(cells["clients"] == 1, decision.reading.value, "")
    counts = ["runs", "diverged", "at_chance"]
    cells[counts] = cells[counts].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    text = ["ran_on", "data_note", "sampling", ORIGINS]
    cells[text] = cells[text].fillna("")
    cells["interval_pct"] = half_width(cells["sd_pct"], cells["runs"], LEVEL)
    cells["difference_pct"] = (cells["accuracy_pct"] - cells["published_accuracy_pct"]).where(~cells["stand_in"])
    for name, printed_runs in (("prediction", PUBLISHED_RUNS), ("prediction_single", 1)):
        half = prediction_half_width(cells["sd_pct"], cells["runs"], printed_runs).where(~cells["stand_in"])
        cells[f"{name}_pct"] = half
        cells[name] = predicted(cells["difference_pct"], half)
    return cells


def _summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what the runs of each cell give: columns as `measured_cells` says."""
    lost = (runs["accuracy_pct"] < CHANCE_PCT) & (runs["status"] != "diverged")
    runs = runs.assign(at_chance=lost)
    return runs.groupby(["dataset", *CELL], as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        data_note=("data_note", "first"),
        runs=("accuracy_pct", "size"),
        diverged=("status", lambda status: (status == "diverged").sum()),
        at_chance=("at_chance", "sum"),
        accuracy_pct=("accuracy_pct", "mean"),
        sd_pct=("accuracy_pct", "std"),
        least_pct=("accuracy_pct", "min"),
        most_pct=("accuracy_pct", "max"),
        local_accuracy_pct=("local_accuracy_pct", "mean"),
        batch_size=("batch_size", "first"),
        **{name.removeprefix("privacy_"): (name, "first") for name in PRIVACY},
        **{ORIGINS: (ORIGIN, " ".join)},
    )


def _over_first(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each cell's advantage over (1, 20), seed by seed: columns as `measured_cells` says."""
    column = ["dataset", "model", "epsilon", "clients", "seed"]
    local_epochs, rounds = table_settings(5)["split"]
    first = runs[(runs["local_epochs"] == local_epochs) & (runs["rounds"] == rounds)]
    pairs = runs.merge(first[[*column, "accuracy_pct"]], on=column, suffixes=("", "_first"), validate="m:1")
    pairs["over"] = pairs["accuracy_pct"] - pairs["accuracy_pct_first"]
    known = pairs.groupby(["dataset", *CELL], as_index=False)
    over = known.agg(over_first_pct=("over", "mean"), over_first_runs=("over", "size"), sd=("over", "std"))
    over["over_first_interval_pct"] = half_width(over.pop("sd"), over["over_first_runs"], LEVEL)
    return over


def prediction_half_width(sd: pd.Series, runs: pd.Series, printed_runs: int = PUBLISHED_RUNS) -> pd.Series:
    """Return the half-width of the 95 % interval in which the mean of `printed_runs` other runs falls; nan below two.

    From n runs with standard deviation s: t s sqrt(1/n + 1/m), t of Student's law with n - 1 degrees of freedom and m
    the number of runs behind a published value, ten or one.
    """
    return half_width(sd, runs, LEVEL) * np.sqrt(1 + runs / printed_runs)


def predicted(difference: pd.Series, prediction: pd.Series) -> pd.Series:
    """Return where each published value is, "" where there is no prediction interval: "inside", "outside", or
    "undecided" where it is in an interval of more than `WIDE_PCT` to each side, which takes in nearly anything."""
    known = prediction.notna() & difference.notna()
    inside = difference.abs() <= prediction + ROUNDING_PCT
    where = inside.map({True: INSIDE, False: OUTSIDE}).mask(inside & (prediction > WIDE_PCT), UNDECIDED)
    return where.where(known, "")
