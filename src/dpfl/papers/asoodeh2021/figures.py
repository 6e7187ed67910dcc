"""Figures of asoodeh2021: Figure 2 as published and as it should be, training with an aggregator, trust, dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpfl.accounting import contraction
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon, round_epsilon
from dpfl.catalog import load
from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.convex.trust_models import TRUST_MODEL, TrustAlgorithm
from dpfl.convex.trusted_aggregator import AggregatorCell, excess_bound
from dpfl.reporting import style
from dpfl.reporting.display_names import data_name, data_note, with_greek_symbols
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import mean_interval, slope, summarised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Cost of noise by the number of features: runs on drawn records and the bounds of both corollaries.

DIMENSION_TASK = ["dataset", "stand_in_for", "users", "batch_size"]
DIMENSION_COLUMNS = [*DIMENSION_TASK, "draw", "release", "noise_std", "features", "excess_bound", "bound_as_printed"]
PANELS = {
    ("new_users", "last"): "last model (Corollary 1)",
    ("one_pass", "random"): "random stop, one pass (Corollary 2)",
}
_WHOLE = ("users", "batch_size", "stops")
_REAL = ("radius", "regularisation", "delta", "noise_std")
_TEXT = ("model", "step", "draw", "release")


def dimensions(results: Results) -> pd.DataFrame:
    """Return one row per (draw, release, noise_std, features): COLUMNS, runs, mean excess_risk, interval, exponent.

    `excess_bound` is the corollary with the dimension put in, `bound_as_printed` without; `exponent` is the power of
    features in the excess risk due to noise (a run's less that of the noiseless run with its seed), of the
    `exponent_runs` seeds where noise costs something for every number of features, and `exponent_interval` its
    half-width: alike in all rows of a line, nan without noise.
    """
    fitted = ["exponent_runs", "exponent", "exponent_interval"]
    names = [*DIMENSION_COLUMNS, "runs", "excess_risk", "interval", *fitted]
    runs = study(results, "dimension")
    if runs.empty:
        return pd.DataFrame(columns=names)
    runs = runs.assign(bound_as_printed=[_printed(run) for _, run in runs.iterrows()])
    table = summarised(runs, DIMENSION_COLUMNS, "excess_risk")
    line = [*DIMENSION_TASK, "draw", "release", "noise_std"]
    return table.merge(pd.DataFrame(_exponents(runs, line), columns=[*line, *fitted]), on=line, how="left")


def _printed(run: pd.Series) -> float:
    """Return the corollary's bound as printed: that of one dimension."""
    given = {name: int(run[name]) for name in _WHOLE} | {name: float(run[name]) for name in _REAL}
    return excess_bound(AggregatorCell.of({}, given | {name: run[name] for name in _TEXT}), float(run["noise_std"]), 1)


def _exponents(runs: pd.DataFrame, line: list[str]) -> list[tuple]:
    """Return each noisy line's key, how many seeds have an exponent, their mean and the half-width of its interval."""
    cell = [*DIMENSION_TASK, "draw", "release", "features", "seed"]
    silent = runs[runs["noise_std"] == 0].set_index(cell)["excess_risk"]
    noisy = runs[runs["noise_std"] > 0]
    share = noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[cell])).to_numpy()
    rows = []
    for key, group in noisy.assign(share=share).groupby(line):
        if group["features"].nunique() >= FEWEST:
            fits = [slope(own["features"], own["share"]) for _, own in group.groupby("seed")]
            rows.append((*key, *mean_interval(fits)))
    return rows


def draw_dimensions(data: pd.DataFrame) -> Figure:
    """Draw excess risk against the number of features, one panel per corollary, one line per noise."""
    figure, axes = style.panels(len(PANELS), height=3.9, width=10)
    for axis, ((drawn, release), title) in zip(axes, PANELS.items(), strict=True):
        _dimension_lines(axis, data[(data["draw"] == drawn) & (data["release"] == release)])
        axis.set(title=title, xlabel="features d", xscale="log", yscale="log")
        style.ticks_at(axis, data["features"])
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.0, 0.86))
    axes[0].set_ylabel("excess risk")
    users = f"n = {data['users'].max():g}, m = {data['batch_size'].max():g}"
    fitted = "x: what is due to noise grows as the power x of d, a fit to each run; ±: 90 % interval of their mean."
    if (data["exponent_runs"] < data["runs"]).any():
        fitted += " A run in which noise costs nothing at some d has no x."
    style.footer(
        figure, f"Dashed: the bound with the dimension; dotted: as published. {fitted} {users}. {data_note(data)}"
    )
    return figure


