"""Linear regression under local privacy (lowy2021, Fig. 2): noisy minibatch SGD beside noisy local SGD.

Clients hold contiguous blocks of the records sorted by target, so they differ in what they have to predict. Every
trial splits each client's records anew. Step size and clip norm are chosen from a grid by training loss. Blocks,
standardisation and that choice read the records too, and no privacy statement here accounts for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.accounting import local_noise
from dpfl.accounting.relations import Neighbouring, Sampling
from dpfl.accounting.statement import PrivacyStatement
from dpfl.data.heterogeneous import Trial, client_blocks, held_back, split
from dpfl.data.read import load_table
from dpfl.errors import InputError
from dpfl.federated import local, minibatch
from dpfl.federated.minibatch import Points, Protocol, Trials
from dpfl.grid import Folders, Sweep, is_private
from dpfl.models.linear_regression import Array, gradients, least_squares, losses

STACK_BYTES = 2**26
"""Rough limit of one stack's working memory; a sweep with more trials runs them one stack after the other."""

_RUN = {"minibatch": minibatch.run, "local": local.run}
_UNACCOUNTED = "client blocks, standardisation and the choice of step size and clip norm are not accounted for"


@dataclass(frozen=True)
class Plan:
    """A sweep's settings, checked. step_sizes by algorithm and clip_norms span the grid that a run is chosen from."""

    protocol: Protocol
    clients: int
    records: int
    delta: float
    step_sizes: dict[str, Array]
    clip_norms: Array
    standardise: list[str]
    divergence_loss: float

    @classmethod
    def of(cls, sweep: Sweep, records: int) -> Plan:
        """Return the plan of `sweep` on a table of `records` rows; `records` becomes the least any client trains on.

        Every client adds the same noise, calibrated to the client with the fewest training records. batch_size is the
        published K at the setting `largest_epsilon`, the same for every cell; as in the authors' experiments it
        counts a client's records before the split, which makes it larger than lowy2021's Theorem 2.1 asks for.
        Raises InputError naming the setting or the cell's key that cannot be used.
        """
        settings = sweep.settings
        clients, rounds = _whole(settings, "clients"), _whole(settings, "rounds")
        blocks = client_blocks(records, clients)
        training = min(len(block) - held_back(len(block)) for block in blocks)
        for name, only in (("delta", "1/n^2"), ("noise", "advanced_composition")):
            if settings[name] != only:
                raise InputError(f"{name} is {settings[name]!r} in the settings; it must be {only!r}")
        whole_block = {"records": len(blocks[0]), "delta": 1.0 / len(blocks[0]) ** 2, "rounds": rounds}
        largest = _positive(settings, "largest_epsilon")
        batch_size = math.floor(local_noise.least_batch_advanced(epsilon=largest, **whole_block))
        if batch_size < 1:
            raise InputError(f"largest_epsilon: {settings['largest_epsilon']} gives a batch of K = 0 records; raise it")
        protocol = Protocol(
            rounds=rounds,
            participating=_whole(settings, "participating", at_most=clients),
            batch_size=batch_size,
            repetitions=_whole(settings, "repetitions"),
            last_iterates=_whole(settings, "last_iterates", at_most=rounds),
        )
        for cell in sweep.cells:
            _check_cell(cell, settings["largest_epsilon"], training)
        return cls(
            protocol=protocol,
            clients=clients,
            records=training,
            delta=1.0 / training**2,
            step_sizes={name: np.exp(np.linspace(*range_)) for name, range_ in settings["step_exponents"].items()},
            clip_norms=_clip_norms(settings),
            standardise=list(settings["standardise"]),
            divergence_loss=_positive(settings, "divergence_loss"),
        )

    def message_records(self, algorithm: str) -> int:
        """Return how many clipped gradients one noisy message averages: K, or 1 in a step of local SGD."""
        return self.protocol.batch_size if algorithm == "minibatch" else 1

    def releases(self, algorithm: str) -> int:
        """Return how many noisy messages a client that joins every round makes: R, or K R of local SGD."""
        return self.protocol.rounds * (1 if algorithm == "minibatch" else self.protocol.batch_size)


