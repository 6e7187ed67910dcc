"""Cost of provable batches: three ways to draw them under the same noise, their accuracy and what each epsilon is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.accounting.samplers import Sampling
from dpfl.papers.bhaskar2025.cells import LEVEL, each_once, runs_of, runs_text, table_settings
from dpfl.reporting import style
from dpfl.reporting.display_names import (
    EpsilonVerdict,
    at_least,
    at_most,
    count_range,
    data_name,
    epsilon_verdict,
    listed,
    model_name,
    span,
    with_greek_symbols,
)
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAMPLERS = {
    Sampling.SHUFFLED.value: "shuffled epochs",
    Sampling.POISSON.value: "Poisson",
    Sampling.BALLS_IN_BINS.value: "balls in bins",
}
"""The samplers compared, that of practice first: the others are set against it."""
_BATCHES = {
    Sampling.POISSON.value: "Poisson batches",
    Sampling.BALLS_IN_BINS.value: "balls-in-bins batches",
}
EVERY_SPLIT = "all"
_WHERE = ["dataset", "ran_on", "stand_in", "data_note", "model", "epsilon"]
_SPLIT = ["local_epochs", "rounds"]
_STATED = ["noise_multiplier", "delta", "epsilon_proven", "epsilon_refuted"]
_COLUMNS = [*_WHERE, "split", "sampling", "runs", "accuracy_pct", "interval_pct"]
_COLUMNS += ["over_shuffled_pct", "over_shuffled_interval_pct", *_STATED, ORIGINS]
_LOOKS = {
    Sampling.SHUFFLED.value: (style.RED, "s"),
    Sampling.POISSON.value: (style.BLUE, "o"),
    Sampling.BALLS_IN_BINS.value: (style.GREEN, "^"),
}


def sampling_cells(results: Results) -> pd.DataFrame:
    """Return a row for each budget, split and sampler, from the seeds that ran with all three samplers.

    Columns: dataset, ran_on, stand_in, data_note, model, epsilon (the claim that sets the noise), split ("(E, R)", or
    "all": the mean over the splits, seed by seed), sampling, runs, accuracy_pct and interval_pct (mean and half-width
    of its 95 % interval), over_shuffled_pct and over_shuffled_interval_pct (advantage over shuffled epochs, seed by
    seed), noise_multiplier, delta, epsilon_proven, epsilon_refuted, origins.
    """
    runs = runs_of(results, "sampling").query("epsilon < inf")
    runs = runs[(runs["clients"] == table_settings(2)["clients"]) & runs["sampling"].isin(SAMPLERS)]
    runs = each_once(runs, "sampling")
    sampled = runs.groupby([*_WHERE, *_SPLIT, "seed"])["sampling"].transform("nunique")
    runs = runs[sampled == len(SAMPLERS)]
    if runs.empty:
        return pd.DataFrame(columns=_COLUMNS)
    splits = [f"({epochs}, {rounds})" for epochs, rounds in zip(runs["local_epochs"], runs["rounds"], strict=True)]
    runs = runs.assign(split=splits)
    cells = pd.concat([_summary(runs), _summary(_over_splits(runs))])
    cells["place"] = [_epochs(split) for split in cells["split"]]
    cells["order"] = cells["sampling"].map(list(SAMPLERS).index)
    by, ascending = ["dataset", "model", "epsilon", "place", "order"], [True, True, False, True, True]
    return cells.sort_values(by, ascending=ascending, ignore_index=True)[_COLUMNS]


def _epochs(split: str) -> int:
    """Return the local epochs of a split, by which it is put in order; all splits come last."""
    return 10**6 if split == EVERY_SPLIT else int(split.strip("()").split(",")[0])


def _over_splits(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over the splits of each seed that ran all of them, as if it were a run."""
    splits = runs.groupby(_WHERE)["split"].transform("nunique")
    own = runs.groupby([*_WHERE, "sampling", "seed"])["split"].transform("nunique")
    stated = {f"privacy_{name}": (f"privacy_{name}", "first") for name in _STATED}
    by = runs[own == splits].groupby([*_WHERE, "sampling", "seed"], as_index=False)
    means = by.agg(accuracy_pct=("accuracy_pct", "mean"), **stated, **{ORIGIN: (ORIGIN, " ".join)})
    return means.assign(split=EVERY_SPLIT)


