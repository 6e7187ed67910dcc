"""Tables 2 to 5: the published cells, ours beside them, how far they are apart, and the paper's layout.

Runs are entries of grid.yaml (dpfl.images.fedavg_images). An entry without a `study` trains published cells. The paper
says that a published value is a mean of ten runs (5.2). Each is compared on two readings, as such a mean and as a
single run, each with a 95 % prediction interval that our own runs give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.catalog import load
from dpfl.grid.configuration import resolve
from dpfl.grid.expansion import expand
from dpfl.papers.bhaskar2025.overlap import record_notes
from dpfl.reporting.canary_table import EXPERIMENT, canaries, canaries_page, control_notes
from dpfl.reporting.display_names import (
    at_least,
    at_most,
    budget_cell,
    budget_name,
    count_range,
    data_name,
    in_words,
    listed,
    model_name,
    percent,
)
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width
from dpfl.reporting.tables import TableLayout, TableRecipe

# The 276 published cells, and the runs that reproduce each of them.

COLUMN = ["dataset", "model", "epsilon"]
"""What names a column of Tables 2 to 4, and a row of Table 5."""
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
FIXED_ORDER = "fixed_order"
"""How batches without privacy come in the authors' federated program."""
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

    A study's runs that have all the settings of a published cell count for that cell too, if no other run of it has
    their seed (`_repeats` tells how far the others lie apart). Their study is `PUBLISHED` then, but for the runs of
    the studies that are named here.
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
    if not studies:
        return runs
    named = runs["study"].isin(studies)
    if PUBLISHED not in studies:
        return runs[named]
    more = runs[~named & _as_published(runs)]
    cells = each_once(pd.concat([runs[runs["study"] == PUBLISHED], more]))
    return pd.concat([runs[named], cells[cells["study"] != PUBLISHED].assign(study=PUBLISHED)])


def _as_published(runs: pd.DataFrame) -> pd.Series:
    """Return which runs have all the settings that grid.yaml has for a published cell of their data, model and clients.

    The order of plain batches changes nothing with privacy. What was measured is no setting.
    """
    settings = [name for name in load("bhaskar2025").settings if name in runs and name != "measure"]
    names = ["dataset", "model", "clients", *settings]
    kinds = runs.assign(dataset=runs["ran_on"])[names].astype(object)
    in_order = pd.Series(list(kinds.itertuples(index=False, name=None)), runs.index, dtype=object)
    either = [name for name in names if name != "plain_batches"]
    alike = pd.Series(list(kinds[either].itertuples(index=False, name=None)), runs.index, dtype=object)
    private = np.isfinite(runs["epsilon"].astype(float))
    return in_order.isin(_published_settings(*names)) | (private & alike.isin(_published_settings(*either)))


@cache
def _published_settings(*names: str) -> frozenset[tuple[Any, ...]]:
    """Return what grid.yaml has for these settings in the entries of published cells, at any scale."""
    jobs = [
        job
        for scale in ("demo", "quick", "paper")
        for job in expand(resolve({"scale": scale, "papers": ["bhaskar2025"]}))
        if "study" not in job.settings
    ]
    return frozenset(tuple(job.settings[name] for name in names) for job in jobs)


