"""Figures of trained models: asynchrony, larger batches, samplers, strategies, mixing, preparation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.papers.vandijk2023.accounting_figures import SAMPLERS
from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, at_most, budget_name, count_range, data_name, listed, percent, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, Results, origins
from dpfl.reporting.statistics import half_width, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Summarise training runs over seeds: means, intervals, and differences within a seed.

LEVEL = 0.95
DATA = ["dataset", "stand_in_for"]
MEASURES = [
    "runs",
    "accuracy_pct",
    "interval_pct",
    "difference_pct",
    "difference_interval_pct",
    "difference_runs",
    "privacy_epsilon_proven",
    ORIGINS,
]


def summarise(runs: pd.DataFrame, keys: list[str], baseline: Mapping[str, Any], within: list[str]) -> pd.DataFrame:
    """Return one row per dataset and value of `keys`: DATA, keys and MEASURES.

    difference_pct is the mean of a run's accuracy minus that of the run with the `baseline` values of the same dataset,
    seed and values of `within`, over the `difference_runs` seeds that both ran. Empty in, empty out.
    """
    columns = [*DATA, *keys, *MEASURES]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    same = ["dataset", "seed", *within]
    chosen = runs
    for column, value in baseline.items():
        chosen = chosen[chosen[column] == value]
    reference = chosen.drop_duplicates(same)[[*same, "accuracy_pct"]]
    paired = runs.merge(reference.rename(columns={"accuracy_pct": "reference"}), on=same, how="left")
    paired["difference"] = paired["accuracy_pct"] - paired["reference"]
    rows = []
    for values, group in paired.groupby([*DATA, *keys], sort=False, dropna=False):
        _, *accuracy = mean_interval(group["accuracy_pct"], LEVEL)
        pairs, *difference = mean_interval(group["difference"], LEVEL)
        proven = group["privacy_epsilon_proven"].iloc[0]
        rows.append((*values, len(group), *accuracy, *difference, pairs, proven, origins(group)))
    return pd.DataFrame(rows, columns=columns)


def counted_runs(data: pd.DataFrame) -> str:
    """Return how many runs a point has, and what its bar is."""
    if data["runs"].max() < 2:
        return "One run a point, so no intervals."
    return f"Means over {count_range(data['runs'])} seeds; bars: 95 % interval of the mean (Student's t)."


# Figures of trained models: ways to spend one budget, the grid of batch, clip norm and noise, and prepared inputs.

STRATEGIES = {
    "constant": "constant",
    "growing_batch": "batch 1/2, 1, 2",
    "falling_batch": "batch 2, 1, 1/2",
    "falling_clip": "clip norm 1, 1/2, 1/4",
    "falling_noise": "noise 1.25, 1, 0.8",
    "falling_both": "both fall",
    "last_epoch": "last epoch σ/√(E+1)",
    "last_epoch_unpaid": "the same, not paid for",
    "arsinh_2": "arsinh noise, a = 2σ (no proof)",
    "arsinh_4": "arsinh noise, a = 4σ (no proof)",
    "sparse_10": "10 % of entries sent",
    "sparse_1": "1 % of entries sent",
    "adaptive_clip": "clip norm follows the median",
    "batch_clip": "batch mean clipped",
}
PREPARATIONS = {
    "none": "pixels",
    "normalised": "normalised privately",
    "normalised_exactly": "normalised exactly (leaks)",
    "dp_pca": "private PCA",
    "exact_pca": "exact PCA (leaks)",
    "layer_normalised": "layer normalisation",
    "batch_normalised": "batch normalisation (leaks)",
}


def strategies_data(results: Results) -> pd.DataFrame:
    """Return one row per point: strategy, epsilon, noise_multiplier, measures; differences to a constant strategy."""
    runs = results.runs(KEY, study="strategies")
    return summarise(runs, ["strategy", "epsilon", "noise_multiplier"], {"strategy": "constant"}, ["epsilon"])


def draw_strategies(data: pd.DataFrame) -> Figure:
    """Draw each strategy's difference in accuracy to the constant one."""
    unpaid = data[data["strategy"] == "last_epoch_unpaid"]
    spent = ", ".join(f"{at_most(proven, 3)} instead of {asked:g}" for asked, proven in _budgets(unpaid))
    text = "Differences within a seed to the constant strategy with the same epsilon"
    text += f"; the axis is linear up to {_LINEAR_POINTS:g} point, logarithmic beyond"
    text += f";\nthe smaller last σ, not paid for, spends ε = {spent}" if spent else ""
    return _dots(data, "strategy", STRATEGIES, "difference to constant (points)", text, differences=True)


