"""Learning rate, momentum and order of batches of the pixel CNNs: rules from before the runs decide.

Text (0.3, 0.5) and code (0.1, 0.9 by default for pixel CNNs) disagree on the rate, and the authors' two programs on the
order of batches without privacy. grid.yaml has the rules in words, committed before any of the runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from dpfl.papers.bhaskar2025.cells import (
    BIMODAL_PCT,
    CELL,
    PUBLISHED,
    WIDE_PCT,
    data_lines,
    each_once,
    is_bimodal,
    prediction_half_width,
    published_cells,
    runs_of,
    with_runs,
)
from dpfl.reporting import style
from dpfl.reporting.display_names import budget_name, count_range, data_name, model_name
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, NotRunError, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STUDY = "open_settings"
MODELS = ("cnn_relu", "cnn_tanh")


class Candidate(NamedTuple):
    """Settings of the pixel CNNs on which the text and the authors' programs differ."""

    learning_rate: float
    momentum: float
    plain_batches: str

    def __str__(self) -> str:
        return f"({self.learning_rate:g}, {self.momentum:g}), {self.plain_batches}"


RATES = ((0.3, 0.5), (0.2, 0.5), (0.1, 0.5), (0.1, 0.9), (0.3, 0.9))
ORDERS = ("fixed", "shuffled")
CANDIDATES = tuple(Candidate(*rate, order) for rate, order in product(RATES, ORDERS))
PAPER = Candidate(0.3, 0.5, "fixed")
"""The paper's own rate with the federated program's order: shipped unless a rule chooses another."""
LEAST_GAIN_PCT = 0.5  # points of the median distance by which another candidate or order has to be nearer
LEAST_COLUMNS = 3  # of four that a chosen candidate explains


@dataclass(frozen=True)
class Counted:
    """The cells of a data set that its rule counts: both CNNs, no privacy and the larger epsilon, on these splits.

    A cell is explained where its distance is at most `tolerance_pct`, or the half-width of our prediction interval if
    that is at most WIDE_PCT.
    """

    splits: tuple[tuple[int, int], ...]
    seeds: int
    tolerance_pct: float


COUNTED = {
    "fashion_mnist": Counted(((1, 20), (10, 2), (20, 1)), 3, 2.0),
    "mnist": Counted(((2, 10), (4, 5), (5, 4)), 3, 2.0),  # nobody looked at these
    "cifar10": Counted(((1, 20),), 1, 5.0),
}
_SETTINGS = list(Candidate._fields)
_PLACE = ["dataset", "model", "epsilon", "local_epochs", "rounds"]


def open_cells(results: Results) -> pd.DataFrame:
    """Return a row for each data set, candidate and counted cell.

    Columns: dataset, learning_rate, momentum, plain_batches, model, epsilon, local_epochs, rounds, ran_on, stand_in,
    runs (of the seeds that the rule counts, from 0 on), seeds (so many does it count), accuracy_pct (mean), sd_pct,
    least_pct, most_pct (of the runs), repeat_accuracy_pct and repeat_sd_pct (mean and deviation with the last run of
    each seed in place of the first, which counts), published_accuracy_pct,
    distance_pct (|ours - published|; nan where a seed is missing or on stand-in data),
    tolerance_pct (up to which the cell is explained), of_published (whether the published cells of this data set and
    model ran with the candidate), origins. With privacy the order of plain batches changes nothing, so both orders
    have the same runs.
    """
    rows = _counted_cells()
    runs = _runs(results)
    private = np.isfinite(runs["epsilon"].astype(float))
    both = [runs[~private], *(runs[private].assign(plain_batches=order) for order in ORDERS)]
    known = [part for part in both if len(part)]
    runs = pd.concat(known) if known else runs
    statistics = {"accuracy_pct": "mean", "sd_pct": "std", "least_pct": "min", "most_pct": "max"}
    named = {name: ("accuracy_pct", statistic) for name, statistic in statistics.items()}
    named |= {f"repeat_{name}": ("repeat_pct", statistics[name]) for name in ("accuracy_pct", "sd_pct")}
    cells = with_runs(rows, runs, [*_SETTINGS, *_PLACE], **named)
    comparable = (cells["runs"] == cells["seeds"]) & ~cells["stand_in"]
    cells["distance_pct"] = _distance(cells).where(comparable)
    cells["tolerance_pct"] = _tolerance(cells)
    shipped = _shipped(results)
    keys = cells[["dataset", "model", *_SETTINGS]].itertuples(index=False, name=None)
    cells["of_published"] = [key in shipped for key in keys]
    return cells