def each_once(runs: pd.DataFrame, *settings: str) -> pd.DataFrame:
    """Return every run once: it is known by `settings`, cell and seed, whichever entries of the grid asked for it.

    The first one stays. Two runs of a seed may differ: other processors add float32 numbers in other orders.
    """
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
    """Return the cells of one published table with what their runs give for each (`runs_of`).

    Added columns: ran_on (the dataset, "" if nothing ran), stand_in, data_note, runs, diverged (runs that reached
    numbers that are none), at_chance (runs no better than one answer to everything), accuracy_pct (mean over all
    runs), sd_pct, least_pct and most_pct (of the runs), local_accuracy_pct (the clients' own models before the last
    average; nan where not measured), local_runs (that measured it) and average_of_local_pct (their mean accuracy),
    interval_pct (half-width of the 95 % interval by Student's t; nan below two
    runs), difference_pct (ours minus published; nan for stand-in data, which are not comparable), prediction_pct and
    prediction (see `prediction_half_width`, `predicted`) were the published value a mean of ten runs, and
    prediction_single_pct and prediction_single were it a single run, noise_multiplier, delta, epsilon_proven and
    epsilon_refuted (for one record zeroed out, zero_out), epsilon_add_remove (`add_remove`), sampling (`FIXED_ORDER`
    for runs without privacy whose batches are not shuffled), sample_rate, steps, batch_size, learning_rate, momentum,
    precision (of the training; "" if the runs do not say),
    origins, variant_runs, variant_least_pct and variant_most_pct (runs of the cell in the studies, with other settings:
    number, least and most accurate), repeats, repeats_lost and repeats_apart_pct (`_repeats`); in Tables 2 to 4
    over_first_pct, over_first_runs and over_first_interval_pct (mean advantage over (1, 20), seeds that both ran,
    half-width), and lead_pct, lead_runs,
    lead_interval_pct and lead_splits (`_leads`; nan but for (1, 20)).
    """
    runs = each_once(runs_of(results, PUBLISHED))
    published = published_cells().query("table == @table")
    cells = published.merge(_summary(runs), on=["dataset", *CELL], how="left")
    every = runs_of(results)
    cells = cells.merge(_variants(every), on=["dataset", *CELL], how="left")
    cells = cells.merge(_repeats(every), on=["dataset", *CELL], how="left")
    if table < 5:
        cells = cells.merge(_over_first(runs), on=["dataset", *CELL], how="left")
        cells = cells.merge(_leads(runs), on=["dataset", *CELL], how="left")
    counts = ["runs", "local_runs", "diverged", "at_chance", "variant_runs", "repeats", "repeats_lost"]
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
        columns=dict.fromkeys(
            [*runs.columns, *(f"privacy_{name}" for name in _STATED), *_OPTIMISER, "precision", "plain_batches"]
        )
    )
    in_order = runs["epsilon"].eq(math.inf) & runs["plain_batches"].eq("fixed")
    runs["privacy_sampling"] = runs["privacy_sampling"].astype(object).mask(in_order, FIXED_ORDER)
    runs["average_of_local_pct"] = runs["accuracy_pct"].where(runs["local_accuracy_pct"].notna())
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
        local_runs=("local_accuracy_pct", "count"),
        average_of_local_pct=("average_of_local_pct", "mean"),
        **{name: (name, "first") for name in _OPTIMISER},
        precision=("precision", lambda each: " and ".join(sorted(set(each.dropna())))),
        **{name: (f"privacy_{name}", "first") for name in _STATED},
        **{ORIGINS: (ORIGIN, " ".join)},
    )