def strategies_message(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which strategies are better than the constant one beyond chance, and in how many cases they are better and
    worse. Only those count whose proven epsilon is within the budget."""
    paid = data[(data["privacy_epsilon_proven"] <= data["epsilon"]) & (data["strategy"] != "constant")]
    if paid.empty:
        return ""
    better = paid[paid["difference_pct"] > paid["difference_interval_pct"]]
    worse = paid.loc[paid["difference_pct"] < -paid["difference_interval_pct"], "strategy"].value_counts()
    kinds = [
        f"{names[name]} ({len(rows)} of {int((paid['strategy'] == name).sum())} cases"
        f"{f', worse in {worse[name]}' if name in worse else ''})"
        for name, rows in better.groupby("strategy", sort=False)
    ]
    total = paid["strategy"].nunique()
    if not kinds:
        return f"None of {total} strategies proven to be within the budget beats constant settings beyond chance"
    beat = "beats" if len(kinds) == 1 else "beat"
    return (
        f"Of {total} strategies proven to be within the budget, {len(kinds)} {beat} constant settings beyond chance: "
        f"{listed(kinds)}"
    )


def _budgets(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return each epsilon asked for with the one that is spent, once."""
    once = rows.drop_duplicates("epsilon").sort_values("epsilon")
    return list(zip(once["epsilon"], once["privacy_epsilon_proven"], strict=True))


def preparation_data(results: Results) -> pd.DataFrame:
    """Return one row per point: preparation, epsilon, noise_multiplier, the measures; differences to plain pixels."""
    runs = results.runs(KEY, study="preparation")
    return summarise(runs, ["preparation", "epsilon", "noise_multiplier"], {"preparation": "none"}, ["epsilon"])


def draw_preparation(data: pd.DataFrame) -> Figure:
    """Draw the accuracy of each preparation."""
    text = "What a private preparation reveals is part of the epsilon; exact ones have no guarantee"
    return _dots(data, "preparation", PREPARATIONS, "test accuracy (%)", text, differences=False)


def preparation_message(data: pd.DataFrame, names: Mapping[str, str], private: Sequence[str]) -> str:
    """Say in how many cases a preparation with a guarantee is better or worse than plain pixels, beyond chance."""
    rows = data[data["preparation"].isin(private)]
    if rows.empty:
        return ""
    better = rows[rows["difference_pct"] > rows["difference_interval_pct"]]
    worse = rows[rows["difference_pct"] < -rows["difference_interval_pct"]]
    helped = [names[name] for name in better["preparation"].unique()]
    return (
        f"Preparations with a guarantee beat plain pixels beyond chance in {len(better)} of {len(rows)} cases"
        f"{f' ({listed(helped)})' if helped else ''} and are worse in {len(worse)}"
    )


MIXTURES = {
    "uniform, all true": "equal weights, all labels true",
    "judged, all true": "judged weights, all labels true",
    "uniform, some random": "equal weights, some clients mislabelled",
    "judged, some random": "judged weights, some clients mislabelled",
}


def mixing_data(results: Results) -> pd.DataFrame:
    """Return one row per point: mixing, mislabelled, epsilon, measures; differences to equal weights."""
    runs = results.runs(KEY, study="mixing")
    return summarise(runs, ["mixing", "mislabelled", "epsilon"], {"mixing": "uniform"}, ["mislabelled", "epsilon"])


def draw_mixing(data: pd.DataFrame) -> Figure:
    """Draw accuracy with equal and judged weights, with and without mislabelled clients."""
    labels = data["mislabelled"].gt(0).map({False: "all true", True: "some random"})
    share = data["mislabelled"].max()
    text = f"Mislabelled: {percent(share)} of the clients have uniformly random labels"
    return _dots(
        data.assign(mixture=data["mixing"] + ", " + labels), "mixture", MIXTURES, "test accuracy (%)", text,
        differences=False,
    )  # fmt: skip


def mixing_message(data: pd.DataFrame) -> str:
    """Say what judged weights change with and without mislabelled clients."""
    judged = data[data["mixing"] == "judged"]
    texts = []
    for wrong, name in ((True, "with mislabelled clients"), (False, "if all labels are true")):
        rows = judged[(judged["mislabelled"] > 0) == wrong]
        if len(rows):
            beyond = int((rows["difference_pct"].abs() > rows["difference_interval_pct"]).sum())
            texts.append(
                f"{span(rows['difference_pct'], '{:+z.1f}')} points {name} ({beyond} of {len(rows)} beyond chance)"
            )
    return f"Weights by the server's judgement change accuracy by {listed(texts)}" if texts else ""


def _dots(data: pd.DataFrame, key: str, names: dict[str, str], label: str, text: str, *, differences: bool) -> Figure:
    """Draw one panel per dataset, one line of dots per name, one colour per epsilon."""
    tasks = list(data.groupby(DATA, sort=False))
    shown = [name for name in names if name in set(data[key])]
    figure, axes = style.panels(
        len(tasks),
        width=min(3 + 3.0 * len(tasks), style.WIDTH),
        height=1.1 + 0.3 * len(shown),
        squeeze=False,
        sharey=True,
    )
    for axis, (task, rows) in zip(axes[0], tasks, strict=True):
        _dots_panel(axis, rows, key, shown, differences=differences)
        axis.set(xlabel=label, title=data_name(*task))
    axes[0][0].set_yticks(range(len(shown)), [names[name] for name in shown])
    axes[0][0].set_ylabel(key if key != "preparation" else "inputs")
    axes[0][0].invert_yaxis()
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    shown_by = "a bar without 0" if differences else "the 95 % interval of differences within a seed, not shown"
    chance = f"; beyond chance: {shown_by}, not corrected for several tests"
    style.footer(figure, f"{counted_runs(data)}\n{text}{chance}.")
    return figure


def _dots_panel(axis: Axes, rows: pd.DataFrame, key: str, shown: list[str], *, differences: bool) -> None:
    """Draw the dots of one dataset, the budgets a little apart."""
    values, bars = ("difference_pct", "difference_interval_pct") if differences else ("accuracy_pct", "interval_pct")
    budgets = sorted(rows["epsilon"].unique())
    for number, epsilon in enumerate(budgets):
        selected = rows[rows["epsilon"] == epsilon]
        positions = selected[key].map(shown.index) + 0.22 * (number - (len(budgets) - 1) / 2)
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "none"}
        axis.errorbar(selected[values], positions, xerr=selected[bars].fillna(0), label=budget_name(epsilon), **look)
    if differences:
        axis.axvline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        axis.set_xscale("symlog", linthresh=_LINEAR_POINTS)
        reach = np.nanmax((rows[values].abs() + rows[bars].fillna(0)).to_numpy())
        ticks = [tick for tick in (-50, -10, -5, -1, 0, 1, 5) if abs(tick) <= 2 * reach]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xticks([], minor=True)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5))


