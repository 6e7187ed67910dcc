"""Figure 2 as published and as it should be, training with an aggregator, and the exponents that its runs show."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpfl.accounting import contraction
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon, round_epsilon
from dpfl.catalog import load
from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.papers.asoodeh2021.utility_bound import COUNTEREXAMPLE
from dpfl.reporting import style
from dpfl.reporting.display_names import (
    all_or,
    count_range,
    data_name,
    data_note,
    listed,
    span,
    stand_ins,
    with_greek_symbols,
)
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, Results, origins
from dpfl.reporting.statistics import mean_interval, slope, summarised
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Summarise runs of Algorithm 1, one study at a time: means, paired differences, slopes.

KEY = "asoodeh2021"
TASK = ["dataset", "stand_in_for", "batch_size"]
COLUMNS = [*TASK, "regularisation", "noise_std", "users", "dimension", "idle_excess_risk", "excess_bound"]
FEWEST = 3
"""Points that a slope is fitted to, at least."""


def with_share(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the noisy rows with the column share: excess risk less that without noise at the same keys, or nan.

    `keys`: two columns or more.
    """
    silent = rows[rows["noise_std"] == 0].set_index(keys)["excess_risk"]
    noisy = rows[rows["noise_std"] > 0]
    return noisy.assign(share=noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[keys])).to_numpy())


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
        return pd.DataFrame(columns=[*COLUMNS, "runs", "excess_risk", "interval", ORIGINS, "study"])
    return pd.concat(parts, ignore_index=True)


RATES = ["study", *TASK, "against", "fixed", "expected", "limited", "points", "runs", "slope", "interval", ORIGINS]