def _variants(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what runs with other settings give for each cell on published data: columns as `measured_cells` says."""
    studied = runs[(runs["study"] != PUBLISHED) & ~_as_published(runs) & ~runs["stand_in"].eq(True)]
    return studied.groupby(["dataset", *CELL], as_index=False).agg(
        variant_runs=("accuracy_pct", "size"),
        variant_least_pct=("accuracy_pct", "min"),
        variant_most_pct=("accuracy_pct", "max"),
    )


def _repeats(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what more runs of the seeds of a cell give, in studies that repeat it with the same settings.

    Columns, beside the cell's: repeats (their number), repeats_lost (that diverged or ended at chance), and
    repeats_apart_pct (largest distance of one from the run that stands for its seed).
    """
    own = runs[runs["study"] == PUBLISHED]
    alike = pd.concat([own, runs[(runs["study"] != PUBLISHED) & _as_published(runs)]])
    key = ["dataset", *CELL, "seed"]
    kept = each_once(alike)[[*key, "accuracy_pct"]]
    repeats = alike[alike.duplicated(key)].merge(kept, on=key, suffixes=("", "_kept"))
    repeats["apart"] = (repeats["accuracy_pct"] - repeats["accuracy_pct_kept"]).abs()
    repeats["lost"] = (repeats["status"] == "diverged") | (repeats["accuracy_pct"] < CHANCE_PCT)
    return repeats.groupby(["dataset", *CELL], as_index=False).agg(
        repeats=("apart", "size"), repeats_lost=("lost", "sum"), repeats_apart_pct=("apart", "max")
    )


def why_far(cell: Any) -> str:
    """Return why a cell of `measured_cells` is far from the published value, in sentences, if a run collapsed or the
    repeat of a seed ended far from its run; else "".

    A run collapsed if it diverged or is at chance. The ends of the cell's runs in the studies are named if they lie
    more than `BIMODAL_PCT` points apart.
    """
    collapsed = cell.diverged + cell.at_chance
    unsteady = cell.repeats_apart_pct > BIMODAL_PCT
    if not (collapsed or unsteady) or not abs(cell.difference_pct) > BIMODAL_PCT:
        return ""
    whose = "Our only run" if cell.runs == 1 else f"{collapsed} of our {cell.runs} runs"
    ways = {"diverged": cell.diverged, f"ended at chance (below {CHANCE_PCT:g} %)": cell.at_chance}
    text = (
        f"{data_name(cell.dataset)}, {model_name(cell.model)}, {budget_name(cell.epsilon)}, "
        f"(E, R) = ({cell.local_epochs}, {cell.rounds}), {cell.clients} clients: "
        f"published {cell.published_accuracy_pct:.2f}, ours {_value(cell)}."
    )
    if collapsed:
        text += f" {whose} {' or '.join(way for way, count in ways.items() if count)}."
    if unsteady:
        text += f" With the same settings and seed a repeat ended {cell.repeats_apart_pct:.2f} points from our run."
    if cell.variant_runs and cell.variant_most_pct - cell.variant_least_pct > BIMODAL_PCT:
        text += (
            f" {cell.variant_runs} runs of this cell with other settings end between "
            f"{cell.variant_least_pct:.2f} and {cell.variant_most_pct:.2f} %."
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
GOAL_PCT, LINEAR_GOAL_PCT, GOAL_SHARE = 1.0, 0.2, 0.6
"""Our goals: median distance of all models and of ScatterNet + linear, and the share reproduced as single runs."""


def distance_summary(results: Results) -> pd.DataFrame:
    """Return a row for each data set and model of Tables 2 to 5, one for each data set, each model, and all.

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
    rows += [_row(ALL, model, group) for model, group in cells.groupby("model", sort=False)]
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
        "bimodal": int(is_bimodal(compared).sum()),
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
            "Reproduced, as means of ten": _of_judged(data, "reproduced_as_ten"),
            "Reproduced, as single runs": _of_judged(data, "reproduced_as_single"),
        }
    )
    notes = [
        "Distance: |ours - published| in points of accuracy; ours is the mean over the seeds. Collapsed: cells "
        f"with a run that diverged or ended at chance (below {CHANCE_PCT:g} %). Bimodal: cells whose runs "
        f"differ by more than {BIMODAL_PCT:g} points. Reproduced: of the cells with two seeds or more, "
        f"those whose published value lies in our 95 % prediction interval, for a mean of {PUBLISHED_RUNS} runs and "
        "for a single run. A value in an interval that is too wide to tell counts as not reproduced. Table 5 repeats "
        "twelve cells of Tables 2 to 4, which count twice. A seed that was run more than once counts once: the notes "
        "of Tables 2 to 5 say how far its runs lie apart.",
    ]
    if data["compared"].any():
        notes.append(_goals_missed(data))
    notes += dict.fromkeys(filter(None, data["why_largest"]))
    if stand_in := int(data["stand_in"].iloc[-1]):
        notes.append(f"{stand_in} cells ran on stand-in data only and cannot be compared.")
    return TableLayout(body, notes)


def _of_judged(data: pd.DataFrame, share: str) -> list[str]:
    """Return a share of the cells with an interval as "14 of 25", a dash if there are none."""
    pairs = zip(data[share], data["judged"], strict=True)
    return [f"{round(each * judged)} of {judged}" if judged else "–" for each, judged in pairs]


def _goals_missed(data: pd.DataFrame) -> str:
    """Name our goals, and the pairs of data set and model that miss one."""
    far, few = [], []
    pairs = data[(data["dataset"] != ALL) & (data["model"] != ALL)]
    for row in pairs.itertuples():
        name = f"{data_name(row.dataset)} {model_name(row.model)}"
        goal = LINEAR_GOAL_PCT if row.model == "scatter_linear" else GOAL_PCT
        if round(row.median_distance_pct, 2) > goal:
            far.append(f"{name} ({row.median_distance_pct:.2f})")
        if row.judged and row.reproduced_as_single < GOAL_SHARE:
            few.append(name)
    text = (
        f"Our goals for each data set and model: a median distance of at most {GOAL_PCT:g} point, of "
        f"{LINEAR_GOAL_PCT:g} for ScatterNet + linear, and {100 * GOAL_SHARE:g} % reproduced as single runs."
    )
    judged = int((pairs["judged"] > 0).sum())
    return (
        f"{text} Median too large in {len(far)} of {int((pairs['compared'] > 0).sum())}: {', '.join(far) or 'none'}. "
        f"Fewer reproduced in {len(few)} of the {judged} with an interval: {', '.join(few) or 'none'}."
    )


# The paper's layout: three lines a row.

_LOST = {
    "diverged": "diverged: the run ended with a number that is not finite",
    "at_chance": f"at chance: accuracy below {CHANCE_PCT:g} %, no better than a constant answer",
}
_LEGEND = (
    f"Accuracy in per cent. Ours: the mean over the runs; n is their number if it is below {PUBLISHED_RUNS}. If runs "
    f"differ by more than {BIMODAL_PCT:g} points, the table has the least and the most accurate instead of a mean. "
    "Difference: ours minus published, coloured on the page by the verdict. *: the published value is outside the 95 % "
    "prediction interval that our runs give for a mean of ten runs. ?: it is inside, but the interval is too wide to "
    "tell."
)
_MARKS = {NOT_REPRODUCED: "*", UNDECIDED: "?"}


def split_page(cells: pd.DataFrame) -> TableLayout:
    """Return Tables 2 to 4 as the paper has them: splits (E, R) down, budgets and in each the models across."""
    budgets = ["FedAvg" if math.isinf(each) else f"ε = {each:g}" for each in cells["epsilon"]]
    return _page(
        cells,
        "(E, R)",
        [f"({row.local_epochs}, {row.rounds})" for row in cells.itertuples()],
        [f"{budget}: {model_name(model)}" for budget, model in zip(budgets, cells["model"], strict=True)],
        cells["epsilon"].map(lambda epsilon: -epsilon),
    )


def clients_page(cells: pd.DataFrame) -> TableLayout:
    """Return Table 5 as the paper has it: numbers of clients down, data sets and in each the models across."""
    data = [f"{data_name(row.dataset)}, ε = {row.epsilon:g}" for row in cells.itertuples()]
    page = _page(
        cells,
        "k",
        ["1 (central)" if clients == 1 else f"{clients}" for clients in cells["clients"]],
        [f"{name}: {model_name(model)}" for name, model in zip(data, cells["model"], strict=True)],
        pd.Series(0, cells.index),
    )
    central = cells.loc[cells["clients"] == 1, "difference_pct"].dropna().abs()
    if len(central):
        page.notes.insert(
            1,
            f"One central client: the table of the central model compares three ways to train it, and a rule chooses. "
            f"Median distance from the published values, {len(central)} {'cell' if len(central) == 1 else 'cells'}: "
            f"{central.median():.2f} points.{_worse_than_ten(cells)}",
        )
    return page


def _worse_than_ten(cells: pd.DataFrame) -> str:
    """Say where our central model is less accurate than our ten clients and the published one is more accurate, after a
    blank; "" if nowhere."""
    kept = cells[(cells["runs"] > 0) & ~cells["stand_in"].eq(True)]
    both = kept[kept["clients"] == 1].merge(kept[kept["clients"] == 10], on=["dataset", "model"], suffixes=("", "_ten"))
    reversed_here = (both["accuracy_pct"] < both["accuracy_pct_ten"]) & (
        both["published_accuracy_pct"] > both["published_accuracy_pct_ten"]
    )
    where = [
        f"{data_name(row.dataset)} {model_name(row.model)} "
        f"({row.accuracy_pct:.2f} against {row.accuracy_pct_ten:.2f} %; "
        f"published {row.published_accuracy_pct:.2f} against {row.published_accuracy_pct_ten:.2f} %)"
        for row in both[reversed_here].itertuples()
    ]
    return f" It is less accurate than ten clients for {listed(where)}; we do not know why." if where else ""


def _page(cells: pd.DataFrame, name: str, rows: list[str], columns: list[str], order: pd.Series) -> TableLayout:
    """Lay the cells out at their rows and columns, columns in `order`; three lines a row: ours, published, difference.

    `name`: the heading of the rows.
    """
    placed = cells.assign(row=rows, column=columns, order=order).sort_values("order", kind="stable")
    lines, agreement = [], []
    for row in dict.fromkeys(rows):
        own = placed[placed["row"] == row]
        for kind, text in (("ours", _ours), ("published", _published), ("difference", _difference)):
            shown = {cell["column"]: text(cell) for _, cell in own.iterrows()}
            lines.append({name: row, "": kind, **shown})
            agreement.append(dict(zip(own["column"], own["prediction"], strict=True)) if kind == "difference" else {})
    body = pd.DataFrame(lines).fillna("")
    verdicts = pd.DataFrame(agreement, columns=body.columns, dtype=object).fillna("")
    return TableLayout(body, _notes(cells), agreement=verdicts)


def _ours(cell: pd.Series) -> str:
    """Return our mean or, if the runs lie far apart, their ends; and the number of runs if it is below ten."""
    if cell.runs == 0:
        return "not run"
    facts = [f"n = {cell.runs}"] if cell.runs < PUBLISHED_RUNS else []
    facts += [f"{count} {word.replace('_', ' ')}" for word in _LOST if (count := cell[word])]
    return _value(cell) + (f" ({', '.join(facts)})" if facts else "")


def _value(cell: Any) -> str:
    """Return our mean or, if the runs lie far apart, their ends."""
    return f"{cell.least_pct:.2f} to {cell.most_pct:.2f}" if is_bimodal(cell) else f"{cell.accuracy_pct:.2f}"


def is_bimodal(cells: Any) -> Any:
    """Return whether the runs of a cell, or of each cell of a table, lie too far apart for a mean."""
    return cells.most_pct - cells.least_pct > BIMODAL_PCT


def _published(cell: pd.Series) -> str:
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published, marked if the published value is outside or cannot be told; or why there is none."""
    if cell.runs == 0:
        return ""
    if cell.stand_in:
        return "stand-in"
    if is_bimodal(cell):
        return "–"
    return f"{cell.difference_pct:+z.2f}{_MARKS.get(cell.prediction, '')}"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Return notes on runs, data, intervals, optimisers and noise."""
    ran = cells[cells["runs"] > 0]
    notes = [_LEGEND]
    if len(ran) < len(cells):
        notes.append(f"{len(cells) - len(ran)} of {len(cells)} cells were not run at this scale.")
    if len(ran) and ran["runs"].min() < PUBLISHED_RUNS:
        notes.append(f"The paper reports means of {PUBLISHED_RUNS} runs. Ours: {_run_counts(ran)}.")
    if lost := [text for name, text in _LOST.items() if ran[name].any()]:
        notes.append(f"Counted after the number of runs, and included in the mean: {'; '.join(lost)}.")
    if ran["repeats"].any():
        notes.append(_repeats_note(ran))
    notes += [f"Far from the published value: {text}" for cell in ran.itertuples() if (text := why_far(cell))]
    if len(ran) and not ran["stand_in"].all():
        notes.append(_prediction_note(ran[~ran["stand_in"]]))
    stand_ins = ran[ran["stand_in"]]
    for dataset, ran_on in sorted(set(zip(stand_ins["dataset"], stand_ins["ran_on"], strict=True))):
        notes.append(f"{ran_on} stands in for {dataset}. Do not compare it with the published values.")
    notes.extend(sorted(set(ran["data_note"]) - {""}))
    notes.extend(_optimisers(ran))
    private = ran[ran["epsilon"] < math.inf]
    if len(private):
        notes.append(
            "Each ε below is for the messages of one client in all rounds (Claim 1), by PLD. The noise is what the "
            "accountant of the settings gives for the published ε. Zero out: one record's contribution is replaced by "
            "nothing, and the number of records is public. Add or remove: the paper's Definition 1, at the same "
            "sampling rate. A record that several clients hold spends more: see the table of overlap."
        )
    noises = private.groupby(["ran_on", "epsilon", "noise_multiplier", "sampling"], sort=False)
    notes.extend(_noise_note(group.iloc[0], group["clients"]) for _, group in noises)
    return notes


def _run_counts(ran: pd.DataFrame) -> str:
    """Say how many cells have how many runs."""
    counts = ran["runs"].value_counts().sort_index(ascending=False)
    return ", ".join(
        f"{cells} {'cell has' if cells == 1 else 'cells have'} {runs} {'run' if runs == 1 else 'runs'}"
        for runs, cells in counts.items()
    )


def _repeats_note(ran: pd.DataFrame) -> str:
    """Say how many runs repeat a seed, and how far they lie from the run that stands for it."""
    farthest = ran.loc[ran["repeats_apart_pct"].idxmax()]
    count, lost = int(ran["repeats"].sum()), ran[ran["repeats_lost"] > 0]
    note = (
        f"Studies ran seeds of these cells again, with the same settings ({count} {'run' if count == 1 else 'runs'}). "
        "They give the same numbers on the same kind of processor only. A seed counts once, by the run of the cell's "
        f"own job if there is one. The largest distance of a repeat from it: {farthest['repeats_apart_pct']:.2f} "
        f"points ({_place(farthest)})."
    )
    for _, cell in lost.iterrows():
        one = cell["repeats_lost"] == 1
        note += (
            f" {cell['repeats_lost']} {'repeat' if one else 'repeats'} of {_place(cell)} diverged or ended at chance."
        )
    return note


def _place(cell: pd.Series) -> str:
    """Return the name of a cell in a sentence."""
    split = f"({cell['local_epochs']}, {cell['rounds']})"
    return f"{data_name(cell['ran_on'])} {model_name(cell['model'])}, {budget_name(cell['epsilon'])}, {split}"


def _prediction_note(ran: pd.DataFrame) -> str:
    """Count the published values that are reproduced and those that are not."""
    ten, single = (_sides(ran[name]) for name in ("prediction", "prediction_single"))
    note = (
        f"A published value is reproduced if it lies in the 95 % prediction interval of our runs, widened by half of "
        f"its last digit. As means of {PUBLISHED_RUNS} runs: {ten}; as single runs: {single}. If our settings were the "
        f"paper's, {0.05 * (ran['prediction'] != '').sum():.1f} would not be reproduced, by chance."
    )
    if UNDECIDED in set(ran["prediction"]) | set(ran["prediction_single"]):
        note += f" Undecided: it lies in an interval that is wider than ± {WIDE_PCT:g} points."
    if alone := int((ran["prediction"] == "").sum()):
        note += f" {alone} {'cell has' if alone == 1 else 'cells have'} a single run and no such interval."
    return note


def _sides(where: pd.Series) -> str:
    """Return how many published values lie on which side, as "3 reproduced, 1 not reproduced"."""
    found = {side: int((where == side).sum()) for side in (REPRODUCED, NOT_REPRODUCED, UNDECIDED)}
    return ", ".join(f"{count} {side}" for side, count in found.items() if count or side != UNDECIDED)


def _optimisers(ran: pd.DataFrame) -> list[str]:
    """Name batch size, learning rate and momentum of the cells, if the runs do, and a precision that is not float32."""
    known = ran.dropna(subset=["batch_size", "learning_rate", "momentum"])
    notes = []
    optimisers = known.groupby(["batch_size", "learning_rate", "momentum"], sort=False)
    for (batch_size, rate, momentum), group in optimisers:
        where = dict.fromkeys(f"{data_name(row.ran_on)} {model_name(row.model)}" for row in group.itertuples())
        where = ["all cells"] if len(group) == len(ran) else where
        central = " (one client)" if set(group["clients"]) == {1} else ""
        central = " (several clients)" if 1 in set(ran["clients"]) - set(group["clients"]) else central
        notes.append(
            f"Batch size {batch_size:g}, learning rate {rate:g}, momentum {momentum:g}{central}: {', '.join(where)}."
        )
    for precision, group in ran[~ran["precision"].isin(["", "float32"])].groupby("precision", sort=False):
        where = dict.fromkeys(f"{data_name(row.ran_on)} {model_name(row.model)}" for row in group.itertuples())
        notes.append(f"Trained in {precision} instead of float32: {', '.join(where)}. See the table of precision.")
    return notes


def _noise_note(cell: pd.Series, clients: Iterable[int]) -> str:
    """Return one claimed budget's noise, and what is proven and refuted under both neighbouring relations.

    `cell` is one of those that share it, and `clients` has their numbers of clients.
    """
    several = sorted({count for count in clients if count > 1})
    who = [f"each of {listed(map(str, several))} clients"] if several else []
    who += ["one central client"] if 1 in set(clients) else []
    batches = in_words(cell.sampling).replace("poisson", "Poisson")
    proven = f"zero out at most {at_most(cell.epsilon_proven, places=3)}, at least "
    proven += at_least(cell.epsilon_refuted, places=3)
    if not math.isnan(cell.epsilon_add_remove):
        proven += f"; add or remove at most {at_most(cell.epsilon_add_remove, places=3)}"
    return (
        f"{data_name(cell.ran_on)}, {', '.join(who)}, published ε = {cell.epsilon:g}: noise multiplier "
        f"{cell.noise_multiplier:.4f}, δ = {cell.delta:g}, {batches} batches: {proven}. "
        f"{_holds(cell)}"
    )


def _holds(cell: pd.Series) -> str:
    """Say whether the printed epsilon holds for the noise that ran."""
    if cell.epsilon_refuted > cell.epsilon:
        return f"The published ε is refuted: a lower bound exceeds it by {cell.epsilon_refuted - cell.epsilon:.2g}."
    return "The published ε is proven." if cell.epsilon_proven <= cell.epsilon else "The published ε is unproven."


# The last column, (20, 1): the models behind a single average.

FALL_PCT = 10.0  # points between the clients' own models and their average that count as a fall
_AVERAGED = [
    "ran_on", "stand_in", "runs", "accuracy_pct", "interval_pct", "least_pct", "most_pct", "local_accuracy_pct",
    "local_runs", "average_of_local_pct",
]  # fmt: skip
_PRINT = ["published_accuracy_pct", "difference_pct", "prediction", ORIGINS]


def last_column(results: Results) -> pd.DataFrame:
    """Return a row for each model and budget of Tables 2 to 4 that ran at (20, 1).

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, accuracy_pct and interval_pct (the average),
    least_pct and most_pct (of the runs),
    local_accuracy_pct (the clients' own models just before, mean over clients; nan where it was not measured),
    local_runs and average_of_local_pct (the runs that measured it, and their mean accuracy), many_rounds_pct (our
    accuracy at (1, 20), nan where not run), published_accuracy_pct, difference_pct, prediction, origins (of the runs at
    (20, 1)).
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)], ignore_index=True)
    last = cells[(cells["rounds"] == 1) & (cells["runs"] > 0)]
    first = cells.loc[cells["local_epochs"] == 1, [*COLUMN, "accuracy_pct"]]
    first = first.rename(columns={"accuracy_pct": "many_rounds_pct"})
    return last[[*COLUMN, *_AVERAGED, *_PRINT]].merge(first, on=COLUMN)


