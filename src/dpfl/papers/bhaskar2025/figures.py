"""The figures of Tables 2 to 4: accuracy against the split, every run a point."""

from __future__ import annotations

import json
import math
from statistics import median
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.lines import Line2D

from dpfl.papers.bhaskar2025.cells import (
    BIMODAL_PCT,
    CELL,
    LEVEL,
    PUBLISHED,
    data_lines,
    each_once,
    measured_cells,
    runs_of,
)
from dpfl.reporting import style
from dpfl.reporting.display_names import (
    all_or,
    budget_name,
    count_range,
    model_name,
    span,
    with_minus_signs,
)
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

_BUDGETS = ((style.BLUE, "o"), (style.ORANGE, "s"), (style.RED, "^"))
"""Colour and marker of each budget, that of no privacy first, then the larger ε."""


def split_cells(results: Results) -> pd.DataFrame:
    """Return the cells of Tables 2 to 4 (see `measured_cells`) with one more column, run_accuracies_pct: the accuracies
    of the runs as JSON, least first. Datasets of which nothing ran are left out, but if nothing ran at all."""
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)])
    runs, key = each_once(runs_of(results, PUBLISHED)), ["dataset", *CELL]
    accuracies = runs.groupby(key)["accuracy_pct"].agg(lambda values: json.dumps(sorted(values))).reset_index()
    cells = cells.merge(accuracies.rename(columns={"accuracy_pct": "run_accuracies_pct"}), on=key, how="left")
    cells["run_accuracies_pct"] = cells["run_accuracies_pct"].astype(object).fillna("[]")
    ran = cells[cells["runs"] > 0]["dataset"].unique()
    return cells[cells["dataset"].isin(ran)] if len(ran) else cells


def draw_splits(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and one column per model."""
    datasets, models = list(cells["dataset"].unique()), list(cells["model"].unique())
    figure, axes = style.panels(len(models), len(datasets), height=2.4, squeeze=False, sharex=True, sharey="row")
    for row, dataset in zip(axes, datasets, strict=True):
        of_dataset = cells[cells["dataset"] == dataset]
        for axis, model in zip(row, models, strict=True):
            _panel(axis, of_dataset[of_dataset["model"] == model], comparable=not of_dataset["stand_in"].any())
            axis.set_title(_title(model, of_dataset[of_dataset["model"] == model]), fontsize=9)
        shown = ["most_pct"] if of_dataset["stand_in"].any() else ["published_accuracy_pct", "most_pct"]
        most = of_dataset[shown].max(axis=None)
        row[0].set_ylim(0, 10 * math.ceil(most / 10) + 2)
        row[0].set_ylabel(f"{_data_name(of_dataset)}\naccuracy (%)")
        row[-1].legend(handles=_budget_keys(of_dataset), loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("local epochs E")
    figure.legend(handles=_keys(cells), loc="outside upper center", ncols=3)
    style.footer(figure, _footer(cells))
    return figure


def splits_message(cells: pd.DataFrame) -> str:
    """Say in how many lines of our runs twenty local epochs a round are less accurate than one, and by how much."""
    ran = cells[cells["runs"] > 0]
    ran = ran.assign(median_pct=[median(json.loads(text)) for text in ran["run_accuracies_pct"]])
    wide = ran.pivot(index=["dataset", "model", "epsilon"], columns="local_epochs", values="median_pct")
    if wide.shape[1] < 2:
        return ""
    least, most = wide.columns[0], wide.columns[-1]
    lost = (wide[least] - wide[most]).dropna()
    if lost.empty:
        return ""
    worse = all_or(int((lost > 0).sum()), len(lost))
    text = f"{most} local epochs a round are less accurate than {least} in {worse} lines that ran both"
    return f"{text}, by {span(lost[lost > 0], '{:.1f}')} points" if (lost > 0).any() else text


def _leads(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells (1, 20) with privacy, with one more column: published_lead_pct, the published accuracy minus the
    best published one of the other splits."""
    private = cells[cells["epsilon"] < math.inf]
    is_first = private["local_epochs"] == 1
    column = ["dataset", "model", "epsilon"]
    others = private[~is_first].groupby(column)["published_accuracy_pct"].max().rename("others_pct")
    leads = private[is_first].merge(others, left_on=column, right_index=True)
    return leads.assign(published_lead_pct=leads["published_accuracy_pct"] - leads["others_pct"])


def draw_leads(cells: pd.DataFrame) -> Figure:
    """Draw by how much (1, 20) leads the best other split of each private column, a place for each model."""
    leads = _leads(cells)
    datasets, models = list(cells["dataset"].unique()), list(cells["model"].unique())
    figure, axis = style.panels(1, 1, width=6.4, height=3.6)
    axis.axhline(0, color=style.BLACK, linewidth=0.8)
    lowest = leads.loc[~leads["stand_in"], "published_lead_pct"].min()
    for dataset, colour, marker in zip(datasets, style.COLOURS, style.MARKERS, strict=False):
        own = leads[leads["dataset"] == dataset]
        rank = own.groupby("model").cumcount() + 2 * datasets.index(dataset)
        places = own["model"].map(models.index) + (rank - len(datasets) + 0.5) * 0.8 / (2 * len(datasets))
        ours = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 4.5}
        axis.errorbar(places, own["lead_pct"], own["lead_interval_pct"], **ours, label=f"ours, {data_lines(dataset)}")
        if not own["stand_in"].any():
            hollow = ours | {"markerfacecolor": "none", "markersize": 7}
            axis.plot(places, own["published_lead_pct"], **hollow, label=f"published, {data_lines(dataset)}")
            for place, (_, row) in zip(places, own.iterrows(), strict=True):
                if row["published_lead_pct"] == lowest < 0:
                    _mark_counterexample(axis, place, row)
    axis.yaxis.set_major_formatter(lambda value, _: with_minus_signs(f"{value:+g}") if value else "0")
    axis.set_xticks(range(len(models)), [model_name(model) for model in models])
    axis.set_ylabel("lead of (1, 20) over the\nbest other split (points)")
    style.legend(figure, [axis], ncols=3)
    runs = leads.loc[leads["lead_runs"] > 0, "lead_runs"]
    shown = f"Ours: mean over {count_range(runs.astype(int))} seeds" if len(runs) else "Ours: not run"
    missing = int(leads["lead_pct"].isna().sum())
    left_out = f" Not run: {missing} of our {len(leads)} columns." if missing and len(runs) else ""
    style.footer(
        figure,
        f"Below 0 another split is better. Each data set: the larger ε on the left. {shown}; bars: 95 % interval, none "
        f"for one seed.{left_out} Title: best by mean accuracy; beyond chance: a fixed split leads, paired t-test at "
        "5 %, Bonferroni over the other splits.",
    )
    return figure


