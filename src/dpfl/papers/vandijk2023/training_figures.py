"""Figures of trained models: asynchrony, larger batches, and how batches are drawn."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.papers.vandijk2023.sampling_figures import SAMPLERS
from dpfl.papers.vandijk2023.seed_statistics import DATA, counted_runs, summarise
from dpfl.reporting import style
from dpfl.reporting.notes import data_name
from dpfl.reporting.results import Results

PANELS = {
    "delay": "mean delay of a message (rounds)",
    "broadcast_loss": "broadcasts lost (%)",
    "update_loss": "updates lost (%)",
    "speed_spread": "fastest / slowest client",
    "window": "server's window (rounds)",
}
_COUNTS = ["rounds", "updates_lost_pct", "staleness_rounds", "interrupted_pct", "simulated_rounds"]
_LINES = {"": "-", "reordered": "--", "waits": "-."}
SCALINGS = {
    "epochs": "same epochs and step size",
    "step_size": "same epochs, a times the step size",
    "rounds": "same rounds",
}
_RELATIONS = {
    ("fixed_without_replacement", "replace_one"): "fixed",
    ("poisson", "zero_out"): "poisson",
    ("poisson", "replace_one"): "poisson_replace",
}


def asynchrony_data(results: Results) -> pd.DataFrame:
    """Return a row a point: panel, x, line, scenario, epsilon, the measures, what the simulation counted."""
    runs = results.runs(KEY, study="asynchrony").rename(columns={"privacy_steps": "rounds"})
    keys = ["scenario", "epsilon"]
    rows = summarise(runs, keys, {"scenario": "synchronous"}, ["epsilon"])
    columns = ["panel", "x", "line", *rows.columns, *_COUNTS]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    rows = rows.merge(runs.groupby([*DATA, *keys], as_index=False)[_COUNTS].mean(), on=[*DATA, *keys])
    network = runs.drop_duplicates("scenario").set_index("scenario")[[*PANELS, "jitter", "max_staleness"]]
    plain, parts = network.loc["synchronous"], []
    for panel in PANELS:
        for name, own in network.iterrows():
            if name != "synchronous" and own[panel] == plain[panel]:
                continue
            line = "reordered" if own["jitter"] > 0 else "waits" if own["max_staleness"] > 0 else ""
            x = own[panel] * (100 if panel.endswith("loss") else 1)
            parts.append(rows[rows["scenario"] == name].assign(panel=panel, x=x, line=line))
    return pd.concat(parts, ignore_index=True)[columns]


def draw_asynchrony(data: pd.DataFrame) -> Figure:
    """Draw one row a dataset, one column a kind of asynchrony."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(len(PANELS), len(tasks), width=12.5, height=3.0, squeeze=False, sharey="row")
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, (panel, label) in zip(line, PANELS.items(), strict=True):
            _asynchrony_panel(axis, rows[rows["panel"] == panel])
            axis.set_xlabel(label)
        line[0].set_ylabel(f"{data_name(*task)}\ntest accuracy (%)")
        line[0].set_xscale("symlog", linthresh=1)
        line[0].set_ylim(max(0.0, rows["accuracy_pct"].min() - 8), 100)
        for axis in line[3:]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        line[0].xaxis.set_major_formatter("{x:g}")
    handles = {
        label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    style.footer(
        figure, f"{counted_runs(data)} Left end of each panel: synchronous. The privacy statement is the same."
    )
    return figure


def _asynchrony_panel(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw the lines of one panel; lines of a special kind start at the synchronous point, too."""
    start = rows[rows["scenario"] == "synchronous"]
    names = {"": "", "reordered": ", messages overtake each other", "waits": ", waits after 2 silent rounds"}
    for number, epsilon in enumerate(sorted(rows["epsilon"].unique(), reverse=True)):
        budget = "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"
        for kind, dash in _LINES.items():
            own = rows[(rows["line"] == kind) & (rows["epsilon"] == epsilon)]
            if kind and len(own):
                own = pd.concat([start[start["epsilon"] == epsilon], own])
            if len(own):
                own = own.sort_values("x")
                look = {"color": (style.BLACK, style.BLUE, style.RED)[number % 3], "linestyle": dash}
                marker = style.MARKERS[list(_LINES).index(kind)]
                values = (own["x"], own["accuracy_pct"], own["interval_pct"].fillna(0))
                axis.errorbar(*values, marker=marker, label=budget + names[kind], **look)


def scaling_data(results: Results) -> pd.DataFrame:
    """Return a row a point: scaling, batch_factor a, private, the measures; differences to a = 1."""
    runs = results.runs(KEY, study="batch_scaling")
    runs = runs.assign(private=np.isfinite(runs["privacy_epsilon_proven"])) if len(runs) else runs
    return summarise(runs, ["scaling", "private", "batch_factor"], {"batch_factor": 1}, ["scaling", "private"])


def draw_scaling(data: pd.DataFrame) -> Figure:
    """Draw accuracy against a: one row a dataset, without and with noise."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(2, len(tasks), width=8.5, height=3.0, squeeze=False, sharey="row", sharex=True)
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, private in zip(line, (False, True), strict=True):
            for number, (scaling, name) in enumerate(SCALINGS.items()):
                own = rows[(rows["private"] == private) & (rows["scaling"] == scaling)]
                look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "label": name}
                values = (own["batch_factor"], own["accuracy_pct"], own["interval_pct"].fillna(0))
                axis.errorbar(*values, linestyle=style.DASHES[number], **look)
            axis.set_title(f"{data_name(*task)}, {'a times the noise' if private else 'no noise'}")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        line[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("a: the batch is a times as large")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    noisy = data[data["private"] & (data["scaling"] == "epochs")]
    ends = [
        noisy.loc[index, "privacy_epsilon_proven"]
        for index in (noisy["batch_factor"].idxmin(), noisy["batch_factor"].idxmax())
    ]
    style.footer(figure, f"{counted_runs(data)} With noise, same epochs: ε from {ends[0]:.3g} down to {ends[1]:.3g}.")
    return figure


def samplers_data(results: Results) -> pd.DataFrame:
    """Return a row a point: sampler, epsilon, noise_multiplier (over C), the measures; differences to fixed batches."""
    runs = results.runs(KEY, study="samplers")
    if len(runs):
        kinds = [_RELATIONS[pair] for pair in zip(runs["sampling"], runs["neighbouring"], strict=True)]
        runs = runs.assign(sampler=kinds)
    return summarise(runs, ["sampler", "epsilon", "noise_multiplier"], {"sampler": "fixed"}, ["epsilon"])


def draw_samplers_trained(data: pd.DataFrame) -> Figure:
    """Draw accuracy against epsilon, and the noise that each sampler needs."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(len(tasks) + 1, width=4 * (len(tasks) + 1), height=3.6)
    for sampler, (label, colour, dash, marker) in SAMPLERS.items():
        if sampler not in set(data["sampler"]):
            continue
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        for axis, (task, rows) in zip(axes, tasks, strict=False):
            own = rows[rows["sampler"] == sampler].sort_values("epsilon")
            axis.errorbar(own["epsilon"], own["accuracy_pct"], own["interval_pct"].fillna(0), **look)
            axis.set(title=data_name(*task), ylabel="test accuracy (%)")
        needed = tasks[0][1]
        needed = needed[needed["sampler"] == sampler].sort_values("epsilon")
        axes[-1].plot(needed["epsilon"], needed["noise_multiplier"], **look)
    axes[-1].set(title="noise for it", ylabel="noise standard deviation / C", ylim=(0, None))
    for axis in axes:
        axis.set(xlabel="epsilon of a client", xscale="log")
        style.ticks_at(axis, data["epsilon"])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    style.footer(figure, f"{counted_runs(data)} Each curve's epsilon is for its own neighbouring relation.")
    return figure