def slopes(results: Results) -> pd.DataFrame:
    """Return the fitted exponents that the paper states, one row per line of points.

    Columns: study, TASK, against ("users" or "sigma^2"), fixed (what else a line shares, in words), expected, limited
    (whether the projection limits the model, so that the line shows nothing of the rate), points, runs, slope (mean of
    the seeds' slopes), interval.
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
    model and hides what the noise would cost. A line with too few of them has the exponent of all its points, and is
    limited.
    """
    if runs.empty:
        return []
    noisy = with_share(runs, [*TASK, "users", "seed"])
    noisy["sigma^2"] = noisy["noise_std"] ** 2
    mean = noisy.groupby([*TASK, "noise_std", "users"])["excess_risk"].transform("mean")
    noisy["free"] = mean < noisy["idle_excess_risk"]
    rows = []
    for against, fixed, word, expected in (("users", "noise_std", "sigma", -1.0), ("sigma^2", "users", "users", 1.0)):
        for (*task, value), line in noisy.groupby([*TASK, fixed]):
            key = ["price", *task, against, f"{word} = {value:g}", expected]
            free = line[line["free"]]
            rows += _fitted([*key, False], free, against, "share") or _fitted([*key, True], line, against, "share")
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
        rows += _fitted([name, *task, "users", fixed, -0.5, False], line, "users", "rate")
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
    a choice that no budget pays for. Columns: runs, excess_risk, interval, accuracy_pct, step, batch_size, noise_std;
    most_step and most_batch_size, the largest that were run.
    """
    names = ["runs", "excess_risk", "interval", "accuracy_pct", "accuracy_interval"]
    names += ["step", "most_step", "batch_size", "most_batch_size", "noise_std", ORIGINS]
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
        chosen = (step, group["step"].max(), size, group["batch_size"].max(), sigma)
        rows.append((*key, count, risk, half, accuracy, accuracy_half, *chosen, origins(best)))
    return pd.DataFrame(rows, columns=columns)


WAYS = {("one_pass", "last"): "hidden", ("one_pass", "all"): "shown", ("fresh", "all"): "composed"}


# Figures from runs of Algorithm 1: cost of noise, ways of drawing users, gain of hiding models.

WAY_NAMES = {
    "hidden": "Algorithm 1, last model only (Theorem 2)",
    "shown": "Algorithm 1, every model released",
    "composed": "fresh batches, every model released (composition)",
}
SAME_LINE = "Algorithm 1, last model only or every model released"
RELEASES = {
    "random": "of a round drawn\nfrom all",
    "suffix_0.25": "of a round drawn from\nthe last 75 %",
    "suffix_0.5": "of a round drawn from\nthe last 50 %",
    "suffix_0.75": "of a round drawn from\nthe last 25 %",
    "last": "of the last round",
}
"""Names of the models that are released, from the earliest to the latest."""
NOISELESS = {
    "hidden": ("Algorithm 1 without noise", (0, (1, 3))),
    "composed": ("fresh batches without noise", (2, (1, 3))),
}
"""Name and dashes of the runs without noise: what is released changes no model then, so Algorithm 1 has one line. The
dots of one fill the gaps of the other where they coincide."""
_SIZE_LOOKS = ((style.SKY, "o", 9.0), (style.GREY, "s", 6.0), (style.BROWN, "^", 3.5))
"""Colour, marker and its size by number of users a round: none is that of a noise, and the smaller ones lie within the
larger ones where they coincide."""


def draw_price(data: pd.DataFrame) -> Figure:
    """Draw excess risk against n, the noise's share against sigma^2, and excess risk against lambda."""
    figure, axes = style.panels(3, height=3.4)
    price, curvature = (data[data["study"] == study] for study in ("price", "curvature"))
    shown = price[price["batch_size"] == price["batch_size"].min()]
    sigmas = sorted({*shown["noise_std"], *curvature["noise_std"]})
    _lines(axes[0], shown, "users", sigmas)
    axes[0].set(xlabel="users n", ylabel="excess risk of the last model")
    if not price.empty:
        axes[0].set_title(f"against users, m = {shown['batch_size'].iloc[0]}", fontsize=9)
        _shares(axes[1], price)
    _lines(axes[2], curvature, "regularisation", sigmas)
    if not curvature.empty:
        sizes = f"m = {count_range(curvature['batch_size'])}, n = {count_range(curvature['users'])}"
        axes[2].set_title(f"against λ, {sizes}", fontsize=9)
    axes[2].set_xlabel("strong convexity λ")
    for axis in axes:
        if not axis.has_data():
            style.mark_not_run(axis)
            continue
        axis.set(xscale="log", yscale="log")
    if axes[1].has_data():
        axes[1].legend(fontsize=style.SMALL, loc="lower right", title="users a round", title_fontsize=style.SMALL)
    handles: dict[str, object] = {}
    for axis in (axes[0], axes[2]):
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if handles:
        handles = dict(sorted(handles.items(), key=lambda pair: not pair[0].startswith("σ")))
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=4)
    for axis, values in ((axes[0], shown["users"]), (axes[2], curvature["regularisation"])):
        if not values.empty:
            style.ticks_at(axis, sorted(values.unique())[:: 2 if axis is axes[0] else 1])
    style.footer(figure, f"A bound has the colour of its noise. Middle: means, without bars. {data_note(data)}")
    return figure


def price_message(data: pd.DataFrame) -> str:
    """Say with which powers the cost of noise grows with sigma^2 and falls with the users."""
    rows = data[data["study"] == "price"]
    noisy = with_share(rows, ["dataset", "batch_size", "users"])
    free = noisy[noisy["excess_risk"] < noisy["idle_excess_risk"]].dropna(subset="share")
    most = free[free["users"] == free["users"].max()]
    by_noise = [
        slope(line["noise_std"] ** 2, line["share"])
        for _, line in most.groupby(["dataset", "batch_size"])
        if len(line) > 2
    ]
    by_users = [
        slope(line["users"], line["share"])
        for _, line in free.groupby(["dataset", "batch_size", "noise_std"])
        if len(line) > 2
    ]
    texts = [
        f"{verb} to the power {span(powers, '{:.2f}')}"
        for verb, powers in (("grows as σ²", by_noise), ("falls as n", by_users))
        if powers
    ]
    return f"The cost of noise {' and '.join(texts)}" if texts else ""