def _distance(cells: pd.DataFrame) -> pd.Series:
    """Return |ours - published|, in points."""
    return (cells["accuracy_pct"] - cells["published_accuracy_pct"]).abs()


def _tolerance(cells: pd.DataFrame) -> pd.Series:
    """Return the distance up to which each cell is explained (`Counted`)."""
    half = prediction_half_width(cells["sd_pct"], cells["runs"]).fillna(0.0)
    fixed = cells["dataset"].map(lambda name: COUNTED[name].tolerance_pct)
    return np.maximum(fixed, half.where(half <= WIDE_PCT, 0.0))  # wider, it takes in nearly anything


def _counted_cells() -> pd.DataFrame:
    """Return the cells that the rules count, with every candidate: columns as `open_cells` says."""
    published = published_cells().query("table < 5")
    published = published[published["model"].isin(MODELS)]
    parts = []
    for dataset, counted in COUNTED.items():
        own = published[published["dataset"] == dataset]
        larger = own.loc[np.isfinite(own["epsilon"]), "epsilon"].max()
        pairs = zip(own["local_epochs"], own["rounds"], strict=True)
        splits = pd.Series([pair in counted.splits for pair in pairs], own.index)
        own = own[splits & own["epsilon"].isin([larger, math.inf])].assign(seeds=counted.seeds)
        parts += [own.assign(**candidate._asdict()) for candidate in CANDIDATES]
    rows = pd.concat(parts, ignore_index=True)
    return rows[["dataset", *_SETTINGS, *_PLACE[1:], "seeds", "published_accuracy_pct"]]


def _runs(results: Results) -> pd.DataFrame:
    """Return the runs of ten clients that the rules may count: of the study, or of published cells, first seeds.

    The first run of a seed counts, that of a published cell if there is one. One more column: repeat_pct, the accuracy
    of the last one.
    """
    runs = runs_of(results, STUDY, PUBLISHED)
    runs = runs.sort_values("study", key=lambda study: study != PUBLISHED, kind="stable")
    runs = runs.reindex(columns=[*_SETTINGS, *_RUN])
    seeds = runs["dataset"].map({name: counted.seeds for name, counted in COUNTED.items()})
    runs = runs[runs["model"].isin(MODELS) & (runs["clients"] == 10) & (runs["seed"] < seeds)].dropna(subset=_SETTINGS)
    last = runs.groupby([*_SETTINGS, "dataset", *CELL, "seed"])["accuracy_pct"].transform("last")
    return each_once(runs.assign(repeat_pct=last), *_SETTINGS)


_RUN = ["dataset", "ran_on", "stand_in", *CELL, "seed", "accuracy_pct", ORIGIN]


def _shipped(results: Results) -> set[tuple[object, ...]]:
    """Return (data set, model, settings) with which the published cells of ten clients ran."""
    runs = runs_of(results, PUBLISHED).reindex(columns=["dataset", "model", "clients", *_SETTINGS]).dropna()
    runs = runs[(runs["clients"] == 10) & runs["model"].isin(MODELS)].drop(columns="clients")
    return set(runs.itertuples(index=False, name=None))


@dataclass(frozen=True)
class RateDecision:
    """Outcome of the rate rule on a data set.

    missing: counted cells of any candidate that lack seeds; while there are some, the paper's candidate is shipped.
    best: the candidate with the smallest median distance; medians_pct: that of each candidate, explained: the columns
    (model, epsilon) that each explains, of `columns`. chosen: whether the rule chooses the best; shipped: what it
    ships.
    """

    missing: tuple[str, ...]
    best: Candidate
    medians_pct: Mapping[Candidate, float]
    explained: Mapping[Candidate, tuple[tuple[str, float], ...]]
    chosen: bool
    columns: tuple[tuple[str, float], ...]

    @property
    def shipped(self) -> Candidate:
        """The candidate with which published cells are to run, up to the order, which the order rule decides."""
        return self.best if self.chosen else PAPER


