"""Tables: errata, and Tables 2 to 5 with our means, the published ones, differences, runs and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from dpfl.papers.bhaskar2025.identification import scores
from dpfl.papers.bhaskar2025.overlapping_clients import budgets, overlap_page
from dpfl.papers.bhaskar2025.published_cells import (
    CONSTANT_PCT,
    INSIDE,
    OUTSIDE,
    PUBLISHED_RUNS,
    UNDECIDED,
    WIDE_PCT,
    measured_cells,
)
from dpfl.papers.bhaskar2025.single_average import last_column, last_column_page
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES, identification_page
from dpfl.reporting.canary_table import canaries, canaries_page
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.tables import TableLayout, TableRecipe

_MARKS = {INSIDE: " (in)", OUTSIDE: " (out)", UNDECIDED: " (wide)", "": ""}

_LOST = {
    "diverged": "diverged: the run reached numbers that are none",
    "constant": f"constant: accuracy below {CONSTANT_PCT:g} %, as of a model that gives one answer to everything",
}


def _page(cells: pd.DataFrame, column: Callable[[pd.Series], str]) -> TableLayout:
    """Lay the cells out with one column a `column(cell)` and three lines a row: ours, published, difference."""
    lines = []
    for (dataset, model, epsilon), row in cells.groupby(["dataset", "model", "epsilon"], sort=False):
        head = {"dataset": dataset, "model": MODEL_NAMES[model], "ε": "none" if math.isinf(epsilon) else f"{epsilon:g}"}
        for kind, text in (("ours", _ours), ("published", _published), ("difference", _difference)):
            lines.append({**head, "": kind, **{column(cell): text(cell) for _, cell in row.iterrows()}})
    return TableLayout(pd.DataFrame(lines), _notes(cells))


def _ours(cell: pd.Series) -> str:
    """Return our mean, the half-width of its interval and the number of runs."""
    if cell.runs == 0:
        return "not run"
    interval = "" if math.isnan(cell.interval_pct) else f" ± {cell.interval_pct:.2f}"
    lost = "".join(f", {count} {word}" for word in _LOST if (count := cell[word]))
    return f"{cell.accuracy_pct:.2f}{interval} ({cell.runs}{lost})"


def _published(cell: pd.Series) -> str:
    """Return the published value."""
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published and where the published value lies, or why there is none."""
    if cell.runs == 0:
        return ""
    if cell.stand_in:
        return "stand-in"
    return f"{cell.difference_pct:+.2f}{_MARKS[cell.prediction]}"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Return notes on data, runs, intervals and noise."""
    ran = cells[cells["runs"] > 0]
    notes = ["Accuracy in per cent. Ours: mean ± half-width of the 95 % interval (runs). Published: as printed."]
    if len(ran) < len(cells):
        notes.append(f"{len(cells) - len(ran)} of {len(cells)} cells were not run at this scale.")
    if len(ran) and ran["runs"].min() < PUBLISHED_RUNS:
        notes.append(f"The published values are means of {PUBLISHED_RUNS} runs. Of ours, {_run_counts(ran)}.")
    if lost := [text for name, text in _LOST.items() if ran[name].any()]:
        notes.append(f"Counted beside the runs, and in mean and interval like all others: {'; '.join(lost)}.")
    if len(ran) and not ran["stand_in"].all():
        notes.append(_prediction_note(ran[~ran["stand_in"]]))
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
    counts = ran["prediction"].value_counts()
    inside, outside, undecided = (int(counts.get(where, 0)) for where in (INSIDE, OUTSIDE, UNDECIDED))
    known = inside + outside + undecided
    note = (
        f"Difference: ours minus published; (in) or (out): the published value lies inside or outside of the 95 % "
        f"prediction interval for a mean of {PUBLISHED_RUNS} runs, given ours. Inside {inside}, outside {outside}; "
        f"were our settings the paper's, {0.05 * known:.1f} outside would be expected."
    )
    if undecided:
        note += (
            f" {undecided} more lie inside of an interval of over ± {WIDE_PCT:g} points (wide), which takes in nearly "
            "anything."
        )
    if single := len(ran) - known:
        note += f" {single} {'cell has' if single == 1 else 'cells have'} a single run and no such interval (no mark)."
    return note


def _noise_note(cell: pd.Series) -> str:
    """Return one claimed budget's noise, and what is proven and refuted for the batches that were drawn."""
    clients = "one central client" if cell.clients == 1 else f"{cell.clients} clients"
    return (
        f"{cell.ran_on}, {clients}, ε = {cell.epsilon:g} claimed: noise multiplier {cell.noise_multiplier:.4f}, "
        f"δ = {cell.delta:g}, ε proven {cell.epsilon_proven:.3f}, at least {cell.epsilon_refuted:.3f} "
        f"({cell.sampling.replace('_', ' ')} batches)."
    )


def _splits_page(cells: pd.DataFrame) -> TableLayout:
    """Return Tables 2 to 4: one column a split (E, R)."""
    return _page(cells, lambda cell: f"({cell.local_epochs}, {cell.rounds})")


def _clients_page(cells: pd.DataFrame) -> TableLayout:
    """Return Table 5: one column a number of clients."""
    return _page(cells, lambda cell: "central" if cell.clients == 1 else f"k = {cell.clients}")


TABLES = {
    "errata": errata_recipe("bhaskar2025"),
    **{f"table_{number}": TableRecipe(partial(measured_cells, table=number), _splits_page) for number in (2, 3, 4)},
    "table_5": TableRecipe(partial(measured_cells, table=5), _clients_page),
    "last_column": TableRecipe(last_column, last_column_page),
    "identification": TableRecipe(scores, identification_page),
    "overlap": TableRecipe(lambda results: budgets(), overlap_page),
    "canaries": TableRecipe(partial(canaries, paper="bhaskar2025"), canaries_page),
}
