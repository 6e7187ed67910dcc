"""Figures: Fig. 2, the same against the epsilon that is spent, and MNIST."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.papers.lowy2021.comparisons import (
    CLASSIFICATION,
    MNIST_TASK,
    NOISES,
    REGRESSION,
    TASK,
    mnist_pairs,
    paired_differences,
    trials,
)
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, at_most, count_range, data_name, listed, span
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
_CHANCE = 0.05
_MILLION = 1e6
_LEGEND_INCHES = 2.2


def _figure_2(results: Results) -> pd.DataFrame:
    """Return one row per curve's point: task, noise, clipping, algorithm, epsilon, epsilon_spent, trials, test_loss,
    interval; v_star_squared, the task's mean of v*^2; difference and holm_p_value of `paired_differences`.

    An algorithm's epsilon of inf is its version without privacy; the baselines have it too. With clipping "mean" the
    runs are those of the authors' protocol.
    """
    runs, at = trials(results, REGRESSION), [*TASK, "noise", "clipping", "epsilon"]
    points = _points(runs, at[:-1], "test_loss", list(_BASELINES))
    heterogeneity = runs.drop_duplicates([*TASK, "seed"]).groupby(TASK)["v_star_squared"].mean().reset_index()
    points = points.merge(heterogeneity, on=TASK, validate="many_to_one")
    tests = paired_differences(results)[[*at, "difference", "holm_p_value"]]
    return points.merge(tests, on=at, how="left", validate="many_to_one")


def _protocol_figure(results: Results) -> pd.DataFrame:
    """Return the points of `_figure_2` of the authors' protocol, which clips means."""
    points = _figure_2(results)
    return points[points["clipping"] == "mean"]


def _spent_figure(results: Results) -> pd.DataFrame:
    """Return the points of `_figure_2` at which every record is clipped."""
    points = _figure_2(results)
    return points[points["clipping"] == "record"].drop(
        columns=["clipping", "v_star_squared", "difference", "holm_p_value"]
    )


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
    figure, axes = style.panels(len(columns), len(tasks), height=2.5, squeeze=False, sharex=True, sharey="row")
    for row, ((dataset, stand_in_for, clients), task) in zip(axes, tasks, strict=True):
        for axis, (noise, clipping) in zip(row, columns, strict=True):
            own = task[(task["noise"] == noise) & (task["clipping"] == clipping)]
            what = "authors' protocol" if clipping == "mean" else NOISES[noise]
            what += f", n = {count_range(own['trials'])}"
            _panel(axis, own, "test_loss", _BASELINES)
            axis.set_title(what if axis is not row[0] else f"{data_name(dataset, stand_in_for)}, N = {clients}\n{what}",
                           fontsize=9)  # fmt: skip
        marked = f"v*² = {task['v_star_squared'].iloc[0]:.2g}"
        row[0].text(0.97, 0.95, marked, transform=row[0].transAxes, ha="right", va="top", fontsize=9)
        _label_loss(row[0])
    for axis in axes[-1]:
        axis.set_xlabel("privacy budget ε asked for")
    _finish(figure, axes[0][0], points, f"Upper bound on the ε spent, over the ε asked for: {_spent_ranges(points)}.")
    return figure


def _draw_protocol(points: pd.DataFrame) -> Figure:
    """Draw one panel per task, side by side."""
    tasks = list(points.groupby(TASK, sort=False))
    figure, axes = style.panels(len(tasks), height=2.8, squeeze=False, sharey="row")
    for axis, ((dataset, stand_in_for, clients), task) in zip(axes[0], tasks, strict=True):
        _panel(axis, task, "test_loss", _BASELINES)
        axis.set_title(f"{data_name(dataset, stand_in_for)}, N = {clients}", fontsize=9)
        axis.set_xlabel("privacy budget ε asked for")
    _label_loss(axes[0][0])
    _finish(figure, axes[0][0], points, f"Upper bound on the ε spent, over the ε asked for: {_spent_ranges(points)}.")
    return figure


