"""Cost of noise by the number of features: runs on drawn records and the bounds of both corollaries."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.experiments.trusted_aggregator.aggregator_settings import AggregatorCell, excess_bound
from dpfl.papers.asoodeh2021.aggregator_runs import FEWEST, study
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import data_note
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import mean_interval, slope, summarised

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
    """Return one row per (draw, release, noise_std, features): COLUMNS, runs, mean excess_risk, interval, exponent.

    `excess_bound` is the corollary with the dimension put in, `bound_as_printed` without; `exponent` is the power of
    features in the excess risk due to noise (a run's less that of the noiseless run with its seed), of the
    `exponent_runs` seeds where noise costs something for every number of features, and `exponent_interval` its
    half-width: alike in all rows of a line, nan without noise.
    """
    fitted = ["exponent_runs", "exponent", "exponent_interval"]
    names = [*COLUMNS, "runs", "excess_risk", "interval", *fitted]
    runs = study(results, "dimension")
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
    cell = [*TASK, "draw", "release", "features", "seed"]
    silent = runs[runs["noise_std"] == 0].set_index(cell)["excess_risk"]
    noisy = runs[runs["noise_std"] > 0]
    share = noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[cell])).to_numpy()
    rows = []
    for key, group in noisy.assign(share=share).groupby(line):
        if group["features"].nunique() >= FEWEST:
            fits = [slope(own["features"], own["share"]) for _, own in group.groupby("seed")]
            rows.append((*key, *mean_interval(fits)))
    return rows


def draw(data: pd.DataFrame) -> Figure:
    """Draw excess risk against the number of features, one panel per corollary, one line per noise."""
    figure, axes = style.panels(len(PANELS), height=3.9, width=10)
    for axis, ((drawn, release), title) in zip(axes, PANELS.items(), strict=True):
        _lines(axis, data[(data["draw"] == drawn) & (data["release"] == release)])
        axis.set(title=title, xlabel="features d", xscale="log", yscale="log")
        style.ticks_at(axis, data["features"])
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.0, 0.86))
    axes[0].set_ylabel("excess risk")
    users = f"n = {data['users'].max():g}, m = {data['batch_size'].max():g}"
    fitted = "x: what is due to noise grows as the power x of d, a fit to each run; ±: 90 % interval of their mean."
    if (data["exponent_runs"] < data["runs"]).any():
        fitted += " A run in which noise costs nothing at some d has no x."
    style.footer(
        figure, f"Dashed: the bound with the dimension; dotted: as printed. {fitted} {users}. {data_note(data)}"
    )
    return figure


def _lines(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw each noise's line with its two bounds."""
    for number, (sigma, line) in enumerate(rows.groupby("noise_std")):
        line = line.sort_values("features")
        fitted = line.iloc[0]
        name = f"sigma = {sigma:g}"
        if sigma > 0:
            power = f"{fitted['exponent']:.2f} ± {fitted['exponent_interval']:.2f}"
            name += f": x = {power} ({fitted['exponent_runs']:g} of {fitted['runs']:g} runs)"
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": "-"}
        axis.errorbar(line["features"], line["excess_risk"], line["interval"], label=name, **look)
        for bound, dash in (("excess_bound", "--"), ("bound_as_printed", ":")):
            axis.plot(line["features"], line[bound], color=style.COLOURS[number], linestyle=dash, linewidth=0.9)


DIMENSION = {"dimension": FigureRecipe(dimensions, draw)}
