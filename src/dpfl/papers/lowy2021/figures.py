"""Figures: Fig. 2, the same against the epsilon that is spent, and MNIST."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.papers.lowy2021 import theory
from dpfl.papers.lowy2021.comparisons import CLASSIFICATION, MNIST_TASK, NOISES, REGRESSION, TASK, mnist_pairs, trials
from dpfl.reporting import style
from dpfl.reporting.bounds import at_most
from dpfl.reporting.display_names import count_range, data_name
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES = {"minibatch": "noisy minibatch SGD", "local": "noisy local SGD"}
_BASELINES = {"mean_predictor": "predicting the training mean", "least_squares": "pooled least squares"}
_MINIMISER = ["minimiser"]
_MOST_SPENT = 100.0
_MILLION = 1e6
_SIZE_LOOKS = ((style.GREEN, "^"), (style.PURPLE, "D"), (style.BLACK, "v"), ("#777777", "P"), ("#8C510A", "X"))
"""Colour and marker by number of participants: none is that of an algorithm."""
_BESIDE = 1.04
"""Ratio of the places of neighbouring points of one budget, which would lie on one another."""
_LEGEND_INCHES = 2.7


def _figure_2(results: Results) -> pd.DataFrame:
    """Return one row per curve's point: task, noise, clipping, algorithm, epsilon, epsilon_spent, trials, test_loss,
    interval, and v_star_squared, the task's mean of v*^2.

    An algorithm's epsilon of inf is its version without privacy; the baselines have it too. With clipping "mean" the
    runs are those of the authors' protocol.
    """
    runs = trials(results, REGRESSION)
    points = _points(runs, [*TASK, "noise", "clipping"], "test_loss", list(_BASELINES))
    heterogeneity = runs.drop_duplicates([*TASK, "seed"]).groupby(TASK)["v_star_squared"].mean().reset_index()
    return points.merge(heterogeneity, on=TASK, validate="many_to_one")


def _spent_figure(results: Results) -> pd.DataFrame:
    """Return the points of `_figure_2` at which every record is clipped."""
    points = _figure_2(results)
    return points[points["clipping"] == "record"].drop(columns=["clipping", "v_star_squared"])


def _mnist(results: Results) -> pd.DataFrame:
    """Return one row per curve's point, as `_figure_2` does; test_error_pct in percent.

    difference_pct and difference_interval_pct, alike for both algorithms: local minus minibatch within trials.
    """
    at = [*MNIST_TASK, "noise", "epsilon"]
    names = {"difference": "difference_pct", "interval": "difference_interval_pct"}
    pairs = mnist_pairs(results)[[*at, *names]].rename(columns=names)
    points = _points(trials(results, CLASSIFICATION), at[:-1], "test_error_pct", _MINIMISER)
    return points.merge(pairs, on=at, how="left", validate="many_to_one")


def _points(runs: pd.DataFrame, task: list[str], metric: str, baselines: list[str]) -> pd.DataFrame:
    """Return means and intervals of the metric by task, algorithm and epsilon, and of the baselines by task."""
    rows = []
    for keys, group in runs.groupby([*task, "algorithm", "epsilon"], sort=False):
        rows.append((*keys, group["privacy_epsilon_proven"].iloc[0], *mean_interval(group[metric]), origins(group)))
    for keys, group in runs.groupby(task, sort=False):
        one_a_trial = group.drop_duplicates("seed")
        for name in baselines:
            summary = (*mean_interval(one_a_trial[f"{name}_{metric}"]), origins(one_a_trial))
            rows.append((*keys, name, math.inf, math.inf, *summary))
    names = ["algorithm", "epsilon", "epsilon_spent", "trials", metric, "interval", ORIGINS]
    return pd.DataFrame(rows, columns=[*task, *names])


def _draw_figure_2(points: pd.DataFrame) -> Figure:
    """Draw one row of panels per task: the authors' protocol first, then one panel per noise with records clipped."""
    tasks, columns = list(points.groupby(TASK, sort=False)), _columns(points)
    figure, axes = style.panels(
        len(columns), len(tasks), width=2.9 * len(columns) + 0.5, height=3.1, squeeze=False, sharex=True, sharey="row"
    )
    for row, ((dataset, stand_in_for, clients), task) in zip(axes, tasks, strict=True):
        for axis, (noise, clipping) in zip(row, columns, strict=True):
            _panel(axis, task[(task["noise"] == noise) & (task["clipping"] == clipping)], "test_loss", _BASELINES)
            what = "authors' protocol" if clipping == "mean" else NOISES[noise]
            axis.set_title(what if axis is not row[0] else f"{data_name(dataset, stand_in_for)}, N = {clients}\n{what}",
                           fontsize=9)  # fmt: skip
        marked = f"v*² = {task['v_star_squared'].iloc[0]:.2g}"
        row[0].text(0.97, 0.95, marked, transform=row[0].transAxes, ha="right", va="top", fontsize=9)
        _label_loss(row[0])
    for axis in axes[-1]:
        axis.set_xlabel("privacy budget ε asked for")
    _finish(figure, axes[0][0], points, f"ε spent, at most, as a share of ε asked for: {_spent_ranges(points)}.")
    return figure