def _dimension_lines(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw each noise's line with its two bounds."""
    for number, (sigma, line) in enumerate(rows.groupby("noise_std")):
        line = line.sort_values("features")
        fitted = line.iloc[0]
        name = f"sigma = {sigma:g}"
        if sigma > 0:
            power = f"{fitted['exponent']:.2f} ± {fitted['exponent_interval']:.2f}"
            name += f": x = {power} ({fitted['exponent_runs']:g} of {fitted['runs']:g} runs)"
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "-"}
        axis.errorbar(line["features"], line["excess_risk"], line["interval"], label=name, **look)
        for bound, dash in (("excess_bound", "--"), ("bound_as_printed", ":")):
            axis.plot(line["features"], line[bound], color=style.COLOURS[number], linestyle=dash, linewidth=0.9)


DIMENSION = {"dimension": FigureRecipe(dimensions, draw_dimensions)}


# Five papers on one task: excess risk at equal epsilon, by who has to be trusted.

NAMES = {
    TrustAlgorithm.CENTRAL: "DP-SGD, fresh batches",
    TrustAlgorithm.CENTRAL_FULL: "DP gradient descent",
    TrustAlgorithm.LAST_MODEL: "one pass (Asoodeh 2021)",
    TrustAlgorithm.PNSGD: "PNSGD (Asoodeh 2020)",
    TrustAlgorithm.SHUFFLED: "minibatch SGD (Lowy 2021)",
    TrustAlgorithm.MINIBATCH: "minibatch SGD (Lowy 2021)",
    TrustAlgorithm.AVERAGING: "averaging (Bhaskar 2025)",
    TrustAlgorithm.ASYNCHRONOUS: "asynchronous (van Dijk 2023)",
}
LOOKS = {
    name: {"color": colour, "marker": marker, "linestyle": dashes}
    for name, colour, marker, dashes in zip(
        dict.fromkeys(NAMES.values()), style.COLOURS, style.MARKERS, style.DASHES, strict=True
    )
}
"""Look of an algorithm by its name, the same in every panel."""
_GREY = "#BBBBBB"
_SHOWN_BELOW = 0.9
"""Longest lower bar, as a share of the risk: one that reaches below 0 has no place on a logarithmic axis."""
TRUST_TASK = ["dataset", "stand_in_for", "users", "clients", "optimum_accuracy_pct"]


def trust_data(results: Results) -> pd.DataFrame:
    """Return each algorithm's best step at each epsilon: TASK, algorithm, trust, runs, accuracy, risk, intervals.

    The step is that of the least mean excess risk: a choice that no budget pays for.
    """
    columns = [*TRUST_TASK, "algorithm", "trust", "epsilon", "step", "runs", "accuracy_pct", "accuracy_interval"]
    columns += ["excess_risk", "interval", ORIGINS]
    runs = study(results, "comparison")
    rows = []
    for key, group in runs.groupby([*TRUST_TASK, "algorithm", "trust", "epsilon"], sort=False) if len(runs) else ():
        step = group.groupby("step")["excess_risk"].mean().idxmin()
        best = group[group["step"] == step]
        count, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        risk = mean_interval(best["excess_risk"])[1:]
        rows.append((*key, step, count, accuracy, accuracy_half, *risk, origins(best)))
    return pd.DataFrame(rows, columns=columns)


def draw_trust(table: pd.DataFrame) -> Figure:
    """Draw excess risk against epsilon, a row a task and a panel for each level of trust, the other levels in grey."""
    if (table["epsilon"] == math.inf).all():
        raise NotRunError("no private run of this study in this configuration")
    tasks, trusts = list(table.groupby(["dataset", "stand_in_for", "users"])), list(dict.fromkeys(TRUST_MODEL.values()))
    figure, axes = style.panels(len(trusts), len(tasks), height=3.9, width=11, squeeze=False, sharey="row", sharex=True)
    named = min(trusts, key=lambda trust: sum(each == trust for each in TRUST_MODEL.values()))
    for row, ((dataset, stand_in_for, users), task) in zip(axes, tasks, strict=True):
        for axis, trust in zip(row, trusts, strict=True):
            _panel(axis, task, trust)
        row[0].set_ylabel(f"{data_name(dataset, stand_in_for)}, n = {users:g}\nexcess risk")
        low = task.loc[task["excess_risk"] > 0, "excess_risk"].min()
        row[0].set(yscale="log", ylim=(low / 30, 3 * task["excess_risk"].max()))  # below: room for the names
        _name_grey(row[trusts.index(named)], task, named)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon (replace one record)")
    legend = "In %: test accuracy at the least and the largest epsilon. delta = 1e-5; each algorithm at its best step."
    legend += f" Grey: the ways of the other panels, named once, beside {named}."
    if (table["interval"] > _SHOWN_BELOW * table["excess_risk"]).any():
        legend += " A bar that would reach below 0 is cut."
    style.footer(figure, f"{legend} {data_note(table)}")
    return figure


