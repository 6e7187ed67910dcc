"""Tables: errata, and Tables 2 to 5 with our means, the published ones, differences, runs and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from dpfl.papers.bhaskar2025.central_model import RATE_BATCH, CentralReading, central_cells, central_page
from dpfl.papers.bhaskar2025.how_far import how_far, how_far_page
from dpfl.papers.bhaskar2025.identification import scores
from dpfl.papers.bhaskar2025.outside_cells import outside_cells, outside_page
from dpfl.papers.bhaskar2025.overlapping_clients import budgets, overlap_page
from dpfl.papers.bhaskar2025.published_cells import (
    CHANCE_PCT,
    INSIDE,
    OUTSIDE,
    PUBLISHED_RUNS,
    UNDECIDED,
    WIDE_PCT,
    measured_cells,
)
from dpfl.papers.bhaskar2025.sampling_study import sampling_cells, sampling_page
from dpfl.papers.bhaskar2025.single_average import last_column, last_column_page
from dpfl.papers.bhaskar2025.single_runs import single_runs
from dpfl.papers.bhaskar2025.single_runs_page import single_runs_page
from dpfl.papers.bhaskar2025.table_layout import identification_page
from dpfl.papers.bhaskar2025.tempered_sigmoid import tempered_cells, tempered_page
from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.canary_table import canaries, canaries_page
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.notes import budget_cell, data_name, model_name
from dpfl.reporting.tables import TableLayout, TableRecipe

_MARKS = {INSIDE: "in", OUTSIDE: "out", UNDECIDED: "wide"}

_CENTRAL = {
    CentralReading.UNDECIDED: "The central model is read with the clients' batch of 64; whether it keeps their "
    "sampling rate instead is undecided until all its cells ran both ways (table central_model).",
    CentralReading.BATCH: "The central model has the clients' batch of 64: so decides the rule of the table "
    "central_model.",
    CentralReading.RATE: f"The central model keeps the clients' sampling rate, a batch of {RATE_BATCH}: so decides the "
    "rule of the table central_model.",
}
_LOST = {
    "diverged": "diverged: the run reached numbers that are none",
    "at_chance": f"at chance: accuracy below {CHANCE_PCT:g} %, no better than one answer to everything",
}


_LEGEND = (
    "Accuracy in per cent. Ours: mean ± half-width of the 95 % interval (runs), or [least to most of the runs] where "
    f"that interval exceeds ± {WIDE_PCT:g} points. Published: as printed."
)


def _page(cells: pd.DataFrame, column: Callable[[pd.Series], str]) -> TableLayout:
    """Lay the cells out with one column per `column(cell)` and three lines per row: ours, published, difference."""
    lines = []
    for (dataset, model, epsilon), row in cells.groupby(["dataset", "model", "epsilon"], sort=False):
        head = {
            "dataset": data_name(dataset),
            "model": model_name(model),
            "ε": budget_cell(epsilon),
        }
        for kind, text in (("ours", _ours), ("published", _published), ("difference", _difference)):
            lines.append({**head, "": kind, **{column(cell): text(cell) for _, cell in row.iterrows()}})
    return TableLayout(pd.DataFrame(lines), _notes(cells))


def _ours(cell: pd.Series) -> str:
    """Return our mean, its interval and the number of runs; where runs scatter widely, between which ends they lie."""
    if cell.runs == 0:
        return "not run"
    spread = "" if math.isnan(cell.interval_pct) else f" ± {cell.interval_pct:.2f}"
    if cell.interval_pct > WIDE_PCT:
        spread = f" [{cell.least_pct:.2f} to {cell.most_pct:.2f}]"
    lost = "".join(f", {count} {word.replace('_', ' ')}" for word in _LOST if (count := cell[word]))
    return f"{cell.accuracy_pct:.2f}{spread} ({cell.runs}{lost})"


def _published(cell: pd.Series) -> str:
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published and where the published value is, on both readings, or why there is none."""
    if cell.runs == 0:
        return ""
    if cell.stand_in:
        return "stand-in"
    marks = f" ({_MARKS[cell.prediction]}, {_MARKS[cell.prediction_single]})" if cell.prediction else ""
    return f"{cell.difference_pct:+z.2f}{marks}"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Return notes on data, runs, intervals and noise."""
    ran = cells[cells["runs"] > 0]
    notes = [_LEGEND]
    if len(ran) < len(cells):
        notes.append(f"{len(cells) - len(ran)} of {len(cells)} cells were not run at this scale.")
    if len(ran) and ran["runs"].min() < PUBLISHED_RUNS:
        notes.append(f"The paper says that it prints means of {PUBLISHED_RUNS} runs. Of ours, {_run_counts(ran)}.")
    if lost := [text for name, text in _LOST.items() if ran[name].any()]:
        notes.append(f"Counted beside the runs, and in mean and interval like all others: {'; '.join(lost)}.")
    if len(ran) and not ran["stand_in"].all():
        notes.append(_prediction_note(ran[~ran["stand_in"]]))
    if "central_reading" in cells:
        notes.append(_CENTRAL[cells.loc[cells["clients"] == 1, "central_reading"].iloc[0]])
    stand_ins = ran[ran["stand_in"]]
    for dataset, ran_on in sorted(set(zip(stand_ins["dataset"], stand_ins["ran_on"], strict=True))):
        notes.append(f"{ran_on} stands in for {dataset}: not comparable with the published values.")
    notes.extend(sorted(set(ran["data_note"]) - {""}))
    private = ran[ran["epsilon"] < math.inf].drop_duplicates(["ran_on", "clients", "epsilon"])
    notes.extend(_noise_note(cell) for _, cell in private.iterrows())
    return notes


def _run_counts(ran: pd.DataFrame) -> str:
    """Say how many cells have how many runs."""
    counts = ran["runs"].value_counts().sort_index(ascending=False)
    return ", ".join(
        f"{cells} {'cell has' if cells == 1 else 'cells have'} {runs} {'run' if runs == 1 else 'runs'}"
        for runs, cells in counts.items()
    )


def _prediction_note(ran: pd.DataFrame) -> str:
    """Count the published values inside and outside of their prediction intervals, and explain the marks."""
    ten, single = (_sides(ran[name]) for name in ("prediction", "prediction_single"))
    note = (
        f"Difference: ours minus published; in or out: the published value lies inside or outside of the 95 % "
        f"prediction interval, given our runs, first were it a mean of {PUBLISHED_RUNS} runs, then were it a single "
        f"run; within half of the print's last digit counts as inside. As a mean of {PUBLISHED_RUNS}: {ten}; as a "
        f"single run: {single}. Were our settings the paper's, {0.05 * (ran['prediction'] != '').sum():.1f} would be "
        "outside by chance, on the reading that is true."
    )
    if UNDECIDED in set(ran["prediction"]) | set(ran["prediction_single"]):
        note += f" Wide: inside of an interval of over ± {WIDE_PCT:g} points, which takes in nearly anything."
    if alone := int((ran["prediction"] == "").sum()):
        note += f" {alone} {'cell has' if alone == 1 else 'cells have'} a single run and no such interval (no mark)."
    return note


def _sides(where: pd.Series) -> str:
    """Return how many published values lie on which side, as "inside 3, outside 1"."""
    counts = {"inside": INSIDE, "outside": OUTSIDE, "wide": UNDECIDED}
    found = {word: int((where == side).sum()) for word, side in counts.items()}
    return ", ".join(f"{word} {count}" for word, count in found.items() if count or word != "wide")


def _noise_note(cell: pd.Series) -> str:
    """Return one claimed budget's noise, and what is proven and refuted for the batches that were drawn."""
    clients = "one central client" if cell.clients == 1 else f"{cell.clients} clients"
    batches = cell.sampling.replace("_", " ")
    return (
        f"{data_name(cell.ran_on)}, {clients}, ε = {cell.epsilon:g} claimed: noise multiplier "
        f"{cell.noise_multiplier:.4f}, δ = {cell.delta:g}, ε proven {at_most(cell.epsilon_proven, places=3)}, at "
        f"least {at_least(cell.epsilon_refuted, places=3)} ({batches} batches)."
    )


