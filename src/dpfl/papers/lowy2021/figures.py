"""Figures: Fig. 2, the same against the epsilon that is spent, and MNIST."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021 import theory
from dpfl.papers.lowy2021.comparisons import MNIST_TASK, TASK, regression
from dpfl.papers.lowy2021.trial_statistics import CLASSIFICATION, NOISES, trials
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import count_range, data_name
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import mean_interval

_NAMES = {"minibatch": "noisy minibatch SGD", "local": "noisy local SGD"}
_BASELINES = {"mean_predictor": "predicting the training mean", "least_squares": "pooled least squares"}
_MINIMISER = {"minimiser": "least training loss, pooled"}
_MOST_SPENT = 100.0
_LEGEND_INCHES = 2.7


def _figure_2(results: Results) -> pd.DataFrame:
    """Return a row a curve's point: task, noise, algorithm, epsilon, epsilon_spent, trials, test_loss, interval.

    An algorithm's epsilon of inf is its version without privacy; the baselines stand there too.
    """
    return _points(regression(results), [*TASK, "noise"], "test_loss", list(_BASELINES))


def _mnist(results: Results) -> pd.DataFrame:
    """Return a row a curve's point, as `_figure_2` does; test_error_pct in percent."""
    return _points(trials(results, CLASSIFICATION), [*MNIST_TASK, "noise"], "test_error_pct", list(_MINIMISER))


def _points(runs: pd.DataFrame, task: list[str], metric: str, baselines: list[str]) -> pd.DataFrame:
    """Return means and intervals of the metric by task, algorithm and epsilon, and of the baselines by task."""
    rows = []
    for keys, group in runs.groupby([*task, "algorithm", "epsilon"], sort=False):
        rows.append((*keys, group["privacy_epsilon_proven"].iloc[0], *mean_interval(group[metric])))
    for keys, group in runs.groupby(task, sort=False):
        one_a_trial = group.drop_duplicates("seed")
        for name in baselines:
            rows.append((*keys, name, math.inf, math.inf, *mean_interval(one_a_trial[f"{name}_{metric}"])))
    return pd.DataFrame(rows, columns=[*task, "algorithm", "epsilon", "epsilon_spent", "trials", metric, "interval"])


def _draw_figure_2(points: pd.DataFrame) -> Figure:
    """Draw a row of panels a task, one panel a noise."""
    tasks, noises = list(points.groupby(TASK, sort=False)), _noises(points)
    figure, axes = style.panels(
        len(noises), len(tasks), width=3.5 * len(noises) + 0.5, height=3.1, squeeze=False, sharex=True, sharey="row"
    )
    for row, ((dataset, stand_in_for, clients), task) in zip(axes, tasks, strict=True):
        for axis, noise in zip(row, noises, strict=True):
            _panel(axis, task[task["noise"] == noise], "test_loss", _BASELINES)
            axis.set_title(f"{data_name(dataset, stand_in_for)}, N = {clients}\n{NOISES[noise]}", fontsize=9)
        row[0].set_ylabel("test loss (squared error / 2)")
    for axis in axes[-1]:
        axis.set_xlabel("privacy budget ε asked for")
    _finish(figure, axes[0][0], points, "The ε really spent: see the next figure.")
    return figure


def _draw_spent(points: pd.DataFrame) -> Figure:
    """Draw one panel a task: test loss against the epsilon really spent, a colour a noise, a line an algorithm."""
    tasks = list(points.groupby(TASK, sort=False))
    figure, axes = style.panels(len(tasks), width=max(4.6 * len(tasks) + 0.5, 7.0), height=4.2, squeeze=False)
    for axis, ((dataset, stand_in_for, clients), task) in zip(axes[0], tasks, strict=True):
        for colour, noise in zip(style.COLOURS, _noises(points), strict=False):
            for algorithm, dashes, marker in (("minibatch", "-", "o"), ("local", "--", "s")):
                own = task[(task["noise"] == noise) & (task["algorithm"] == algorithm)]
                own = own[own["epsilon_spent"] <= _MOST_SPENT].sort_values("epsilon_spent")
                look = {"color": colour, "linestyle": dashes, "marker": marker}
                axis.errorbar(
                    own["epsilon_spent"],
                    own["test_loss"],
                    own["interval"],
                    label=f"{_NAMES[algorithm]}, {NOISES[noise]}",
                    **look,
                )
        _baselines(axis, task.drop_duplicates(["algorithm", "epsilon"]), "test_loss", _BASELINES)
        axis.set(xscale="log", xlabel="privacy ε really spent, at most (each client's own records)")
        axis.set(ylabel="test loss (squared error / 2)", title=f"{data_name(dataset, stand_in_for)}, N = {clients}")
        axis.set_ylim(bottom=0)
    _finish(figure, axes[0][0], points, f"Left out: runs that may spend ε > {_MOST_SPENT:g}.")
    return figure