def _panel(axis: Axes, task: pd.DataFrame, trust: str) -> None:
    """Draw the algorithms of one level of trust with their names and accuracies, and the others in grey."""
    for algorithm in TrustAlgorithm:
        line = task[(task["algorithm"] == algorithm) & (task["epsilon"] < math.inf)].sort_values("epsilon")
        if TRUST_MODEL[algorithm] != trust:
            axis.plot(line["epsilon"], line["excess_risk"], color=_GREY, linestyle="-", linewidth=0.9, zorder=1)
        elif len(line):
            ends = line["accuracy_pct"].iloc[[0, -1]]
            name = f"{NAMES[algorithm]}:\n{ends.iloc[0]:.1f} to {ends.iloc[1]:.1f} %"
            below = np.minimum(line["interval"], _SHOWN_BELOW * line["excess_risk"])
            look = LOOKS[NAMES[algorithm]]
            axis.errorbar(line["epsilon"], line["excess_risk"], [below, line["interval"]], label=name, **look)
    axis.set(title=trust.replace(", ", ",\n"), xscale="log")
    style.ticks_at(axis, set(task["epsilon"]) - {math.inf})
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="lower left", fontsize=7, handlelength=3)
    else:
        axis.text(0.5, 0.1, "no private run of it", transform=axis.transAxes, ha="center", fontsize=7)


def _name_grey(axis: Axes, task: pd.DataFrame, trust: str) -> None:
    """Write the names of the grey lines beside the panel of one level of trust, each at the end of its line."""
    private = task[(task["epsilon"] < math.inf) & (task["algorithm"].map(TRUST_MODEL) != trust)]
    ends = private.sort_values("epsilon").drop_duplicates("algorithm", keep="last")
    ends = ends[ends["excess_risk"] > 0]
    if len(ends):
        names = [(row.excess_risk, NAMES[TrustAlgorithm(row.algorithm)], "#777777") for row in ends.itertuples()]
        style.name_lines(axis, ends["epsilon"].max(), names, size=6)


COMPARISON = {"five_papers": FigureRecipe(trust_data, draw_trust)}


# Summarise runs of Algorithm 1, one study at a time: means, paired differences, slopes.

KEY = "asoodeh2021"
TASK = ["dataset", "stand_in_for", "batch_size"]
COLUMNS = [*TASK, "regularisation", "noise_std", "users", "dimension", "idle_excess_risk", "excess_bound"]
FEWEST = 3
"""Points that a slope is fitted to, at least."""


def study(results: Results, name: str) -> pd.DataFrame:
    """Return the runs of one study of the paper's grid; empty where this configuration has none."""
    return results.runs(KEY, study=name)


def mean_risks(results: Results) -> pd.DataFrame:
    """Return one row per (task, regularisation, noise_std, users): runs, mean risk, interval, constants and bounds.

    `study` is price or curvature.
    """
    parts = []
    for name in ("price", "curvature"):
        runs = study(results, name)
        if not runs.empty:
            parts.append(summarised(runs, COLUMNS, "excess_risk").assign(study=name))
    if not parts:
        return pd.DataFrame(columns=[*COLUMNS, "runs", "excess_risk", "interval", "study"])
    return pd.concat(parts, ignore_index=True)


RATES = ["study", *TASK, "against", "fixed", "expected", "points", "runs", "slope", "interval", ORIGINS]


def slopes(results: Results) -> pd.DataFrame:
    """Return the fitted exponents that the paper states, one row per line of points.

    Columns: study, TASK, against ("users" or "sigma^2"), fixed (what else a line shares, in words), expected, points,
    runs, slope (mean of the seeds' slopes), interval.
    """
    rows = [
        *_noise_slopes(study(results, "price")),
        *(each for name in SCHEDULES for each in _rate_slopes(results, name)),
    ]
    return pd.DataFrame(rows, columns=RATES)