def decide_rate(cells: pd.DataFrame) -> RateDecision:
    """Return what the rate rule says of one data set's rows of `open_cells`.

    The best candidate (rate, momentum and order of plain batches, the same for both CNNs and budgets) has the smallest
    median distance over the counted cells, ties to the first of `CANDIDATES`. It explains a column, a model and a
    budget, if more than half of its cells have a distance of at most their tolerance. It is chosen if it explains
    `LEAST_COLUMNS` columns and its median is at least `LEAST_GAIN_PCT` below that of `PAPER`, or if it is `PAPER`.
    """
    lacking = cells[cells["distance_pct"].isna()]
    missing = tuple(
        f"{Candidate(row.learning_rate, row.momentum, row.plain_batches)}, {model_name(row.model)}, "
        f"{budget_name(row.epsilon)}, ({row.local_epochs}, {row.rounds})"
        for row in lacking.itertuples()
    )
    medians, explained = {}, {}
    for candidate in CANDIDATES:
        own = _of(cells, candidate)
        medians[candidate] = float(own["distance_pct"].median())
        near = (own["distance_pct"] <= own["tolerance_pct"]).groupby([own["model"], own["epsilon"]]).mean()
        explained[candidate] = tuple(column for column, share in near.items() if share > 0.5)
    known = [candidate for candidate in CANDIDATES if not math.isnan(medians[candidate])]
    best = min(known, key=medians.__getitem__, default=PAPER)
    gains = best == PAPER or _round(medians[PAPER] - medians[best]) >= LEAST_GAIN_PCT
    chosen = not missing and len(explained[best]) >= LEAST_COLUMNS and gains
    return RateDecision(missing, best, medians, explained, chosen, tuple(near.index))


@dataclass(frozen=True)
class OrderDecision:
    """Outcome of the order rule: the data sets that count so far, the median distance of each order, the order."""

    decided: tuple[str, ...]
    medians_pct: Mapping[str, float]
    order: str


def decide_order(cells: pd.DataFrame) -> OrderDecision:
    """Return what the order rule says of all rows of `open_cells`.

    One order for all data sets, as a program has one. Counted are the cells without privacy of every data set whose
    rate rule has all its runs, each at the rate that it ships. Shuffled is chosen if its median distance is at least
    `LEAST_GAIN_PCT` below that of the fixed order; else the fixed order of the federated program.
    """
    decided, parts = [], []
    for dataset, own in cells.groupby("dataset", sort=False):
        decision = decide_rate(own)
        if not decision.missing:
            rate = decision.shipped
            at_rate = (own["learning_rate"] == rate.learning_rate) & (own["momentum"] == rate.momentum)
            decided.append(str(dataset))
            parts.append(own[at_rate & np.isinf(own["epsilon"])])
    counted = pd.concat(parts) if parts else cells.iloc[:0]
    medians = {
        order: float(counted.loc[counted["plain_batches"] == order, "distance_pct"].median()) for order in ORDERS
    }
    fixed, shuffled = (medians[order] for order in ORDERS)
    order = "shuffled" if parts and _round(fixed - shuffled) >= LEAST_GAIN_PCT else "fixed"
    return OrderDecision(tuple(decided), medians, order)


def _of(cells: pd.DataFrame, candidate: Candidate) -> pd.DataFrame:
    """Return the rows of a candidate."""
    return cells[np.logical_and.reduce([cells[name] == value for name, value in candidate._asdict().items()])]


def _round(points: float) -> float:
    """Return points without the rounding of floats, for a comparison with a threshold."""
    return round(points, 9)