def _summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs with a split each."""
    shuffled = runs.loc[runs["sampling"] == Sampling.SHUFFLED.value, [*_WHERE, "split", "seed", "accuracy_pct"]]
    runs = runs.merge(shuffled, on=[*_WHERE, "split", "seed"], suffixes=("", "_shuffled"), validate="m:1")
    runs["over"] = runs["accuracy_pct"] - runs["accuracy_pct_shuffled"]
    cells = runs.groupby([*_WHERE, "split", "sampling"], as_index=False).agg(
        runs=("seed", "size"),
        accuracy_pct=("accuracy_pct", "mean"),
        sd=("accuracy_pct", "std"),
        over_shuffled_pct=("over", "mean"),
        over_sd=("over", "std"),
        **{name: (f"privacy_{name}", "first") for name in _STATED},
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells["interval_pct"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    cells["over_shuffled_interval_pct"] = half_width(cells.pop("over_sd"), cells["runs"], LEVEL)
    return cells


def sampling_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader, a heading for each dataset, model and budget."""
    epsilons = cells[["epsilon", "epsilon_proven", "epsilon_refuted"]]
    body = pd.DataFrame(
        {
            "(E, R)": cells["split"].replace(EVERY_SPLIT, "mean of all splits"),
            "Batches": cells["sampling"].map(SAMPLERS),
            "Seeds": cells["runs"].map(str),
            "Accuracy": _with_interval(cells["accuracy_pct"], cells["interval_pct"], "{:.2f}"),
            "Minus shuffled, points": [
                "–" if row.sampling == Sampling.SHUFFLED.value else text
                for row, text in zip(
                    cells.itertuples(),
                    _with_interval(cells["over_shuffled_pct"], cells["over_shuffled_interval_pct"], "{:+z.2f}"),
                    strict=True,
                )
            ],
            "ε claimed": cells["epsilon"].map("{:g}".format),
            "ε proven": [at_most(epsilon) for epsilon in cells["epsilon_proven"]],
            "ε at least": [at_least(epsilon) for epsilon in cells["epsilon_refuted"]],
            "Claim": [str(epsilon_verdict(*known)) for known in epsilons.itertuples(index=False)],
        }
    )
    headings = [
        f"{data_name(row.ran_on)}, {model_name(row.model)}, noise for ε = {row.epsilon:g}" for row in cells.itertuples()
    ]
    return TableLayout(body, _notes(cells), headings)


def _with_interval(values: pd.Series, intervals: pd.Series, form: str) -> list[str]:
    """Return numbers with the half-widths of their intervals, if there are some."""
    halves = ["" if math.isnan(half) else f" ± {half:.2f}" for half in intervals]
    return [form.format(value) + half for value, half in zip(values, halves, strict=True)]


def _notes(cells: pd.DataFrame) -> list[str]:
    """Say what provable batches cost, what the columns are, and what ran."""
    if cells.empty:
        return ["No seed was run with all three samplers at this scale."]
    overall = cells[cells["split"] == EVERY_SPLIT]
    notes = [_cost(group) for _, group in overall.groupby(["ran_on", "model", "epsilon"], sort=False)]
    notes.append(
        'All three use the same noise, calibrated for Poisson batches to the claimed ε. "ε proven" is an accountant\'s '
        'upper bound for these batches. "ε at least" is a lower bound, computed for a pair of neighbouring data sets. '
        "Both hold for an observer of every step who knows n; neighbours differ in one record, which is zeroed out, at "
        f"δ = {', '.join(f'{delta:g}' for delta in sorted(set(cells['delta'])))}. A claimed ε below this lower bound "
        "is refuted."
    )
    interval = " ± is a 95 % interval by Student's t for each row alone." if cells["runs"].max() > 1 else ""
    notes.append(
        'Accuracy is in per cent. "Over shuffled" is the difference in points, on the seeds that ran with all three '
        f"samplers (seeds: {count_range(cells['runs'])}).{interval}"
    )
    notes += sorted(set(cells["data_note"]) - {""})
    return notes