def _lines(axis: Axes, rows: pd.DataFrame, x: str, sigmas: list[float]) -> None:
    """Draw a line with bars for each sigma, its bound dashed, and the risk of w = 0; a sigma has one look in all."""
    for value, line in rows.groupby("noise_std"):
        number = sigmas.index(value)
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number]}
        line = line.sort_values(x)
        axis.errorbar(line[x], line["excess_risk"], line["interval"], linestyle="-", label=f"σ = {value:g}", **look)
        axis.plot(line[x], line["excess_bound"], color=style.COLOURS[number], linestyle="--", linewidth=0.8)
    if not rows.empty:
        idle = rows.drop_duplicates(x).sort_values(x)
        axis.plot([], [], color=style.BLACK, linestyle="--", linewidth=0.8, label="Corollary 1's bound, with d")
        risks = idle["idle_excess_risk"]
        axis.plot(idle[x], risks, color=style.BLACK, linestyle=":", linewidth=1, label="risk of w = 0")


def _shares(axis: Axes, price: pd.DataFrame) -> None:
    """Draw the noise's share at the most users against sigma^2, with a line of slope 1 through the least."""
    last = price[price["users"] == price["users"].max()]
    for (size, rows), (colour, marker, markersize) in zip(last.groupby("batch_size"), _SIZE_LOOKS, strict=False):
        noisy = with_share(rows, ["batch_size", "users"]).dropna(subset="share").sort_values("noise_std")
        if noisy.empty:
            continue
        variance, share = noisy["noise_std"] ** 2, noisy["share"]
        look = {"color": colour, "marker": marker, "markersize": markersize, "linestyle": "none"}
        axis.plot(variance, share, label=f"m = {size}", **look)
        if size == last["batch_size"].max():
            line = variance / variance.iloc[0] * share.iloc[0]
            axis.plot(variance, line, color=style.BLACK, linestyle="--", linewidth=0.8, label="slope 1", zorder=1)
    axis.set_title(f"the cost of noise, n = {last['users'].max():g}", fontsize=9)
    axis.set(xlabel="σ²", ylabel="excess risk due to noise")


def draw_sampling(data: pd.DataFrame) -> Figure:
    """Draw by how many per cent drawing users without replacement changes the risk: a row per released model, a panel a
    noise, a mark a number of users a round. Every change is written beside its mark."""
    tasks = list(data.groupby(["dataset", "noise_std"]))
    figure, axes = style.panels(len(tasks), height=3.6, width=style.WIDTH, squeeze=False, sharex=True, sharey=True)
    sizes = sorted(data["batch_size"].unique())
    shown = [name for name in RELEASES if name in set(data["release"])]
    for axis, ((dataset, sigma), rows) in zip(axes[0], tasks, strict=True):
        for number, size in enumerate(sizes):
            own = rows[rows["batch_size"] == size]
            change, half = (100 * own[name] / own["with_replacement"] for name in ("difference", "interval"))
            heights = own["release"].map(shown.index) + 0.3 * (number - (len(sizes) - 1) / 2)
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "none"}
            axis.errorbar(change, heights, xerr=half, label=f"m = {size} users a round", **look)
            for height, middle, bar in zip(heights, change, half, strict=True):
                place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center", "fontsize": style.SMALL}
                axis.annotate(f"{middle:+.1f} ± {bar:.1f}", (0.99, height), color=look["color"], **place)
        axis.axvline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        task = f"{data_name(dataset)}, n = {rows['users'].iloc[0]:g}"
        axis.set_title(f"{task}, " + (f"noise σ = {sigma:g}" if sigma > 0 else "no noise"), fontsize=9)
        axis.set_xlabel("change of the excess risk (%)")
    low, high = axes[0][0].get_xlim()
    cut = ((data["difference"] - data["interval"]) / data["with_replacement"] < -1).any()
    axes[0][0].set_xlim(max(low, -100.0), high + 0.45 * (high - low))  # no risk falls by more; room for the numbers
    axes[0][0].set_yticks(range(len(shown)), [RELEASES[name] for name in shown])
    axes[0][0].invert_yaxis()
    axes[0][0].set_ylabel("released: the model")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(sizes))
    usual, most = data["runs"].min(), data["runs"].max()
    seeds = f"{usual} seeds" if usual == most else f"{usual} seeds, {most} for some models without noise"
    text = f"(Risk without replacement - risk with) / risk with; paired by seed, ± 90 % interval, {seeds}."
    text += " Beyond chance: an interval without 0, not corrected for several tests."
    text += " A bar that would reach below -100 % is cut." if cut else ""
    style.footer(figure, f"{text} {data_note(data)}")
    return figure


