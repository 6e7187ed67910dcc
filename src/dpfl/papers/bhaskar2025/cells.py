"""The 276 published cells, and the runs that reproduce each of them.

Runs are entries of grid.yaml (dpfl.images.fedavg_images). An entry without a `study` trains published cells. The paper
says that a published value is a mean of ten runs (5.2). Each is compared on two readings, as such a mean and as a
single run, each with a 95 % prediction interval that our own runs give.
"""

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
from dpfl.grid.configuration import resolve
from dpfl.grid.expansion import expand
from dpfl.reporting.canary_table import EXPERIMENT
from dpfl.reporting.display_names import (
    budget_name,
    count_range,
    data_name,
    model_name,
)
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width

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
        f"published {cell.published_accuracy_pct:.2f}, ours {value_or_range(cell)}."
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


def value_or_range(cell: Any) -> str:
    """Return our mean or, if the runs lie far apart, their ends."""
    return f"{cell.least_pct:.2f} to {cell.most_pct:.2f}" if is_bimodal(cell) else f"{cell.accuracy_pct:.2f}"


def is_bimodal(cells: Any) -> Any:
    """Return whether the runs of a cell, or of each cell of a table, lie too far apart for a mean."""
    return cells.most_pct - cells.least_pct > BIMODAL_PCT
