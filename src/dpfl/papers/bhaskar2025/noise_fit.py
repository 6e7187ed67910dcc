"""Find the epsilon whose noise fits the published values at the smaller budget, by a rule from before the runs.

At epsilon = 1.2 our runs on MNIST and Fashion-MNIST are less accurate than the published values in nearly every cell,
by much more than at the larger budget. This study trains the same cells with the noise of larger epsilons. grid.yaml
has the rule in words, committed before its runs. Published cells keep the published epsilon whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.papers.bhaskar2025.cells import (
    CELL,
    PUBLISHED,
    data_lines,
    each_once,
    numbers,
    published_cells,
    runs_of,
    with_runs,
)
from dpfl.reporting import style
from dpfl.reporting.display_names import data_name, model_name
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "noise_fit"
DATASETS = ("mnist", "fashion_mnist")
PAPER = 1.2
CANDIDATES = (PAPER, 1.35, 1.5, 1.65, 1.8)
"""Epsilons whose noise is tried; the paper's comes first."""
SEEDS = 1  # from 0 on
LEAST_GAIN_PCT = 0.5  # points of the median distance by which a candidate has to be nearer than the paper's
LEAST_MODELS = 3  # of four in which the best candidate, or its neighbour in the list, is the nearest
RULE = (
    f"Rule: the ε with the smallest median distance fits if this is {LEAST_GAIN_PCT:g} points below that of "
    f"ε = {PAPER:g}, and if it or a neighbour in the list is nearest in each data set and in three of four models."
)
_PLACE = ["dataset", "model", "local_epochs", "rounds"]


def noise_cells(results: Results) -> pd.DataFrame:
    """Return a row for each counted cell and candidate.

    Columns: dataset, model, local_epochs, rounds, epsilon (whose noise was added), noise_multiplier, ran_on, stand_in,
    runs (of the seeds that count), accuracy_pct (mean), published_accuracy_pct (at `PAPER`), difference_pct (ours less
    published; nan where a seed is missing or on stand-in data), origins.
    """
    published = published_cells().query("table < 5 and epsilon == @PAPER and dataset in @DATASETS")
    rows = published[[*_PLACE, "published_accuracy_pct"]].merge(pd.DataFrame({"epsilon": CANDIDATES}), how="cross")
    used = ["seed", "ran_on", "stand_in", "accuracy_pct", "privacy_noise_multiplier", ORIGIN]
    runs = runs_of(results, PUBLISHED, STUDY).reindex(columns=["dataset", *CELL, *used])
    runs = each_once(runs[(runs["clients"] == 10) & (runs["seed"] < SEEDS)])
    named = {"accuracy_pct": ("accuracy_pct", "mean"), "noise_multiplier": ("privacy_noise_multiplier", "first")}
    cells = with_runs(rows, runs, [*_PLACE, "epsilon"], **named)
    cells.insert(cells.columns.get_loc("ran_on"), "noise_multiplier", cells.pop("noise_multiplier"))
    difference = cells["accuracy_pct"] - cells["published_accuracy_pct"]
    cells["difference_pct"] = difference.where((cells["runs"] == SEEDS) & ~cells["stand_in"])
    return cells


@dataclass(frozen=True)
class NoiseDecision:
    """Outcome of the rule: counted cells without all candidates, each candidate's median distance over all cells, the
    nearest candidate of each data set and of each model, the best over all, and whether it fits."""

    missing: int
    counted: int
    medians_pct: Mapping[float, float]
    by_dataset: Mapping[str, float]
    by_model: Mapping[str, float]
    best: float
    fits: bool


def decide(cells: pd.DataFrame) -> NoiseDecision:
    """Return what the rule says of `noise_cells`.

    The best candidate has the smallest median |ours - published| over all counted cells, ties to the first. It fits if
    its median is smaller by `LEAST_GAIN_PCT` than that of `PAPER`, and if it or a neighbour in the list is the nearest
    in each data set and in `LEAST_MODELS` of the models, each over all of its cells. While cells are missing, nothing
    fits.
    """
    distances = cells.assign(distance=cells["difference_pct"].abs())
    wide = distances.pivot(index=_PLACE, columns="epsilon", values="distance").reindex(columns=CANDIDATES)
    ran = wide.dropna()
    medians = {each: float(ran[each].median()) for each in CANDIDATES}
    by_dataset, by_model = _nearest(ran, "dataset"), _nearest(ran, "model")
    best = min(CANDIDATES, key=medians.__getitem__) if len(ran) else PAPER
    place = CANDIDATES.index(best)
    near = CANDIDATES[max(0, place - 1) : place + 2]
    fits = (
        len(ran) == len(wide)
        and round(medians[PAPER] - medians[best], 9) >= LEAST_GAIN_PCT
        and all(each in near for each in by_dataset.values())
        and sum(each in near for each in by_model.values()) >= LEAST_MODELS
    )
    return NoiseDecision(len(wide) - len(ran), len(wide), medians, by_dataset, by_model, best, fits)


def _nearest(distances: pd.DataFrame, name: str) -> dict[str, float]:
    """Return the candidate with the smallest median distance in each group of cells."""
    medians = distances.groupby(level=name, sort=False).median()
    return {str(group): float(row.idxmin()) for group, row in medians.iterrows()}