def figure_2_message(points: pd.DataFrame) -> str:
    """Say at how many private points minibatch SGD has the smaller loss beyond chance, and at how many the larger one:
    in the authors' protocol, and with records clipped for each noise. By `paired_differences` and Holm's p-values."""
    private = points[points["epsilon"] < math.inf]
    keys = ["dataset", "clients", "noise", "clipping", "epsilon"]
    compared = private[private["algorithm"] == "local"].dropna(subset="holm_p_value")
    if compared.empty:
        return ""
    shares, lost = {}, {}
    for each, rows in compared.groupby(["noise", "clipping"], sort=False):
        beyond = rows.loc[rows["holm_p_value"] < _CHANCE, "difference"]
        shares[each] = all_or(int((beyond > 0).sum()), len(rows))
        worse = int((beyond < 0).sum())
        lost[each] = f", worse at {worse}" if worse else ""
    spent = private[private["clipping"] == "mean"].pivot(index=keys, columns="algorithm", values="epsilon_spent")
    ratio = (spent["minibatch"] / spent["local"]).max() if {"minibatch", "local"} <= set(spent.columns) else 1.0
    price = f" (at a bound on ε up to {ratio:.0f} times as large)" if ratio > 2 else ""
    protocol = [
        f"at {share} points of the authors' protocol{lost[each]}{price}"
        for each, share in shares.items()
        if each[1] == "mean"
    ]
    clipped = [f"{shares[each]} ({NOISES[each[0]]}{lost[each]})" for each in _columns(compared) if each[1] == "record"]
    texts = [*protocol, *([f"with records clipped at {listed(clipped)}"] if clipped else [])]
    text = "Minibatch SGD beats local SGD beyond chance"
    return f"{text} {'; '.join(texts)}" if texts else ""


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
    figure, axes = style.panels(
        len(tasks), width=max(min(4.6 * len(tasks), style.WIDTH), 7.0), height=3.6, squeeze=False
    )
    for axis, ((dataset, stand_in_for, clients), task) in zip(axes[0], tasks, strict=True):
        for colour, noise in zip(style.COLOURS, _noises(points), strict=False):
            for algorithm, (dashes, marker) in _SPENT_LOOKS.items():
                rows = task[(task["noise"] == noise) & (task["algorithm"] == algorithm)]
                rows = rows[rows["epsilon_spent"] <= _MOST_SPENT].sort_values("epsilon_spent")
                look = {"color": colour, "linestyle": dashes, "marker": marker}
                axis.errorbar(rows["epsilon_spent"], rows["test_loss"], rows["interval"], **look)
        _baselines(axis, task.drop_duplicates(["algorithm", "epsilon"]), "test_loss", _BASELINES)
        axis.set(xscale="log", xlabel="ε really spent, at most")
        axis.set_title(f"{data_name(dataset, stand_in_for)}, N = {clients}")
        axis.set_ylim(bottom=0)
        _label_loss(axis)
    for algorithm, (dashes, marker) in _SPENT_LOOKS.items():
        axes[0][0].plot([], [], color=style.GREY, linestyle=dashes, marker=marker, label=_NAMES[algorithm])
    for colour, noise in zip(style.COLOURS, _noises(points), strict=False):
        axes[0][0].plot([], [], color=colour, linewidth=4, label=NOISES[noise])
    private = points[(points["epsilon"] < math.inf) & points["algorithm"].isin(_NAMES)]
    beyond = int((private["epsilon_spent"] > _MOST_SPENT).sum())
    left_out = f" Left out: {beyond} points that may spend ε > {_MOST_SPENT:g}." if beyond else ""
    _finish(figure, axes[0][0], points, f"ε is for a client's own records.{left_out}")
    return figure