def _columns(points: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the (noise, clipping) among the points, the authors' protocol first."""
    known = set(zip(points["noise"], points["clipping"], strict=True))
    return sorted(known, key=lambda pair: (pair[1] != "mean", list(NOISES).index(pair[0])))


def _label_loss(axis: Axes) -> None:
    """Label an axis of losses, large ones in millions."""
    unit = _MILLION if axis.get_ylim()[1] > _MILLION else 1.0
    axis.yaxis.set_major_formatter(lambda value, _: f"{value / unit:g}")
    axis.set_ylabel(f"test loss: half the\nsquared error{', in millions' if unit > 1 else ''}")


def _spent_ranges(points: pd.DataFrame) -> str:
    """Return for each noise what share of the budget asked for it spends at most, least to largest, as text."""
    private = points[(points["epsilon"] < math.inf) & points["algorithm"].isin(_NAMES)]
    texts = []
    for noise, clipping in _columns(private):
        chosen = (private["noise"] == noise) & (private["clipping"] == clipping)
        shares = private.loc[chosen, "epsilon_spent"] / private["epsilon"]
        low, high = (
            at_most(share, 2) if share < _MOST_SPENT else f"over {_MOST_SPENT:g}"
            for share in (shares.min(), shares.max())
        )
        name = "authors' protocol" if clipping == "mean" else NOISES[noise]
        texts.append(f"{name} {low}" + (f" to {high}" if high != low else ""))
    return "; ".join(texts)


def _draw_spent(points: pd.DataFrame) -> Figure:
    """Draw one panel per task: test loss against the epsilon spent, one colour per noise, one line per algorithm."""
    tasks = [(key, task) for key, task in points.groupby(TASK, sort=False) if (task["epsilon"] < math.inf).any()]
    if not tasks:
        raise NotRunError("no private run of this figure in this configuration")
    figure, axes = style.panels(len(tasks), width=max(4.6 * len(tasks) + 0.5, 7.0), height=4.2, squeeze=False)
    for axis, ((dataset, stand_in_for, clients), task) in zip(axes[0], tasks, strict=True):
        for colour, noise in zip(style.COLOURS, _noises(points), strict=False):
            for algorithm, dashes, marker in (("minibatch", "-", "o"), ("local", "--", "s")):
                rows = task[(task["noise"] == noise) & (task["algorithm"] == algorithm)]
                rows = rows[rows["epsilon_spent"] <= _MOST_SPENT].sort_values("epsilon_spent")
                look = {"color": colour, "linestyle": dashes, "marker": marker}
                axis.errorbar(
                    rows["epsilon_spent"],
                    rows["test_loss"],
                    rows["interval"],
                    label=f"{_NAMES[algorithm]}, {NOISES[noise]}",
                    **look,
                )
        _baselines(axis, task.drop_duplicates(["algorithm", "epsilon"]), "test_loss", _BASELINES)
        axis.set(xscale="log", xlabel="privacy ε really spent, at most (each client's own records)")
        axis.set_title(f"{data_name(dataset, stand_in_for)}, N = {clients}")
        axis.set_ylim(bottom=0)
        _label_loss(axis)
    _finish(figure, axes[0][0], points, f"Left out: runs that may spend ε > {_MOST_SPENT:g}.")
    return figure


def _draw_mnist(points: pd.DataFrame) -> Figure:
    """Draw a column for each (split, noise): above the error of both algorithms, below by how much local's is larger.

    Each thin line is one (M, R); they are told apart below, where the claim is read: above 0 minibatch is better.
    """
    pairs = set(zip(points["split"], points["noise"], strict=True))
    columns = sorted(pairs, key=lambda pair: (pair[0] != "published", list(NOISES).index(pair[1])))
    figure, axes = style.panels(
        len(columns), 2, width=3.4 * len(columns) + 0.8, height=3.0, squeeze=False, sharex=True, sharey="row"
    )
    sizes = sorted(set(points["participating"]))
    runs = sorted(set(zip(points["participating"], points["rounds"], strict=True)))
    for (above, below), (split, noise) in zip(axes.T, columns, strict=True):
        selected = points[(points["split"] == split) & (points["noise"] == noise)]
        for (participating, rounds), task in selected.groupby(["participating", "rounds"]):
            _errors(above, task)
            colour, marker = _SIZE_LOOKS[sizes.index(participating) % len(_SIZE_LOOKS)]
            dash = "-" if rounds == points["rounds"].min() else "--"
            shift = _BESIDE ** (runs.index((participating, rounds)) - (len(runs) - 1) / 2)
            look = {"color": colour, "marker": marker, "linestyle": dash, "label": f"M = {participating}, R = {rounds}"}
            _gap(below, task, shift, look)
        above.set_title(f"{split} split, {NOISES[noise]}", fontsize=9)
        below.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        below.set(xlabel="privacy budget ε asked for", xscale="log")
        style.ticks_at(below, set(points["epsilon"]) - {math.inf})
    axes[0][0].set_ylabel("test error (%)")
    axes[1][0].set_ylabel("local less minibatch (points)")
    handles: dict[str, object] = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    for below in axes[1]:
        known = dict(zip(*reversed(below.get_legend_handles_labels()), strict=True))
        handles |= {name: known[name] for name in sorted(known)}
    columns = min(5, int(figure.get_figwidth() // 1.9))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=columns, fontsize=8, handlelength=4)
    data = {data_name(*each) for each in zip(points["dataset"], points["stand_in_for"], strict=True)}
    text = "Means over {} trials; bars: 90 % intervals of the difference within trials."
    text += " Below, the points of one budget stand side by side." if len(runs) > 1 else ""
    style.footer(figure, f"{text.format(count_range(points['trials']))} δ = 1/n². Data: {', '.join(sorted(data))}.")
    return figure


def _errors(axis: Axes, task: pd.DataFrame) -> None:
    """Draw the errors of one (M, R) as thin lines, without privacy dotted."""
    known = set(axis.get_legend_handles_labels()[1])
    for number, (algorithm, name) in enumerate(_NAMES.items()):
        rows = task[task["algorithm"] == algorithm].sort_values("epsilon")
        private, without = rows[rows["epsilon"] < math.inf], rows[rows["epsilon"] == math.inf]
        look = {"color": style.COLOURS[number], "linewidth": 0.9}
        axis.plot(private["epsilon"], private["test_error_pct"], "-", label=None if name in known else name, **look)
        for value in without["test_error_pct"]:
            label = name.replace("noisy ", "") + ", no privacy"
            axis.axhline(value, linestyle=":", label=None if label in known else label, **look)
            known.add(label)


def _gap(axis: Axes, task: pd.DataFrame, shift: float, look: dict[str, object]) -> None:
    """Draw local's error less minibatch's within trials against epsilon times `shift`, where both were run."""
    rows = task[(task["epsilon"] < math.inf) & (task["algorithm"] == "local")].dropna(subset="difference_pct")
    rows = rows.sort_values("epsilon")
    axis.errorbar(shift * rows["epsilon"], rows["difference_pct"], rows["difference_interval_pct"], **look)


def _noises(points: pd.DataFrame) -> list[str]:
    """Return the noises among the points, in the order of NOISES."""
    return [noise for noise in NOISES if noise in set(points["noise"])]


def _panel(axis: Axes, task: pd.DataFrame, metric: str, baselines: dict[str, str]) -> None:
    """Draw the two private curves with bars, and their references as lines."""
    for number, (algorithm, name) in enumerate(_NAMES.items()):
        rows = task[task["algorithm"] == algorithm]
        look = {"color": style.COLOURS[number]}
        private = rows[rows["epsilon"] < math.inf].sort_values("epsilon")
        axis.errorbar(
            private["epsilon"], private[metric], private["interval"], marker=style.MARKERS[number], label=name, **look
        )
        for value in rows[rows["epsilon"] == math.inf][metric]:
            axis.axhline(value, linestyle=":", label=name.replace("noisy ", "") + ", no privacy", **look)
    _baselines(axis, task, metric, baselines)
    axis.set_ylim(bottom=0)


def _baselines(axis: Axes, task: pd.DataFrame, metric: str, baselines: dict[str, str]) -> None:
    """Draw the baselines as thin lines."""
    for number, (baseline, name) in enumerate(baselines.items()):
        for value in task[task["algorithm"] == baseline][metric]:
            axis.axhline(value, color=style.BLACK, linestyle=("--", "-")[number], linewidth=0.8, label=name)


def _finish(figure: Figure, axis: Axes, points: pd.DataFrame, remark: str) -> None:
    """Write the legend above the panels, and below them what the bars mean."""
    columns = int(figure.get_figwidth() // _LEGEND_INCHES)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=columns, fontsize=8)
    runs = count_range(points["trials"])
    style.footer(figure, f"Means over {runs} trials; bars: 90 % interval of the mean. δ = 1/n². {remark}")


FIGURES = {
    "figure_2": FigureRecipe(_figure_2, _draw_figure_2),
    "figure_2_spent": FigureRecipe(_spent_figure, _draw_spent),
    "mnist": FigureRecipe(_mnist, _draw_mnist),
    **theory.FIGURES,
}