def noise_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the study out for a reader: a row for each data set and model and for all, a column for each candidate."""
    groups = [(data_name(d), model_name(m), own) for (d, m), own in cells.groupby(["dataset", "model"], sort=False)]
    groups.append(("all", "all", cells))
    lines = []
    for data, model, own in groups:
        line = {"Data": data, "Model": model}
        for epsilon in CANDIDATES:
            at = own.loc[own["epsilon"] == epsilon, "difference_pct"].dropna()
            distance, signed = numbers([at.abs().median()], "{:.2f}")[0], numbers([at.median()], "{:+z.2f}")[0]
            line[_heading(cells, epsilon)] = "not run" if at.empty else f"{distance} ({signed})"
        lines.append(line)
    notes = [
        verdict(decide(cells)),
        "Each cell: the median distance of our runs to the published values at ε = 1.2, in points, and in brackets the "
        "median of ours minus published. Columns: the ε whose noise σ was added. Six splits a row; seed 0.",
        "When the rule was written, the runs at ε = 1.2 were known, and σ = 1.30 had been tried in three cells of "
        "ScatterNet + linear on MNIST.",
    ]
    if stand_ins := sorted(set(cells.loc[cells["stand_in"], "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(stand_ins)}) cannot be compared and do not count.")
    return TableLayout(pd.DataFrame(lines), notes)


def _heading(cells: pd.DataFrame, epsilon: float) -> str:
    """Return a candidate's heading: its epsilon, and its noise if it ran on the published data."""
    known = cells.loc[(cells["epsilon"] == epsilon) & ~cells["stand_in"], "noise_multiplier"].dropna()
    return f"ε = {epsilon:g}" + (f", σ = {known.iloc[0]:.3f}" if len(known) else "")


def verdict(decision: NoiseDecision) -> str:
    """Return what the rule says, with its numbers."""
    if decision.missing:
        return f"Undecided: {decision.missing} of {decision.counted} counted cells have yet to run with every noise."
    score = ", ".join(f"{epsilon:g}: {median:.2f}" for epsilon, median in decision.medians_pct.items())
    text = f"Median distance over {decision.counted} cells by the ε whose noise was added: {score}."
    datasets = ", ".join(f"{data_name(name)} {epsilon:g}" for name, epsilon in decision.by_dataset.items())
    models = ", ".join(f"{model_name(name)} {epsilon:g}" for name, epsilon in decision.by_model.items())
    nearest = f"Nearest by data set: {datasets}; by model: {models}."
    if decision.fits:
        end = " (the largest that we tried)" if decision.best == CANDIDATES[-1] else ""
        found = f"By the rule, the noise of ε = {decision.best:g}{end} fits the published values at ε = 1.2."
        return f"{found} {RULE} {text} {nearest} This does not show what the authors ran."
    return f"No single noise fits the published values at ε = 1.2. {text} {nearest}"


def noise_message(cells: pd.DataFrame) -> str:
    """Say which noise the published values fit, for the figure's title."""
    decision = decide(cells)
    if decision.missing:
        return ""
    if not decision.fits:
        return "No single noise explains the published accuracy at ε = 1.2"
    least, most = decision.medians_pct[decision.best], decision.medians_pct[PAPER]
    return (
        f"By the rule, the published accuracy at ε = 1.2 fits the noise of ε = {decision.best:g}: median distance "
        f"{least:.2f} instead of {most:.2f} points"
    )


_LOOKS = ((style.BLUE, "o"), (style.ORANGE, "s"), (style.GREEN, "^"), (style.PURPLE, "D"))


def draw_noise(cells: pd.DataFrame) -> Figure:
    """Draw a panel for each data set: the median of ours minus published against epsilon, a line for each model."""
    figure, axes = style.panels(len(DATASETS), 1, height=2.8, squeeze=False, sharey=True)
    for axis, dataset in zip(axes[0], DATASETS, strict=True):
        own = cells[cells["dataset"] == dataset].dropna(subset="difference_pct")
        for (model, line), (colour, marker) in zip(own.groupby("model", sort=False), _LOOKS, strict=False):
            medians = line.groupby("epsilon")["difference_pct"].median()
            axis.plot(medians.index, medians, color=colour, marker=marker, markersize=4, label=model_name(model))
        if own.empty:
            style.mark_not_run(axis)
        axis.axhline(0, color=style.BLACK, linewidth=0.8)
        axis.set_xticks(CANDIDATES, [f"{epsilon:g}" for epsilon in CANDIDATES])
        axis.set_title(data_lines(dataset), fontsize=9)
        axis.set_xlabel("ε whose noise was added")
    axes[0][0].set_ylabel("ours minus published\n(points, median of six splits)")
    handles, _ = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=4)
    style.footer(
        figure,
        "Median over six splits, seed 0; no interval for one seed. Published: accuracy at ε = 1.2. Below 0: ours is "
        f"less accurate. {RULE}",
    )
    return figure


TABLES = {"noise_fit": TableRecipe(noise_cells, noise_page)}
FIGURES = {"noise_fit": FigureRecipe(noise_cells, draw_noise, noise_message)}
