"""Figures of trained models: asynchrony, larger batches, and how batches are drawn."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.papers.vandijk2023.sampling_figures import SAMPLERS
from dpfl.papers.vandijk2023.seed_statistics import DATA, counted_runs, summarise
from dpfl.reporting import style
from dpfl.reporting.bounds import at_most
from dpfl.reporting.notes import budget_name, count_range, data_name
from dpfl.reporting.results import Results

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
    "reordered": ", messages overtake each other",
    "waits": ", waits after 2 silent rounds",
    "near": ", waits if too far",
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
    ("poisson", "zero_out"): "poisson",
    ("poisson", "replace_one"): "poisson_replace",
}


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


def draw_asynchrony(data: pd.DataFrame) -> Figure:
    """Draw what each kind of asynchrony costs against the synchronous run: a row a dataset, a column a kind.

    Delays cost up to all of the accuracy: they have an axis of their own, the other kinds share a finer one.
    """
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(len(PANELS), len(tasks), width=15, height=2.8, squeeze=False)
    others = data[data["panel"] != "delay"]
    reach = 1.1 * (others["difference_pct"].abs() + others["difference_interval_pct"].fillna(0)).max()
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, (panel, label) in zip(line, PANELS.items(), strict=True):
            _asynchrony_panel(axis, rows[rows["panel"] == panel])
            axis.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
            axis.set_xlabel(label)
            if panel != "delay":
                axis.set_ylim(-reach, max(reach / 4, 0.5))
        line[0].set_ylabel(f"{data_name(*task)}\ndifference (points)")
        line[0].set_xscale("symlog", linthresh=1)
        delays = rows.loc[rows["panel"] == "delay", "x"]
        line[0].set_xlim(-0.2, 1.5 * delays.max())
        style.ticks_at(line[0], delays)
        for axis in line[3:5]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        line[5].invert_xaxis()
    handles = {
        label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    text = (
        "Differences within a seed to the synchronous run, at the left end of each panel; the privacy statement is the "
        "same. The panels of delays have a wider vertical axis than the others."
    )
    style.footer(figure, f"{count_range(data['clients'])} clients. {counted_runs(data)} {text}")
    return figure


def _asynchrony_panel(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw the lines of one panel; lines of a special kind start at the synchronous point, too."""
    start = rows[rows["scenario"] == "synchronous"]
    for number, epsilon in enumerate(sorted(rows["epsilon"].unique(), reverse=True)):
        budget = budget_name(epsilon)
        for kind, dash in _LINES.items():
            selected = rows[(rows["line"] == kind) & (rows["epsilon"] == epsilon)]
            if kind and len(selected):
                selected = pd.concat([start[start["epsilon"] == epsilon], selected])
            if len(selected):
                selected = selected.sort_values("x")
                look = {"color": (style.BLACK, style.BLUE, style.RED)[number % 3], "linestyle": dash}
                marker = style.MARKERS[list(_LINES).index(kind)]
                values = (selected["x"], selected["difference_pct"], selected["difference_interval_pct"].fillna(0))
                axis.errorbar(*values, marker=marker, label=budget + LINE_NAMES[kind], **look)


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
    """Draw accuracy over the closings of the loop: a panel a dataset, a line a delayed run, what it lost at its end."""
    tasks = list(data[data["scenario"] != "synchronous"].groupby(DATA, sort=False))
    figure, axes = style.panels(len(tasks), width=1 + 5 * len(tasks), height=3.6, squeeze=False)
    for axis, (task, rows) in zip(axes[0], tasks, strict=True):
        runs = rows.groupby(["scenario", "epochs", "learning_rate", "closings"], sort=False)
        for number, ((scenario, epochs, step, closings), run) in enumerate(runs):
            label = f"delay {scenario.removeprefix('late_')}, {epochs:g} epochs, step {step:g}"
            look = {"color": style.COLOURS[number], "linestyle": style.DASHES[number % len(style.DASHES)]}
            values = (run["difference_pct"], run["difference_interval_pct"].fillna(0))
            axis.errorbar(closings * run["epoch"] / epochs, *values, label=label, markersize=3, elinewidth=0.7, **look)
        axis.axhline(0, color=style.BLACK, linewidth=0.8, linestyle="-")
        axis.set(title=data_name(*task), xlabel="closings of the loop: rounds / (2 delay)")
    axes[0][0].set_ylabel("difference to synchronous (points)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    text = "Differences within a seed to the synchronous run with the same steps, after the same epoch."
    style.footer(figure, f"{counted_runs(data)} {text}")
    return figure


def scaling_data(results: Results) -> pd.DataFrame:
    """Return one row per point: scaling, batch_factor a, private, the measures; differences to a = 1."""
    runs = results.runs(KEY, study="batch_scaling")
    runs = runs.assign(private=np.isfinite(runs["privacy_epsilon_proven"])) if len(runs) else runs
    return summarise(runs, ["scaling", "private", "batch_factor"], {"batch_factor": 1}, ["scaling", "private"])


def draw_scaling(data: pd.DataFrame) -> Figure:
    """Draw accuracy against a: one row per dataset, without and with noise."""
    tasks = list(data.groupby(DATA, sort=False))
    figure, axes = style.panels(2, len(tasks), width=8.5, height=3.0, squeeze=False, sharey="row", sharex=True)
    for line, (task, rows) in zip(axes, tasks, strict=True):
        for axis, private in zip(line, (False, True), strict=True):
            for number, (scaling, name) in enumerate(SCALINGS.items()):
                selected = rows[(rows["private"] == private) & (rows["scaling"] == scaling)]
                look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "label": name}
                places = selected["batch_factor"] * _BESIDE ** (number - 1)
                values = (places, selected["accuracy_pct"], selected["interval_pct"].fillna(0))
                axis.errorbar(*values, linestyle=style.DASHES[number], **look)
            axis.set_title(f"{data_name(*task)}, {'a times the noise' if private else 'no noise'}")
            axis.set_xscale("log", base=2)
            style.ticks_at(axis, data["batch_factor"])
        line[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("a: the batch is a times as large")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    noisy = data[data["private"] & (data["scaling"] == "epochs")]
    ends = [
        noisy.loc[index, "privacy_epsilon_proven"]
        for index in (noisy["batch_factor"].idxmin(), noisy["batch_factor"].idxmax())
    ]
    spent = f"With noise, same epochs: ε from {at_most(ends[0], 3)} down to {at_most(ends[1], 3)}."
    style.footer(figure, f"{counted_runs(data)} {spent} Points of the same a stand side by side.")
    return figure


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
    figure, axes = style.panels(len(tasks) + 1, width=4 * (len(tasks) + 1), height=3.6)
    for sampler, (label, colour, dash, marker) in SAMPLERS.items():
        if sampler not in set(data["sampler"]):
            continue
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        for axis, (task, rows) in zip(axes, tasks, strict=False):
            selected = rows[rows["sampler"] == sampler].sort_values("epsilon")
            axis.errorbar(selected["epsilon"], selected["accuracy_pct"], selected["interval_pct"].fillna(0), **look)
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
