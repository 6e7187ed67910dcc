"""Cells of Tables 2 to 5, ours beside the published, and their distance by data set and model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.catalog import load
from dpfl.reporting.canary_table import EXPERIMENT
from dpfl.reporting.display_names import count_range, data_name, model_name
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width
from dpfl.reporting.tables import TableLayout

# The 276 published cells of Tables 2 to 5, and the runs that reproduce each of them.
#
# Runs are entries of grid.yaml (dpfl.images.fedavg_images). An entry without a `study` trains published cells. The
# paper says that a printed value is a mean of ten runs (5.2). Each is compared on two readings, as such a mean and as a
# single run, each with a 95 % prediction interval that our own runs give.

CELL = ["model", "epsilon", "local_epochs", "rounds", "clients"]
PUBLISHED_RUNS = 10
LEVEL = 0.95  # of every interval
ROUNDING_PCT = 0.005  # published values have two decimals
REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
WIDE_PCT = 10.0  # half-width of a prediction interval beyond which a value in it says nothing
CHANCE_PCT = 12.0  # accuracy that one answer to everything does not exceed: the largest of ten classes has 11.35 %
BIMODAL_PCT = 20.0  # points between the least and the most accurate run of a cell, beyond which a mean says nothing
PUBLISHED = ""
"""The `study` of runs that belong to published cells."""
_STATED = ["noise_multiplier", "delta", "epsilon_proven", "epsilon_refuted", "sampling", "sample_rate", "steps"]
_OPTIMISER = ["batch_size", "learning_rate", "momentum"]
_RUN = ["dataset", "stand_in_for", "data_note", "seed", "status", "accuracy_pct", "local_accuracy_pct", *CELL]


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


def runs_of(results: Results, *studies: str) -> pd.DataFrame:
    """Return the runs of these studies (`PUBLISHED`: of published cells), one row for each; all if none is named.

    Two more columns: ran_on (the dataset) and stand_in. `dataset` names the published data that a stand-in was run for.
    Runs with canaries, those that clip without noise (references of distances) and those of uneven rounds are left
    out: they belong to no cell. Without any run there are columns and no rows.
    """
    runs = results.runs("bhaskar2025")
    if "experiment" in runs:
        runs = runs[runs["experiment"] != EXPERIMENT].drop(columns="experiment").dropna(axis="columns", how="all")
    if runs.empty:
        accounted = [f"privacy_{name}" for name in _STATED]
        settings = load("bhaskar2025").settings
        return pd.DataFrame(columns=[*_RUN, *accounted, *settings, "study", ORIGIN, "ran_on", "stand_in"])
    if "clip" in runs:
        runs = runs[~(runs["clip"].eq(True) & np.isinf(runs["epsilon"]))]
    runs = runs[runs["local_epochs"] > 0]
    local = runs.get("local_accuracy_pct", math.nan)
    study = runs["study"].astype(object).fillna(PUBLISHED) if "study" in runs else PUBLISHED
    runs = runs.assign(ran_on=runs["dataset"], stand_in=runs["stand_in_for"] != "", local_accuracy_pct=local)
    runs["dataset"] = runs["stand_in_for"].where(runs["stand_in"], runs["dataset"])
    runs["study"] = study
    return runs[runs["study"].isin(studies)] if studies else runs


def each_once(runs: pd.DataFrame, *settings: str) -> pd.DataFrame:
    """Return every run once: it is known by `settings`, cell and seed, whichever entries of the grid asked for it."""
    return runs.drop_duplicates([*settings, "dataset", *CELL, "seed"])


def with_runs(cells: pd.DataFrame, runs: pd.DataFrame, by: list[str], **more: tuple[str, str]) -> pd.DataFrame:
    """Return the cells with what their runs give, which agree in the columns `by`: a cell without a run stays.

    Added columns: ran_on ("" without a run), stand_in, runs (seeds), those that `more` names as pandas' named
    aggregations, and origins.
    """
    summed = runs.groupby(by, as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        runs=("seed", "nunique"),
        **more,
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells = cells.merge(summed.astype(cells[by].dtypes.to_dict()), on=by, how="left")
    cells["runs"] = cells["runs"].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    cells[["ran_on", ORIGINS]] = cells[["ran_on", ORIGINS]].astype(object).fillna("")
    return cells


def measured_cells(results: Results, table: int) -> pd.DataFrame:
    """Return the cells of one published table with what the runs without a study give for each.

    Added columns: ran_on (the dataset, "" if nothing ran), stand_in, data_note, runs, diverged (runs that reached
    numbers that are none), at_chance (runs no better than one answer to everything), accuracy_pct (mean over all
    runs), sd_pct, least_pct and most_pct (of the runs), local_accuracy_pct (the clients' own models before the last
    average; nan where not measured), interval_pct (half-width of the 95 % interval by Student's t; nan below two
    runs), difference_pct (ours minus published; nan for stand-in data, which are not comparable), prediction_pct and
    prediction (see `prediction_half_width`, `predicted`) were the published value a mean of ten runs, and
    prediction_single_pct and prediction_single were it a single run, noise_multiplier, delta, epsilon_proven and
    epsilon_refuted (for one record zeroed out, zero_out), epsilon_add_remove (`add_remove`), sampling,
    sample_rate, steps, batch_size, learning_rate, momentum, precision (of the training; "" if the runs do not say),
    origins, variant_runs, variant_least_pct and variant_most_pct (runs of the cell in the studies, with other settings
    or seeds: number, least and most accurate); in Tables 2 to 4 over_first_pct, over_first_runs and
    over_first_interval_pct (mean advantage over (1, 20), seeds that both ran, half-width), and lead_pct, lead_runs,
    lead_interval_pct and lead_splits (`_leads`; nan but for (1, 20)).
    """
    runs = each_once(runs_of(results, PUBLISHED))
    published = published_cells().query("table == @table")
    cells = published.merge(_summary(runs), on=["dataset", *CELL], how="left")
    cells = cells.merge(_variants(runs_of(results)), on=["dataset", *CELL], how="left")
    if table < 5:
        cells = cells.merge(_over_first(runs), on=["dataset", *CELL], how="left")
        cells = cells.merge(_leads(runs), on=["dataset", *CELL], how="left")
    counts = ["runs", "diverged", "at_chance", "variant_runs"]
    cells[counts] = cells[counts].fillna(0).astype(int)
    cells["stand_in"] = cells["stand_in"].eq(True)
    text = ["ran_on", "data_note", "sampling", "precision", ORIGINS]
    cells[text] = cells[text].astype(object).fillna("")
    cells["epsilon_add_remove"] = [add_remove(cell) for cell in cells.to_dict("records")]
    cells["interval_pct"] = half_width(cells["sd_pct"], cells["runs"], LEVEL)
    cells["difference_pct"] = (cells["accuracy_pct"] - cells["published_accuracy_pct"]).where(~cells["stand_in"])
    for name, printed_runs in (("prediction", PUBLISHED_RUNS), ("prediction_single", 1)):
        half = prediction_half_width(cells["sd_pct"], cells["runs"], printed_runs).where(~cells["stand_in"])
        cells[f"{name}_pct"] = half
        cells[name] = predicted(cells["difference_pct"], half)
    return cells


def _summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what the runs of each cell give: columns as `measured_cells` says."""
    runs = runs.reindex(
        columns=dict.fromkeys([*runs.columns, *(f"privacy_{name}" for name in _STATED), *_OPTIMISER, "precision"])
    )
    runs["diverged"] = runs["status"] == "diverged"
    runs["at_chance"] = (runs["accuracy_pct"] < CHANCE_PCT) & ~runs["diverged"]
    return runs.groupby(["dataset", *CELL], as_index=False).agg(
        ran_on=("ran_on", "first"),
        stand_in=("stand_in", "first"),
        data_note=("data_note", "first"),
        runs=("accuracy_pct", "size"),
        diverged=("diverged", "sum"),
        at_chance=("at_chance", "sum"),
        accuracy_pct=("accuracy_pct", "mean"),
        sd_pct=("accuracy_pct", "std"),
        least_pct=("accuracy_pct", "min"),
        most_pct=("accuracy_pct", "max"),
        local_accuracy_pct=("local_accuracy_pct", "mean"),
        **{name: (name, "first") for name in _OPTIMISER},
        precision=("precision", lambda each: " and ".join(sorted(set(each.dropna())))),
        **{name: (f"privacy_{name}", "first") for name in _STATED},
        **{ORIGINS: (ORIGIN, " ".join)},
    )


