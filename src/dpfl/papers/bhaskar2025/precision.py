"""Accuracy in bfloat16 against float32, by a rule from before the runs that says whether they are equivalent.

grid.yaml has the rule in words, committed before any run. Table 4's pixel CNNs may be trained in bfloat16 if it holds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.papers.bhaskar2025.cells import CELL, CHANCE_PCT, each_once, numbers, runs_of, runs_text
from dpfl.reporting import style
from dpfl.reporting.display_names import budget_cell, budget_name, data_name, model_name, percent
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import mean_interval
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "precision"
PRECISIONS = ("float32", "bfloat16")
SEEDS = 10
MARGIN_PCT = 0.3  # points of mean accuracy below which a difference does not count
LEVEL = 0.90  # of the interval that has to lie within the margin: two one-sided tests at 5 %
COUNTED = [("mnist", model) for model in ("scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu")]
COUNTED += [("cifar10", "scatter_linear")]
BUDGETS = 2  # no privacy and the larger epsilon
EQUIVALENT, DIFFERENT, UNDECIDED = "equivalent", "different", "undecided"
COLLAPSED, FEW_SEEDS = "collapsed", "too few seeds"
_COLUMNS = ["dataset", *CELL, "ran_on", "stand_in", "data_note", "runs", "float32_pct", "bfloat16_pct"]
_COLUMNS += ["difference_pct", "interval_pct", "verdict", ORIGINS]


def precision_cells(results: Results) -> pd.DataFrame:
    """Return a row for each cell that ran in both precisions, from the seeds that both have.

    Columns: dataset, model, epsilon, local_epochs, rounds, clients, ran_on, stand_in, data_note, runs (seeds),
    float32_pct and bfloat16_pct (mean accuracy), difference_pct (bfloat16 less float32, paired by seed) and
    interval_pct (half-width of its 90 % interval by Student's t), verdict (`_verdict`), origins.
    """
    runs = runs_of(results, STUDY)
    if runs.empty or "precision" not in runs:
        return pd.DataFrame(columns=_COLUMNS)
    runs = each_once(runs, "precision")
    key = ["dataset", *CELL, "seed"]
    one, other = (runs[runs["precision"] == each] for each in PRECISIONS)
    pairs = one.merge(other[[*key, "accuracy_pct", ORIGIN]], on=key, suffixes=("", "_bfloat16"), validate="1:1")
    rows = []
    for cell, own in pairs.groupby(["dataset", *CELL], sort=False):
        ours, theirs = own["accuracy_pct"], own["accuracy_pct_bfloat16"]
        count, mean, half = mean_interval(theirs - ours, LEVEL)
        collapsed = bool((ours <= CHANCE_PCT).any() or (theirs <= CHANCE_PCT).any())
        first, origins = own.iloc[0], " ".join([*own[ORIGIN], *own[f"{ORIGIN}_bfloat16"]])
        said = _verdict(count, mean, half, collapsed)
        placed = (first["ran_on"], first["stand_in"], first["data_note"])
        rows.append((*cell, *placed, count, ours.mean(), theirs.mean(), mean, half, said, origins))
    cells = pd.DataFrame(rows, columns=_COLUMNS)
    return cells.sort_values(["dataset", "model", "epsilon"], ascending=[False, True, False], ignore_index=True)


def _verdict(count: int, mean: float, half: float, collapsed: bool) -> str:
    """Return what the rule says of one cell, from its number of seeds, mean difference and half-width in points.

    Equivalent: the interval lies within the margin. Different: it lies outside. Collapsed: a run is no better than a
    constant answer, and the cell does not count. Too few seeds: fewer than `SEEDS`, which the rule does not judge. Else
    undecided.
    """
    if collapsed:
        return COLLAPSED
    if count < SEEDS:
        return FEW_SEEDS
    if abs(mean) + half < MARGIN_PCT:
        return EQUIVALENT
    return DIFFERENT if abs(mean) - half >= MARGIN_PCT else UNDECIDED


def is_equivalent(cells: pd.DataFrame) -> bool:
    """Return whether every counted cell ran on the paper's data and is equivalent, collapsed ones left out."""
    counted = cells[~cells["stand_in"].eq(True) & (cells["verdict"] != COLLAPSED)]
    ran = [tuple(key) for key in cells.loc[~cells["stand_in"].eq(True), ["dataset", "model"]].to_numpy()]
    complete = all(ran.count(key) == BUDGETS for key in COUNTED)
    return complete and len(counted) > 0 and bool((counted["verdict"] == EQUIVALENT).all())


def precision_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader, with what the rule says."""
    body = pd.DataFrame(
        {
            "Data": cells["ran_on"].map(data_name),
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "Seeds": cells["runs"].map(str),
            "float32": numbers(cells["float32_pct"], "{:.2f}"),
            "bfloat16": numbers(cells["bfloat16_pct"], "{:.2f}"),
            "Difference": [_difference(cell.difference_pct, cell.interval_pct) for cell in cells.itertuples()],
            "Verdict": cells["verdict"],
        }
    )
    notes = [
        _outcome(cells),
        f"Accuracy in per cent, split (1, 20), mean over the seeds. Difference: bfloat16 less float32, from the same "
        f"draws, with its {percent(LEVEL)} interval by Student's t. Equivalent: the interval lies within "
        f"± {MARGIN_PCT:g} points, so that both one-sided tests at 5 % reject a larger difference. The rule judges a "
        f"cell with {SEEDS} seeds or more.",
    ]
    if stand_ins := sorted(set(cells.loc[cells["stand_in"].eq(True), "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(map(data_name, stand_ins))}) do not count.")
    return TableLayout(body, [*notes, *sorted(set(cells["data_note"]) - {""})])


def _difference(mean: float, half: float) -> str:
    """Return a mean difference with its interval, if there is one."""
    return f"{mean:+z.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")


def _outcome(cells: pd.DataFrame) -> str:
    """Return what the rule says of all counted cells, as a sentence."""
    counted = cells[~cells["stand_in"].eq(True)]
    if counted.empty:
        return "Undecided: no counted cell ran in both precisions at this scale."
    found = counted["verdict"].value_counts()
    score = ", ".join(
        f"{found[each]} {each}" for each in (EQUIVALENT, DIFFERENT, UNDECIDED, FEW_SEEDS, COLLAPSED) if each in found
    )
    largest = counted["difference_pct"].abs().max()
    text = (
        f"{len(counted)} of {BUDGETS * len(COUNTED)} cells ran: {score}. Largest mean difference {largest:.2f} points."
    )
    if is_equivalent(cells):
        return f"bfloat16 is equivalent to float32. {text}"
    return f"bfloat16 is not shown to be equivalent to float32. {text}"


def precision_message(cells: pd.DataFrame) -> str:
    """Say for the figure's title how far both precisions are apart."""
    counted = cells[~cells["stand_in"].eq(True) & (cells["verdict"] != COLLAPSED)]
    if counted.empty:
        return ""
    same, judged = int((counted["verdict"] == EQUIVALENT).sum()), int((counted["verdict"] != FEW_SEEDS).sum())
    largest = counted["difference_pct"].abs().max()
    verb = "is" if same == 1 else "are"
    found = f"{same} of the {judged} cells with {SEEDS} seeds {verb} equivalent within {MARGIN_PCT:g}"
    if not judged:
        found = f"no cell has the {SEEDS} seeds of the rule"
    widest = counted["interval_pct"].max()
    bars = f" (intervals up to ± {widest:.2f})" if widest == widest else ""
    return f"The mean accuracies in bfloat16 and float32 differ by {largest:.2f} points at most{bars}; {found}"


def draw_precision(cells: pd.DataFrame) -> Figure:
    """Draw a line for each cell: its mean difference with its interval, and the margin as a band."""
    figure, axis = style.panels(width=style.WIDTH, height=1.2 + 0.26 * max(len(cells), 1))
    names = [
        f"{data_name(cell.ran_on)}, {model_name(cell.model)}, {budget_name(cell.epsilon)}"
        for cell in cells.itertuples()
    ]
    places = range(len(cells))[::-1]
    axis.axvspan(-MARGIN_PCT, MARGIN_PCT, color=style.GREEN, alpha=0.15, linewidth=0)
    axis.axvline(0, color=style.BLACK, linewidth=0.8)
    few = cells["verdict"] == FEW_SEEDS
    heights, bars = pd.Series(list(places), index=cells.index), cells["interval_pct"].fillna(0.0)
    for own, filling in ((~few, style.BLUE), (few, "white")):
        look = {"color": style.BLUE, "marker": "o", "markerfacecolor": filling, "linestyle": "none"}
        axis.errorbar(cells["difference_pct"][own], heights[own], xerr=bars[own], **look)
    axis.set_yticks(list(places), names, fontsize=style.SMALL)
    axis.set_ylim(-0.6, len(cells) - 0.4)
    axis.set_xlabel("accuracy in bfloat16 less float32 (points)")
    if cells.empty:
        style.mark_not_run(axis)
    bar = f"bars: {percent(LEVEL)} interval, paired by seed" if len(cells) and cells["runs"].max() > 1 else "no bars"
    stand_in = " Stand-in data do not count." if cells["stand_in"].eq(True).any() else ""
    runs = f"{runs_text(cells)} a mark; " if len(cells) else ""
    hollow = f" Hollow: fewer than {SEEDS} seeds, not judged." if few.any() else ""
    ran = set(zip(cells["dataset"], cells["model"], strict=True))
    missing = [f"{data_name(data)}, {model_name(model)}" for data, model in COUNTED if (data, model) not in ran]
    absent = f" Not run: {'; '.join(missing)}." if missing and ran else ""
    text = f"Split (1, 20), {runs}{bar}. Green: within ± {MARGIN_PCT:g} points.{hollow}{stand_in}{absent}"
    style.footer(figure, text)
    return figure


TABLES = {"precision": TableRecipe(precision_cells, precision_page)}
FIGURES = {"precision": FigureRecipe(precision_cells, draw_precision, precision_message)}