def last_column_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the column out for a reader."""
    bimodal = is_bimodal(cells)
    body = pd.DataFrame(
        {
            "Data": cells["ran_on"],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "Runs": cells["runs"].map(str),
            "(1, 20)": numbers(cells["many_rounds_pct"], "{:.2f}"),
            "Clients alone": [_alone(cell) for _, cell in cells.iterrows()],
            "(20, 1)": [_average(cell) for _, cell in cells.iterrows()],
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True)), "{:.2f}"),
            "Difference": numbers(cells["difference_pct"].mask(bimodal), "{:+.2f}"),
        }
    )
    return TableLayout(body, _last_column_notes(cells))


def _alone(cell: pd.Series) -> str:
    """Return the accuracy of the clients' own models, with the number of runs that measured it if others did not."""
    [accuracy] = numbers([cell.local_accuracy_pct], "{:.2f}")
    return accuracy + (f" (n = {cell.local_runs})" if 0 < cell.local_runs < cell.runs else "")


def _average(cell: pd.Series) -> str:
    """Return the mean of a cell's runs with its interval, or their range if they are far apart."""
    alone = is_bimodal(cell) or math.isnan(cell.interval_pct)
    return _value(cell) + ("" if alone else f" ± {cell.interval_pct:.2f}")


def _last_column_notes(cells: pd.DataFrame) -> list[str]:
    """Say what the columns are, and count what they show."""
    notes = [
        "Accuracy in per cent. (20, 1): the average of the clients' models, the only one that is taken. Clients alone: "
        "mean accuracy of the models that go into it, over the runs that measured it. (1, 20): ours with twenty "
        f"averages. ±: {percent(LEVEL)} interval of the mean. A range: runs that differ by more than {BIMODAL_PCT:g} "
        "points, whose mean says nothing.",
    ]
    if cells.empty:
        return ["Nothing was run at this scale.", *notes]
    measured = cells.dropna(subset="local_accuracy_pct")
    change = measured["average_of_local_pct"] - measured["local_accuracy_pct"]
    alone = measured["many_rounds_pct"] - measured["local_accuracy_pct"]
    falls, lags = change < -FALL_PCT, alone > FALL_PCT
    notes.append(
        f"In {falls.sum()} of {len(measured)} rows the average is more than {FALL_PCT:g} points less accurate than the "
        f"models before averaging, so averaging fails. In {(falls & lags).sum()} of them the clients alone are more "
        f"than {FALL_PCT:g} points below (1, 20) as well. In {(lags & ~falls).sum()} other rows they are that far "
        f"below, but averaging costs at most {FALL_PCT:g} points. In {(change > 0).sum()} rows the average is more "
        "accurate than the models before averaging."
    )
    compared = cells[cells["difference_pct"].notna() & ~is_bimodal(cells)]
    if len(compared):
        better, worse = (compared["difference_pct"] > 1).sum(), (compared["difference_pct"] < -1).sum()
        judged = compared["prediction"].isin([REPRODUCED, NOT_REPRODUCED, UNDECIDED])
        others = {"beside a range": int(is_bimodal(cells).sum()), "with one run": int((~judged).sum())}
        notes.append(
            f"{len(compared)} rows have a difference. Ours is more than a point above the published value in {better} "
            f"and more than a point below in {worse}. Published values: {_sides(compared['prediction'])}"
            + "".join(f", {count} {where}" for where, count in others.items() if count)
            + "."
        )
    if cells["stand_in"].any():
        notes.append("Do not compare stand-in data with the published values.")
    return notes


def _published_table(table: int, page: Callable[[pd.DataFrame], TableLayout]) -> TableRecipe:
    """Return the recipe of a published table."""
    return TableRecipe(partial(measured_cells, table=table), page, PUBLISHED_RUNS, record_notes)


TABLES = {
    "table_2": _published_table(2, split_page),
    "table_3": _published_table(3, split_page),
    "table_4": _published_table(4, split_page),
    "table_5": _published_table(5, clients_page),
    "distance_summary": TableRecipe(distance_summary, distance_page),
    "last_column": TableRecipe(last_column, last_column_page),
    "canaries": TableRecipe(partial(canaries, paper="bhaskar2025"), canaries_page, privacy_notes=control_notes),
}
