"""Fig. 2: test loss against the privacy budget."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021.summary import TASK, mean_interval, trials
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results

_NAMES = {"minibatch": "noisy minibatch SGD", "local": "noisy local SGD"}
_BASELINES = {"mean_predictor": "predicting the training mean", "least_squares": "pooled least squares"}


def _figure_2(results: Results) -> pd.DataFrame:
    """Return a row a curve's point: dataset, stand_in_for, clients, algorithm, epsilon, trials, test_loss, interval.

    An algorithm's epsilon of inf is its version without privacy; the baselines stand there too.
    """
    runs = trials(results)
    rows = []
    for (*task, algorithm, epsilon), group in runs.groupby([*TASK, "algorithm", "epsilon"], sort=False):
        rows.append((*task, algorithm, epsilon, *mean_interval(group["test_loss"])))
    for task, group in runs.groupby(TASK, sort=False):
        one_a_trial = group.drop_duplicates("seed")
        for name in _BASELINES:
            rows.append((*task, name, math.inf, *mean_interval(one_a_trial[f"{name}_test_loss"])))
    return pd.DataFrame(rows, columns=[*TASK, "algorithm", "epsilon", "trials", "test_loss", "interval"])


def _draw_figure_2(points: pd.DataFrame) -> Figure:
    """Draw one panel a task."""
    tasks = list(points.groupby(TASK, sort=False))
    figure, axes = style.panels(len(tasks), width=4.9 * len(tasks) + 0.4, height=4.1, squeeze=False)
    for axis, ((dataset, stand_in_for, clients), task) in zip(axes[0], tasks, strict=True):
        _panel(axis, task)
        name = f"{dataset}, stand-in for {stand_in_for}" if stand_in_for else dataset
        axis.set_title(f"{name}, N = {clients} clients")
        axis.set_xlabel("privacy budget ε (each client's own records)")
        axis.set_ylabel("test loss (squared error / 2)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=min(3, 2 * len(tasks)))
    count = points["trials"].astype(int)
    runs = f"{count.min()}" if count.nunique() == 1 else f"{count.min()} to {count.max()}"
    style.footer(figure, f"Means over {runs} trials; bars: 90 % interval of the mean. δ = 1/n².")
    return figure


def _panel(axis, task: pd.DataFrame) -> None:
    """Draw the two private curves with bars and the four references as lines."""
    for number, (algorithm, name) in enumerate(_NAMES.items()):
        own = task[task["algorithm"] == algorithm]
        look = {"color": style.COLOURS[number]}
        private = own[own["epsilon"] < math.inf].sort_values("epsilon")
        axis.errorbar(
            private["epsilon"],
            private["test_loss"],
            private["interval"],
            marker=style.MARKERS[number],
            label=name,
            **look,
        )
        for loss in own[own["epsilon"] == math.inf]["test_loss"]:
            axis.axhline(loss, linestyle=":", label=name.replace("noisy ", "") + ", no privacy", **look)
    for number, (baseline, name) in enumerate(_BASELINES.items()):
        for loss in task[task["algorithm"] == baseline]["test_loss"]:
            axis.axhline(loss, color=style.BLACK, linestyle=("--", "-")[number], linewidth=0.8, label=name)
    axis.set_ylim(bottom=0)


FIGURES = {"figure_2": FigureRecipe(_figure_2, _draw_figure_2)}