_LABEL_ROOM = 5.0
"""Points below the counterexample that its label needs."""


def _mark_counterexample(axis: Axes, place: float, row: pd.Series) -> None:
    """Circle the lowest published lead, which decides the claim, and say what it is and what the claim needs."""
    at, colour = (place, row["published_lead_pct"]), style.BLACK  # red is a data set
    axis.set_ylim(bottom=min(axis.get_ylim()[0], at[1] - _LABEL_ROOM))
    axis.plot(*at, marker="o", markersize=13, markerfacecolor="none", color=colour, linestyle="none")
    label = (
        f"counterexample: {at[1]:+.2f}, the claim needs at least 0\n(published, {model_name(row['model'])}, "
        f"{data_lines(row['dataset'])}, {budget_name(row['epsilon'])})"
    )
    look = {"color": colour, "fontsize": style.SMALL, "ha": "right", "va": "top"}
    axis.annotate(label, at, (-14, -16), textcoords="offset points", **look)


def leads_message(cells: pd.DataFrame) -> str:
    """Say in how many private columns (1, 20) is the best split by its mean, published and in our runs, and in how many
    of ours another split is ahead of it beyond chance."""
    leads = _leads(cells)
    published = all_or(int((leads["published_lead_pct"] >= 0).sum()), len(leads))
    text = f"One local epoch a round is best in {published} published private columns"
    known = leads[leads["lead_pct"].notna()]
    if known.empty:
        return text
    column = ["dataset", "model", "epsilon"]
    others = cells[(cells["local_epochs"] > 1) & (cells["runs"] > 0)].merge(known[column])
    means = known.set_index(column)["accuracy_pct"]
    best = means >= others.groupby(column)["accuracy_pct"].max().reindex(means.index)
    share, single = all_or(int(best.sum()), len(known)), int((known["lead_runs"] == 1).sum())
    text += f", and in {share} of ours" + (f" ({single} of ours have one seed)" if single else "")
    beyond = sum(map(_is_beaten, (own for _, own in others.groupby(column))))
    return text + (f"; another is better beyond chance in {beyond} of ours" if not best.all() else "")


