"""Distances of noisy parameters from those without noise, with Appendix A's bound and the 1/sqrt(k) law."""

from __future__ import annotations

import json
import math
from functools import cache

import pandas as pd
from scipy.special import gammaln

from dpfl.accounting.samplers import Sampling
from dpfl.catalog import load
from dpfl.data.image_shapes import COLOUR, GREY
from dpfl.engine.batches import BatchSampler
from dpfl.papers.bhaskar2025.paper_runs import LEVEL, all_runs, each_once, with_settings
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width

NOISELESS, PLAIN = "noiseless", "plain"
FIRST, LAST = "first", "last"
_CELL = ["dataset", "ran_on", "stand_in", "model", "clients", "epsilon", "local_epochs", "rounds"]
_BOUNDS = ["bound_steps", "bound_momentum", "bound_epochs"]


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
    sampler = BatchSampler(Sampling.SHUFFLED, batch_size, records)
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
    runs = with_settings(all_runs(results), load("bhaskar2025").settings).query("epsilon < inf")
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
        records=("records", "first"),
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    cells["distance_interval"] = half_width(cells.pop("sd"), cells["runs"], LEVEL)
    cells["local_distance_interval"] = half_width(cells.pop("local_sd"), cells["runs"], LEVEL)
    bounds = [_bounds(cell) for cell in cells.itertuples()]
    cells[_BOUNDS] = pd.DataFrame(bounds, columns=_BOUNDS, index=cells.index, dtype=float)
    return cells.drop(columns="records").sort_values(by, ignore_index=True)


def _by_round(runs: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Return the distances to one reference in the first and, where there are more, the last round of each run."""
    columns = [*_CELL, "seed", "reference", "round", "distance", "local_distance"]
    columns += ["noise_multiplier", "records", ORIGIN]
    averaged, local = f"distance_to_{reference}", f"local_distance_to_{reference}"
    if averaged not in runs:
        return pd.DataFrame(columns=columns)
    rows = []
    for run in each_once(runs[runs[averaged].notna() & (runs[averaged] != "[]")]).to_dict("records"):
        lists = json.loads(run[averaged]), json.loads(run[local])
        cell = [run[name] for name in [*_CELL, "seed"]]
        noise = [run["privacy_noise_multiplier"], run["privacy_records"], run[ORIGIN]]
        for name, index in ((FIRST, 0), (LAST, -1))[: len(lists[0])]:
            rows.append([*cell, reference, name, lists[0][index], lists[1][index], *noise])
    return pd.DataFrame(rows, columns=columns)


def _bounds(cell) -> tuple[float, float, float]:
    """Return the bounds of one row of `distance_cells`."""
    if cell.reference != NOISELESS or cell.round != FIRST:
        return math.nan, math.nan, math.nan
    settings = load("bhaskar2025").settings
    size = parameters(cell.model, cell.dataset)
    bound = drift_bound(
        epochs=cell.local_epochs,
        records=int(cell.records),
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        clip_norm=settings["clip_norm"],
        noise_multiplier=cell.noise_multiplier,
        parameters=size,
    )
    per_step = 2 + cell.noise_multiplier * noise_norm(size) / settings["batch_size"]
    printed = cell.local_epochs * settings["learning_rate"] * settings["clip_norm"] * per_step
    return bound, bound / (1 - settings["momentum"]), printed


@cache
def parameters(model: str, dataset: str) -> int:
    """Return the number of parameters that `model` trains on the images of a published dataset."""
    from dpfl.models.image_models import build, image_model  # torch: seconds, for pages that may have no such runs

    module = build(image_model(model), COLOUR if dataset == "cifar10" else GREY, seed=0)
    return sum(weights.numel() for weights in module.parameters())