def open_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the candidates out for a reader, a heading for each data set that ran, with what the rules decide."""
    lines, headings = [], []
    decisions = {str(name): decide_rate(own) for name, own in cells.groupby("dataset", sort=False)}
    for dataset, decision in decisions.items():
        own = cells[cells["dataset"] == dataset]
        for candidate in CANDIDATES if own["distance_pct"].notna().any() else ():
            rows = _of(own, candidate)
            line = {"Rate, momentum, order": str(candidate)}
            for (model, epsilon), column in rows.groupby(["model", "epsilon"]):
                budget = "no privacy" if math.isinf(epsilon) else "larger ε"
                line[f"{model_name(model)}, {budget}"] = ", ".join(_off(cell) for cell in column.itertuples())
            complete = rows["distance_pct"].notna().sum()
            line["Median distance"] = f"{decision.medians_pct[candidate]:.2f}" if complete else "–"
            line["Columns explained"] = f"{len(decision.explained[candidate])} of 4" if complete == len(rows) else "–"
            line["Remark"] = ", ".join(_remarks(rows, candidate, decision))
            lines.append(line)
            headings.append(_heading(own))
    return TableLayout(pd.DataFrame(lines), _notes(cells, decisions), headings)


def _heading(cells: pd.DataFrame) -> str:
    """Return the heading of a data set: what is counted, by how many seeds."""
    dataset = cells["dataset"].iloc[0]
    splits = ", ".join(str(split) for split in COUNTED[dataset].splits)
    seeds = cells["seeds"].iloc[0]

    return f"{data_name(dataset)}, splits {splits}, {seeds} {'seed' if seeds == 1 else 'seeds'}"


def _off(cell: object) -> str:
    """Return ours less published of one cell, in brackets if it is not explained."""
    if math.isnan(cell.distance_pct):
        return "–"
    text = f"{cell.accuracy_pct - cell.published_accuracy_pct:+z.2f}"
    if is_bimodal(cell):
        low, high = (end - cell.published_accuracy_pct for end in (cell.least_pct, cell.most_pct))
        text = f"{low:+z.2f} to {high:+z.2f}"
    return text if cell.distance_pct <= cell.tolerance_pct else f"[{text}]"


def _remarks(rows: pd.DataFrame, candidate: Candidate, decision: RateDecision) -> list[str]:
    """Return what is to be said of a candidate."""
    found = ["smallest median"] if not decision.missing and candidate == decision.best else []
    if rows["of_published"].any():
        models = rows.loc[rows["of_published"], "model"].unique()
        found.append("published cells" if len(models) == len(MODELS) else f"published cells of {model_name(models[0])}")
    return found


def _notes(cells: pd.DataFrame, decisions: Mapping[str, RateDecision]) -> list[str]:
    """Say what the rules decide, and what the columns are."""
    order = decide_order(cells)
    notes = [rate_verdict(dataset, decision) for dataset, decision in decisions.items()]
    notes.append(order_verdict(order))
    for dataset, decision in decisions.items():
        own = cells[(cells["dataset"] == dataset) & cells["of_published"]]
        ran = {Candidate(*row) for row in own[_SETTINGS].drop_duplicates().itertuples(index=False, name=None)}
        wanted = decision.shipped._replace(plain_batches=order.order)
        if not decision.missing and wanted != decision.shipped:
            notes.append(
                f"{data_name(dataset)}: with the order that is shipped, {wanted} has a median distance of "
                f"{decision.medians_pct[wanted]:.2f} points and explains {len(decision.explained[wanted])} of 4 "
                "columns."
            )
        if ran and ran != {wanted}:
            notes.append(
                f"{data_name(dataset)}: the published cells ran with {' and '.join(sorted(map(str, ran)))}, the rules "
                f"ship {wanted}: run them again."
            )
    notes += _repeats_note(cells)
    tolerances = "; ".join(f"{data_name(name)} {counted.tolerance_pct:g}" for name, counted in COUNTED.items())
    notes.append(
        "Numbers: mean accuracy less the published value in points, a number a split; a range where runs lie more than "
        f"{BIMODAL_PCT:g} points apart. In brackets: not explained, "
        f"further than the tolerance (points: {tolerances}) and than the half-width of the 95 % prediction interval of "
        "a mean of ten runs from our seeds. A column is explained if more than half of its cells are. With privacy the "
        "order of plain batches changes nothing."
    )
    if stand_ins := sorted(set(cells.loc[cells["stand_in"], "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(stand_ins)}) count for nothing.")
    return notes


def _repeats_note(cells: pd.DataFrame) -> list[str]:
    """Say what the medians and the choices are with other runs of the same seeds, if seeds ran again."""
    again = cells.assign(accuracy_pct=cells["repeat_accuracy_pct"], sd_pct=cells["repeat_sd_pct"])
    again["distance_pct"] = _distance(again).where(cells["distance_pct"].notna())
    again["tolerance_pct"] = _tolerance(again)
    apart = (again["accuracy_pct"] - cells["accuracy_pct"]).abs()
    if not apart.max() > 0:
        return []
    medians, choices = [], []
    for (name, own), (_, first) in zip(*(each.groupby("dataset", sort=False) for each in (again, cells)), strict=True):
        decision, was = decide_rate(own), decide_rate(first)
        for candidate, median in decision.medians_pct.items():
            if f"{median:.2f}" != f"{was.medians_pct[candidate]:.2f}":
                place = f"{data_name(str(name))} {candidate}"
                medians.append(f"{place}: {median:.2f} points, not {was.medians_pct[candidate]:.2f}")
        choices.append((decision.shipped[:2], was.shipped[:2]))
    same = all(new == old for new, old in choices) and decide_order(again).order == decide_order(cells).order
    farthest = cells.loc[apart.idxmax()]
    return [
        "Some seeds ran twice with the same settings; the rules count the run "
        f"that stands in Tables 2 to 4. With the other, they ship {'the same' if same else 'another'} rate and order. "
        f"Median distances that differ: {'; '.join(medians) or 'none'}. The largest difference: "
        f"{data_name(farthest['dataset'])}, {model_name(farthest['model'])}, {budget_name(farthest['epsilon'])}, "
        f"({farthest['local_epochs']}, {farthest['rounds']}), {Candidate(*farthest[_SETTINGS])}: "
        f"{farthest['repeat_accuracy_pct']:.2f}, not {farthest['accuracy_pct']:.2f}; published "
        f"{farthest['published_accuracy_pct']:.2f}."
    ]


def rate_verdict(dataset: str, decision: RateDecision) -> str:
    """Return what the rate rule decides for a data set, with its numbers."""
    name = data_name(dataset)
    if decision.missing:
        first = "; ".join(decision.missing[:3])
        more = "; ..." if len(decision.missing) > 3 else ""
        return (
            f"{name}: undecided, {len(decision.missing)} counted cells lack runs ({first}{more}). The default is "
            f"shipped: {PAPER}."
        )
    best, columns = decision.best, decision.explained[decision.best]
    names = ", ".join(f"{model_name(model)} {budget_name(epsilon)}" for model, epsilon in columns) or "none"
    other = "" if best == PAPER else f" ({PAPER}: {decision.medians_pct[PAPER]:.2f})"
    text = (
        f"{name}: {best} has the smallest median distance, {decision.medians_pct[best]:.2f} points{other}, and "
        f"explains {len(columns)} of 4 columns ({names})."
    )
    return f"{text} {_choice(decision)} {_unexplained(decision)}"


def _choice(decision: RateDecision) -> str:
    """Return whether the best candidate is chosen, and why not."""
    if decision.chosen:
        return f"Its rate and momentum, ({decision.best.learning_rate:g}, {decision.best.momentum:g}), are chosen."
    reasons = []
    if (columns := len(decision.explained[decision.best])) < LEAST_COLUMNS:
        reasons.append(f"the rule asks for {LEAST_COLUMNS} columns, not {columns}")
    gain = _round(decision.medians_pct[PAPER] - decision.medians_pct[decision.best])
    if decision.best != PAPER and gain < LEAST_GAIN_PCT:
        shown = round(decision.medians_pct[PAPER], 2) - round(decision.medians_pct[decision.best], 2)  # as printed
        reasons.append(f"it is nearer than {PAPER} by {shown:.2f} points, and the rule asks for {LEAST_GAIN_PCT:g}")
    return f"It is not chosen: {'; '.join(reasons)}. {PAPER} is shipped."


def _unexplained(decision: RateDecision) -> str:
    """Name the columns that no candidate explains."""
    known = {column for columns in decision.explained.values() for column in columns}
    missed = [f"{model_name(each[0])} {budget_name(each[1])}" for each in decision.columns if each not in known]
    if missed:
        return f"No candidate explains {', '.join(missed)}."
    if any(len(columns) == len(decision.columns) for columns in decision.explained.values()):
        return "At least one candidate explains all four columns."
    return "No candidate explains all four columns, but each column is explained by one."


def order_verdict(decision: OrderDecision) -> str:
    """Return what the order rule decides, with its numbers."""
    if not decision.decided:
        return "Order of batches without privacy: undecided, no data set has all its runs. The fixed order is shipped."
    medians = ", ".join(f"{order} {median:.2f}" for order, median in decision.medians_pct.items())
    return (
        f"Order of batches without privacy: {decision.order} is shipped. Median distance over the cells without "
        f"privacy of {', '.join(map(data_name, decision.decided))}, each at its shipped rate: {medians} points; "
        f"shuffled needs to be nearer by {LEAST_GAIN_PCT:g}."
    )


_SPLITS = ((style.BLUE, "o"), (style.ORANGE, "s"), (style.RED, "^"))


def draw_open(cells: pd.DataFrame) -> Figure:
    """Draw a row of panels per data set, a column per model and budget, a line per candidate, a mark per split."""
    datasets = list(cells.loc[cells["distance_pct"].notna(), "dataset"].unique())
    if not datasets:
        raise NotRunError("nothing that the rules count was run on real data at this scale")
    figure, axes = style.panels(4, len(datasets), height=3.0, squeeze=False, sharex=True, sharey="row")
    for row, dataset in zip(axes, datasets, strict=True):
        own = cells[cells["dataset"] == dataset]
        decision = decide_rate(own)
        columns = list(own.groupby(["model", "epsilon"]))
        for axis, ((model, epsilon), column) in zip(row, columns, strict=True):
            _panel(axis, column)
            axis.set_title(f"{model_name(model)},\n{budget_name(epsilon)}", fontsize=9)
        names = [f"{_mark(_of(own, each), each, decision)}{each}" for each in CANDIDATES]
        row[0].set_yticks(range(len(CANDIDATES)), labels=names[::-1])
        row[0].set_ylabel(data_lines(dataset), fontsize=9)
        keys = [
            Line2D([], [], color=colour, marker=marker, linestyle="none", label=str(split))
            for split, (colour, marker) in zip(COUNTED[dataset].splits, _SPLITS, strict=False)
        ]
        title = {"title": "split\n(E, R)", "title_fontsize": 9}
        row[-1].legend(handles=keys, loc="center left", bbox_to_anchor=(1.0, 0.5), **title)
    for axis in axes[-1]:
        axis.set_xlabel("ours less published\n(points)")
    style.footer(figure, _footer(cells[cells["dataset"].isin(datasets)]))
    return figure


def _mark(cells: pd.DataFrame, candidate: Candidate, decision: RateDecision) -> str:
    """Return the marks of a candidate's row, as the footer explains them."""
    nearest = not decision.missing and candidate == decision.best
    marks = ("●" if nearest else "") + ("○" if cells["of_published"].any() else "")
    return f"{marks} " if marks else ""