_LINEAR_POINTS = 1.0
"""Points of accuracy up to which an axis of differences is linear; beyond it is logarithmic."""


def grid_data(results: Results) -> pd.DataFrame:
    """Return one row per point: sigma, clip_norm, learning_rate, batch_size, the measures, epsilon_tenth.

    Differences are to a clip norm of 1. privacy_epsilon_proven is at delta = 1/N, epsilon_tenth at 1/(10 N), N the
    records of a client.
    """
    runs = results.runs(KEY, study="settings_grid")
    keys = ["sigma", "clip_norm", "learning_rate", "batch_size", "privacy_steps", "privacy_records"]
    data = summarise(runs, keys, {"clip_norm": 1.0}, ["sigma", "batch_size"])
    columns = (data[name] for name in ("privacy_steps", "sigma", "batch_size", "privacy_records"))
    rows = list(zip(*columns, strict=True))
    spent = {
        (steps, sigma, size, records): segments_epsilon([Segment(steps, sigma, size / records)], 1 / (10 * records))
        for steps, sigma, size, records in set(rows)
    }
    return data.assign(epsilon_tenth=[spent[row] for row in rows])


def draw_grid(data: pd.DataFrame) -> Figure:
    """Draw one map of clip norm against batch size for each noise, with the epsilon of each column."""
    tasks, sigmas = list(data.groupby(DATA, sort=False)), sorted(data["sigma"].unique())
    figure, axes = style.panels(len(sigmas), len(tasks), height=3.6, squeeze=False, sharey=True)
    for line, (task, rows) in zip(axes, tasks, strict=True):
        low, high = rows["accuracy_pct"].min(), rows["accuracy_pct"].max()
        for axis, sigma in zip(line, sigmas, strict=True):
            picture = _grid_panel(axis, rows[rows["sigma"] == sigma], low, high)
            axis.set_title(f"{data_name(*task)}, σ = {sigma:g}", fontsize=9)
        line[0].set_ylabel("clip norm C, step size η")
        figure.colorbar(picture, ax=list(line), label="test accuracy (%)", shrink=0.8, pad=0.01)
    records = " or ".join(f"{count:g}" for count in sorted(data["privacy_records"].unique()))
    text = f"Below a map: batch size m, ε at δ = 1/N and ε at δ = 1/(10 N), for N = {records} records a client."
    best = data.loc[data.groupby(["dataset", "stand_in_for", "sigma"])["accuracy_pct"].idxmax(), "batch_size"]
    largest = all_or(int((best == data["batch_size"].max()).sum()), len(best))
    framed = f"Framed: the best cell of a map, which has the largest batch in {largest} maps."
    style.footer(figure, f"{text} {framed} {_spread_text(data)}")
    return figure


