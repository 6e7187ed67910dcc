"""Figures from runs of Algorithm 1: cost of noise, ways of drawing users, gain of hiding models."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting.contraction.federated_release import release_epsilon, round_epsilon
from dpfl.catalog import load
from dpfl.experiments.shared.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.papers.asoodeh2021.aggregator_runs import KEY, frontier, mean_risks, replacement
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import data_name, data_note
from dpfl.reporting.results import Results
from dpfl.reporting.signs import with_signs

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
    theory = {"radius": given["radius"], "smoothness": CURVATURE + curvature, "strong_convexity": curvature}
    rows = []
    for step in given["steps"]:
        for m in given["batch_sizes"]:
            for n in given["users"]:
                for multiplier in given["noise_multipliers"]:
                    sigma = multiplier * LIPSCHITZ / math.sqrt(m)
                    run = {"m": m, "sigma": sigma, "lipschitz": LIPSCHITZ}
                    last = release_epsilon(given["delta"], n=n, eta=step, first_stop=n // m, **run, **theory)
                    every = round_epsilon(given["delta"], **run)
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
        axis.set_xticks(range(table.shape[1]), [with_signs(f"{n:.0e}") for n in table.columns])
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
