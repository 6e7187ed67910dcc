"""Figures of trained models: ways to spend one budget, the grid of batch, clip norm and noise, and prepared inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dpfl.accounting.tradeoff.segments import Segment, segments_epsilon
from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.papers.vandijk2023.seed_statistics import DATA, LEVEL, counted_runs, summarise
from dpfl.reporting import style
from dpfl.reporting.bounds import at_most
from dpfl.reporting.notes import budget_name, data_name
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import half_width

STRATEGIES = {
    "constant": "constant",
    "growing_batch": "batch 1/2, 1, 2",
    "falling_batch": "batch 2, 1, 1/2",
    "falling_clip": "clip norm 1, 1/2, 1/4",
    "falling_noise": "noise 1.25, 1, 0.8",
    "falling_both": "both fall",
    "last_epoch": "last epoch σ/√(E+1)",
    "last_epoch_unpaid": "the same, not paid for",
    "arsinh_2": "arsinh noise, a = 2σ",
    "arsinh_4": "arsinh noise, a = 4σ",
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
    text += f";\nthe smaller last σ, not paid for, spends ε = {spent}" if spent else ""
    return _dots(data, "strategy", STRATEGIES, "difference to constant (points)", text, differences=True)


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
    text = f"Mislabelled: {share:.0%} of the clients have uniformly random labels"
    return _dots(
        data.assign(mixture=data["mixing"] + ", " + labels), "mixture", MIXTURES, "test accuracy (%)", text,
        differences=False,
    )  # fmt: skip


def _dots(data: pd.DataFrame, key: str, names: dict[str, str], label: str, text: str, *, differences: bool) -> Figure:
    """Draw one panel per dataset, one line of dots per name, one colour per epsilon."""
    tasks = list(data.groupby(DATA, sort=False))
    shown = [name for name in names if name in set(data[key])]
    figure, axes = style.panels(
        len(tasks), width=3 + 3.6 * len(tasks), height=1.3 + 0.34 * len(shown), squeeze=False, sharey=True
    )
    for axis, (task, rows) in zip(axes[0], tasks, strict=True):
        _dots_panel(axis, rows, key, shown, differences=differences)
        axis.set(xlabel=label, title=data_name(*task))
    axes[0][0].set_yticks(range(len(shown)), [names[name] for name in shown])
    axes[0][0].set_ylabel(key if key != "preparation" else "inputs")
    axes[0][0].invert_yaxis()
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    style.footer(figure, f"{counted_runs(data)}\n{text}.")
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
    figure, axes = style.panels(len(sigmas), len(tasks), width=3.6 * len(sigmas) + 1.2, height=4.4, squeeze=False)
    for line, (task, rows) in zip(axes, tasks, strict=True):
        low, high = rows["accuracy_pct"].min(), rows["accuracy_pct"].max()
        for axis, sigma in zip(line, sigmas, strict=True):
            picture = _grid_panel(axis, rows[rows["sigma"] == sigma], low, high)
            axis.set(title=f"{data_name(*task)}, σ = {sigma:g}", xlabel="batch size m (ε at δ = 1/N and 1/(10 N))")
        line[0].set_ylabel("clip norm C, step size η")
        figure.colorbar(picture, ax=list(line), label="test accuracy (%)", shrink=0.8)
    records = " or ".join(f"{count:g}" for count in sorted(data["privacy_records"].unique()))
    style.footer(figure, f"N = {records} records a client. Framed: the best cell of a map. {_spread_text(data)}")
    return figure


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


def _grid_panel(axis: Axes, rows: pd.DataFrame, low: float, high: float):
    """Draw one map; return the picture for the colour bar."""
    table = rows.pivot(index=["clip_norm", "learning_rate"], columns="batch_size", values="accuracy_pct")
    spent = rows.drop_duplicates("batch_size").set_index("batch_size")
    picture = axis.imshow(table, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
    for (y, x), value in np.ndenumerate(table.to_numpy()):
        colour = "white" if value < (low + high) / 2 else "black"
        axis.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
    best = np.unravel_index(np.nanargmax(table.to_numpy()), table.shape)
    frame = {"fill": False, "edgecolor": style.RED, "linewidth": 2.0}
    axis.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, **frame))
    two = [
        f"{m}\n{at_most(spent.loc[m, 'privacy_epsilon_proven'], 2)}\n{at_most(spent.loc[m, 'epsilon_tenth'], 2)}"
        for m in table.columns
    ]
    axis.set_xticks(range(len(two)), two)
    axis.set_yticks(range(len(table.index)), [f"{c:g}, η = {step:g}" for c, step in table.index])
    axis.grid(False)
    return picture