def calibrate(sweep: Sweep, about: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of what is released:
    clip_norm / K in the mean that minibatch SGD sends, clip_norm in a step of local SGD (replacing a record moves
    either by twice that). It is the published formula's at the cell's epsilon, the same for every clip norm;
    privacy_epsilon_pld is what it spends, privacy_clip_norm is nan until training has chosen.
    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    plan = Plan.of(sweep, about["records"]["all"])
    rows = []
    for cell in sweep.cells:
        statement = _statement(plan, cell)
        noise = {"batch_size": plan.protocol.batch_size, "noise_multiplier": statement.noise_multiplier}
        rows.append({**cell, **noise, **statement.columns(), "privacy_clip_norm": math.nan})
    return pd.DataFrame(rows)


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row an (algorithm, epsilon, seed), losses in the target's unit squared.

    The metrics are those of `choose` and `trial_columns`; clip_norm inf is none. status is "diverged", and the losses
    nan, where no point of the grid can be chosen; diverged_share counts the grid's runs, repetitions apart.
    `progress` counts rounds of whole stacks. `checkpoint` is not used: a sweep takes seconds.
    Raises InputError where settings, cells, table or calibration cannot be used.
    """
    table = load_table(folders.arrays)
    plan = Plan.of(sweep, len(table.y))
    if np.ptp(table.y) == 0:
        raise InputError(f"the target in {folders.arrays} is constant: there is nothing to predict")
    trials = [split(table, plan.clients, plan.standardise, seed) for seed in sweep.seeds]
    rows: dict[tuple[str, float, int], dict[str, Any]] = {}
    algorithms = dict.fromkeys(cell["algorithm"] for cell in sweep.cells)
    features = trials[0].train_x.shape[1]
    stacks = {name: list(_stacks(plan, sweep, name, features)) for name in algorithms}
    total, done = plan.protocol.rounds * sum(map(len, stacks.values())), 0

    def tick() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    for name in stacks:
        cells = [cell for cell in sweep.cells if cell["algorithm"] == name]
        grid = [_points(plan, cell, _calibrated(calibration, cell)["noise_multiplier"]) for cell in cells]
        points = Points(*(np.concatenate(part) for part in zip(*(vars(each).values() for each in grid), strict=True)))
        for places in stacks[name]:
            weights = _RUN[name](_stack(sweep, trials, places), points, plan.protocol, tick)
            for place, outputs in zip(places, weights, strict=True):
                starts = np.cumsum([len(each.step_size) for each in grid])[:-1]
                for cell, each, own in zip(cells, grid, np.split(outputs, starts, axis=-1), strict=True):
                    rows[name, cell["epsilon"], place] = choose(trials[place], each, own, plan.divergence_loss)
    return _table(sweep, table.about, calibration, trials, rows)


def choose(trial: Trial, points: Points, weights: Array, divergence_loss: float) -> dict[str, Any]:
    """Return the columns of the point of least mean training loss (so of least mean excess) over the repetitions.

    weights: (repetitions, features, models). A run diverges when its training loss exceeds `divergence_loss` or is no
    number; a point with a run that diverged is never chosen.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        train_loss = losses(weights, trial.train_x, trial.train_y)
        test_loss = losses(weights, trial.test_x, trial.test_y)
        diverged = ~(train_loss <= divergence_loss)
        means = np.where(diverged.any(axis=0), np.inf, train_loss.mean(axis=0))
    best = int(np.argmin(means))
    found = math.isfinite(means[best])
    return {
        "status": "finished" if found else "diverged",
        "test_loss": float(test_loss[:, best].mean()) if found else math.nan,
        "train_loss": float(means[best]) if found else math.nan,
        "step_size": float(points.step_size[best]) if found else math.nan,
        "clip_norm": float(points.clip_norm[best]) if found else math.nan,
        "diverged_share": float(diverged.mean()),
    }


def trial_columns(trial: Trial) -> dict[str, float]:
    """Return what a trial can be held against, all pooled over the clients' records.

    Test losses of predicting the training mean and of least squares; v_star_squared, the mean over clients of
    |grad F_i(w*)|^2 at the least-squares weights w*, lowy2021's measure of how much clients differ.
    """
    mean = np.zeros(trial.train_x.shape[1])
    mean[0] = trial.train_y.mean()
    best = least_squares(trial.train_x, trial.train_y)
    both = np.stack([mean, best], axis=1)
    mean_loss, best_loss = losses(both, trial.test_x, trial.test_y)
    clients = [slice(*pair) for pair in zip(trial.starts[:-1], trial.starts[1:], strict=True)]
    pulls = [gradients(best[:, None], trial.train_x[client], trial.train_y[client]) for client in clients]
    return {
        "mean_predictor_test_loss": float(mean_loss),
        "least_squares_test_loss": float(best_loss),
        "v_star_squared": float(np.mean([np.sum(pull**2) for pull in pulls])),
    }


def _points(plan: Plan, cell: Mapping[str, Any], noise_multiplier: float) -> Points:
    """Return the cell's grid, step sizes outside and clip norms inside; only without privacy may a norm be inf."""
    clips = plan.clip_norms[np.isfinite(plan.clip_norms)] if is_private(cell) else plan.clip_norms
    steps, clips = (part.ravel() for part in np.meshgrid(plan.step_sizes[cell["algorithm"]], clips, indexing="ij"))
    bound = clips / plan.message_records(cell["algorithm"])
    return Points(steps, clips, noise_multiplier * bound if is_private(cell) else np.zeros_like(steps))


def _stacks(plan: Plan, sweep: Sweep, algorithm: str, features: int) -> Iterator[range]:
    """Yield the places of the trials that run together, as many as STACK_BYTES has room for, one at least."""
    cells = [cell for cell in sweep.cells if cell["algorithm"] == algorithm]
    models = sum(len(_points(plan, cell, 0.0).step_size) for cell in cells)
    widest = plan.protocol.participating * max(3 * features, plan.message_records(algorithm))
    size = max(1, STACK_BYTES // (8 * plan.protocol.repetitions * models * widest))
    for first in range(0, len(sweep.seeds), size):
        yield range(first, min(first + size, len(sweep.seeds)))


def _stack(sweep: Sweep, trials: list[Trial], places: range) -> Trials:
    """Return some trials as one stack."""
    own = trials[places.start : places.stop]
    x, y = np.stack([trial.train_x for trial in own]), np.stack([trial.train_y for trial in own])
    return Trials(sweep.seeds[places.start : places.stop], x, y, own[0].starts)


def _statement(plan: Plan, cell: Mapping[str, Any]) -> PrivacyStatement:
    """Return the cell's statement; its clip norm is a placeholder, for the noise is proportional to it."""
    algorithm = cell["algorithm"]
    shared = {
        "sampling": Sampling.WITH_REPLACEMENT,
        "neighbouring": Neighbouring.REPLACE_ONE,
        "records": plan.records,
        "sample_rate": min(1.0, plan.message_records(algorithm) / plan.records),
        "steps": plan.releases(algorithm),
        "delta": plan.delta,
    }
    if not is_private(cell):
        return PrivacyStatement.not_private(**shared)
    multiplier = _noise_multiplier(plan, algorithm, cell["epsilon"])
    spent = _spent(multiplier, plan.message_records(algorithm), plan.records, plan.releases(algorithm), plan.delta)
    return PrivacyStatement(
        mechanism="subsampled Gaussian, per client",
        clip_norm=1.0,
        noise_multiplier=multiplier,
        epsilon_rdp=math.nan,
        epsilon_pld=spent,
        note=f"noise as published for epsilon {cell['epsilon']:g}; epsilon_pld is an upper bound; {_UNACCOUNTED}",
        **shared,
    )


@cache
def _spent(noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float) -> float:
    """Return an upper bound of the epsilon spent, once for the same mechanism of several sweeps."""
    draws = {"sampling": Sampling.WITH_REPLACEMENT, "batch_size": batch_size, "records": records}
    return local_noise.epsilon(noise_multiplier=noise_multiplier, steps=steps, delta=delta, **draws)


def _noise_multiplier(plan: Plan, algorithm: str, epsilon: float) -> float:
    """Return the published noise over one record's share of a message, for `releases` messages, as the scripts do."""
    variance = local_noise.advanced_composition_variance(
        epsilon=epsilon,
        delta=plan.delta,
        lipschitz=1.0,
        rounds=plan.releases(algorithm),
        records=plan.records,
        batch_share=plan.protocol.batch_size / plan.records,
    )
    return math.sqrt(variance) * plan.message_records(algorithm)


def _calibrated(calibration: pd.DataFrame, cell: Mapping[str, Any]) -> pd.Series:
    """Return the calibration's row of a cell; raises InputError where there is none, or more than one."""
    rows = calibration[(calibration["algorithm"] == cell["algorithm"]) & (calibration["epsilon"] == cell["epsilon"])]
    if len(rows) != 1:
        raise InputError(f"the calibration has {len(rows)} rows for {cell}, not one; run `dpfl account` again")
    return rows.iloc[0]


def _table(sweep: Sweep, about: Mapping, calibration: pd.DataFrame, trials: list[Trial], rows: dict) -> pd.DataFrame:
    """Return the run table, cells in the sweep's order and seeds within them."""
    run = {"paper": sweep.paper, "sweep": sweep.name, "dataset": sweep.dataset}
    run |= {"stand_in_for": about["stand_in_for"] or "", "data_note": about["note"]}
    settings = {
        key: json.dumps(value) if isinstance(value, dict | list | tuple) else value
        for key, value in sweep.settings.items()
    }
    baselines = [trial_columns(trial) for trial in trials]
    table = []
    for cell in sweep.cells:
        row = _calibrated(calibration, cell)
        privacy = {key: row[key] for key in calibration if key.startswith("privacy_")}
        noise = {"batch_size": int(row["batch_size"]), "noise_multiplier": row["noise_multiplier"]}
        for place, seed in enumerate(sweep.seeds):
            chosen = rows[cell["algorithm"], cell["epsilon"], place]
            spent = {**privacy, "privacy_clip_norm": chosen["clip_norm"]}
            table.append({**run, **settings, **cell, **noise, "seed": seed, **chosen, **baselines[place], **spent})
    return pd.DataFrame(table)


def _check_cell(cell: Mapping[str, Any], largest_epsilon: float, records: int) -> None:
    """Raise InputError where a cell's algorithm or epsilon cannot be used."""
    if cell["algorithm"] not in _RUN:
        raise InputError(f"algorithm is {cell['algorithm']!r} in a cell; it must be one of {', '.join(_RUN)}")
    if not cell["epsilon"] > 0:
        raise InputError(f"epsilon is {cell['epsilon']!r} in a cell; it must be above 0 (inf: no privacy)")
    if is_private(cell) and cell["epsilon"] > largest_epsilon:
        raise InputError(f"epsilon is {cell['epsilon']} in a cell, above largest_epsilon {largest_epsilon}")
    covered = math.log(2.0 * records**2)  # ln(2 / delta)
    if is_private(cell) and cell["epsilon"] > covered:
        raise InputError(
            f"epsilon is {cell['epsilon']} in a cell; for a client with {records} training records the published noise "
            f"is stated up to ln(2/delta) = {covered:.3g}: take fewer clients or a smaller epsilon"
        )


def _clip_norms(settings: Mapping[str, Any]) -> Array:
    """Return the clip norms as an array; raises InputError where one is not above 0, or none is finite."""
    clips = np.array(settings["clip_norms"], dtype=np.float64)
    if not (np.all(clips > 0) and np.any(np.isfinite(clips))):
        raise InputError(f"clip_norms is {settings['clip_norms']} in the settings; it must list numbers above 0")
    return clips


def _positive(settings: Mapping[str, Any], name: str) -> float:
    """Return a setting above 0, finite; raises InputError naming it."""
    if not 0 < settings[name] < math.inf:
        raise InputError(f"{name} is {settings[name]!r} in the settings; it must be above 0 and finite")
    return float(settings[name])


def _whole(settings: Mapping[str, Any], name: str, at_most: int | None = None) -> int:
    """Return a whole setting of at least 1; raises InputError naming it."""
    value = settings[name]
    if not (isinstance(value, int) and value >= 1 and (at_most is None or value <= at_most)):
        limit = "at least 1" if at_most is None else f"from 1 to {at_most}"
        raise InputError(f"{name} is {value!r} in the settings; it must be a whole number, {limit}")
    return value