def _cost(group: pd.DataFrame) -> str:
    """Say of one budget what is known of epsilon with shuffled batches, and what batches with proof cost in accuracy.

    `group`: the rows of the budget for the mean over all splits, shuffled epochs among them.
    """
    is_shuffled = group["sampling"] == Sampling.SHUFFLED.value
    shuffled, others = group[is_shuffled].iloc[0], group[~is_shuffled]
    texts = _with_interval(others["over_shuffled_pct"], others["over_shuffled_interval_pct"], "{:+z.2f}")
    known = list(zip(others.itertuples(), texts, strict=True))
    proven = " and ".join(f"{_BATCHES[row.sampling]} at most {at_most(row.epsilon_proven)}" for row, _ in known)
    changes = " and ".join(f"by {text} points with {_BATCHES[row.sampling]}" for row, text in known)
    where = (
        f"{data_name(shuffled['ran_on'])}, {model_name(shuffled['model'])}. The authors' code draws Poisson batches, "
        f"and its accountant gives the noise for ε = {shuffled['epsilon']:g}"
    )
    spent = f"shuffled epochs spend an ε of at least {at_least(shuffled['epsilon_refuted'])}"
    upper = shuffled["epsilon_proven"]
    spent += f" and at most {at_most(upper)}" if upper < math.inf else "; no upper bound is known"
    runs, delta = int(others["runs"].min()), with_greek_symbols(f"δ = {shuffled['delta']:g}")
    seeds = "With one seed we cannot tell these changes from 0" if runs == 1 else f"{runs} seeds; ± is a 95 % interval"
    return (
        f"{where}. With this noise, for one record zeroed out, an observer of every step and "
        f"{delta}, {spent}; {proven}. Compared with shuffled epochs, accuracy changes {changes}, on "
        f"average over all splits of 20 epochs into E local epochs and R rounds. {seeds}."
    )


def larger_epsilon(results: Results) -> pd.DataFrame:
    """Return the rows of `sampling_cells` for the largest epsilon."""
    cells = sampling_cells(results)
    return cells[cells["epsilon"] == cells["epsilon"].max()]