def grid_message(data: pd.DataFrame) -> str:
    """Say which clip norm is the best in how many maps, and the best cell of each data set."""
    best = data.loc[data.groupby(["dataset", "stand_in_for", "sigma"])["accuracy_pct"].idxmax()]
    clip = best["clip_norm"].mode().iloc[0]
    top = best.loc[best.groupby("dataset")["accuracy_pct"].idxmax()]
    texts = [
        f"{row.accuracy_pct:.1f} % on {data_name(row.dataset, row.stand_in_for)} with σ = {row.sigma:g}"
        for row in top.itertuples()
    ]
    maps = all_or(int((best["clip_norm"] == clip).sum()), len(best))
    step = best.loc[best["clip_norm"] == clip, "learning_rate"].mode().iloc[0]
    best_at = f"C = {clip:g} with step {step:g} has the best mean accuracy in {maps} maps"
    return f"{best_at}; the best cells have {listed(texts)}"


def _spread_text(data: pd.DataFrame) -> str:
    """Return how many seeds a cell has, and their standard deviation: an interval from two seeds says nothing."""
    seeds = int(data["runs"].min())
    if seeds < 2:
        return "One run a cell."
    spread = data["interval_pct"] / half_width(1.0, seeds, LEVEL)
    return (
        f"Means over {seeds} seeds; their standard deviation: {spread.median():.1f} points in the median cell, "
        f"{spread.max():.1f} at most."
    )


def _grid_panel(axis: Axes, rows: pd.DataFrame, low: float, high: float) -> AxesImage:
    """Draw one map; return the picture for the colour bar."""
    table = rows.pivot(index=["clip_norm", "learning_rate"], columns="batch_size", values="accuracy_pct")
    spent = rows.drop_duplicates("batch_size").set_index("batch_size")
    picture = axis.imshow(table, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
    for (y, x), value in np.ndenumerate(table.to_numpy()):
        colour = style.ON_DARK if value < (low + high) / 2 else style.ON_LIGHT
        axis.text(x, y, f"{value:.1f}", ha="center", va="center", color=colour)
    best = np.unravel_index(np.nanargmax(table.to_numpy()), table.shape)
    frame = {"fill": False, "edgecolor": style.RED, "linewidth": 2.0}
    axis.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, **frame))
    two = [
        f"{m}\n{at_most(spent.loc[m, 'privacy_epsilon_proven'], 2)}\n{at_most(spent.loc[m, 'epsilon_tenth'], 2)}"
        for m in table.columns
    ]
    axis.set_xticks(range(len(two)), two, fontsize=style.SMALL)
    axis.set_yticks(range(len(table.index)), [f"{c:g}, η = {step:g}" for c, step in table.index])
    axis.grid(False)
    return picture


# Figures of trained models: asynchrony, larger batches, and how batches are drawn.

PANELS = {
    "delay": "mean delay of a message (rounds)",
    "broadcast_loss": "broadcasts lost (%)",
    "update_loss": "updates lost (%)",
    "speed_spread": "fastest / slowest client",
    "window": "server's window (rounds)",
    "participation": "clients asked (%)",
}
_COUNTS = ["rounds", "updates_lost_pct", "staleness_rounds", "interrupted_pct", "simulated_rounds", "clients"]
_LINES = {"": "-", "reordered": "--", "waits": "-.", "near": ":"}
LINE_NAMES = {
    "": "",
    "reordered": "messages overtake each other",
    "waits": "clients wait after 2 silent rounds",
    "near": "clients wait if their model is too far",
}
SCALINGS = {
    "epochs": "same epochs and step size",
    "step_size": "same epochs, a times the step size",
    "rounds": "same rounds",
}
_BESIDE = 1.06
"""Ratio of the places of neighbouring points of one a, whose bars would lie on one another."""
_RELATIONS = {
    ("fixed_without_replacement", "replace_one"): "fixed",
    ("poisson", "zero_out"): "poisson_zero_out",
    ("poisson", "replace_one"): "poisson_replace",
}
_TRAINED = {
    "fixed": SAMPLERS["fixed"],
    "poisson_zero_out": ("Poisson, record zeroed out", *SAMPLERS["poisson"][1:]),
    "poisson_replace": SAMPLERS["poisson_replace"],
}
"""Label, colour, dash and marker of the samplers that were trained."""


