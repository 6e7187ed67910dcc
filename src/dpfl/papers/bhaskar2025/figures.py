"""The figures: accuracy against the split, candidates, initialisation, distances. The first is drawn here."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.bhaskar2025.distance_figure import draw_distances
from dpfl.papers.bhaskar2025.distances import distance_cells
from dpfl.papers.bhaskar2025.figure_parts import footer, runs_text
from dpfl.papers.bhaskar2025.heatmap import draw_candidates
from dpfl.papers.bhaskar2025.identification import candidate_cells
from dpfl.papers.bhaskar2025.initialisation import draw_initialisation, initialisation_cells
from dpfl.papers.bhaskar2025.published_cells import measured_cells
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results

LOWEST, HIGHEST = -2.0, 102.0  # per cent, with room for a marker


def _splits(results: Results) -> pd.DataFrame:
    """Return the cells of Tables 2 to 4, datasets of which nothing ran left out (all kept where nothing ran at all)."""
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)])
    ran = cells[cells["runs"] > 0]["dataset"].unique()
    return cells[cells["dataset"].isin(ran)] if len(ran) else cells


def _draw_splits(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and one column per budget."""
    datasets = list(cells["dataset"].unique())
    figure, axes = style.panels(3, len(datasets), width=10, height=2.9, squeeze=False, sharex=True)
    for row, dataset in zip(axes, datasets, strict=True):
        of_dataset = cells[cells["dataset"] == dataset]
        for axis, epsilon in zip(row, of_dataset["epsilon"].unique(), strict=True):
            _panel(axis, of_dataset[of_dataset["epsilon"] == epsilon])
            budget = "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"
            axis.set_title(f"{_data_name(of_dataset)}, {budget}")
        row[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("local epochs E a round (E · R = 20)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    footer(figure, _footer(cells))
    return figure


def _panel(axis, cells: pd.DataFrame) -> None:
    """Draw the four models of one dataset and budget: ours filled, published hollow."""
    for number, (model, line) in enumerate(cells.groupby("model", sort=False)):
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number]}
        ours = line[line["runs"] > 0]
        name = MODEL_NAMES[model]
        axis.errorbar(
            ours["local_epochs"], ours["accuracy_pct"], ours["interval_pct"], label=name, linestyle="-", **look
        )
        hollow = {"markerfacecolor": "none", "linestyle": ":", "linewidth": 0.8, "alpha": 0.7}
        axis.plot(line["local_epochs"], line["published_accuracy_pct"], **look, **hollow)
    axis.set_xscale("log")
    style.ticks_at(axis, cells["local_epochs"])
    low, high = axis.get_ylim()
    axis.set_ylim(max(low, LOWEST), min(high, HIGHEST))


def _data_name(cells: pd.DataFrame) -> str:
    """Return the dataset's name, with the stand-in that was run instead."""
    ran = cells[cells["stand_in"]]["ran_on"]
    return cells["dataset"].iloc[0] + (f" ({ran.iloc[0]})" if len(ran) else "")


def _footer(cells: pd.DataFrame) -> str:
    """Return what the markers and bars mean, the number of runs, and the stand-ins."""
    ran = cells[cells["runs"] > 0]
    if ran.empty:
        return "Hollow: published. Nothing was run at this scale."
    bars = "bars: 95 % interval" if ran["runs"].min() >= 2 else "no bars below two runs"
    ends = ran["accuracy_pct"] - ran["interval_pct"], ran["accuracy_pct"] + ran["interval_pct"]
    bars += " (cut off below 0 and above 100)" if ends[0].min() < LOWEST or ends[1].max() > HIGHEST else ""
    stand_in = " In brackets: the stand-in data that ours ran on, not comparable." if ran["stand_in"].any() else ""
    notes = " ".join(sorted(set(ran["data_note"]) - {""})) if not ran["stand_in"].any() else ""
    ours = f"mean of {runs_text(ran)}" if ran["runs"].max() > 1 else "one run"
    return f"Filled: ours, {ours}, {bars}. Hollow, dotted: published.{stand_in} {notes}".strip()


FIGURES = {
    "splits": FigureRecipe(_splits, _draw_splits),
    "identification": FigureRecipe(candidate_cells, draw_candidates),
    "initialisation": FigureRecipe(initialisation_cells, draw_initialisation),
    "distances": FigureRecipe(distance_cells, draw_distances),
}