def _noise_slopes(runs: pd.DataFrame) -> list[tuple]:
    """Return the exponents of the noise's excess risk: a run's less that of the noiseless run with the same seed,
    users and batches.

    Only points where the mean excess risk is below that of w = 0 count: beyond, the projection on the ball limits the
    model and hides what the noise would cost.
    """
    if runs.empty:
        return []
    cell = [*TASK, "users", "seed"]
    silent = runs[runs["noise_std"] == 0].set_index(cell)["excess_risk"]
    noisy = runs[runs["noise_std"] > 0].copy()
    noisy["share"] = noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[cell])).to_numpy()
    noisy["sigma^2"] = noisy["noise_std"] ** 2
    mean = noisy.groupby([*TASK, "noise_std", "users"])["excess_risk"].transform("mean")
    noisy = noisy[mean < noisy["idle_excess_risk"]]
    rows = []
    for against, fixed, word, expected in (("users", "noise_std", "sigma", -1.0), ("sigma^2", "users", "users", 1.0)):
        for (*task, value), line in noisy.groupby([*TASK, fixed]):
            rows += _fitted(["price", *task, against, f"{word} = {value:g}", expected], line, against, "share")
    return rows


SCHEDULES = {"example": "sigma^2 = sqrt(n), over ln T", "convex": "sigma = {noise_std:g}"}
"""Studies whose excess risk should fall as T to the power -1/2, and what a line of theirs shares."""


def _rate_slopes(results: Results, name: str) -> list[tuple]:
    """Return the exponents of the whole excess risk in the number of users; the example's is over ln T."""
    runs = study(results, name)
    if runs.empty:
        return []
    over = np.log(runs["rounds"]) if name == "example" else 1.0
    runs = runs.assign(
        rate=runs["excess_risk"] / over, fixed=[SCHEDULES[name].format(**run) for _, run in runs.iterrows()]
    )
    rows = []
    for (*task, fixed), line in runs.groupby([*TASK, "fixed"]):
        rows += _fitted([name, *task, "users", fixed, -0.5], line, "users", "rate")
    return rows


def _fitted(key: list, line: pd.DataFrame, against: str, value: str) -> list[tuple]:
    """Return the row of one line of points: the mean of its seeds' exponents; none where it has too few points."""
    points = line[against].nunique()
    if points < FEWEST:
        return []
    fits = [slope(own[against], own[value]) for _, own in line.groupby("seed")]
    return [(*key, points, *mean_interval(fits), origins(line))]


def replacement(results: Results) -> pd.DataFrame:
    """Return one row per (task, users, noise_std, release): excess risk by way of drawing users, and difference.

    Columns one_pass, with_replacement (means), difference (one pass less with replacement, paired by seed), interval.
    """
    measures = ["runs", "one_pass", "with_replacement", "difference", "interval", ORIGINS]
    columns = [*TASK, "users", "noise_std", "release", *measures]
    runs = study(results, "sampling")
    if runs.empty:
        return pd.DataFrame(columns=columns)
    rows = []
    for key, group in runs.groupby([*TASK, "users", "noise_std", "release"], sort=False):
        wide = group.pivot(index="seed", columns="draw", values="excess_risk")
        count, difference, half = mean_interval(wide["one_pass"] - wide["with_replacement"])
        means = (float(wide[name].mean()) for name in ("one_pass", "with_replacement"))
        rows.append((*key, count, *means, difference, half, origins(group)))
    return pd.DataFrame(rows, columns=columns)


def frontier(results: Results) -> pd.DataFrame:
    """Return the best point of every way to spend a budget, one row per (task, users, way, epsilon).

    Ways: hidden (one pass, last model only, noise by Theorem 2), shown (one pass, every model), composed (fresh
    batches, every model, noise by composition). Step size and batch size are those of the least mean excess risk:
    a choice that no budget pays for. Columns: runs, excess_risk, interval, accuracy_pct, step, batch_size, noise_std.
    """
    names = ["runs", "excess_risk", "interval", "accuracy_pct", "accuracy_interval"]
    names += ["step", "batch_size", "noise_std", ORIGINS]
    columns = ["dataset", "stand_in_for", "users", "optimum_accuracy_pct", "way", "epsilon", *names]
    runs = study(results, "frontier")
    if runs.empty:
        return pd.DataFrame(columns=columns)
    runs = runs.assign(way=[WAYS[pair] for pair in zip(runs["draw"], runs["release"], strict=True)])
    rows = []
    for key, group in runs.groupby(["dataset", "stand_in_for", "users", "optimum_accuracy_pct", "way", "epsilon"]):
        points = group.groupby(["step", "batch_size", "noise_std"])["excess_risk"].mean()
        step, size, sigma = points.idxmin()
        best = group[(group["step"] == step) & (group["batch_size"] == size)]
        count, risk, half = mean_interval(best["excess_risk"])
        _, accuracy, accuracy_half = mean_interval(best["accuracy_pct"])
        rows.append((*key, count, risk, half, accuracy, accuracy_half, step, size, sigma, origins(best)))
    return pd.DataFrame(rows, columns=columns)