def spent_message(points: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which share of the epsilon asked for each noise spends."""
    private = points[points["epsilon"] < math.inf]
    spends = 100 * private["epsilon_spent"] / private["epsilon"]
    texts = []
    for noise, name in names.items():
        own = spends[private["noise"] == noise]
        if len(own):
            least, largest = (at_most(share, places=0) for share in (own.min(), own.max()))
            most = f"{least} to over 1,000" if own.max() > 1000 else f"{least} to {largest}"
            most = least if least == largest else most
            texts.append(f"{most} % under {_the(name)}")
    return f"Of the ε asked for, a run spends at most {listed(texts)}" if texts else ""


def _the(noise: str) -> str:
    """Return the name of a noise within a sentence."""
    return f"the {noise}" if noise.startswith("noise") else noise


_SPENT_LOOKS = {"minibatch": ("-", "o"), "local": ("--", "s")}
"""Dashes and marker of each algorithm where a colour is a noise."""
_GAP_LOOKS = ((style.GREEN, "o", "-"), (style.PURPLE, "s", "--"), (style.BLACK, "^", "-."))
"""Colour, marker and dashes by number of rounds: no colour is that of an algorithm."""


def _draw_mnist(points: pd.DataFrame) -> Figure:
    """Draw a column for each (split, noise). On top the range of the errors of either algorithm over all (M, R); below,
    a row for each M, by how much local's error is larger, a line for each R: above 0 minibatch is better."""
    pairs = set(zip(points["split"], points["noise"], strict=True))
    columns = sorted(pairs, key=lambda pair: (pair[0] != "published", list(NOISES).index(pair[1])))
    sizes, rounds = sorted(set(points["participating"])), sorted(set(points["rounds"]))
    ratios = [1.5, *[1.0] * len(sizes)]
    figure, axes = style.panels(
        len(columns), 1 + len(sizes), width=min(2.8 * len(columns) + 0.6, style.WIDTH), height=1.7, squeeze=False,
        sharex=True, gridspec_kw={"height_ratios": ratios},
    )  # fmt: skip
    gaps = points.loc[points["epsilon"] < math.inf, ["difference_pct", "difference_interval_pct"]].fillna(0.0)
    ends = [(gaps["difference_pct"] + sign * gaps["difference_interval_pct"]) for sign in (-1, 1)]
    low, high = min(0.0, ends[0].min()), max(0.0, ends[1].max())
    for column, (split, noise) in zip(axes.T, columns, strict=True):
        selected = points[(points["split"] == split) & (points["noise"] == noise)]
        _errors(column[0], selected)
        column[0].set_title(f"{split} split,\n{NOISES[noise]}", fontsize=9)
        for below, participating in zip(column[1:], sizes, strict=True):
            for number, each in enumerate(rounds):
                task = selected[(selected["participating"] == participating) & (selected["rounds"] == each)]
                _gap(below, task, _GAP_LOOKS[number % len(_GAP_LOOKS)], f"R = {each} rounds")
            below.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
            below.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
            if not below.containers:
                style.mark_not_run(below)
        column[-1].set(xlabel="ε asked for", xscale="log")
        style.ticks_at(column[-1], set(points["epsilon"]) - {math.inf})
    most = max(axis.get_ylim()[1] for axis in axes[0])
    for axis in axes[0]:
        axis.set_ylim(min(other.get_ylim()[0] for other in axes[0]), most)
    for row in axes:
        for axis in row[1:]:
            axis.tick_params(labelleft=False)
    axes[0][0].set_ylabel("test error (%)")
    for axis, participating in zip(axes[1:, 0], sizes, strict=True):
        axis.set_ylabel(f"M = {participating}\ngap (points)")
    style.legend(figure, axes.flat, ncols=3)
    data = {data_name(*each) for each in zip(points["dataset"], points["stand_in_for"], strict=True)}
    text = f"Means over {count_range(points['trials'])} trials. Top: from the least to the largest mean of all M and R."
    text += " Gap: error of local less minibatch SGD within trials, ± 90 % interval; M clients take part in a round."
    text += f" δ = 1/n². Data: {', '.join(sorted(data))}."
    spent = _spent_ranges(points.assign(clipping="record"))
    style.footer(figure, f"{text}\nUpper bound on the ε spent, over the ε asked for: {spent}.")
    return figure


def mnist_message(points: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say in how many comparisons local SGD has the larger error by its interval, and by how much under each noise."""
    rows = points[(points["algorithm"] == "local") & (points["epsilon"] < math.inf)].dropna(subset="difference_pct")
    if rows.empty:
        return ""
    worse = int((rows["difference_pct"] > rows["difference_interval_pct"]).sum())
    texts = [
        f"{span(own['difference_pct'], '{:.1f}')} points under {_the(names[noise])}"
        for noise, own in rows.groupby("noise")
    ]
    share = all_or(worse, len(rows))
    return (
        f"Local SGD has a larger test error than minibatch SGD in {share} cases, by more than the bar; over all cases "
        f"the difference is {', '.join(texts)}"
    )


def _errors(axis: Axes, tasks: pd.DataFrame) -> None:
    """Draw the range of the errors of all (M, R) by epsilon, and without privacy as a line at their mean."""
    for number, (algorithm, name) in enumerate(_NAMES.items()):
        rows = tasks[tasks["algorithm"] == algorithm]
        private, without = rows[rows["epsilon"] < math.inf], rows[rows["epsilon"] == math.inf]
        ranges = private.groupby("epsilon")["test_error_pct"].agg(["min", "max"])
        colour = style.COLOURS[number]
        if len(ranges):
            look = {"color": colour, "alpha": 0.35, "linewidth": 1.5, "label": f"{name}, all M and R"}
            axis.fill_between(ranges.index, ranges["min"], ranges["max"], **look)
        if len(without):
            label = f"{name.replace('noisy ', '')}, no privacy"
            axis.axhline(without["test_error_pct"].mean(), color=colour, linestyle=(":", "--")[number], label=label)


def _gap(axis: Axes, task: pd.DataFrame, look: tuple[str, str, str], label: str) -> None:
    """Draw local's error less minibatch's within trials, where both were run."""
    rows = task[(task["epsilon"] < math.inf) & (task["algorithm"] == "local")].dropna(subset="difference_pct")
    if len(rows):
        rows, (colour, marker, dash) = rows.sort_values("epsilon"), look
        drawn = {"color": colour, "marker": marker, "linestyle": dash, "label": label}
        axis.errorbar(rows["epsilon"], rows["difference_pct"], rows["difference_interval_pct"], **drawn)


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
    axis.autoscale(axis="y")  # the panel before, of the same heights, fixed them without these points
    axis.set_ylim(bottom=0)


def _baselines(axis: Axes, task: pd.DataFrame, metric: str, baselines: dict[str, str]) -> None:
    """Draw the baselines as thin lines."""
    for number, (baseline, name) in enumerate(baselines.items()):
        for value in task[task["algorithm"] == baseline][metric]:
            axis.axhline(value, color=style.BLACK, linestyle=("--", "-")[number], linewidth=0.8, label=name)


def _finish(figure: Figure, axis: Axes, points: pd.DataFrame, remark: str) -> None:
    """Write the legend above the panels, and below them what the bars mean."""
    style.legend(figure, [axis], ncols=int(figure.get_figwidth() // _LEGEND_INCHES))
    runs = count_range(points["trials"])
    style.footer(figure, f"Means over {runs} trials (n); bars: 90 % interval of the mean. δ = 1/n². {remark}")


FIGURES = {
    "figure_2_protocol": FigureRecipe(_protocol_figure, _draw_protocol, figure_2_message),
    "figure_2": FigureRecipe(_figure_2, _draw_figure_2, figure_2_message),
    "figure_2_spent": FigureRecipe(_spent_figure, _draw_spent, partial(spent_message, names=NOISES)),
    "mnist": FigureRecipe(_mnist, _draw_mnist, partial(mnist_message, names=NOISES)),
}