def _variants(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what the studies' runs on published data give for each cell: columns as `measured_cells` says."""
    studied = runs[(runs["study"] != PUBLISHED) & ~runs["stand_in"].eq(True)]
    return studied.groupby(["dataset", *CELL], as_index=False).agg(
        variant_runs=("accuracy_pct", "size"),
        variant_least_pct=("accuracy_pct", "min"),
        variant_most_pct=("accuracy_pct", "max"),
    )


def why_far(cell: Any) -> str:
    """Return why a cell of `measured_cells` is far from the published value, in sentences, if a run collapsed; else "".

    A run collapsed if it diverged or is at chance. The cell is called unstable if its runs in the studies lie more than
    `BIMODAL_PCT` points apart.
    """
    collapsed = cell.diverged + cell.at_chance
    if not collapsed or not abs(cell.difference_pct) > BIMODAL_PCT:
        return ""
    whose = "our only run" if cell.runs == 1 else f"{collapsed} of our {cell.runs} runs"
    ways = {"diverged": cell.diverged, f"ended at chance (below {CHANCE_PCT:g} %)": cell.at_chance}
    budget = "no privacy" if math.isinf(cell.epsilon) else f"ε = {cell.epsilon:g}"
    text = (
        f"{data_name(cell.dataset)}, {model_name(cell.model)}, {budget}, (E, R) = ({cell.local_epochs}, "
        f"{cell.rounds}), {cell.clients} clients: published {cell.published_accuracy_pct:.2f}, ours "
        f"{cell.accuracy_pct:.2f}, because {whose} {' or '.join(way for way, count in ways.items() if count)}."
    )
    if cell.variant_runs and cell.variant_most_pct - cell.variant_least_pct > BIMODAL_PCT:
        text += (
            f" {cell.variant_runs} runs of this cell with other settings or seeds end between "
            f"{cell.variant_least_pct:.2f} and {cell.variant_most_pct:.2f} %, so training is unstable here."
        )
    return text


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


def _leads(runs: pd.DataFrame) -> pd.DataFrame:
    """Return for each column's cell (1, 20) by how much it leads the best other split of the same seed.

    Columns: the cell's, lead_pct (mean over the seeds that ran all splits of the column that any seed ran), lead_runs
    (these seeds), lead_interval_pct (half-width) and lead_splits (the other splits).
    """
    local_epochs, rounds = table_settings(5)["split"]
    rows = []
    for key, column in runs.groupby(["dataset", "model", "epsilon", "clients"], sort=False):
        wide = column.pivot(index="seed", columns="local_epochs", values="accuracy_pct").dropna()
        if local_epochs not in wide or wide.shape[1] < 2 or wide.empty:
            continue
        lead = wide[local_epochs] - wide.drop(columns=local_epochs).max(axis=1)
        half = half_width(lead.std(), len(lead), LEVEL)
        rows.append((*key, local_epochs, rounds, lead.mean(), len(lead), half, wide.shape[1] - 1))
    measured = ["lead_pct", "lead_runs", "lead_interval_pct", "lead_splits"]
    place = ["dataset", "model", "epsilon", "clients", "local_epochs", "rounds"]
    found = pd.DataFrame(rows, columns=[*place, *measured])
    return found.astype({name: runs[name].dtype for name in place}) if rows else found.astype(runs[place].dtypes)


def add_remove(cell: dict[str, Any]) -> float:
    """Return epsilon under the paper's Definition 1, one record added or removed, by PLD.

    For Poisson batches with privacy at the sampling rate and steps that ran; nan for any other cell.
    """
    facts = [cell[name] for name in ("noise_multiplier", "sample_rate", "steps", "delta")]
    if cell["sampling"] != Sampling.POISSON.value or math.isinf(cell["epsilon"]) or not all(map(_above_0, facts)):
        return math.nan
    return _spent(*map(float, facts))


def _above_0(value: object) -> bool:
    """Return whether a fact of a run is a number above 0."""
    return isinstance(value, float | int) and value > 0


@cache
def _spent(noise_multiplier: float, sample_rate: float, steps: float, delta: float) -> float:
    """Return `add_remove`, once for all cells that share it."""
    run = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    return float(dpsgd.epsilon(**run, accountant="pld", neighbouring=Neighbouring.ADD_OR_REMOVE))


def prediction_half_width(sd: pd.Series, runs: pd.Series, printed_runs: int = PUBLISHED_RUNS) -> pd.Series:
    """Return the half-width of the 95 % interval in which the mean of `printed_runs` other runs falls; nan below two.

    From n runs with standard deviation s: t s sqrt(1/n + 1/m), t of Student's law with n - 1 degrees of freedom and m
    the number of runs behind a published value, ten or one.
    """
    return half_width(sd, runs, LEVEL) * np.sqrt(1 + runs / printed_runs)


def predicted(difference: pd.Series, prediction: pd.Series) -> pd.Series:
    """Return whether each published value is "reproduced" or "not reproduced", "" without a prediction interval, or
    "undecided" if it is in an interval of more than `WIDE_PCT` to each side, which takes in nearly anything."""
    known = prediction.notna() & difference.notna()
    inside = difference.abs() <= prediction + ROUNDING_PCT
    where = inside.map({True: REPRODUCED, False: NOT_REPRODUCED}).mask(inside & (prediction > WIDE_PCT), UNDECIDED)
    return where.where(known, "")


def numbers(values: Iterable[float], form: str) -> list[str]:
    """Return numbers as text; a dash for a missing one."""
    return ["–" if pd.isna(value) else form.format(value) for value in values]


def runs_text(cells: pd.DataFrame) -> str:
    """Return how many runs each of the cells that ran has, as "1 run" or "2 to 10 runs"."""
    runs = cells.loc[cells["runs"] > 0, "runs"]
    return f"{count_range(runs)} run{'s' if runs.max() > 1 else ''}"


def data_lines(dataset: str) -> str:
    """Return the name of a dataset for the side of a panel: what it stands in for on a line of its own."""
    return data_name(dataset).replace(" (", "\n(")


# Distance of the reproduction from Tables 2 to 5: by data set and model, and over all.

ALL = "all"


def distance_summary(results: Results) -> pd.DataFrame:
    """Return a row for each data set and model of Tables 2 to 5, one for each data set, and one for all.

    Columns: dataset and model ("all" in sums), cells (published; the twelve of Table 5 that repeat one of Tables 2 to 4
    count twice), compared (run on the published data), stand_in (run on stand-in data alone), seeds_least and
    seeds_most (of the cells compared), collapsed (cells compared with a run that diverged or is at chance), bimodal
    (cells whose runs lie more than `BIMODAL_PCT` points apart, compared by their mean all the same),
    median_distance_pct and largest_distance_pct (|ours - published|, nan if nothing is compared),
    largest_of_others_pct (without the collapsed cells), why_largest (`why_far` of the farthest), judged (cells with a
    prediction interval), reproduced_as_ten and reproduced_as_single (shares of these whose published value is
    reproduced, if it is a mean of ten or a single run; undecided counts as not reproduced), origins.
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4, 5)], ignore_index=True)
    rows = [_row(*key, group) for key, group in cells.groupby(["dataset", "model"], sort=False)]
    rows += [_row(dataset, ALL, group) for dataset, group in cells.groupby("dataset", sort=False)]
    return pd.DataFrame([*rows, _row(ALL, ALL, cells)])


def _row(dataset: str, model: str, cells: pd.DataFrame) -> dict[str, float | str]:
    """Return one row."""
    compared = cells[cells["difference_pct"].notna()]
    distance, judged = compared["difference_pct"].abs(), compared[compared["prediction"] != ""]
    collapsed = compared["diverged"] + compared["at_chance"] > 0
    return {
        "dataset": dataset,
        "model": model,
        "cells": len(cells),
        "compared": len(compared),
        "stand_in": int(((cells["runs"] > 0) & cells["stand_in"]).sum()),
        "seeds_least": int(compared["runs"].min()) if len(compared) else 0,
        "seeds_most": int(compared["runs"].max()) if len(compared) else 0,
        "collapsed": int(collapsed.sum()),
        "bimodal": int((compared["most_pct"] - compared["least_pct"] > BIMODAL_PCT).sum()),
        "median_distance_pct": float(distance.median()),
        "largest_distance_pct": float(distance.max()),
        "largest_of_others_pct": float(distance[~collapsed].max()),
        "why_largest": why_far(compared.loc[distance.idxmax()]) if len(compared) else "",
        "judged": len(judged),
        "reproduced_as_ten": float((judged["prediction"] == REPRODUCED).mean()),
        "reproduced_as_single": float((judged["prediction_single"] == REPRODUCED).mean()),
        ORIGINS: " ".join(dict.fromkeys(" ".join(cells[ORIGINS]).split())),  # Table 5 repeats cells of Tables 2 to 4
    }


def distance_page(data: pd.DataFrame) -> TableLayout:
    """Lay the rows out for a reader."""
    seeds = [count_range(pd.Series(pair)) for pair in zip(data["seeds_least"], data["seeds_most"], strict=True)]
    body = pd.DataFrame(
        {
            "Data": [name if name == ALL else data_name(name) for name in data["dataset"]],
            "Model": [name if name == ALL else model_name(name) for name in data["model"]],
            "Cells compared": [f"{n} of {cells}" for n, cells in zip(data["compared"], data["cells"], strict=True)],
            "Seeds": ["–" if text == "0" else text for text in seeds],
            "Distance, median": numbers(data["median_distance_pct"], "{:.2f}"),
            "Distance, largest": numbers(data["largest_distance_pct"], "{:.2f}"),
            "Largest, without collapsed cells": numbers(data["largest_of_others_pct"], "{:.2f}"),
            "Collapsed cells": data["collapsed"].map(str),
            "Bimodal": data["bimodal"].map(str),
            "With an interval": data["judged"].map(str),
            "Reproduced, as means of ten": numbers(100 * data["reproduced_as_ten"], "{:.0f} %"),
            "Reproduced, as single runs": numbers(100 * data["reproduced_as_single"], "{:.0f} %"),
        }
    )
    notes = [
        "Distance: |ours - published| in points of accuracy; ours is the mean over the seeds. Collapsed: cells "
        f"with a run that diverged or ended at chance (below {CHANCE_PCT:g} %). Bimodal: cells whose runs "
        f"differ by more than {BIMODAL_PCT:g} points. Reproduced: among the cells with two seeds or more, the "
        f"share whose published value lies in our 95 % prediction interval, for a mean of {PUBLISHED_RUNS} runs and "
        "for a single run. A value in an interval that is too wide to tell counts as not reproduced.",
    ]
    notes += dict.fromkeys(filter(None, data["why_largest"]))
    if stand_in := int(data["stand_in"].iloc[-1]):
        notes.append(f"{stand_in} cells ran on stand-in data only and cannot be compared.")
    return TableLayout(body, notes)