WAYS = {("one_pass", "last"): "hidden", ("one_pass", "all"): "shown", ("fresh", "all"): "composed"}


# Figures from runs of Algorithm 1: cost of noise, ways of drawing users, gain of hiding models.

WAY_NAMES = {
    "hidden": "Algorithm 1, last model only (Theorem 2)",
    "shown": "Algorithm 1, every model released",
    "composed": "fresh batches, every model released (composition)",
}
SAME_LINE = "Algorithm 1, last model only; with every model released the risk is the same within 2 %"
RELEASES = ("random", "suffix_0.25", "suffix_0.5", "suffix_0.75", "last")
NOISELESS = {
    "hidden": ("Algorithm 1 without noise", (0, (1, 3))),
    "composed": ("fresh batches without noise", (2, (1, 3))),
}
"""Name and dashes of the runs without noise: what is released changes no model then, so Algorithm 1 has one line. The
dots of one fill the gaps of the other where they coincide."""
_SIZE_LOOKS = ((style.SKY, "P", 8.0), ("#777777", "X", 6.0), ("#8C510A", "*", 5.0))
"""Colour, marker and its size by number of users a round: none is that of a noise."""
DRAWS = {"one_pass": "without replacement", "with_replacement": "with replacement"}


def draw_price(data: pd.DataFrame) -> Figure:
    """Draw excess risk against n, the noise's share against sigma^2, and excess risk against lambda."""
    figure, axes = style.panels(3, height=3.9, width=11)
    price, curvature = (data[data["study"] == study] for study in ("price", "curvature"))
    shown = price[price["batch_size"] == price["batch_size"].min()]
    sigmas = sorted({*shown["noise_std"], *curvature["noise_std"]})
    _lines(axes[0], shown, "users", sigmas)
    axes[0].set(xlabel="users n", ylabel="excess risk of the last model")
    if not price.empty:
        axes[0].set_title(f"against n, m = {shown['batch_size'].iloc[0]}")
        _shares(axes[1], price)
    _lines(axes[2], curvature, "regularisation", sigmas)
    axes[2].set(title="against the strong convexity", xlabel="lambda")
    for axis in axes:
        if not axis.has_data():
            style.mark_not_run(axis)
            continue
        axis.set(xscale="log", yscale="log")
    if axes[1].has_data():
        axes[1].legend(fontsize=7, handlelength=4)
    handles: dict[str, object] = {}
    for axis in (axes[0], axes[2]):
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if handles:
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=len(handles), fontsize=8)
    for axis, values in ((axes[0], shown["users"]), (axes[2], curvature["regularisation"])):
        if not values.empty:
            style.ticks_at(axis, sorted(values.unique())[::2])
    style.footer(
        figure, f"Dashed: Corollary 1's bound with the dimension; dotted: the risk of w = 0. {data_note(data)}"
    )
    return figure


def _lines(axis: Axes, rows: pd.DataFrame, x: str, sigmas: list[float]) -> None:
    """Draw a line with bars for each sigma, its bound dashed, and the risk of w = 0; a sigma has one look in all."""
    for value, line in rows.groupby("noise_std"):
        number = sigmas.index(value)
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number]}
        line = line.sort_values(x)
        axis.errorbar(line[x], line["excess_risk"], line["interval"], linestyle="-", label=f"sigma = {value:g}", **look)
        axis.plot(line[x], line["excess_bound"], color=style.COLOURS[number], linestyle="--", linewidth=0.8)
    if not rows.empty:
        idle = rows.drop_duplicates(x).sort_values(x)
        axis.plot(idle[x], idle["idle_excess_risk"], color=style.BLACK, linestyle=":", linewidth=1)


def _shares(axis: Axes, price: pd.DataFrame) -> None:
    """Draw the noise's share at the most users against sigma^2, with a line of slope 1 through the least."""
    last = price[price["users"] == price["users"].max()]
    for (size, rows), (colour, marker, markersize) in zip(last.groupby("batch_size"), _SIZE_LOOKS, strict=False):
        silent = rows.loc[rows["noise_std"] == 0, "excess_risk"]
        noisy = rows[rows["noise_std"] > 0].sort_values("noise_std")
        if silent.empty or noisy.empty:
            continue
        variance, share = noisy["noise_std"] ** 2, noisy["excess_risk"] - silent.item()
        look = {"color": colour, "marker": marker, "markersize": markersize, "linestyle": "-"}
        axis.plot(variance, share, label=f"m = {size}", **look)
        if size == last["batch_size"].max():
            line = variance / variance.iloc[0] * share.iloc[0]
            axis.plot(variance, line, color=style.BLACK, linestyle="--", linewidth=0.8, label="slope 1")
    axis.set(
        title=f"the noise's share, n = {last['users'].max():g}", xlabel="sigma^2", ylabel="excess risk due to noise"
    )