def sampling_message(data: pd.DataFrame) -> str:
    """Say by how much drawing users without replacement changes the risk, without and with noise."""
    change = 100 * data["difference"] / data["with_replacement"]
    clear = data["difference"].abs() > data["interval"]
    texts = []
    for noisy, name in ((False, "no noise"), (True, "with noise")):
        chosen = (data["noise_std"] > 0) == noisy
        if chosen.any():
            beyond = f"{int(clear[chosen].sum())} of {int(chosen.sum())} beyond chance"
            texts.append(f"{name} {span(change[chosen], '{:+.1f}')} % ({beyond})")
    return f"Change of the risk if users are drawn without replacement: {', '.join(texts)}"


def draw_frontier(data: pd.DataFrame) -> Figure:
    """Draw accuracy and excess risk against epsilon, each way of spending it at its best step and batch size."""
    tasks = list(data.groupby(["dataset", "stand_in_for", "users"]))
    figure, axes = style.panels(2, len(tasks), height=2.7, width=style.WIDTH, squeeze=False, sharex=True)
    for row, ((dataset, stand_in_for, users), task) in zip(axes, tasks, strict=True):
        for axis, metric, bar in ((row[0], "accuracy_pct", "accuracy_interval"), (row[1], "excess_risk", "interval")):
            _ways(axis, task, metric, bar)
            axis.set_title(f"{data_name(dataset, stand_in_for)}: odd against even labels, n = {users}", fontsize=9)
        row[0].set_ylabel("test accuracy (%)")
        row[1].set(ylabel="excess risk", yscale="log")
    for axis in axes[-1]:
        axis.set_xlabel("ε (replace one user, δ = 10⁻⁵)")
    handles: dict[str, object] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    handles = dict(sorted(handles.items(), key=lambda pair: pair[0].endswith("without noise")))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=2)
    text = "Step and batch size: the best of the grid, a choice that no budget pays for."
    noisy = data[data["epsilon"] < math.inf]
    step, size = (int((noisy[name] == noisy[f"most_{name}"]).sum()) for name in ("step", "batch_size"))
    if step or size:
        text += f" Of {len(noisy)} points with noise, {step} have the grid's largest step and {size} its largest batch."
    if SAME_LINE in handles:
        text += " Algorithm 1 has one line where its risks agree within 2 % with every model released."
    style.footer(figure, f"{text} {data_note(data)}")
    return figure


_SAME = 0.02
"""Relative difference up to which two risks are called the same."""