def _is_beaten(others: pd.DataFrame) -> bool:
    """Return whether one of the other splits of a column is ahead of (1, 20), by `LEVEL` corrected for their number."""
    tested = others[others["over_first_runs"] > 1]
    error = tested["over_first_interval_pct"] / half_width(1.0, tested["over_first_runs"], LEVEL)
    needed = half_width(error, tested["over_first_runs"], 1 - (1 - LEVEL) / len(others))
    return bool((tested["over_first_pct"] > needed).any())


def _title(model: str, cells: pd.DataFrame) -> str:
    """Return the name of a model with the number of runs that its cells have, if there are any."""
    ran = cells.loc[cells["runs"] > 0, "runs"]
    count = count_range(ran).replace(" to ", "–")  # panels are narrow
    return model_name(model) + (f", n = {count}" if len(ran) else "")


def _panel(axis: Axes, cells: pd.DataFrame, comparable: bool) -> None:
    """Draw the three budgets of a model: runs as points, medians as a line, published values hollow if comparable."""
    for epsilon, (colour, marker) in zip(cells["epsilon"].unique(), _BUDGETS, strict=True):
        line = cells[cells["epsilon"] == epsilon].sort_values("local_epochs")
        runs = [json.loads(text) for text in line["run_accuracies_pct"]]
        ran = [(epochs, values) for epochs, values in zip(line["local_epochs"], runs, strict=True) if values]
        look = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 3, "alpha": 0.45}
        axis.plot([at for at, values in ran for _ in values], [value for _, values in ran for value in values], **look)
        middle = [_middle(values) for values in runs]
        axis.plot(line["local_epochs"], middle, color=colour, linestyle="-")
        if comparable:
            hollow = {"markerfacecolor": "none", "linestyle": ":", "linewidth": 0.8, "markersize": 5.5}
            axis.plot(line["local_epochs"], line["published_accuracy_pct"], color=colour, marker=marker, **hollow)
    if not (cells["runs"] > 0).any():
        style.mark_not_run(axis)
    axis.set_xscale("log")
    style.ticks_at(axis, cells["local_epochs"])


def _middle(accuracies: list[float]) -> float:
    """Return the median of a cell's runs; nan, which breaks the line, for none and for runs that lie far apart."""
    if not accuracies or max(accuracies) - min(accuracies) >= BIMODAL_PCT:
        return math.nan
    return median(accuracies)


def _keys(cells: pd.DataFrame) -> list[Line2D]:
    """Return what lines and marks mean; published values only where some are drawn."""
    grey = {"color": style.BLACK, "marker": "o"}
    keys = [Line2D([], [], **grey, linestyle="none", markersize=3, alpha=0.5, label="a run of ours")]
    keys.append(Line2D([], [], color=style.BLACK, label="median of our runs"))
    if not cells.groupby("dataset")["stand_in"].any().all():
        keys.append(Line2D([], [], **grey, linestyle=":", markerfacecolor="none", linewidth=0.8, label="published"))
    return keys


def _budget_keys(cells: pd.DataFrame) -> list[Line2D]:
    """Return the colours and markers of a data set's budgets."""
    return [
        Line2D([], [], color=colour, marker=marker, label=budget_name(epsilon))
        for epsilon, (colour, marker) in zip(cells["epsilon"].unique(), _BUDGETS, strict=True)
    ]


def _data_name(cells: pd.DataFrame) -> str:
    """Return the name of the data that ran."""
    ran = cells.loc[cells["runs"] > 0, "ran_on"]
    return data_lines(ran.iloc[0] if len(ran) else cells["dataset"].iloc[0])


def _footer(cells: pd.DataFrame) -> str:
    """Say what the marks mean, how many runs there are, and what is not comparable."""
    ran = cells[cells["runs"] > 0]
    if ran.empty:
        return "Hollow: published. Nothing was run at this scale."
    notes = " ".join(sorted(set(ran["data_note"]) - {""}))
    stand_in = " Stand-in data: no published values to compare with." if ran["stand_in"].any() else ""
    line = f"line: their median, broken where runs lie over {BIMODAL_PCT:g} points apart or a split was not run"
    points = "Points: our runs, n a cell, each drawn in place of an interval"
    missing = len(cells) - len(ran)
    left_out = f" Not run: {missing} of {len(cells)} cells." if missing else ""
    return f"E · R = 20. {points}; {line}.{left_out}{stand_in} {notes}".strip()


FIGURES = {
    "leads": FigureRecipe(split_cells, draw_leads, leads_message),
    "splits": FigureRecipe(split_cells, draw_splits, splits_message),
}