def draw_sampling(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset, model and budget: bounds on epsilon, and accuracy over shuffled epochs."""
    rows = list(cells.groupby(["ran_on", "model", "epsilon"], sort=False))
    figure, axes = style.panels(
        2, len(rows), width=style.WIDTH, height=2.4 + 0.5 * (len(rows) == 1), squeeze=False, sharex="col"
    )
    for (left, right), ((ran_on, model, epsilon), group) in zip(axes, rows, strict=True):
        _epsilons(left, group)
        low, high = _limits(cells)
        style.ticks_at(left, [tick for tick in (0.5, 1, 2, 5, 10, 20, 50) if low <= tick <= high])
        left.set_title(
            f"{data_name(ran_on)}, {model_name(model)},\nnoise for ε = {epsilon:g}: what is known of ε", fontsize=9
        )
        _differences(right, group)
        right.set_title("accuracy at this noise,\nby split into E epochs and R rounds", fontsize=9)
    axes[0][0].set_xlim(*_limits(cells))
    style.legend(figure, [axes[0][1]], ncols=3)
    axes[-1][0].set_xlabel("ε: from the lower bound to the proven one")
    axes[-1][1].set_xlabel("accuracy less that of shuffled epochs (points)")
    style.footer(figure, _footer(cells))
    return figure


def sampling_message(cells: pd.DataFrame) -> str:
    """Say where shuffled batches exceed the epsilon that their noise is for, and what a proof costs in accuracy."""
    shuffled = cells[cells["sampling"] == "shuffled_epochs"].drop_duplicates(["ran_on", "model", "epsilon"])
    false = [
        f"at least {at_least(row.epsilon_refuted)} with the noise for {row.epsilon:g}"
        for row in shuffled.itertuples()
        if epsilon_verdict(row.epsilon, row.epsilon_proven, row.epsilon_refuted) is EpsilonVerdict.REFUTED
    ]
    text = f"Shuffled batches spend an ε of {listed(false)}" if false else "No ε is refuted for shuffled batches"
    overall = cells[(cells["split"] == "all") & (cells["sampling"] != "shuffled_epochs")]
    if overall.empty:
        return text
    change = span(overall["over_shuffled_pct"], "{:+z.2f}")
    seeds = "one seed" if overall["runs"].max() == 1 else f"{count_range(overall['runs'])} seeds"
    changed = f"Poisson and balls-in-bins batches change accuracy by {change} points on average over the splits"
    return f"{text}; {changed} at the same noise ({seeds})"


def _epsilons(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw for each sampler the span in which its epsilon lies, and the claim."""
    claimed = cells["epsilon"].iloc[0]
    axis.axvline(claimed, color=style.BLACK, linestyle="--", linewidth=1)
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": style.SMALL}
    axis.annotate(f"claimed {claimed:g}", (claimed, 0), (3, 3), **place)
    for height, sampling in enumerate(reversed(SAMPLERS)):
        row, (colour, marker) = cells[cells["sampling"] == sampling].iloc[0], _LOOKS[sampling]
        ends = [row["epsilon_refuted"], row["epsilon_proven"]]
        axis.plot(ends, [height] * 2, color=colour, marker=marker, linestyle="-", linewidth=3)
        proven = "not proven" if math.isinf(ends[1]) else f"proven {at_most(ends[1])}"
        words = f"at least {at_least(ends[0])}, {proven}" if ends[1] > 1.05 * ends[0] else proven
        # beside the claim, never across it
        far = claimed < ends[0] and 4 * claimed < ends[1] < math.inf
        at, side = (1.6 * ends[1], "right") if far else (ends[0], "left" if ends[0] > claimed else "right")
        axis.annotate(
            words, (at, height), (0, 8), textcoords="offset points", ha=side, color=colour, fontsize=style.SMALL
        )
    axis.set_yticks(range(len(SAMPLERS)), labels=list(reversed(SAMPLERS.values())))
    axis.set_ylim(-0.5, len(SAMPLERS) - 0.3)
    axis.set_xscale("log")


def _limits(cells: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the axis of epsilons: beside the least and the largest there is room for their names."""
    finite = cells[["epsilon", "epsilon_refuted", "epsilon_proven"]].to_numpy(float)
    finite = finite[(finite > 0) & (finite < math.inf)]
    return finite.min() / 3.6, 1.7 * finite.max()


def _differences(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw the paired differences to shuffled epochs, by split and over all splits, with their intervals."""
    splits = list(dict.fromkeys(cells["split"]))[::-1]
    for shift, sampling in ((0.13, Sampling.POISSON.value), (-0.13, Sampling.BALLS_IN_BINS.value)):
        line, (colour, marker) = cells[cells["sampling"] == sampling], _LOOKS[sampling]
        heights = [splits.index(split) + shift for split in line["split"]]
        half = line["over_shuffled_interval_pct"]
        look = {"color": colour, "marker": marker, "linestyle": "none", "label": SAMPLERS[sampling]}
        axis.errorbar(line["over_shuffled_pct"], heights, xerr=half, **look)
    axis.axvline(0, color=_LOOKS[Sampling.SHUFFLED.value][0], linewidth=1.2, label="0: shuffled epochs")
    axis.set_yticks(range(len(splits)), labels=["mean of all" if split == EVERY_SPLIT else split for split in splits])
    axis.set_ylabel("(E, R)")


def _beside_zero(cells: pd.DataFrame) -> str:
    """Say how many of the intervals that are drawn leave out 0."""
    compared = cells[(cells["sampling"] != Sampling.SHUFFLED.value) & cells["over_shuffled_interval_pct"].notna()]
    without = compared["over_shuffled_pct"].abs() > compared["over_shuffled_interval_pct"]
    return f"each on its own; {int(without.sum())} of {len(compared)} leave out 0"


def _footer(cells: pd.DataFrame) -> str:
    """Say what the marks and bars mean, and on what data they are."""
    stand_in = " Stand-in data." if cells["stand_in"].any() else ""
    bars = (
        f"bars: 95 % interval of the difference, {_beside_zero(cells)}"
        if cells["runs"].max() > 1
        else "no bars for one run"
    )
    return (
        f"ε against an observer of every step, one record zeroed out, δ = {cells['delta'].iloc[0]:g}; dashed: "
        f"the claim. Accuracy: {runs_text(cells)} a sampler on the same seeds; {bars}.{stand_in}"
    )


TABLES = {"sampling": TableRecipe(sampling_cells, sampling_page)}
FIGURES = {
    "sampling": FigureRecipe(sampling_cells, draw_sampling, sampling_message),
    "sampling_larger_epsilon": FigureRecipe(larger_epsilon, draw_sampling, sampling_message),
}