def frontier_message(data: pd.DataFrame) -> str:
    """Say what hiding the models gains, and how often fresh batches with every model released do better."""
    keys = ["dataset", "users", "epsilon"]
    private = data[data["epsilon"] < math.inf]
    wide = private.pivot(index=keys, columns="way", values="excess_risk")
    if not {"hidden", "shown", "composed"} <= set(wide.columns):
        return ""
    pairs = wide.dropna()
    apart = float((pairs["hidden"] / pairs["shown"] - 1).abs().max())
    effect = "gains nothing" if apart <= _SAME else f"changes the risk by up to {100 * apart:.0f} %"
    better = int((pairs["composed"] < pairs["hidden"]).sum())
    return (
        f"Hiding the intermediate models {effect}; fresh batches that release every model have less mean risk "
        f"at {all_or(better, len(pairs))} points"
    )


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
    figure, axes = style.panels(len(panels), height=3.4, sharey=True)
    for axis, ((step, m), rows) in zip(axes, panels, strict=True):
        table = rows.pivot(index="noise_multiplier", columns="n", values="gain")
        picture = axis.imshow(
            np.log10(table.clip(upper=100.0)), vmin=0, vmax=2, origin="lower", cmap="viridis", aspect="auto"
        )
        for place, value in np.ndenumerate(table.to_numpy()):
            digits = ".2f" if 1 + _SAME < value < 1.1 else ".2g" if value < 10 else ".0f"
            text = ">99" if value > 99 else f"{value:{digits}}"
            colour = style.ON_DARK if value < 10 else style.ON_LIGHT
            axis.annotate(text, place[::-1], ha="center", va="center", fontsize=style.SMALL, color=colour)
        axis.set_xticks(range(table.shape[1]), [with_greek_symbols(f"{n:.0e}") for n in table.columns])
        axis.set_yticks(range(table.shape[0]), [f"{value:g}" for value in table.index])
        axis.set_title(f"step {step:g}, m = {m:g}", fontsize=9)
        axis.set_xlabel("users n")
        axis.grid(visible=False)
    axes[0].set_ylabel("noise of a round's sum / L")
    bar = figure.colorbar(picture, ax=axes, shrink=0.9, label="ε of all models / ε of the last")
    bar.set_ticks([0, 1, 2], labels=["1", "10", "100"])
    style.footer(figure, "m: users a round. Computed from Theorem 2 and from composition, not run.")
    return figure


def hiding_message(data: pd.DataFrame) -> str:
    """Say for which numbers of users a round the last model alone has the smaller epsilon."""
    texts = [
        f"in {int((rows['gain'] > 1 + _SAME).sum())} of {len(rows)} settings with m = {m:g}"
        for m, rows in data.groupby("m")
    ]
    return f"Releasing the last model alone lowers ε by over 2 % {listed(texts)}"


