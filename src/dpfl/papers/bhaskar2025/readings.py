"""Effect of each difference between the paper's text and its authors' code: each switched back alone, and all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.lines import Line2D

from dpfl.papers.bhaskar2025.cells import (
    BIMODAL_PCT,
    LEVEL,
    PUBLISHED,
    data_lines,
    each_once,
    numbers,
    published_cells,
    runs_of,
    runs_text,
)
from dpfl.reporting import style
from dpfl.reporting.display_names import budget_cell, budget_name, data_name, model_name
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STUDY = "readings"
CODE = {
    "network": "authors",
    "pixels": "authors",
    "feature_norm": "learnt",
    "client_records": "independent",
    "plain_batches": "fixed",
    "accountant": "prv",
}
"""Settings in which text and code differ, and the code's reading of each."""
NAMES = {
    "network": "networks as cited",
    "pixels": "pixels in [0, 1]",
    "feature_norm": "group norm per channel, fixed",
    "client_records": "clients share no record",
    "plain_batches": "other batch order without privacy",
    "accountant": "Rényi accountant",
    "all": "all of them together",
}
"""The differences, each as what is switched."""
_OPTIMISER = ["batch_size", "learning_rate", "momentum", "clip_norm"]
_CELL = ["dataset", "ran_on", "stand_in", "data_note", "model", "epsilon", "local_epochs", "rounds", "clients"]
_COLUMNS = ["difference", *_CELL, "runs", "code_pct", "code_least_pct", "code_most_pct", "text_pct", "text_least_pct"]
_COLUMNS += ["text_most_pct", "effect_pct", "effect_interval_pct", "published_accuracy_pct", ORIGINS]