def draw_sampling(data: pd.DataFrame) -> Figure:
    """Draw excess risk by release for both ways of drawing users, below it their difference, a column per noise."""
    panels = list(data.groupby(["dataset", "batch_size", "noise_std"]))
    figure, axes = style.panels(len(panels), 2, height=2.6, squeeze=False, sharex=True)
    for (above, below), ((_, size, sigma), rows) in zip(axes.T, panels, strict=True):
        rows = rows.set_index("release").reindex(RELEASES)
        places = np.arange(len(rows))
        for number, (draw, name) in enumerate(DRAWS.items()):
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "none"}
            above.plot(places + 0.12 * (2 * number - 1), rows[draw], label=name, **look)
        above.set(title=f"sigma = {sigma:g}, m = {size}", yscale="log")
        look = {"color": style.BLACK, "marker": "o", "linestyle": "none"}
        below.errorbar(places, rows["difference"], rows["interval"], **look)
        below.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        below.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
        below.set_xlabel("released model")
        below.set_xticks(places, [name.replace("_", "\n") for name in RELEASES], fontsize=8)
    axes[0][0].set_ylabel("excess risk")
    axes[1][0].set_ylabel("without less with\nreplacement")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    usual, most = data["runs"].min(), data["runs"].max()
    seeds = f"{usual} seeds" if usual == most else f"{usual} seeds, {most} for the random stop without noise"
    style.footer(figure, f"Below: differences paired by seed with their 90 % interval, {seeds}. {data_note(data)}")
    return figure


def draw_frontier(data: pd.DataFrame) -> Figure:
    """Draw accuracy and excess risk against epsilon, each way of spending it at its best step and batch size."""
    tasks = list(data.groupby(["dataset", "stand_in_for", "users"]))
    figure, axes = style.panels(2, len(tasks), height=3.3, width=9, squeeze=False, sharex=True)
    for row, ((dataset, stand_in_for, users), task) in zip(axes, tasks, strict=True):
        for axis, metric, bar in ((row[0], "accuracy_pct", "accuracy_interval"), (row[1], "excess_risk", "interval")):
            _ways(axis, task, metric, bar)
            axis.set_title(f"{data_name(dataset, stand_in_for)}, n = {users}")
        row[0].set_ylabel("test accuracy (%)")
        row[1].set(ylabel="excess risk", yscale="log")
    for axis in axes[-1]:
        axis.set_xlabel("epsilon (replace one user, delta = 1e-5)")
    handles: dict[str, object] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    handles = dict(sorted(handles.items(), key=lambda pair: pair[0].endswith("without noise")))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=1, fontsize=8)
    style.footer(
        figure, f"Step and batch size: the best of the grid, a choice that no budget pays for. {data_note(data)}"
    )
    return figure


def _ways(axis: Axes, task: pd.DataFrame, metric: str, bar: str) -> None:
    """Draw a metric against epsilon, one line per way, and dotted in its colour the value without noise.

    Where hiding the models and showing them give the same risks, their line is drawn once, and named so.
    """
    lines = {way: task[(task["way"] == way) & (task["epsilon"] < math.inf)].sort_values("epsilon") for way in WAY_NAMES}
    hidden, shown = (lines[way].set_index("epsilon")["excess_risk"] for way in ("hidden", "shown"))
    same = hidden.index.equals(shown.index) and np.allclose(hidden, shown, rtol=0.02, atol=0.0)
    for number, (way, name) in enumerate(WAY_NAMES.items()):
        if same and way == "shown":
            continue
        label = SAME_LINE if same and way == "hidden" else name
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
        axis.errorbar(lines[way]["epsilon"], lines[way][metric], lines[way][bar], label=label, **look)
        for value in task[(task["way"] == way) & (task["epsilon"] == math.inf)][metric] if way in NOISELESS else ():
            label, dots = NOISELESS[way]
            axis.axhline(value, color=look["color"], linestyle=dots, linewidth=1.3, label=label)
    axis.set_xscale("log")
    style.ticks_at(axis, set(task["epsilon"]) - {math.inf})


