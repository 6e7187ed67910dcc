"""Figure: the cost of noise by the number of features, runs on drawn records and the bounds of both corollaries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.convex.trusted_aggregator import AggregatorCell, excess_bound
from dpfl.papers.asoodeh2021.figures import FEWEST, with_share
from dpfl.reporting import style
from dpfl.reporting.display_names import data_note, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS
from dpfl.reporting.statistics import mean_interval, slope, summarised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

TASK = ["dataset", "stand_in_for", "users", "batch_size"]
COLUMNS = [*TASK, "draw", "release", "noise_std", "features", "excess_bound", "bound_as_printed"]
PANELS = {
    ("new_users", "last"): "last model (Corollary 1)",
    ("one_pass", "random"): "random stop, one pass (Corollary 2)",
}
_WHOLE = ("users", "batch_size", "stops")
_REAL = ("radius", "regularisation", "delta", "noise_std")
_TEXT = ("model", "step", "draw", "release")


def dimensions(results: Results) -> pd.DataFrame:
    """Return one row per (draw, release, noise_std, features): COLUMNS, runs, risk, interval, origins, exponent.

    `excess_bound` is the corollary with the dimension put in, `bound_as_printed` without; `exponent` is the power of
    features in the excess risk due to noise (a run's less that of the noiseless run with its seed), of the
    `exponent_runs` seeds where noise costs something for every number of features, and `exponent_interval` its
    half-width: alike in all rows of a line, nan without noise.
    """
    fitted = ["exponent_runs", "exponent", "exponent_interval"]
    names = [*COLUMNS, "runs", "excess_risk", "interval", ORIGINS, *fitted]
    runs = results.runs("asoodeh2021", study="dimension")
    if runs.empty:
        return pd.DataFrame(columns=names)
    runs = runs.assign(bound_as_printed=[_printed(run) for _, run in runs.iterrows()])
    table = summarised(runs, COLUMNS, "excess_risk")
    line = [*TASK, "draw", "release", "noise_std"]
    return table.merge(pd.DataFrame(_exponents(runs, line), columns=[*line, *fitted]), on=line, how="left")


def _printed(run: pd.Series) -> float:
    """Return the corollary's bound as printed: that of one dimension."""
    given = {name: int(run[name]) for name in _WHOLE} | {name: float(run[name]) for name in _REAL}
    return excess_bound(AggregatorCell.of({}, given | {name: run[name] for name in _TEXT}), float(run["noise_std"]), 1)


def _exponents(runs: pd.DataFrame, line: list[str]) -> list[tuple]:
    """Return each noisy line's key, how many seeds have an exponent, their mean and the half-width of its interval."""
    rows = []
    for key, group in with_share(runs, [*TASK, "draw", "release", "features", "seed"]).groupby(line):
        if group["features"].nunique() >= FEWEST:
            fits = [slope(own["features"], own["share"]) for _, own in group.groupby("seed")]
            rows.append((*key, *mean_interval(fits)))
    return rows


def draw_dimensions(data: pd.DataFrame) -> Figure:
    """Draw excess risk against the number of features, one panel per corollary, one line per noise."""
    figure, axes = style.panels(len(PANELS), height=3.4, width=style.WIDTH, sharey=True)
    for axis, ((drawn, release), title) in zip(axes, PANELS.items(), strict=True):
        axis.set(title=title, xlabel="features d", xscale="log", yscale="log")
        _dimension_lines(axis, data[(data["draw"] == drawn) & (data["release"] == release)])
        style.ticks_at(axis, data["features"])
    axes[0].set_ylabel("excess risk")
    for name, dash in _BOUNDS.values():
        axes[0].plot([], [], color=style.GREY, linestyle=dash, label=name)
    handles: dict[str, object] = {}
    for axis in axes:
        handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True)) | handles
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=len(handles))
    users = f"n = {data['users'].max():g}, m = {data['batch_size'].max():g}"
    fitted = "Right of a line: the power of d with which the cost of noise grows, a fit to each run, ± 90 % interval."
    if (data["exponent_runs"] < data["runs"]).any():
        fitted += " A run in which noise costs nothing at some d has no fit."
    fitted += " A bound has the colour of its noise."
    if data["bound_as_printed"].isna().any():
        fitted += " Corollary 2 has none without noise."
    style.footer(figure, f"{fitted} {users}. {data_note(data)}")
    return figure


def dimension_message(data: pd.DataFrame) -> str:
    """Say with which power of the dimension the cost of noise grows, and where the risks are beside the bounds."""
    powers = data["exponent"].dropna()
    if powers.empty:
        return ""
    bounded = data.dropna(subset="bound_as_printed")
    above = int((bounded["excess_risk"] > bounded["bound_as_printed"]).sum())
    enough = f"none of {len(bounded)} risks with a bound exceeds it, up to d = {bounded['features'].max():g}"
    place = f"{above} of {len(bounded)} risks exceed it" if above else enough
    return f"The cost of noise grows as d to the power {span(powers, '{:.2f}')}; the published bound has no d: {place}"


_BOUNDS = {"excess_bound": ("bound with d", "--"), "bound_as_printed": ("bound as published", ":")}
"""Name and dashes of each bound."""


def _dimension_lines(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw each noise's line with its two bounds, and right of it its power."""
    names: list[tuple[float, str, str]] = []
    for number, (sigma, line) in enumerate(rows.groupby("noise_std")):
        line = line.sort_values("features")
        fitted = line.iloc[0]
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "-"}
        axis.errorbar(line["features"], line["excess_risk"], line["interval"], label=f"σ = {sigma:g}", **look)
        if sigma > 0 and not math.isnan(fitted["exponent"]):
            power = f"{fitted['exponent']:.2f} ± {fitted['exponent_interval']:.2f}"
            if fitted["exponent_runs"] < fitted["runs"]:
                power += f"\n({fitted['exponent_runs']:g} of {fitted['runs']:g} runs)"
            names.append((line["excess_risk"].iloc[-1], power, look["color"]))
        for bound, (_, dash) in _BOUNDS.items():
            axis.plot(line["features"], line[bound], color=style.COLOURS[number], linestyle=dash, linewidth=0.9)
    style.name_lines(axis, rows["features"].max(), names)


FIGURES = {"dimension": FigureRecipe(dimensions, draw_dimensions, dimension_message)}