def _splits_page(cells: pd.DataFrame) -> TableLayout:
    """Return Tables 2 to 4: one column per split (E, R)."""
    return _page(cells, lambda cell: f"({cell.local_epochs}, {cell.rounds})")


def _clients_page(cells: pd.DataFrame) -> TableLayout:
    """Return Table 5: one column per number of clients."""
    return _page(cells, lambda cell: "central" if cell.clients == 1 else f"k = {cell.clients}")


TABLES = {
    "errata": errata_recipe("bhaskar2025"),
    **{
        f"table_{number}": TableRecipe(partial(measured_cells, table=number), _splits_page, PUBLISHED_RUNS)
        for number in (2, 3, 4)
    },
    "table_5": TableRecipe(partial(measured_cells, table=5), _clients_page, PUBLISHED_RUNS),
    "last_column": TableRecipe(last_column, last_column_page),
    "identification": TableRecipe(scores, identification_page),
    "how_far": TableRecipe(how_far, how_far_page),
    "outside": TableRecipe(outside_cells, outside_page),
    "single_runs": TableRecipe(single_runs, single_runs_page),
    "central_model": TableRecipe(central_cells, central_page),
    "tempered_sigmoid": TableRecipe(tempered_cells, tempered_page),
    "sampling": TableRecipe(sampling_cells, sampling_page),
    "overlap": TableRecipe(lambda results: budgets(), overlap_page),
    "canaries": TableRecipe(partial(canaries, paper="bhaskar2025"), canaries_page),
}
