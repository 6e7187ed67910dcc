"""Choice of the central model's batch: the clients' batch, or their sampling rate. A rule from before the runs decides.

The central model of Table 5 is one client with the whole training set. Read with the clients' batch of 64 it takes ten
times their steps; with a batch of 640 it takes as many steps, at their sampling rate. The rule stands in the head of
grid.yaml, dated before any run of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.catalog import load
from dpfl.papers.bhaskar2025.paper_runs import CELL, all_runs, each_once, published_cells, with_settings
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import data_name, model_name
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.tables import TableLayout

RATE_BATCH = 640
SIGNIFICANCE = 0.05  # of the sign test
SEEN = {("mnist", "scatter_linear"), ("fashion_mnist", "scatter_linear")}
"""Cells of which a run was seen before the rule was written: they do not count."""
LAST = {("cifar10", "cnn_tanh"), ("cifar10", "cnn_relu")}
"""Cells that the grid trains last, where time is left: they count once they ran, and the decision does not wait."""
_KEY = ["dataset", *CELL, "seed"]


class CentralReading(StrEnum):
    """Part of its clients that the central model keeps; `UNDECIDED` as long as cells are missing."""

    BATCH = "batch"
    RATE = "rate"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class CentralDecision:
    """Outcome of the rule: in how many of the counted cells the sampling rate is nearer to the print, the probability
    of as many by a fair coin, both mean distances in points, and the cells that have yet to run."""

    reading: CentralReading
    nearer: int
    counted: int
    probability: float
    batch_distance_pct: float
    rate_distance_pct: float
    missing: tuple[str, ...]
    to_come: int = 0

    @property
    def overturned_by(self) -> int | None:
        """The least number of cells to come whose nearer batch would undo the choice of the rate; None if none can."""
        for lost in range(1, self.to_come + 1):
            nearer, counted = self.nearer + self.to_come - lost, self.counted + self.to_come
            if stats.binom.sf(nearer - 1, counted, 0.5) > SIGNIFICANCE:
                return lost
        return None

    @property
    def lead_points(self) -> float:
        """Points by which the batch has to be nearer in the cells to come, together, to undo the choice by the mean."""
        return (self.batch_distance_pct - self.rate_distance_pct) * self.counted


def central_cells(results: Results) -> pd.DataFrame:
    """Return a row for each central model of Table 5, from the seeds that ran with both batches.

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, published_accuracy_pct, batch_pct and rate_pct (mean
    accuracy with the clients' batch, with their sampling rate), batch_distance_pct and rate_distance_pct (to the
    published value; nan on stand-in data), counted (whether the rule counts the cell, once it ran), origins.
    """
    settings, runs = load("bhaskar2025").settings, all_runs(results)
    central = runs[(runs["clients"] == 1) & (runs["epsilon"] < np.inf)]
    batch, rate = (
        each_once(with_settings(central, {**settings, "batch_size": size}))
        for size in (settings["batch_size"], RATE_BATCH)
    )
    both = batch.merge(rate[[*_KEY, "accuracy_pct", ORIGIN]], on=_KEY, suffixes=("_batch", "_rate"))
    both[ORIGINS] = both[f"{ORIGIN}_batch"] + " " + both[f"{ORIGIN}_rate"]
    means = both.groupby(["dataset", *CELL], as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        runs=("seed", "size"),
        batch_pct=("accuracy_pct_batch", "mean"),
        rate_pct=("accuracy_pct_rate", "mean"),
        **{ORIGINS: (ORIGINS, " ".join)},
    )
    cells = published_cells().query("table == 5 and clients == 1").merge(means, on=["dataset", *CELL], how="left")
    cells["runs"] = cells["runs"].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    cells[["ran_on", ORIGINS]] = cells[["ran_on", ORIGINS]].fillna("")
    for name in ("batch", "rate"):
        distance = (cells[f"{name}_pct"] - cells["published_accuracy_pct"]).abs()
        cells[f"{name}_distance_pct"] = distance.where(~cells["stand_in"])
    cells["counted"] = [key not in SEEN for key in zip(cells["dataset"], cells["model"], strict=True)]
    return cells.drop(columns=["table", "local_epochs", "rounds", "clients"])


def decide(cells: pd.DataFrame) -> CentralDecision:
    """Return what the rule of grid.yaml says of `central_cells`.

    The sampling rate is chosen where it is nearer to the print in so many counted cells that a fair coin would give as
    many with probability `SIGNIFICANCE` at most, and the mean distance is smaller too; else the batch stays. Undecided
    until every counted cell but those of `LAST` ran both ways.
    """
    counted = cells[cells["counted"]]
    ran = counted[counted["rate_distance_pct"].notna()]
    missing = tuple(
        f"{data_name(row.dataset)}, {model_name(row.model)}"
        for row in counted.itertuples()
        if np.isnan(row.rate_distance_pct) and (row.dataset, row.model) not in LAST
    )
    nearer = int((ran["rate_distance_pct"] < ran["batch_distance_pct"]).sum())
    probability = float(stats.binom.sf(nearer - 1, len(ran), 0.5))
    batch, rate = float(ran["batch_distance_pct"].mean()), float(ran["rate_distance_pct"].mean())
    better = probability <= SIGNIFICANCE and rate < batch
    reading = CentralReading.UNDECIDED if missing else CentralReading.RATE if better else CentralReading.BATCH
    to_come = len(counted) - len(ran) - len(missing)
    return CentralDecision(reading, nearer, len(ran), probability, batch, rate, missing, to_come)


def central_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader, with what is decided."""
    body = pd.DataFrame(
        {
            "Data": [data_name(name) for name in cells["ran_on"].where(cells["ran_on"] != "", cells["dataset"])],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map("{:g}".format),
            "Seeds": cells["runs"].map(str).replace("0", "not run both ways"),
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"]), "{:.2f}"),
            "Batch of 64": numbers(cells["batch_pct"], "{:.2f}"),
            "off by": numbers(cells["batch_distance_pct"], "{:.2f}"),
            "Sampling rate kept": numbers(cells["rate_pct"], "{:.2f}"),
            "off by ": numbers(cells["rate_distance_pct"], "{:.2f}"),
            "Nearer": [_nearer(row) for row in cells.itertuples()],
            "Counts": [_counts(row) for row in cells.itertuples()],
        }
    )
    stand_ins = sorted(set(cells.loc[cells["stand_in"], "ran_on"]))
    notes = [f"Stand-in data ({', '.join(stand_ins)}) are not comparable and count for nothing."] if stand_ins else []
    return TableLayout(body, [verdict(decide(cells)), *notes])


