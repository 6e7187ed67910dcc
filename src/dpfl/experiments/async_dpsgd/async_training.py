"""Asynchronous DP-SGD (vandijk2023, Algorithm 1) of a softmax model on images, as an entry of the training grid.

Clients send the noisy update of every round and train on whatever global model has reached them. The model reads
pixels, averaged over 2 x 2 squares: 196 features of a grey image, 1,970 parameters, zero at the start. A cell may
override any setting; cells that share batches, events and inputs train as one stack.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from dpfl.algorithms.async_events import Network, Program, simulate
from dpfl.algorithms.async_sgd import Federation, NoiseSchedule, replay, run_guarded
from dpfl.data.loading import ImageData, load_images
from dpfl.data.partition import random_shares
from dpfl.engine import checkpoints
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.linear_gradients import LinearGradients
from dpfl.errors import InputError
from dpfl.experiments.async_dpsgd.async_settings import AsyncSettings, Mixing, Scaling, ScenarioSettings
from dpfl.experiments.async_dpsgd.client_privacy import ClientPrivacy
from dpfl.experiments.async_dpsgd.input_normalisation import InputNormalisation, normalised, prepare
from dpfl.experiments.async_dpsgd.schedules import step_sizes
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models.image_models import softmax_regression
from dpfl.progress import step_counter
from dpfl.randomness import generator

POOLED = 2
CLASSES = 10
COLUMNS = (
    "study", "scenario", "clients", "batch_size", "epochs", "sampling", "neighbouring", "delta", "clip_norm",
    "learning_rate", "step_decay", "strategy", "preparation", "batch_factor", "scaling", "epsilon", "sigma",
    "speed_spread", "delay", "jitter", "update_loss", "broadcast_loss", "window", "participation", "max_staleness",
    "max_distance", "mixing", "mislabelled",
)  # fmt: skip
"""Settings in a run table; None becomes nan."""
COUNTS = ("updates_lost_pct", "simulated_rounds", "staleness_rounds", "interrupted_pct")


@dataclass(frozen=True)
class AsyncCell:
    """A cell's settings, checked."""

    posture: ClientPrivacy
    network: Network
    clients: int
    learning_rate: float
    step_decay: float
    components: int
    mixing: Mixing
    mislabelled: float

    @classmethod
    def of(cls, given: AsyncSettings, records: int) -> AsyncCell:
        """Return the plan of a cell's settings, for a training set of `records`; raises InputError."""
        if given.clients > records:
            raise InputError(f"clients: is {given.clients}, must be from 1 to the {records} training records")
        factor, scaling = given.batch_factor, given.scaling
        return cls(
            posture=ClientPrivacy.of(given, records // given.clients),
            network=Network(**{name: getattr(given, name) for name in Network.__dataclass_fields__}),
            clients=given.clients,
            learning_rate=given.learning_rate * (factor if scaling is Scaling.STEP_SIZE else 1),
            # With as many rounds, a times the epochs: the step sizes of the rounds stay the same.
            step_decay=given.step_decay / (factor if scaling is Scaling.ROUNDS else 1),
            components=given.components,
            mixing=given.mixing,
            mislabelled=given.mislabelled,
        )

    @property
    def shared(self) -> tuple:
        """Key of a stack: settings that its cells have in common."""
        own = self.posture
        return (
            own.batch_size,
            own.course,
            own.sampling,
            self.clients,
            self.network,
            own.preparation,
            own.preparation_sigma(),
            self.components,
            self.mixing,
            self.mislabelled,
        )


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, noise_multiplier (over the clip norm) and the privacy statement of one client.

    The noise meets the cell's epsilon, or is the cell's sigma: by C_p composed for batches of fixed size, by
    privacy-loss distributions for Poisson batches. Asynchrony does not enter. `description` is the dataset's,
    for its number of training records. Raises InputError for settings that cannot be used, ValueError for a budget out
    of reach.
    """
    known: dict[ClientPrivacy, dict[str, Any]] = {}
    rows = []
    for plan, cell in zip(_plans(sweep, description["records"]["train"]), sweep.cells, strict=True):
        if plan.posture not in known:
            statement = plan.posture.statement(plan.posture.round_sigma())
            known[plan.posture] = {"noise_multiplier": statement.noise_multiplier, **statement.columns()}
        rows.append({**as_columns(cell), **known[plan.posture]})
    return pd.DataFrame(rows)


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Train every cell and seed of `sweep`; return the run table, a row a run, cells in order and seeds within.

    Metrics: accuracy_pct of the server's last model on the test set, accuracy_pct_by_epoch (JSON list), and what the
    events counted (dpfl.algorithms.async_events.Program). A run whose weights left the numbers is "diverged".
    `calibration` is `calibrate`'s table. With `checkpoint`, training resumes after the last finished stack and ends
    with the same bytes. Everything runs on the CPU: the model is too small for more. Calls progress(rounds, all
    rounds). Raises InputError where data or settings cannot be used, or no update of a client reaches the server.
    """
    torch.set_num_threads(int(sweep.resources["threads"]))
    data = load_images(folders.arrays)
    plans = _plans(sweep, len(data.train_y))
    stacks: dict[tuple, list[int]] = {}
    for place, plan in enumerate(plans):
        alone = place if plan.network.max_distance is not None else None  # its weights decide its order of events
        stacks.setdefault((plan.shared, alone), []).append(place)
    inputs = (features(data.train_x), features(data.test_x))
    digest = _digest(sweep, calibration, data)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    finished: list[list[dict[str, Any]]] = restored["finished"] if restored else []
    jobs = [(seed, cells) for seed in sweep.seeds for cells in stacks.values()]
    sizes = [plans[cells[0]].clients * plans[cells[0]].posture.rounds for _, cells in jobs]
    tick = step_counter(progress, sum(sizes), sum(sizes[: len(finished)]))
    for seed, cells in jobs[len(finished) :]:
        noise = calibration["noise_multiplier"].to_numpy()[cells]
        finished.append(_stack([plans[place] for place in cells], noise, data, inputs, seed, tick))
        if checkpoint:
            checkpoints.save(checkpoint, {"finished": finished}, digest)
    results = {
        (index, seed): result
        for (seed, cells), stack in zip(jobs, finished, strict=True)
        for index, result in zip(cells, stack, strict=True)
    }
    noise = calibrated(calibration, sweep.cells)
    return run_table(sweep, data.description, noise, results, [_columns(given(sweep, cell)) for cell in sweep.cells])


def batch_rule(preparation: InputNormalisation) -> Callable[[Tensor], Tensor] | None:
    """Return how a batch's inputs are normalised in training: by themselves, or not at all."""
    return partial(normalised, axis=0) if preparation is InputNormalisation.BATCH else None


def _columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run table says of a run's settings: no epsilon where the noise was given."""
    return {name: settings[name] for name in COLUMNS} | ({"epsilon": None} if settings["sigma"] is not None else {})


def _plans(sweep: Sweep, records: int) -> list[AsyncCell]:
    """Return the plan of each cell."""
    return [AsyncCell.of(AsyncSettings.of(given(sweep, cell)), records) for cell in sweep.cells]


def given(sweep: Sweep, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a cell's on top, and with those of its scenario between; raises InputError."""
    chosen = ScenarioSettings.of(sweep.settings, cell)
    scenarios, name = chosen.scenarios, chosen.scenario
    if name not in scenarios:
        raise InputError(f"scenario: {name!r} is unknown, should be one of {', '.join(scenarios)}")
    unknown = set(scenarios[name]) - set(Network.__dataclass_fields__)
    if unknown:
        raise InputError(f"scenarios.{name}: {min(unknown)} is unknown, should be a field of the network")
    return {**sweep.settings, **scenarios[name], **cell}


def features(images: np.ndarray) -> Tensor:
    """Return images (n, channels, height, width) as pooled pixels (n, features) in [0, 1]."""
    return functional.avg_pool2d(torch.from_numpy(np.array(images)).float() / 255, POOLED).flatten(1)


def _stack(
    plans: list[AsyncCell], noise: np.ndarray, data: ImageData, inputs: tuple[Tensor, Tensor], seed: int,
    tick: Callable[[], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """Train the cells of one stack with one seed; return each cell's metrics."""
    plan = plans[0]
    own, shares = plan.posture, random_shares(len(data.train_y), plan.clients, 1 / plan.clients, seed)
    lengths = [Fraction(size, own.batch_size) for size in own.course.batch_sizes]
    train, test = prepare(
        own.preparation, *inputs, shares, sigma=own.preparation_sigma(), components=plan.components, seed=seed
    )
    module = softmax_regression(train.shape[1], CLASSES)
    labels = _labels(np.array(data.train_y), shares, plan.mislabelled, seed)
    federation = Federation(
        module=module,
        rule=LinearGradients(module, cross_entropy),
        shares=shares,
        train=(train, torch.from_numpy(labels)),
        test=(test, torch.from_numpy(np.array(data.test_y))),
        mix=(1 / plan.clients,) * plan.clients,
        batch_sizes=own.course.batch_sizes,
        sampling=own.sampling,
        seed=seed,
        judges=plan.mixing is Mixing.JUDGED,
        normalise=batch_rule(own.preparation),
    )
    postures, course = _postures(plans, noise), {"lengths": lengths, "epochs": own.epochs}
    if plan.network.max_distance is None:
        program = simulate(plan.network, clients=plan.clients, seed=seed, **course)
        trained = replay(federation, program, postures, tick)
    else:
        trained, program = run_guarded(federation, plan.network, postures, tick, **course)
    return [
        {
            "status": "finished" if bool(torch.isfinite(weights).all()) else "diverged",
            "accuracy_pct": by_epoch[-1],
            "accuracy_pct_by_epoch": json.dumps(by_epoch),
            **_counts(program),
        }
        for weights, by_epoch in zip(trained.weights, trained.accuracy_pct, strict=True)
    ]


def _labels(labels: np.ndarray, shares: list[np.ndarray], mislabelled: float, seed: int) -> np.ndarray:
    """Replace the labels of the first clients, that share of them, by uniform draws addressed by (seed, client)."""
    for client in range(round(mislabelled * len(shares))):
        labels[shares[client]] = generator(seed, "split", client).integers(CLASSES, size=len(shares[client]))
    return labels


def _counts(program: Program) -> dict[str, float]:
    """Return what the simulation counted."""
    return {name: getattr(program, name) for name in COUNTS}


def _postures(plans: list[AsyncCell], noise: np.ndarray) -> NoiseSchedule:
    """Return the stack's clip norms, noise and step sizes, round by round; noise multipliers as calibrated."""
    columns = []
    for plan, multiplier in zip(plans, noise, strict=True):
        own, strategy = plan.posture, plan.posture.strategy
        clip_norms = own.clip_norm * strategy.clip(own.course)
        stds = multiplier * strategy.noise(own.course) * strategy.sum_noise * clip_norms
        columns.append(
            (
                clip_norms if own.private else np.full(own.rounds, np.inf),
                stds,
                np.where(stds > 0, strategy.arsinh_scale * np.where(stds > 0, stds, 1.0), np.inf),
                step_sizes(plan.learning_rate, plan.step_decay, own.course),
            )
        )
    parts = (torch.from_numpy(np.stack(part, axis=1)).float() for part in zip(*columns, strict=True))
    own = [plan.posture for plan in plans]
    return NoiseSchedule(
        *parts,
        kept_shares=tuple(each.strategy.kept_share for each in own),
        batch_clips=tuple(each.strategy.batch_clip for each in own),
        adaptive_clips=tuple(
            each.strategy.adaptive_clip(multiplier / each.sensitivity) if each.private else None
            for each, multiplier in zip(own, noise, strict=True)
        ),
    )


def _digest(sweep: Sweep, calibration: pd.DataFrame, data: ImageData) -> str:
    """Return a hash of what decides the numbers: settings, noise, data, torch."""
    description = json.dumps(data.description, sort_keys=True)
    noise = calibration["noise_multiplier"].map(float.hex).tolist()
    return hashlib.sha256(json.dumps([sweep.digest(), noise, description, torch.__version__]).encode()).hexdigest()
