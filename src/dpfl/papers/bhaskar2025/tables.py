"""The errata, and Tables 2 to 5: ours beside published, the difference, the number of runs and their spread."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from dpfl.papers.bhaskar2025.cells import measured_cells
from dpfl.papers.bhaskar2025.errata import all_errata
from dpfl.reporting.evidence import errata_page, table
from dpfl.reporting.tables import Page, TableRecipe

MODEL_NAMES = {
    "cnn_relu": "CNN + ReLU",
    "cnn_tanh": "CNN + tanh",
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
}


def _page(cells: pd.DataFrame, column: Callable[[pd.Series], str]) -> Page:
    """Lay the cells out with one column a `column(cell)` and three lines a row: ours, published, difference."""
    lines = []
    for (dataset, model, epsilon), row in cells.groupby(["dataset", "model", "epsilon"], sort=False):
        head = {"dataset": dataset, "model": MODEL_NAMES[model], "ε": "none" if math.isinf(epsilon) else f"{epsilon:g}"}
        for kind, text in (("ours", _ours), ("published", _published), ("difference", _difference)):
            lines.append({**head, "": kind, **{column(cell): text(cell) for _, cell in row.iterrows()}})
    return Page(pd.DataFrame(lines), _notes(cells))


def _ours(cell: pd.Series) -> str:
    """Return our mean, the half-width of its interval and the number of runs."""
    if cell.runs == 0:
        return "not run"
    spread = "" if math.isnan(cell.interval_pct) else f" ± {cell.interval_pct:.2f}"
    lost = f", {cell.diverged} diverged" if cell.diverged else ""
    return f"{cell.accuracy_pct:.2f}{spread} ({cell.runs}{lost})"


def _published(cell: pd.Series) -> str:
    """Return the published value."""
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published, or why there is none."""
    if cell.runs == 0:
        return ""
    return "stand-in" if cell.stand_in else f"{cell.difference_pct:+.2f}"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Return what a reader has to know beside the numbers: data, runs, noise."""
    ran = cells[cells["runs"] > 0]
    notes = ["Accuracy in per cent. Ours: mean ± half-width of the 95 % interval (runs). Published: as printed."]
    if len(ran) < len(cells):
        notes.append(f"{len(cells) - len(ran)} of {len(cells)} cells were not run at this scale.")
    if len(ran) and ran["runs"].min() < 10:
        counts = " to ".join(map(str, sorted({ran["runs"].min(), ran["runs"].max()})))
        notes.append(f"The published values are means of 10 runs; number of ours a cell: {counts}.")
    stand_ins = ran[ran["stand_in"]]
    for dataset, ran_on in sorted(set(zip(stand_ins["dataset"], stand_ins["ran_on"], strict=True))):
        notes.append(f"{ran_on} stands in for {dataset}: not comparable with the published values.")
    notes.extend(sorted(set(ran["data_note"]) - {""}))
    private = ran[ran["epsilon"] < math.inf].drop_duplicates(["ran_on", "clients", "epsilon"])
    notes.extend(_noise_note(cell) for _, cell in private.iterrows())
    return notes


def _noise_note(cell: pd.Series) -> str:
    """Return one budget's noise and what both accountants make of it."""
    clients = "one central client" if cell.clients == 1 else f"{cell.clients} clients"
    return (
        f"{cell.ran_on}, {clients}, ε = {cell.epsilon:g}: noise multiplier {cell.noise_multiplier:.4f}, "
        f"δ = {cell.delta:g}, ε by RDP {cell.epsilon_rdp:.3f}, by PLD {cell.epsilon_pld:.3f} "
        f"(accounted for Poisson batches, run with {cell.sampling.replace('_', ' ')})."
    )


def _splits_page(cells: pd.DataFrame) -> Page:
    """Return Tables 2 to 4: one column a split (E, R)."""
    return _page(cells, lambda cell: f"({cell.local_epochs}, {cell.rounds})")


def _clients_page(cells: pd.DataFrame) -> Page:
    """Return Table 5: one column a number of clients."""
    return _page(cells, lambda cell: "central" if cell.clients == 1 else f"k = {cell.clients}")


TABLES = {
    "errata": TableRecipe(lambda results: table(all_errata()), errata_page),
    **{f"table_{number}": TableRecipe(partial(measured_cells, table=number), _splits_page) for number in (2, 3, 4)},
    "table_5": TableRecipe(partial(measured_cells, table=5), _clients_page),
}