def _draw_mnist(points: pd.DataFrame) -> Figure:
    """Draw a column of panels an (M, R), a row a (split, noise)."""
    columns = sorted(set(zip(points["rounds"], points["participating"], strict=True)))
    pairs = set(zip(points["split"], points["noise"], strict=True))
    rows = sorted(pairs, key=lambda pair: (pair[0] != "published", list(NOISES).index(pair[1])))
    figure, axes = style.panels(
        len(columns), len(rows), width=2.5 * len(columns) + 0.8, height=2.5, squeeze=False, sharex=True, sharey=True
    )
    for line, (split, noise) in zip(axes, rows, strict=True):
        own = points[(points["split"] == split) & (points["noise"] == noise)]
        for axis, (rounds, participating) in zip(line, columns, strict=True):
            here = (own["participating"] == participating) & (own["rounds"] == rounds)
            _panel(axis, own[here], "test_error_pct", _MINIMISER)
            axis.set_title(f"M = {participating}, R = {rounds}\n{split} split, {NOISES[noise]}", fontsize=7)
        line[0].set_ylabel("test error (%)")
    for axis in axes[-1]:
        axis.set_xlabel("privacy budget ε asked for")
    names = {data_name(*each) for each in zip(points["dataset"], points["stand_in_for"], strict=True)}
    _finish(figure, axes[0][0], points, f"Data: {', '.join(sorted(names))}.")
    return figure


def _noises(points: pd.DataFrame) -> list[str]:
    """Return the noises among the points, in the order of NOISES."""
    return [noise for noise in NOISES if noise in set(points["noise"])]


def _panel(axis, task: pd.DataFrame, metric: str, baselines: dict[str, str]) -> None:
    """Draw the two private curves with bars, and their references as lines."""
    for number, (algorithm, name) in enumerate(_NAMES.items()):
        own = task[task["algorithm"] == algorithm]
        look = {"color": style.COLOURS[number]}
        private = own[own["epsilon"] < math.inf].sort_values("epsilon")
        axis.errorbar(
            private["epsilon"], private[metric], private["interval"], marker=style.MARKERS[number], label=name, **look
        )
        for value in own[own["epsilon"] == math.inf][metric]:
            axis.axhline(value, linestyle=":", label=name.replace("noisy ", "") + ", no privacy", **look)
    _baselines(axis, task, metric, baselines)
    axis.set_ylim(bottom=0)


def _baselines(axis, task: pd.DataFrame, metric: str, baselines: dict[str, str]) -> None:
    """Draw the baselines as thin lines."""
    for number, (baseline, name) in enumerate(baselines.items()):
        for value in task[task["algorithm"] == baseline][metric]:
            axis.axhline(value, color=style.BLACK, linestyle=("--", "-")[number], linewidth=0.8, label=name)


def _finish(figure: Figure, axis, points: pd.DataFrame, remark: str) -> None:
    """Write the legend above the panels, and below them what the bars mean."""
    columns = int(figure.get_figwidth() // _LEGEND_INCHES)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=columns, fontsize=8)
    runs = count_range(points["trials"])
    style.footer(figure, f"Means over {runs} trials; bars: 90 % interval of the mean. δ = 1/n². {remark}")


FIGURES = {
    "figure_2": FigureRecipe(_figure_2, _draw_figure_2),
    "figure_2_spent": FigureRecipe(_figure_2, _draw_spent),
    "mnist": FigureRecipe(_mnist, _draw_mnist),
    **theory.FIGURES,
}
