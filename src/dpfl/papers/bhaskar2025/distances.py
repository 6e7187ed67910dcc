"""Parameters driven by noise: distances to the run without it, Appendix A's bound and the 1/sqrt(k) law."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.ticker import LogLocator, StrMethodFormatter
from scipy.special import gammaln

from dpfl.accounting.samplers import Sampling
from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.batches import BatchSampler
from dpfl.papers.bhaskar2025.cells import LEVEL, PUBLISHED, data_lines, each_once, runs_of, runs_text
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, model_name, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGIN, ORIGINS, NotRunError, Results
from dpfl.reporting.statistics import half_width, slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISELESS, PLAIN = "noiseless", "plain"
FIRST, LAST = "first", "last"
_CELL = ["dataset", "ran_on", "stand_in", "model", "clients", "epsilon", "local_epochs", "rounds"]
_SETTINGS = ["batch_size", "learning_rate", "momentum", "clip_norm"]
_BOUNDS = ["bound_steps", "bound_momentum", "bound_epochs"]
_LOCAL = {"color": style.RED, "marker": "s", "linestyle": "-"}
_AVERAGE = {"color": style.BLUE, "marker": "o", "linestyle": "-"}


def noise_norm(parameters: int) -> float:
    """Return the mean norm of `parameters` standard normal numbers, sqrt(2) Gamma((N + 1)/2) / Gamma(N/2)."""
    return math.sqrt(2) * math.exp(gammaln((parameters + 1) / 2) - gammaln(parameters / 2))


def drift_bound(
    *,
    epochs: int,
    records: int,
    batch_size: int,
    learning_rate: float,
    clip_norm: float,
    noise_multiplier: float,
    parameters: int,
) -> float:
    """Return the bound on a client's mean distance to its noise-free run after `epochs` passes over its `records`.

    bhaskar2025, Appendix A: E (alpha C + alpha_1 C_1 + alpha sigma C E|z| / L), with E the number of steps, as in
    Algorithm 1, and the same learning rate and clip norm for both runs; without momentum. L is what the sum of a batch
    is divided by here, so a pass counts records / L steps for the gradients. Infinite where the noise-free run does
    not clip.
    """
    sampler = BatchSampler(Sampling.POISSON, batch_size, records)
    gradients = 2 * clip_norm * records / sampler.divisor
    noise = sampler.steps_per_epoch * noise_multiplier * clip_norm * noise_norm(parameters) / sampler.divisor
    return epochs * learning_rate * (gradients + noise)


def distance_cells(results: Results) -> pd.DataFrame:
    """Return a row for each private cell, round (first and last) and reference of the distances that were measured.

    Columns: dataset, ran_on, stand_in, model, clients, epsilon, local_epochs, rounds, reference ("noiseless": same
    clipping, no noise; "plain": neither), round ("first", "last"; a single round is the first), runs, distance and
    distance_interval (between averages over clients; mean over runs and half-width of its 95 % interval),
    local_distance and local_distance_interval (mean over the clients' own models), noise_multiplier, and for the first
    round to the noiseless run the bounds (else nan): bound_steps (`drift_bound`), bound_momentum (the same times
    1/(1 - momentum), which holds for the runs as they are) and bound_epochs (the printed form, E the passes).
    """
    runs = runs_of(results, PUBLISHED, "distances").query("epsilon < inf")
    parts = [_by_round(runs, reference) for reference in (NOISELESS, PLAIN)]
    tidy = pd.concat(parts, ignore_index=True)
    by = [*_CELL, "reference", "round"]
    cells = tidy.groupby(by, as_index=False, sort=False).agg(
        runs=("distance", "size"),
        distance=("distance", "mean"),
        sd=("distance", "std"),
        local_distance=("local_distance", "mean"),
        local_sd=("local_distance", "std"),
        noise_multiplier=("noise_multiplier", "first"),
        **{name: (name, "first") for name in ["records", *_SETTINGS]},
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells["distance_interval"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    cells["local_distance_interval"] = half_width(cells.pop("local_sd"), cells["runs"], LEVEL)
    bounds = [_bounds(cell) for cell in cells.itertuples()]
    cells[_BOUNDS] = pd.DataFrame(bounds, columns=_BOUNDS, index=cells.index, dtype=float)
    return cells.drop(columns=["records", *_SETTINGS]).sort_values(by, ignore_index=True)


def _by_round(runs: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Return the distances to one reference in the first and, if there are more, the last round of each run."""
    columns = [*_CELL, "seed", "reference", "round", "distance", "local_distance"]
    columns += ["noise_multiplier", "records", *_SETTINGS, ORIGIN]
    averaged, local = f"distance_to_{reference}", f"local_distance_to_{reference}"
    if averaged not in runs:
        return pd.DataFrame(columns=columns)
    rows = []
    for run in each_once(runs[runs[averaged].notna() & (runs[averaged] != "[]")]).to_dict("records"):
        lists = json.loads(run[averaged]), json.loads(run[local])
        cell = [run[name] for name in [*_CELL, "seed"]]
        noise = [run["privacy_noise_multiplier"], run["privacy_records"], *(run[name] for name in _SETTINGS)]
        for name, index in ((FIRST, 0), (LAST, -1))[: len(lists[0])]:
            rows.append([*cell, reference, name, lists[0][index], lists[1][index], *noise, run[ORIGIN]])
    return pd.DataFrame(rows, columns=columns)


def _bounds(cell: Any) -> tuple[float, float, float]:
    """Return the bounds of one row of `distance_cells`."""
    if cell.reference != NOISELESS or cell.round != FIRST:
        return math.nan, math.nan, math.nan
    size = parameters(cell.model, cell.dataset)
    bound = drift_bound(
        epochs=cell.local_epochs,
        records=int(cell.records),
        batch_size=int(cell.batch_size),
        learning_rate=cell.learning_rate,
        clip_norm=cell.clip_norm,
        noise_multiplier=cell.noise_multiplier,
        parameters=size,
    )
    per_step = 2 + cell.noise_multiplier * noise_norm(size) / cell.batch_size
    printed = cell.local_epochs * cell.learning_rate * cell.clip_norm * per_step
    return bound, bound / (1 - cell.momentum), printed


@cache
def parameters(model: str, dataset: str) -> int:
    """Return the number of parameters that `model` trains on the images of a published dataset."""
    from dpfl.engine.networks import build, image_model  # torch: seconds, for pages that may have no such runs

    module = build(image_model(model), COLOUR if dataset == "cifar10" else GREY, seed=0)
    return sum(weights.numel() for weights in module.parameters())


def draw_distances(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset and model: first round against E at the largest budget, then (1, 20) against k."""
    measured = cells[cells["reference"] == NOISELESS]
    rows = list(measured.groupby(["ran_on", "model"]))
    if not rows:
        raise NotRunError("distances to noise-free runs were not measured at this scale")
    figure, axes = style.panels(2, len(rows), width=style.WIDTH, height=3.2, squeeze=False)
    for (left, right), ((ran_on, model), group) in zip(axes, rows, strict=True):
        private = group[group["epsilon"] == group["epsilon"].max()]
        plain = cells[(cells["reference"] == PLAIN) & (cells["ran_on"] == ran_on) & (cells["model"] == model)]
        _against_epochs(left, private, plain[plain["epsilon"] == private["epsilon"].iloc[0]])
        left.set_title("end of the first round, ten clients", fontsize=9)
        budget = f"{data_lines(ran_on)}\n{model_name(model)}, ε = {private['epsilon'].iloc[0]:g}"
        left.set_ylabel(f"{budget}\ndistance to the noise-free run", fontsize=9)
        _against_clients(right, private)
        right.set_title("one local epoch a round, k clients", fontsize=9)
    style.footer(figure, _footer(cells))
    return figure


def distances_message(cells: pd.DataFrame) -> str:
    """Say with which power of the clients the average's distance falls, and whether the printed bound is exceeded."""
    first = cells[(cells["reference"] == "noiseless") & (cells["round"] == "first")]
    texts = []
    often = first[first["local_epochs"] == first["local_epochs"].min()]
    powers = [
        slope(line["clients"], line["distance"])
        for _, line in often.groupby(["ran_on", "model", "epsilon"])
        if line["clients"].nunique() > 2
    ]
    if powers:
        texts.append(f"Averaging over k clients shrinks the effect of noise as k to the power {span(powers, '{:.2f}')}")
    bounded = first.dropna(subset="bound_epochs")
    over = int((bounded["local_distance"] > bounded["bound_epochs"]).sum())
    kept = int((bounded["local_distance"] <= bounded["bound_steps"]).sum())
    if len(bounded):
        texts.append(
            f"the bound holds for the clients' models in {all_or(kept, len(bounded))} cells with E in steps, and is "
            f"exceeded in {over} with E in passes"
        )
    text = "; ".join(texts)
    return text[:1].upper() + text[1:]


def _against_epochs(axis: Axes, cells: pd.DataFrame, plain: pd.DataFrame) -> None:
    """Draw both distances of ten clients after E epochs from one start, and the bounds, each with its name."""
    axis.set_xlabel("local epochs E of the round")
    line = cells[(cells["clients"] == 10) & (cells["round"] == FIRST)].sort_values("local_epochs")
    if line.empty:
        style.mark_not_run(axis)
        return
    epochs, thin = line["local_epochs"], {"color": style.BLACK, "linewidth": 1}
    axis.errorbar(epochs, line["local_distance"], line["local_distance_interval"], **_LOCAL)
    axis.errorbar(epochs, line["distance"], line["distance_interval"], **_AVERAGE)
    names = [("local_distance", "clients'\nmodels", style.RED), ("distance", "their average", style.BLUE)]
    for column, name, dashes in (
        ("bound_steps", "bound,\nE in steps", "-"),
        ("bound_momentum", "with momentum,\nE in steps", "--"),
        ("bound_epochs", "bound,\nE in passes", ":"),
    ):
        axis.plot(epochs, line[column], linestyle=dashes, **thin)
        names.append((column, name, style.BLACK))
    unclipped = plain[(plain["clients"] == 10) & (plain["round"] == FIRST)].sort_values("local_epochs")
    if len(unclipped):
        look = {**_LOCAL, "markerfacecolor": style.WHITE, "linestyle": ":", "linewidth": 1}
        axis.plot(unclipped["local_epochs"], unclipped["local_distance"], **look)
    axis.set_xscale("log")
    style.ticks_at(axis, epochs)
    _heights(axis)
    style.name_lines(axis, epochs.iloc[-1], [(line[column].iloc[-1], name, colour) for column, name, colour in names])


def _against_clients(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw both distances of (1, 20) after the first and the last round, and 1/sqrt(k) through the first point."""
    axis.set_xlabel("clients k")
    names, often = [], cells[cells["local_epochs"] == 1].sort_values("clients")
    if often.empty:
        style.mark_not_run(axis)
        return
    for round, fill in ((FIRST, style.WHITE), (LAST, None)):
        line = often[often["round"] == round]
        clients = line["clients"]
        for name, look, label in (("local_distance", _LOCAL, "clients' models"), ("distance", _AVERAGE, "average")):
            style_of = {**look, "linestyle": "-" if fill is None else "--", "markerfacecolor": fill or look["color"]}
            axis.errorbar(clients, line[name], line[f"{name}_interval"], **style_of)
            names += [(line[name].iloc[-1], f"{label},\n{round} round", look["color"])] if len(line) else []
        if len(line) > 1:
            law = line["distance"].iloc[0] * (clients / clients.iloc[0]) ** -0.5
            axis.plot(clients, law, color=style.BLACK, linestyle=":", linewidth=1.2, zorder=3)
    axis.set_xscale("log")
    style.ticks_at(axis, often["clients"])
    _heights(axis)
    style.name_lines(axis, often["clients"].max(), names)


def _heights(axis: Axes) -> None:
    """Scale the vertical axis logarithmically, with plain numbers at 1, 2 and 5 of each decade."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.minorticks_off()


def _footer(cells: pd.DataFrame) -> str:
    """Say from how many runs, and what they ran on."""
    stand_in = " Stand-in data, named at the left." if cells["stand_in"].any() else ""
    unclipped = " (hollow on the left: no clipping either)" if (cells["reference"] == PLAIN).any() else ""
    what = (
        "Euclidean distances of all parameters; noise-free run: same start, batches and clipping, no noise"
        f"{unclipped}. Dotted on the right: falling as 1/√k."
    )
    bars = " Bars: 95 % interval where there are two runs or more." if cells["runs"].max() > 1 else ""
    return f"{what} {runs_text(cells)} a point.{bars}{stand_in}"


FIGURES = {"distances": FigureRecipe(distance_cells, draw_distances, distances_message)}