def reading_cells(results: Results) -> pd.DataFrame:
    """Return a row for each difference and cell, from the seeds that ran with the code's reading and without it.

    Columns: difference (a key of `NAMES`), dataset, ran_on, stand_in, data_note, model, epsilon, local_epochs, rounds,
    clients, runs, code_pct and text_pct (mean accuracy with the code's reading, and with the difference switched back),
    code_least_pct, code_most_pct, text_least_pct, text_most_pct (of the runs), effect_pct (text less code, paired by
    seed) and effect_interval_pct (half-width of its 95 % interval), published_accuracy_pct (nan on stand-in data),
    origins. Differences that a cell does not have (the accountant without privacy, the order with it) have no row.
    """
    runs = runs_of(results, PUBLISHED, STUDY)
    if runs.empty or not set(CODE) <= set(runs.columns):
        return pd.DataFrame(columns=_COLUMNS)
    reference = _reference(runs)
    runs = runs.assign(difference=[_difference(run, reference) for run in runs.to_dict("records")])
    key = [*_CELL, *_OPTIMISER, "seed"]
    code = each_once(runs[runs["difference"] == ""], *_OPTIMISER)
    text = each_once(runs[runs["difference"].isin(NAMES)], "difference", *_OPTIMISER)
    both = text.merge(code[[*key, "accuracy_pct", ORIGIN]], on=key, suffixes=("", "_code"), validate="m:1")
    both["effect"] = both["accuracy_pct"] - both["accuracy_pct_code"]
    both[ORIGIN] = both[ORIGIN] + " " + both[f"{ORIGIN}_code"]
    by = ["difference", *_CELL]
    cells = both.groupby(by, as_index=False, sort=False).agg(
        runs=("seed", "size"),
        code_pct=("accuracy_pct_code", "mean"),
        code_least_pct=("accuracy_pct_code", "min"),
        code_most_pct=("accuracy_pct_code", "max"),
        text_pct=("accuracy_pct", "mean"),
        text_least_pct=("accuracy_pct", "min"),
        text_most_pct=("accuracy_pct", "max"),
        effect_pct=("effect", "mean"),
        sd=("effect", "std"),
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells["effect_interval_pct"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    printed = published_cells().query("table < 5").drop(columns="table")
    cells = cells.merge(printed, on=["dataset", "model", "epsilon", "local_epochs", "rounds", "clients"], how="left")
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    cells["order"] = cells["difference"].map(list(NAMES).index)
    by, ascending = ["dataset", "model", "epsilon", "order", "local_epochs"], [True, True, False, True, True]
    return cells.sort_values(by, ascending=ascending, ignore_index=True)[_COLUMNS]


def _reference(runs: pd.DataFrame) -> dict[str, object]:
    """Return the reading of the published cells, the code's if none ran."""
    published = runs[runs["study"] == PUBLISHED]
    return {name: published[name].iloc[0] if len(published) else code for name, code in CODE.items()}


def _difference(run: dict[str, object], reference: dict[str, object]) -> str:
    """Return which difference a run switches: "" for none, "all" for several, "absent" if its cell has none of it."""
    switched = [name for name, value in reference.items() if run[name] != value]
    absent = "accountant" if math.isinf(float(run["epsilon"])) else "plain_batches"
    if len(switched) > 1:
        return "all"
    return "absent" if switched == [absent] else "".join(switched)


def _bimodal(cells: pd.DataFrame) -> pd.Series:
    """Return in which cells the runs of one side lie so far apart that their mean is none of them."""
    code, text = (cells[f"{side}_most_pct"] - cells[f"{side}_least_pct"] for side in ("code", "text"))
    return (code > BIMODAL_PCT) | (text > BIMODAL_PCT)


def readings_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader: a row per difference and budget under its model, a column per split."""
    lines, headings = [], []
    by = ["ran_on", "model", "epsilon", "difference"]
    for (ran_on, model, epsilon, difference), group in cells.groupby(by, sort=False):
        line = {"ε": budget_cell(epsilon), "Switched": NAMES[difference]}
        line["Seeds"] = " to ".join(dict.fromkeys(str(number) for number in (group["runs"].min(), group["runs"].max())))
        for cell, bimodal in zip(group.itertuples(), _bimodal(group), strict=True):
            split = f"({cell.local_epochs}, {cell.rounds})"
            line[split] = _shown(cell, bimodal)
            [line[f"{split} published"]] = numbers([cell.published_accuracy_pct], "{:.2f}")
        lines.append(line)
        headings.append(f"{data_name(ran_on)}, {model_name(model)}")
    body = pd.DataFrame(lines).fillna("")
    first = ["ε", "Switched", "Seeds"]
    splits = sorted((name for name in body.columns if name not in first), key=_split_order)
    return TableLayout(body[[*first, *splits]] if lines else body, _notes(cells), headings)


def _split_order(column: str) -> tuple[int, bool]:
    """Return the place of a column of a split: by its local epochs, the published value behind ours."""
    return int(column[1 : column.index(",")]), column.endswith("published")


def _shown(cell: object, bimodal: bool) -> str:
    """Return one cell: accuracy by the code, by the switched reading, and their difference."""
    if bimodal:
        sides = [(cell.code_least_pct, cell.code_most_pct), (cell.text_least_pct, cell.text_most_pct)]
        return " → ".join(f"{least:.2f} to {most:.2f}" for least, most in sides)
    half = "" if math.isnan(cell.effect_interval_pct) else f" ± {cell.effect_interval_pct:.2f}"
    return f"{cell.code_pct:.2f} → {cell.text_pct:.2f} ({cell.effect_pct:+z.2f}{half})"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Sum each difference up, and say what the columns are."""
    if cells.empty:
        return ["No difference was run at this scale beside the code's reading of the same cell."]
    ran = set(cells["difference"])
    notes = [_sum(text, cells[cells["difference"] == name]) for name, text in NAMES.items() if name in ran]
    notes.append(
        "Each cell: accuracy in per cent by the authors' code → with one reading switched (the difference, with its "
        f"95 % interval by Student's t over the seeds, paired). Runs that lie more than {BIMODAL_PCT:g} points apart "
        "are shown from the least to the most accurate, without a mean or a difference."
    )
    if stand_ins := sorted(set(cells.loc[cells["stand_in"].eq(True), "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(stand_ins)}) are not comparable with the published values.")
    return [*notes, *sorted(set(cells["data_note"]) - {""})]


def _sum(name: str, cells: pd.DataFrame) -> str:
    """Return what one difference changes, over its cells with a mean, as a sentence."""
    steady = cells[~_bimodal(cells)]
    start = f"{name[0].upper()}{name[1:]}: {len(steady)} {'cell' if len(steady) == 1 else 'cells'} with a mean"
    if steady.empty:
        return f"{start}."
    largest = steady.loc[steady["effect_pct"].abs().idxmax()]
    where = f"{model_name(largest['model'])}, {budget_name(largest['epsilon'])}, "
    where += f"({largest['local_epochs']:g}, {largest['rounds']:g})"
    text = (
        f"{start}, median change {steady['effect_pct'].abs().median():.2f} points, largest "
        f"{largest['effect_pct']:+z.2f} ({where})"
    )
    compared = steady.dropna(subset="published_accuracy_pct")
    if compared.empty:
        return f"{text}."
    code, switched = ((compared[f"{side}_pct"] - compared["published_accuracy_pct"]).abs() for side in ("code", "text"))
    return (
        f"{text}. Median distance to the published value: {code.median():.2f} by the code, {switched.median():.2f} "
        f"switched, which is nearer in {int((switched < code).sum())} of {len(compared)}."
    )


_SPLITS = ((style.BLUE, "o"), (style.ORANGE, "s"), (style.RED, "^"), (style.GREEN, "D"), (style.PURPLE, "v"))
_LINEAR_PCT = 1.0


def draw_readings(cells: pd.DataFrame) -> Figure:
    """Draw a row of panels per dataset and model, a column per budget, a line per difference, a mark per split."""
    rows = list(cells.groupby(["ran_on", "model"], sort=False))
    columns = max(group["epsilon"].nunique() for _, group in rows)
    figure, axes = style.panels(
        columns, len(rows), width=style.WIDTH, height=2.5, squeeze=False, sharex=True, sharey="row"
    )
    top = ["published less ours"] if cells["published_accuracy_pct"].notna().any() else []
    splits = sorted({(row.local_epochs, row.rounds) for row in cells.itertuples()})
    looks = dict(zip(splits, _SPLITS, strict=False))
    for row, ((ran_on, model), group) in zip(axes, rows, strict=True):
        order = [name for name in reversed(NAMES) if name in set(group["difference"])]
        budgets = sorted(group["epsilon"].unique(), reverse=True)
        for axis, epsilon in zip(row, budgets, strict=False):
            _panel(axis, group[group["epsilon"] == epsilon], order, looks)
            axis.set_title(f"{model_name(model)}, {budget_name(epsilon)}", fontsize=9)
        for axis in row[len(budgets) :]:
            axis.set_axis_off()
        labels = [*(NAMES[name] for name in order), *top]
        row[0].set_yticks(range(len(labels)), labels=labels)
        row[0].set_ylabel(data_lines(ran_on), fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("change of accuracy (points)")
    keys = [
        Line2D([], [], color=c, marker=m, linestyle="none", label=f"(E, R) = {split}")
        for split, (c, m) in looks.items()
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=min(4, len(keys)))
    style.footer(figure, _footer(cells))
    return figure


def readings_message(cells: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which difference between text and code changes accuracy most, by its median over the cells with a mean."""
    steady = cells[~_bimodal(cells) & (cells["difference"] != "all")]
    if steady.empty:
        return ""
    medians = steady["effect_pct"].abs().groupby(steady["difference"]).median().sort_values()
    first = (
        f"Of {len(medians)} differences between text and code, one changes accuracy most: {names[medians.index[-1]]}"
    )
    return f"{first}, by {medians.iloc[-1]:.1f} points in the median cell"


def _panel(axis: Axes, cells: pd.DataFrame, order: list[str], looks: dict[tuple[int, int], tuple[str, str]]) -> None:
    """Draw one model and budget: effects with their intervals, and on top what is left to explain."""
    for place, (split, (colour, marker)) in enumerate(looks.items()):
        own = cells[(cells["local_epochs"] == split[0]) & (cells["rounds"] == split[1])]
        own = own[~_bimodal(own)]
        shift = 0.18 * ((len(looks) - 1) / 2 - place)
        heights = [order.index(name) + shift for name in own["difference"]]
        look = {"color": colour, "marker": marker, "linestyle": "none"}
        bars = {"elinewidth": 1, "capsize": 1.5, "markersize": 3.5}
        axis.errorbar(own["effect_pct"], heights, xerr=own["effect_interval_pct"].fillna(0.0), **look, **bars)
        missing = (own["published_accuracy_pct"] - own["code_pct"]).dropna()
        if len(missing):
            axis.plot([missing.iloc[0]], [len(order) + shift], **look, markersize=4, markerfacecolor="none")
    axis.axvline(0, color=style.BLACK, linewidth=0.8)
    axis.set_xscale("symlog", linthresh=_LINEAR_PCT)
    ticks = [-50, -10, -1, 0, 1, 10, 50]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlim(-110, 110)
    axis.set_ylim(-0.6, len(order) + (0.6 if cells["published_accuracy_pct"].notna().any() else -0.4))


def _footer(cells: pd.DataFrame) -> str:
    """Say what marks and bars are, from how many runs, and what is left out."""
    wide = int(_bimodal(cells).sum())
    left = f" Left out: {wide} with runs over {BIMODAL_PCT:g} points apart." if wide else ""
    bars = "bars: 95 % interval, paired by seed" if cells["runs"].max() > 1 else "no bars for one run"
    hollow = " Hollow: published less ours." if cells["published_accuracy_pct"].notna().any() else ""
    stand_in = " Stand-in data: nothing published beside them." if cells["stand_in"].eq(True).any() else ""
    return (
        f"Accuracy with one reading switched less that of the authors' code, {runs_text(cells)} a mark; {bars}. The "
        f"axis is linear up to {_LINEAR_PCT:g} point, logarithmic beyond.{hollow}{left}{stand_in}"
    )


TABLES = {"readings": TableRecipe(reading_cells, readings_page)}
FIGURES = {"readings": FigureRecipe(reading_cells, draw_readings, partial(readings_message, names=NAMES))}