def asynchrony_data(results: Results) -> pd.DataFrame:
    """Return one row per point: panel, x, line, scenario, epsilon, the measures, what the simulation counted."""
    runs = results.runs(KEY, study="asynchrony").rename(columns={"privacy_steps": "rounds"})
    keys = ["scenario", "epsilon"]
    rows = summarise(runs, keys, {"scenario": "synchronous"}, ["epsilon"])
    columns = ["panel", "x", "line", *rows.columns, *_COUNTS]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    rows = rows.merge(runs.groupby([*DATA, *keys], as_index=False)[_COUNTS].mean(), on=[*DATA, *keys])
    network = runs.drop_duplicates("scenario").set_index("scenario")[
        [*PANELS, "jitter", "max_staleness", "max_distance"]
    ]
    plain, parts = network.loc["synchronous"], []
    for panel in PANELS:
        for name, settings in network.iterrows():
            if name != "synchronous" and settings[panel] == plain[panel]:
                continue
            guard = "waits" if settings["max_staleness"] > 0 else "near" if settings["max_distance"] > 0 else ""
            line = "reordered" if settings["jitter"] > 0 else guard
            x = settings[panel] * (100 if panel.endswith("loss") or panel == "participation" else 1)
            parts.append(rows[rows["scenario"] == name].assign(panel=panel, x=x, line=line))
    return pd.concat(parts, ignore_index=True)[columns]


_DRAWN = ("delay", "update_loss")
"""Kinds of asynchrony with a panel of their own; of the others the strongest run of each is drawn."""
_STRONGEST = {
    "broadcast_loss": "{:g} % of\nbroadcasts lost",
    "speed_spread": "fastest client {:g}\ntimes the slowest",
    "window": "server's window of\n{:g} rounds",
    "participation": "{:g} % of the\nclients asked",
}


def draw_asynchrony(data: pd.DataFrame) -> Figure:
    """Draw what asynchrony costs against the synchronous run, a row per dataset: accuracy by delay and by lost updates,
    and the strongest run of every other kind."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(
        3, len(tasks), width=style.WIDTH, height=2.7, squeeze=False, gridspec_kw={"width_ratios": [1.15, 0.8, 0.8]}
    )
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, panel in zip(line, _DRAWN, strict=False):
            _asynchrony_panel(axis, rows[rows["panel"] == panel])
            axis.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
            axis.set_xlabel(PANELS[panel])
        line[0].set_ylabel(f"{data_name(*task)}\ndifference (points)")
        line[0].set_xscale("symlog", linthresh=1)
        delays = rows.loc[rows["panel"] == "delay", "x"]
        line[0].set_xlim(-0.2, 1.5 * delays.max())
        style.ticks_at(line[0], delays)
        _strongest(line[2], rows)
    handles: dict[str, Line2D] = {}
    for number, epsilon in enumerate(sorted(data["epsilon"].unique(), reverse=True)):
        name = budget_name(epsilon)
        handles[name] = Line2D([], [], color=_BUDGETS[number % 3], marker="o", linestyle="-", label=name)
    for kind, dash in _LINES.items():
        if kind and kind in set(data.loc[data["panel"].isin(_DRAWN), "line"]):
            marker, name = style.MARKERS[list(_LINES).index(kind)], LINE_NAMES[kind]
            is_line = data[data["line"] == kind].groupby([*DATA, "panel", "epsilon"], sort=False).size().max() > 1
            look = {"color": style.GREY, "marker": marker, "linestyle": dash if is_line else "none"}
            handles[name] = Line2D([], [], **look, label=name)
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=3)
    text = (
        "Differences within a seed to the synchronous run; the privacy statement is the same. Right: the strongest run "
        "of each other kind. Marks of one delay stand side by side. Each panel has its own scale. Beyond chance: a bar "
        "without 0, not corrected for several tests."
    )
    style.footer(figure, f"{count_range(data['clients'])} clients. {counted_runs(data)} {text}")
    return figure


def asynchrony_message(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which kinds of asynchrony cost accuracy beyond chance, how much at most, and what the others change."""
    away = data[data["scenario"] != "synchronous"]
    if away.empty:
        return ""
    overtaken = away["panel"].eq("delay") & away["line"].eq("reordered")
    away = away.assign(kind=away["panel"].mask(overtaken, "reordered"))
    costs = away[away["difference_pct"] < -away["difference_interval_pct"].fillna(np.inf)]
    most = costs.groupby("kind")["difference_pct"].min().sort_values()
    large = most[most < -1.0]
    rest = away[~away["kind"].isin(large.index)]["difference_pct"].abs().max()
    if large.empty:
        return f"No kind of asynchrony costs over a point of accuracy; the largest change is {rest:.1f}"
    texts = [f"{names[kind]} (up to {-points:.0f} points)" for kind, points in large.items()]
    most = math.ceil(10 * rest) / 10 if pd.notna(rest) else rest
    others = "" if pd.isna(rest) else f"; every other kind changes mean accuracy by {most:.1f} points at most"
    return f"Beyond chance, accuracy falls with {listed(texts)}{others}"