def open_message(cells: pd.DataFrame) -> str:
    """Say which candidate is nearest to the published values on each data set that ran, and how many columns that
    explains."""
    nearest, undecided = [], []
    for dataset in cells.loc[cells["distance_pct"].notna(), "dataset"].unique():
        decision, name = decide_rate(cells[cells["dataset"] == dataset]), data_name(dataset)
        if decision.missing:
            undecided.append(f"{name} ({len(decision.missing)} cells lack runs)")
            continue
        best, columns = decision.best, len(decision.explained[decision.best])
        chosen = "" if decision.chosen else ", not chosen"
        points = f"{decision.medians_pct[best]:.1f} points"
        nearest.append(f"on {name} {best} ({points}, {columns} of 4 columns explained{chosen})")
    parts = [f"Nearest: {'; '.join(nearest)}"] if nearest else []
    return ". ".join([*parts, f"Undecided: {'; '.join(undecided)}"] if undecided else parts)


def _panel(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw the distances of one column with the band in which a cell is explained whatever its seeds."""
    counted = COUNTED[cells["dataset"].iloc[0]]
    axis.axvspan(-counted.tolerance_pct, counted.tolerance_pct, color=style.GREEN, alpha=0.15, linewidth=0)
    axis.axvline(0, color=style.BLACK, linewidth=0.8)
    for split, (colour, marker) in zip(counted.splits, _SPLITS, strict=False):
        own = cells[(cells["local_epochs"] == split[0]) & (cells["rounds"] == split[1]) & cells["distance_pct"].notna()]
        heights = [
            len(CANDIDATES) - 1 - CANDIDATES.index(Candidate(*row))
            for row in own[_SETTINGS].itertuples(index=False, name=None)
        ]
        off = own["accuracy_pct"] - own["published_accuracy_pct"]
        axis.plot(off, heights, color=colour, marker=marker, linestyle="none", markersize=4, alpha=0.8)
    if cells["distance_pct"].isna().all():
        style.mark_not_run(axis)
    axis.set_xscale("symlog", linthresh=1.0)
    ticks = [-50, -5, 0, 5, 50]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlim(-110, 110)
    axis.set_ylim(-0.7, len(CANDIDATES) - 0.3)


def _footer(cells: pd.DataFrame) -> str:
    """Say what the marks are, and from how many runs."""

    ran = cells.loc[cells["distance_pct"].notna(), "runs"]
    return (
        f"Rows: (learning rate, momentum), order of batches without privacy. A mark: mean of {count_range(ran)} runs "
        "less the published value. Green: near enough to count as explained, whatever the seeds. ●: smallest median "
        f"distance; chosen if it explains {LEAST_COLUMNS} of 4 columns and is nearer than {PAPER} by "
        f"{LEAST_GAIN_PCT:g} points. ○: the published cells ran with it; one order for all data sets. The axis is "
        "linear up to 1 point, logarithmic beyond. With privacy the order changes nothing."
    )


TABLES = {"open_settings": TableRecipe(open_cells, open_page)}
FIGURES = {"open_settings": FigureRecipe(open_cells, draw_open, open_message)}
