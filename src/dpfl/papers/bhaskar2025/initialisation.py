"""The ablation of where clients start: one common model or one each, with and without noise, local and averaged."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.catalog import load
from dpfl.papers.bhaskar2025.figure_parts import BARS, footer, runs_text
from dpfl.papers.bhaskar2025.paper_runs import (
    LEVEL,
    all_runs,
    each_once,
    published_cells,
    with_settings,
)
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES
from dpfl.reporting import style
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import half_width

COMMON, PER_CLIENT = "common", "per_client"
_STARTS = {COMMON: ("one common start", style.BLUE, "o"), PER_CLIENT: ("a start for each client", style.RED, "s")}
_CELL = ["dataset", "ran_on", "stand_in", "model", "epsilon", "local_epochs", "rounds"]


def initialisation_cells(results: Results) -> pd.DataFrame:
    """Return a row for each initialisation and each cell (ten clients), from the seeds that ran with both.

    Columns: dataset, ran_on, stand_in, model, epsilon, local_epochs, rounds, initialisation, runs, accuracy_pct and
    interval_pct (averaged model; mean and half-width of its 95 % interval), local_accuracy_pct and local_interval_pct
    (the clients' own models before the last averaging, mean over clients), published_accuracy_pct (nan on stand-ins).
    """
    settings = {name: value for name, value in load("bhaskar2025").settings.items() if name != "initialisation"}
    runs = with_settings(all_runs(results), {**settings, "clients": load("bhaskar2025").tables["table_2"]["clients"]})
    runs = each_once(runs, "initialisation")
    both = runs.groupby([*_CELL, "seed"])["initialisation"].transform("nunique") == 2
    cells = (
        runs[both]
        .groupby([*_CELL, "initialisation"], as_index=False, sort=False)
        .agg(
            runs=("accuracy_pct", "size"),
            accuracy_pct=("accuracy_pct", "mean"),
            sd=("accuracy_pct", "std"),
            local_accuracy_pct=("local_accuracy_pct", "mean"),
            local_sd=("local_accuracy_pct", "std"),
        )
    )
    cells["interval_pct"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    cells["local_interval_pct"] = half_width(cells.pop("local_sd"), cells["runs"], LEVEL)
    published = published_cells().query("table < 5").drop(columns=["table", "clients"])
    cells = cells.merge(published, on=["dataset", "model", "epsilon", "local_epochs", "rounds"], how="left")
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    return cells.sort_values([*_CELL, "initialisation"], ignore_index=True)


def draw_initialisation(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and model, one column per budget: averaged and local accuracy against E."""
    rows = list(cells.groupby(["ran_on", "model"]))
    columns = max(group["epsilon"].nunique() for _, group in rows)
    figure, axes = style.panels(columns, len(rows), width=min(10, 3.4 * columns + 0.6), height=2.6, squeeze=False)
    for line, ((ran_on, model), group) in zip(axes, rows, strict=True):
        budgets = sorted(group["epsilon"].unique(), reverse=True)
        for axis in line[len(budgets) :]:
            axis.set_axis_off()
        for axis, epsilon in zip(line, budgets, strict=False):
            _panel(axis, group[group["epsilon"] == epsilon])
            budget = "no noise" if math.isinf(epsilon) else f"ε = {epsilon:g}"
            axis.set_title(f"{ran_on}, {MODEL_NAMES[model]}, {budget}")
        line[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("local epochs E a round (E · R = 20)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=7.5)
    footer(figure, _footer(cells))
    return figure


def _panel(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw both starts of one budget: the average in full lines, the clients' own models dashed, the print hollow."""
    for start, (name, colour, marker) in _STARTS.items():
        line = cells[cells["initialisation"] == start].sort_values("local_epochs")
        look = {"color": colour, "marker": marker}
        x = line["local_epochs"]
        axis.errorbar(x, line["accuracy_pct"], line["interval_pct"], label=f"average, {name}", linestyle="-", **look)
        local = (line["local_accuracy_pct"], line["local_interval_pct"])
        axis.errorbar(x, *local, label=f"clients alone, {name}", linestyle="--", markerfacecolor="white", **look)
    published = cells.drop_duplicates("local_epochs").sort_values("local_epochs")
    if published["published_accuracy_pct"].notna().any():
        axis.plot(
            published["local_epochs"], published["published_accuracy_pct"],
            color=style.BLACK, marker="D", markerfacecolor="none", linestyle=":", linewidth=0.8, label="published",
        )  # fmt: skip
    axis.set_xscale("log")
    style.ticks_at(axis, cells["local_epochs"])
    axis.set_ylim(0, 102)


def _footer(cells: pd.DataFrame) -> str:
    """Say what is drawn and from how many runs."""
    stand_in = " Stand-in data: not comparable with the published values." if cells["stand_in"].any() else ""
    what = "Dashed: mean over the clients' own models before the last average."
    return f"{runs_text(cells)} a point, ten clients. {what} {BARS}{stand_in}"