_BUDGETS = (style.BLACK, style.BLUE, style.RED)
_ASIDE = 1.15
"""Ratio of the places of two marks of one delay."""


def _asynchrony_panel(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw the lines of one panel; lines of a special kind start at the synchronous point, too.

    Delays, which stand far apart, are drawn side by side: else the bars of both budgets would cover each other.
    """
    aside = _ASIDE if rows["panel"].eq("delay").all() else 1.0
    start = rows[rows["scenario"] == "synchronous"]
    for number, epsilon in enumerate(sorted(rows["epsilon"].unique(), reverse=True)):
        for kind, dash in _LINES.items():
            selected = rows[(rows["line"] == kind) & (rows["epsilon"] == epsilon)]
            if kind and len(selected) > 1:  # a line needs two points of its kind
                selected = pd.concat([start[start["epsilon"] == epsilon], selected])
            if len(selected):
                selected = selected.sort_values("x")
                look = {"color": _BUDGETS[number % 3], "linestyle": dash}
                marker = style.MARKERS[list(_LINES).index(kind)]
                places = selected["x"] * aside ** (number - 0.5 if len(selected) > 1 else number + 1.5)
                values = (places, selected["difference_pct"], selected["difference_interval_pct"].fillna(0))
                axis.errorbar(*values, marker=marker, label=budget_name(epsilon), **look)


def _strongest(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw the run that is furthest from the synchronous one of each kind without a panel, a row a kind."""
    plain = rows[(rows["line"] == "") & (rows["scenario"] != "synchronous")]
    furthest = {panel: plain[plain["panel"] == panel] for panel in _STRONGEST}
    furthest = {panel: own[own["x"] == _furthest(panel, own["x"])] for panel, own in furthest.items() if len(own)}
    for number, epsilon in enumerate(sorted(rows["epsilon"].unique(), reverse=True)):
        for height, own in enumerate(furthest.values()):
            dot = own[own["epsilon"] == epsilon]
            look = {"color": _BUDGETS[number % 3], "marker": "o", "linestyle": "none"}
            bar = dot["difference_interval_pct"].fillna(0)
            axis.errorbar(dot["difference_pct"], np.full(len(dot), height + 0.25 * (number - 0.5)), xerr=bar, **look)
    axis.axvline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
    names = [_STRONGEST[panel].format(own["x"].iloc[0]) for panel, own in furthest.items()]
    axis.set_yticks(range(len(names)), names, fontsize=style.SMALL)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.yaxis.tick_right()
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axis.set_xlabel("difference (points)")


def _furthest(panel: str, places: pd.Series) -> float:
    """Return the place furthest from the synchronous run: that of the fewest clients asked, the largest elsewhere."""
    return places.min() if panel == "participation" else places.max()


def delay_data(results: Results) -> pd.DataFrame:
    """Return one row per run and epoch: dataset, scenario, epochs, learning_rate, closings, epoch, the measures.

    `closings`: rounds over twice the delay, of the whole run; differences are to the synchronous run with the same
    epochs and steps, at the same epoch.
    """
    runs = results.runs(KEY, study="delay_loop")
    keys = ["scenario", "epochs", "learning_rate", "closings", "epoch"]
    if len(runs):
        closings = (runs["privacy_steps"] / (2 * runs["delay"])).where(runs["delay"] > 0, 0.0)
        runs = runs.assign(closings=closings, accuracy_pct=runs["accuracy_pct_by_epoch"].map(json.loads))
        runs = runs.explode("accuracy_pct")
        runs["epoch"] = runs.groupby(["dataset", "seed", *keys[:3]]).cumcount() + 1
        runs["accuracy_pct"] = runs["accuracy_pct"].astype(float)
    within = ["epochs", "learning_rate", "epoch"]
    return summarise(runs, keys, {"scenario": "synchronous"}, within)


def draw_delay(data: pd.DataFrame) -> Figure:
    """Draw accuracy over the closings of the loop, a panel per dataset, and what each delayed run lost at its end."""
    tasks = list(data[data["scenario"] != "synchronous"].groupby(DATA, sort=False))
    figure, axes = style.panels(
        len(tasks), width=min(1 + 5 * len(tasks), style.WIDTH), height=3.3, squeeze=False, sharey=True
    )
    for axis, (task, rows) in zip(axes[0], tasks, strict=True):
        runs = rows.groupby(["scenario", "epochs", "learning_rate", "closings"], sort=False)
        for number, ((scenario, epochs, step, closings), run) in enumerate(runs):
            label = f"delay {scenario.removeprefix('late_')}, {epochs:g} epochs, step {step:g}"
            places, middle = closings * run["epoch"] / epochs, run["difference_pct"]
            half = run["difference_interval_pct"].fillna(0)
            colour, dash = style.COLOURS[number], style.DASHES[number % len(style.DASHES)]
            axis.fill_between(places, middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)
            axis.plot(places, middle, color=colour, linestyle=dash, label=label)
        axis.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        axis.set(title=data_name(*task), xlabel="times the loop has closed: rounds / (2 delays)")
    axes[0][0].set_ylabel("difference (points)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    text = (
        "Differences within a seed to the synchronous run with the same steps, after the same epoch: until the first "
        "update arrives a delayed run has its start. Beyond chance: a band without 0."
    )
    style.footer(figure, f"{counted_runs(data).replace('bars', 'bands')} {text}")
    return figure


def delay_message(data: pd.DataFrame) -> str:
    """Say how many delayed runs end behind the synchronous one beyond chance, and with which step sizes."""
    late = data[data["scenario"] != "synchronous"]
    if late.empty:
        return ""
    ends = late.sort_values("epoch").groupby(["dataset", "scenario", "epochs", "learning_rate"]).tail(1)
    often = ends[ends["closings"] > 2]
    texts = []
    for step, rows in often.groupby("learning_rate"):
        beyond = int((rows["difference_pct"] < -rows["difference_interval_pct"]).sum())
        lost = span(-rows["difference_pct"], "{:.1f}")
        texts.append(f"with step {step:g} by {lost} points ({beyond} of {len(rows)} beyond chance)")
    return (
        f"Once the loop has closed more than twice, delayed runs end behind the synchronous one {', '.join(texts)}"
        if texts
        else ""
    )


def scaling_data(results: Results) -> pd.DataFrame:
    """Return one row per point: scaling, batch_factor a, private, the measures; differences to a = 1."""
    runs = results.runs(KEY, study="batch_scaling")
    runs = runs.assign(private=np.isfinite(runs["privacy_epsilon_proven"])) if len(runs) else runs
    return summarise(runs, ["scaling", "private", "batch_factor"], {"batch_factor": 1}, ["scaling", "private"])


def draw_scaling(data: pd.DataFrame) -> Figure:
    """Draw the change of accuracy from a = 1 against a: one row per dataset, without and with noise, on one scale."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(2, len(tasks), height=2.6, width=8.0, squeeze=False, sharey=True, sharex=True)
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, private in zip(line, (False, True), strict=True):
            for number, (scaling, name) in enumerate(SCALINGS.items()):
                selected = rows[(rows["private"] == private) & (rows["scaling"] == scaling)]
                look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "label": name}
                places = selected["batch_factor"] * _BESIDE ** (number - 1)
                values = (places, selected["difference_pct"], selected["difference_interval_pct"].fillna(0))
                axis.errorbar(*values, linestyle=style.DASHES[number], **look)
            axis.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
            noise = "noise a times as large, too" if private else "no noise"
            axis.set_title(f"{data_name(*task)}, {noise}", fontsize=9)
            axis.set_xscale("log", base=2)
            style.ticks_at(axis, data["batch_factor"])
        line[0].set_ylabel("change of accuracy (points)")
    for axis in axes[-1]:
        axis.set_xlabel("a: how many times as large the batch is")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    noisy = data[data["private"] & (data["scaling"] == "epochs")]
    ends = [
        noisy.loc[index, "privacy_epsilon_proven"]
        for index in (noisy["batch_factor"].idxmin(), noisy["batch_factor"].idxmax())
    ]
    spent = f"With noise, same epochs: ε from {at_most(ends[0], 3)} down to {at_most(ends[1], 3)}"
    kept = data[data["private"] & (data["scaling"] == "rounds")]
    if len(kept):
        last = kept.loc[kept["batch_factor"].idxmax(), "privacy_epsilon_proven"]
        spent += f", same rounds: down to {at_most(last, 3)}"
    spent += "."
    style.footer(figure, f"Differences to a = 1, same seeds. {counted_runs(data)} {spent} Points of one a are apart.")
    return figure


def scaling_message(data: pd.DataFrame) -> str:
    """Say what the largest batches cost by what is kept: the epochs or the rounds."""
    largest = data[data["batch_factor"] == data["batch_factor"].max()]
    same = {name: largest[largest["scaling"] == name]["difference_pct"] for name in ("epochs", "rounds")}
    if any(points.empty for points in same.values()) or largest["batch_factor"].iloc[0] == 1:
        return ""
    a = f"{largest['batch_factor'].iloc[0]:g}"
    kept, fewer = (span(same[name], "{:+z.1f}") for name in ("rounds", "epochs"))
    return (
        f"Batches {a} times as large change accuracy by {kept} points in as many rounds, and by {fewer} in as many "
        "epochs with the same step"
    )


def samplers_data(results: Results) -> pd.DataFrame:
    """Return one row per point: sampler, epsilon, noise_multiplier (over C), measures; differences to fixed batches."""
    runs = results.runs(KEY, study="samplers")
    if len(runs):
        kinds = [_RELATIONS[pair] for pair in zip(runs["sampling"], runs["neighbouring"], strict=True)]
        runs = runs.assign(sampler=kinds)
    return summarise(runs, ["sampler", "epsilon", "noise_multiplier"], {"sampler": "fixed"}, ["epsilon"])


def draw_samplers_trained(data: pd.DataFrame) -> Figure:
    """Draw accuracy against epsilon, and the noise that each sampler needs."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(len(tasks) + 1, height=3.1)
    for sampler, (label, colour, dash, marker) in _TRAINED.items():
        if sampler not in set(data["sampler"]):
            continue
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        for axis, (task, rows) in zip(axes, tasks, strict=False):
            selected = rows[rows["sampler"] == sampler].sort_values("epsilon")
            axis.errorbar(selected["epsilon"], selected["accuracy_pct"], selected["interval_pct"].fillna(0), **look)
            axis.set_title(data_name(*task))
        needed = tasks[0][1]
        needed = needed[needed["sampler"] == sampler].sort_values("epsilon")
        axes[-1].plot(needed["epsilon"], needed["noise_multiplier"], **look)
    axes[0].set_ylabel("test accuracy (%)")
    axes[-1].set(title="noise for it", ylabel="noise standard deviation / C", ylim=(0, None))
    for axis in axes:
        axis.set(xlabel="ε of a client", xscale="log")
        style.ticks_at(axis, data["epsilon"])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    style.footer(figure, f"{counted_runs(data)} Each curve's epsilon is for its own neighbouring relation.")
    return figure


def samplers_trained_message(data: pd.DataFrame) -> str:
    """Say how much more accurate Poisson batches are than fixed ones at the least epsilon, by their relation."""
    least = data[data["epsilon"] == data["epsilon"].min()]
    texts = []
    relations = {"poisson_zero_out": "if a record is zeroed out", "poisson_replace": "if one is replaced"}
    for sampler, name in relations.items():
        rows = least[least["sampler"] == sampler].dropna(subset="difference_pct")
        if len(rows):
            texts.append(f"{span(rows['difference_pct'], '{:+z.1f}')} points {name}")
    if not texts:
        return ""
    return (
        f"At ε = {least['epsilon'].iloc[0]:g}, Poisson batches change the accuracy of batches of fixed size by "
        f"{', by '.join(texts)}"
    )


_KINDS = {
    "delay": "a fixed delay",
    "reordered": "delays with which messages overtake each other",
    "broadcast_loss": "lost broadcasts",
    "update_loss": "lost updates",
    "speed_spread": "unequal speeds",
    "window": "a server's window",
    "participation": "few clients asked",
}
_WITH_GUARANTEE = ("normalised", "dp_pca", "layer_normalised")
"""Preparations of which all is covered by the epsilon."""
FIGURES = {
    "asynchrony": FigureRecipe(
        asynchrony_data,
        draw_asynchrony,
        partial(asynchrony_message, names=_KINDS),
    ),
    "delay_loop": FigureRecipe(delay_data, draw_delay, delay_message),
    "mixing": FigureRecipe(mixing_data, draw_mixing, mixing_message),
    "batch_scaling": FigureRecipe(scaling_data, draw_scaling, scaling_message),
    "samplers": FigureRecipe(
        samplers_data,
        draw_samplers_trained,
        samplers_trained_message,
    ),
    "strategies": FigureRecipe(
        strategies_data,
        draw_strategies,
        partial(strategies_message, names=STRATEGIES),
    ),
    "settings_grid": FigureRecipe(grid_data, draw_grid, grid_message),
    "preparation": FigureRecipe(
        preparation_data,
        draw_preparation,
        partial(preparation_message, names=PREPARATIONS, private=_WITH_GUARANTEE),
    ),
}