def hiding(results: Results) -> pd.DataFrame:
    """Return epsilon with the last model alone and with all, one row per (step, m, n, noise_multiplier).

    Columns also `gain`, the ratio of the two; at delta and constants of the paper's settings `hiding`.
    """
    given = load(KEY).settings["hiding"]
    curvature = given["regularisation"]
    ball = {"lipschitz": LIPSCHITZ, "radius": given["radius"]}
    theory = {**ball, "smoothness": CURVATURE + curvature, "strong_convexity": curvature}
    rows = []
    for step in given["steps"]:
        for m in given["batch_sizes"]:
            for n in given["users"]:
                for multiplier in given["noise_multipliers"]:
                    sigma = multiplier * LIPSCHITZ / math.sqrt(m)
                    run = FederatedRelease(n=n, m=m, eta=step, first_stop=n // m, **theory)
                    last = release_epsilon(given["delta"], run, sigma=sigma)
                    every = round_epsilon(given["delta"], m=m, sigma=sigma, lipschitz=LIPSCHITZ)
                    rows.append((step, m, n, multiplier, last, every, every / last if last > 0 else math.inf))
    names = ["step", "m", "n", "noise_multiplier", "epsilon_last_model", "epsilon_all_models", "gain"]
    return pd.DataFrame(rows, columns=names)


def draw_hiding(data: pd.DataFrame) -> Figure:
    """Draw the gain in epsilon over (n, noise), one panel per (step, m), cells with their number."""
    panels = list(data.groupby(["step", "m"]))
    figure, axes = style.panels(len(panels), height=3.9, width=11, sharey=True)
    for axis, ((step, m), rows) in zip(axes, panels, strict=True):
        table = rows.pivot(index="noise_multiplier", columns="n", values="gain")
        picture = axis.imshow(
            np.log10(table.clip(upper=100.0)), vmin=0, vmax=2, origin="lower", cmap="viridis", aspect="auto"
        )
        for place, value in np.ndenumerate(table.to_numpy()):
            text = ">99" if value > 99 else f"{value:.2g}" if value < 10 else f"{value:.0f}"
            axis.annotate(
                text, place[::-1], ha="center", va="center", fontsize=7, color="white" if value < 10 else "black"
            )
        axis.set_xticks(range(table.shape[1]), [with_greek_symbols(f"{n:.0e}") for n in table.columns])
        axis.set_yticks(range(table.shape[0]), [f"{value:g}" for value in table.index])
        axis.set(title=f"step {step:g}, m = {m:g}", xlabel="users n")
        axis.grid(visible=False)
    axes[0].set_ylabel("noise of a round's sum / L")
    bar = figure.colorbar(picture, ax=axes, shrink=0.9, label="epsilon all models / epsilon last model")
    bar.set_ticks([0, 1, 2], labels=["1", "10", "100"])
    return figure


RUN_FIGURES = {
    "price": FigureRecipe(mean_risks, draw_price),
    "sampling": FigureRecipe(replacement, draw_sampling),
    "frontier": FigureRecipe(frontier, draw_frontier),
    "hiding": FigureRecipe(hiding, draw_hiding),
}


CLOSED_FORM, WHOLE_ROUNDS, ONE_ROUND = "closed form", "sum over whole rounds", "one round alone"
# Figure 2 of the paper: as published, what is drawn at q = 0.3, and the same formula at smaller shares of users.

LOOK = ((style.BLUE, "-"), (style.RED, "--"), (style.GREEN, "-."))


def parameters() -> dict[str, Any]:
    """Return the keywords of the accounting functions at Figure 2, except m."""
    return dict(load(KEY).settings["figure_2"])


def users(rate: float) -> int:
    """Return how many of Figure 2's users a share of them is."""
    return round(rate * parameters()["n"])


def whole_rounds(epsilon: np.ndarray | float, m: int, rounds: int) -> np.ndarray:
    """Return Theorem 2's sum over `rounds` rounds of m users at Figure 2, be they all users or not."""
    values = parameters()
    head = 2 * values["lipschitz"] / (math.sqrt(m) * values["sigma"])
    link = 2 * values["radius"] * math.sqrt(m) / (values["eta"] * values["sigma"])
    kept = sum(contraction.theta(epsilon, link) ** later for later in range(rounds))
    return m / values["n"] * contraction.theta(epsilon, head) * kept


def one_round(epsilon: np.ndarray | float, m: int) -> np.ndarray:
    """Return delta of one round alone at Figure 2's parameters."""
    values = parameters()
    arguments = {name: values[name] for name in ("n", "sigma", "lipschitz")}
    return contraction.federated_unamplified_delta(epsilon, m=m, **arguments)


def theorem_data(results: Results) -> pd.DataFrame:
    """Return columns panel, form, q, users, rounds, epsilon, delta; `rounds` is n/m, integer or not."""
    settings, n = load(KEY).settings, parameters()["n"]
    epsilon = np.linspace(*(settings["epsilon_axis"][name] for name in ("first", "last", "points")))
    parts = []

    def add(panel: str, form: str, m: int, rounds: float, epsilon: np.ndarray, delta: np.ndarray) -> None:
        columns = {"panel": panel, "form": form, "q": m / n, "users": m, "rounds": rounds}
        parts.append(pd.DataFrame(columns | {"epsilon": epsilon, "delta": delta}))

    for m in map(users, settings["sample_rates"]):
        closed = contraction.federated_delta(epsilon, m=m, **parameters())
        add("published", CLOSED_FORM, m, n / m, epsilon, closed)
        add("published", ONE_ROUND, m, n / m, epsilon, one_round(epsilon, m))
        if n % m:
            for rounds in (n // m, n // m + 1):
                add("published", WHOLE_ROUNDS, m, rounds, epsilon, whole_rounds(epsilon, m, rounds))
    few = np.array(settings["small_rate_epsilons"])
    for m in settings["users_a_round"]:
        add("other shares", CLOSED_FORM, m, n / m, few, contraction.federated_delta(few, m=m, **parameters()))
    return pd.concat(parts)


def draw_theorem(table: pd.DataFrame) -> Figure:
    """Draw the published curves, the choice of rounds at q = 0.3, and delta by share of users."""
    figure, axes = style.panels(3, height=3.7, width=11)
    published = table[table["panel"] == "published"]
    _draw_published(axes[0], published)
    _draw_rounds(axes[1], published)
    _draw_shares(axes[2], table[table["panel"] == "other shares"])
    style.footer(
        figure, "Right: only shares whose number of users divides n = 100. Shaded: the shares of the published figure."
    )
    return figure


def _draw_published(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against epsilon, one curve per share, with the one-round value as dots."""
    for (q, group), (colour, dash) in zip(rows.groupby("q"), LOOK, strict=True):
        closed, alone = (group[group["form"] == form] for form in (CLOSED_FORM, ONE_ROUND))
        axis.plot(closed["epsilon"], closed["delta"], color=colour, linestyle=dash, label=f"q = {q:g}")
        axis.plot(alone["epsilon"][::8], alone["delta"][::8], ".", color=style.BLACK, markersize=4)
    axis.plot([], [], ".", color=style.BLACK, label="one round alone")
    axis.set(title="as published", xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-12, 1), xlim=(0, 2))
    axis.legend(loc="lower left", frameon=False)


def _draw_rounds(axis: Axes, rows: pd.DataFrame) -> None:
    """Each curve over the one-round value of the same share: what contraction and the number of rounds do.

    Curves that coincide are drawn once, with the names of all.
    """
    alone = rows[rows["form"] == ONE_ROUND].set_index(["q", "epsilon"])["delta"]
    names: dict[tuple[float, ...], list[str]] = {}
    for (form, q, rounds), group in rows[rows["form"] != ONE_ROUND].groupby(["form", "q", "rounds"]):
        ratio = (group.set_index(["q", "epsilon"])["delta"] / alone).dropna()
        name = f"q = {q:g}, T = {rounds:.3g}" + ("" if form == CLOSED_FORM else " (whole rounds)")
        names.setdefault(tuple(sorted(set(ratio.round(2)))), []).append(name)
    for levels, (colour, dash) in zip(names, LOOK, strict=False):
        for level in levels:
            axis.axhline(level, color=colour, linestyle=dash)
        label = "\n".join(names[levels])
        axis.annotate(label, (0.05, max(levels)), xytext=(0, 3), textcoords="offset points", color=colour, fontsize=8)
    axis.set(title="over one round alone", xlabel="epsilon", ylabel="delta / theta", ylim=(0.8, 1.3), xlim=(0, 2))


def _draw_shares(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against the share of users per round, one curve per epsilon."""
    for (epsilon, group), (colour, dash), marker in zip(rows.groupby("epsilon"), LOOK, style.MARKERS, strict=False):
        look = {"color": colour, "linestyle": dash, "marker": marker}
        axis.plot(group["q"], group["delta"], label=f"epsilon = {epsilon:g}", **look)
    axis.axvspan(0.1, 0.3, color=style.YELLOW, alpha=0.25, linewidth=0)
    axis.set(title="other shares of users", xlabel="share q of the users a round", ylabel="delta")
    axis.set(xscale="log", yscale="log", ylim=(1e-7, 1))
    axis.legend(loc="lower left", frameon=False)


FIGURES = {"figure_2": FigureRecipe(theorem_data, draw_theorem), **RUN_FIGURES, **DIMENSION, **COMPARISON}