RUN_FIGURES = {
    "price": FigureRecipe(mean_risks, draw_price, price_message),
    "sampling": FigureRecipe(replacement, draw_sampling, sampling_message),
    "frontier": FigureRecipe(frontier, draw_frontier, frontier_message),
    "hiding": FigureRecipe(hiding, draw_hiding, hiding_message),
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
    """Return Theorem 2's sum over `rounds` rounds of m users at Figure 2, which may leave users out."""
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
            add("published", WHOLE_ROUNDS, m, n // m, epsilon, whole_rounds(epsilon, m, n // m))
    few = np.array(settings["small_rate_epsilons"])
    for m in settings["users_a_round"]:
        add("other shares", CLOSED_FORM, m, n / m, few, contraction.federated_delta(few, m=m, **parameters()))
    return pd.concat(parts)


def draw_theorem(table: pd.DataFrame) -> Figure:
    """Draw the published curves, the choice of rounds at q = 0.3, and delta by share of users."""
    figure, axes = style.panels(3, height=3.3)
    published = table[table["panel"] == "published"]
    _draw_published(axes[0], published)
    _draw_rounds(axes[1], published)
    _draw_shares(axes[2], table[table["panel"] == "other shares"])
    text = "T: rounds, the users over those of a round. Right: only shares whose number of users divides n = 100."
    style.footer(figure, f"{text} Shaded: the shares of the published figure.")
    return figure


def theorem_message(data: pd.DataFrame, *, closed_form: str, one_round: str) -> str:
    """Say how far the published curves are from the delta of one round alone."""
    published = data[data["panel"] == "published"].set_index(["q", "epsilon"])
    closed, alone = (published.loc[published["form"] == form, "delta"] for form in (closed_form, one_round))
    gap = float((closed / alone - 1).abs().max())
    if gap < 1e-3:
        return "At the published settings contraction changes nothing: δ is that of one round alone"
    return f"At the published settings δ differs from that of one round alone by up to {100 * gap:.0f} %"


def _draw_published(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against epsilon, one curve per share, with the one-round value as dots."""
    for (q, group), (colour, dash) in zip(rows.groupby("q"), LOOK, strict=True):
        closed, alone = (group[group["form"] == form] for form in (CLOSED_FORM, ONE_ROUND))
        axis.plot(closed["epsilon"], closed["delta"], color=colour, linestyle=dash, label=f"q = {q:g}")
        axis.plot(alone["epsilon"][::8], alone["delta"][::8], ".", color=style.BLACK, markersize=4)
    axis.plot([], [], ".", color=style.BLACK, label="one round alone")
    axis.set(title="as published", xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-12, 1), xlim=(0, 2))
    axis.legend(loc="lower left", fontsize=style.SMALL)


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
    # A colour is a share's in the left panel; here a line may be of several, so both are black.
    for levels, (_, dash) in zip(names, LOOK, strict=False):
        for level in levels:
            axis.axhline(level, color=style.BLACK, linestyle=dash)
        label = "\n".join(names[levels])
        axis.annotate(label, (0.05, max(levels)), xytext=(0, 3), textcoords="offset points", fontsize=style.SMALL)
    axis.set(title="over one round alone", xlabel="ε", ylabel="δ / δ of one round", ylim=(0.85, 1.05), xlim=(0, 2))


def _draw_shares(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against the share of users per round, one curve per epsilon."""
    colours = (style.ORANGE, style.PURPLE, style.SKY)  # not those of shares, left
    for (epsilon, group), colour, (_, dash), marker in zip(
        rows.groupby("epsilon"), colours, LOOK, style.MARKERS, strict=False
    ):
        look = {"color": colour, "linestyle": dash, "marker": marker}
        axis.plot(group["q"], group["delta"], label=f"epsilon = {epsilon:g}", **look)
    axis.axvspan(0.1, 0.3, color=style.YELLOW, alpha=0.25, linewidth=0)
    axis.set(title="other shares of users", xlabel="share q of the users a round", ylabel="δ")
    axis.set(xscale="log", yscale="log", ylim=(1e-7, 1))
    axis.legend(loc="lower left", fontsize=style.SMALL)


FIGURES = {
    "figure_2": FigureRecipe(
        theorem_data, draw_theorem, partial(theorem_message, closed_form=CLOSED_FORM, one_round=ONE_ROUND)
    ),
    **RUN_FIGURES,
    **COUNTEREXAMPLE,
}


# Table: the exponents that the runs show.


def rates_page(data: pd.DataFrame) -> TableLayout:
    """Lay the exponents out for a reader."""
    body = pd.DataFrame(
        {
            "Study": data["study"],
            "Data": data["dataset"],
            "m": data["batch_size"].map("{:g}".format),
            "Against": data["against"],
            "At": data["fixed"],
            "Exponent": [
                f"{value:.3f} ± {half:.3f}" for value, half in zip(data["slope"], data["interval"], strict=True)
            ],
            "Claimed": data["expected"].map("{:g}".format),
            "Points": [
                f"{points}{', limited' if limited else ''}"
                for points, limited in zip(data["points"], data["limited"], strict=True)
            ],
        }
    )
    notes = [f"Mean of the seeds' exponents ± half-width of the 90 % interval, {count_range(data['runs'])} seeds."]
    if data["limited"].any():
        notes.append(
            f"Points with more excess risk than w = 0 do not count: there the projection limits the model. A line with "
            f"fewer than {FEWEST} other points is limited; it has the exponent of all its points, and judges no claim."
        )
    notes += [f"Stand-in data: {name}." for name in stand_ins(data)]
    return TableLayout(body, notes)


TABLES = {"rates": TableRecipe(slopes, rates_page)}