def _nearer(row) -> str:
    """Return which reading is nearer to the published value of a row, in words."""
    if np.isnan(row.rate_distance_pct):
        return "–"
    return "sampling rate" if row.rate_distance_pct < row.batch_distance_pct else "batch"


def _counts(row) -> str:
    """Return whether the rule counts a row."""
    if not row.counted:
        return "no, seen before"
    return "yes, once it runs" if (row.dataset, row.model) in LAST and np.isnan(row.rate_distance_pct) else "yes"


def verdict(decision: CentralDecision) -> str:
    """Return what is decided as one sentence or two."""
    score = (
        f"nearer with the sampling rate in {decision.nearer} of {decision.counted} counted cells (a fair coin gives as "
        f"many with probability {decision.probability:.2g}), {decision.rate_distance_pct:.2f} points off on average "
        f"where the batch is {decision.batch_distance_pct:.2f} off"
    )
    if decision.reading is CentralReading.UNDECIDED:
        so_far = f" So far {score}." if decision.counted else ""
        return (
            f"Undecided: {len(decision.missing)} counted cells have yet to run both ways "
            f"({'; '.join(decision.missing)}). Table 5 shows the batch of 64 meanwhile.{so_far}"
        )
    chosen = "the sampling rate (a batch of 640)" if decision.reading is CentralReading.RATE else "the batch of 64"
    text = f"Decided by the rule: the central model of Table 5 keeps {chosen}; {score}."
    if decision.reading is CentralReading.RATE and decision.to_come:
        least = decision.overturned_by
        by_count = f"if the batch of 64 were nearer in {least} of them, or" if least else "only"
        text += (
            f" {decision.to_come} counted cells have yet to run; the choice would be undone {by_count} if that batch "
            f"were nearer by {decision.lead_points:.1f} points in all of them together."
        )
    return text
