"""Asynchronous DP-SGD (vandijk2023, Algorithm 1) of a softmax model on images, as an entry of the training grid.

Clients send the noisy update of every round and train on whatever global model has reached them. The model reads
pixels, averaged over 2 x 2 squares: 196 features of a grey image, 1,970 parameters, zero at the start. A cell may
override any setting; cells that share batches, events and inputs train as one stack.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from dpfl.accounting import gaussian_dp
from dpfl.accounting.guarantees import noise_multiplier
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, Poisson, Sampler, Sampling
from dpfl.accounting.statements import Gaussian, PrivacyStatement, Segmented
from dpfl.accounting.tradeoff.curves import Segment, segments_sigma
from dpfl.asynchronous.async_sgd import Federation, NoiseSchedule, replay, run_guarded
from dpfl.asynchronous.events import Network, Program, simulate
from dpfl.asynchronous.schedules import (
    AsyncSettings,
    BatchSchedule,
    InputNormalisation,
    Mixing,
    Scaling,
    ScenarioSettings,
    Strategy,
    normalised,
    prepare,
    step_sizes,
)
from dpfl.data.loading import ImageData, load_images
from dpfl.data.partition import random_shares
from dpfl.engine import checkpoints
from dpfl.engine.networks import softmax_regression
from dpfl.engine.per_record_gradients import LinearGradients, cross_entropy
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.progress import step_counter
from dpfl.randomness import generator

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders, TrainingJob

# Privacy of a client (vandijk2023, section 2.4): what it adds to its updates, and what that guarantees.

_ASYNCHRONY = "delay, loss, order and interrupts are post-processing and change nothing"
_ONE_AXIS = "arsinh noise: bounded for moves of the sum along one axis, no proof for others"
_LEAKS = "inputs prepared with exact statistics of the records, which no guarantee covers"
_BATCH_NORM = "batch normalisation: each clipped gradient depends on the whole batch, which no guarantee covers"
_COUNTED = "the clip norm follows a noisy count, part of each round's Gaussian mechanism"
_BATCH_CLIP = "the batch's mean gradient is clipped, with its own sensitivity of 2C"
_CHOSEN = "the choice of settings by accuracy is not accounted for"


@dataclass(frozen=True)
class ClientPrivacy:
    """Batches, noise and budget of one cell, checked.

    sigma: the noise of a round over the sensitivity of its sum to the neighbouring relation, 2 clip_norm for
    REPLACE_ONE and clip_norm for ZERO_OUT; None where it has to meet `epsilon` (infinite: no noise, clipped alike) if
    used as `budget` says, which is `strategy` itself but for one that may spend more.
    preparation_share: the part of epsilon that the inputs' preparation alone may spend.
    `records` is public: sample rate and number of rounds follow from it, so no statement is made for ADD_OR_REMOVE.
    """

    records: int
    batch_size: int
    epochs: int
    sampling: Sampling
    neighbouring: Neighbouring
    clip_norm: float
    delta: float
    epsilon: float
    sigma: float | None
    strategy: Strategy
    budget: Strategy
    preparation: InputNormalisation
    preparation_share: float

    @classmethod
    def of(cls, given: AsyncSettings, records: int) -> ClientPrivacy:
        """Return the privacy of settings for a client of `records`; raises InputError naming what cannot be used."""
        factor = given.batch_factor
        batch_size = given.batch_size * factor
        if batch_size > records:
            raise InputError(f"batch_size: is {batch_size}, must be from 1 to a client's {records} records")
        if given.neighbouring is Neighbouring.ADD_OR_REMOVE:
            raise InputError(
                f"neighbouring: {given.neighbouring} is not kept here, should be {Neighbouring.ZERO_OUT} or "
                f"{Neighbouring.REPLACE_ONE}: sample rate and rounds follow from a client's number of records"
            )
        if given.sampling is Sampling.FIXED and given.neighbouring is not Neighbouring.REPLACE_ONE:
            raise InputError(f"neighbouring: must be {Neighbouring.REPLACE_ONE} for batches of fixed size")
        strategy = _strategy(given.strategy, given.strategies)
        privacy = cls(
            records=records,
            batch_size=batch_size,
            epochs=given.epochs * (factor if given.scaling is Scaling.ROUNDS else 1),
            sampling=given.sampling,
            neighbouring=given.neighbouring,
            clip_norm=given.clip_norm,
            delta=_delta(given.delta, records),
            epsilon=given.epsilon,
            sigma=None if given.sigma is None else given.sigma * factor,
            strategy=strategy,
            budget=_strategy(strategy.budget_of, given.strategies) if strategy.budget_of else strategy,
            preparation=given.preparation,
            preparation_share=given.preparation_share,
        )
        privacy._check()
        return privacy

    def _check(self) -> None:
        """Raise InputError for what has no accounting."""
        if self.sampling is Sampling.POISSON and self.preparation.is_private:
            raise InputError("preparation: is accounted for batches of fixed size only")
        own = self.strategy
        special = own.batch_clip or own.adaptive_quantile is not None
        if self.sampling is Sampling.POISSON and (special or self.segments(own, 1.0) != [self._segment]):
            raise InputError(
                "strategy: segments, arsinh noise, batch clipping and adaptive clip norms are accounted for batches of "
                "fixed size only"
            )
        plain = not own.batch_clip and math.isinf(own.arsinh_scale) and set(own.noise(self.course)) == {1.0}
        if own.adaptive_quantile is not None and not plain:
            raise InputError("strategy: adaptive_quantile goes with records clipped one by one and one Gaussian noise")

    @cached_property
    def course(self) -> BatchSchedule:
        """The batches of the run; raises InputError where a segment has one that cannot be."""
        return self.strategy.course(records=self.records, batch_size=self.batch_size, epochs=self.epochs)

    @property
    def rounds(self) -> int:
        """Rounds of the run: whole batches in an epoch, over all epochs."""
        return self.course.rounds

    @property
    def private(self) -> bool:
        """True for a finite budget, or noise."""
        return self.sigma is not None or math.isfinite(self.epsilon)

    @property
    def sampler(self) -> Sampler:
        """Sampler of a round's batch among a client's records."""
        if self.sampling is Sampling.POISSON:
            return Poisson(self.batch_size / self.records)
        return FixedBatches(self.batch_size, self.records)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of a sum to one record, in clip norms."""
        return 2.0 if self.neighbouring is Neighbouring.REPLACE_ONE else 1.0

    @property
    def _segment(self) -> Segment:
        """A run without segments, at sigma 1."""
        return Segment(self.rounds, 1.0, self.batch_size / self.records)

    def preparation_sigma(self) -> float:
        """Return the noise of the preparation's release over its sensitivity: 0 where it takes exact statistics."""
        if not (self.private and self.preparation.is_private):
            return 0.0
        return 1 / float(gaussian_dp.mu(self.preparation_share * self.epsilon, self.delta))

    def segments(self, strategy: Strategy, sigma: float) -> list[Segment]:
        """Return the releases with a run's sigma: the preparation, then the rounds."""
        prepared = self.preparation_sigma()
        release = [Segment(1, prepared, 1.0)] if prepared else []
        return release + strategy.segments(self.course, sigma=sigma, records=self.records)

    def round_sigma(self) -> float:
        """Return the run's sigma: the one given, or the least that meets epsilon; 0 without privacy.

        Raises InputError where nothing is proven at the run's delta and noise law.
        """
        if not self.private:
            return 0.0
        if self.sigma is not None:
            return self.sigma
        if self.sampling is Sampling.FIXED:
            try:
                return segments_sigma(partial(self.segments, self.budget), self.epsilon, self.delta)
            except ValueError as refusal:
                raise InputError(f"{refusal}, for batches of fixed size") from None
        run = {"target_epsilon": self.epsilon, "steps": self.rounds, "delta": self.delta}
        return noise_multiplier(self.sampler, **run, neighbouring=self.neighbouring) / self.sensitivity

    def statement(self, sigma: float) -> PrivacyStatement:
        """Return the guarantee of one client's releases for a run with this sigma."""
        run: dict[str, Any] = {
            "records": self.records,
            "steps": self.rounds,
            "delta": self.delta,
            "neighbouring": self.neighbouring,
        }
        if not self.private:
            return PrivacyStatement.of(Gaussian(), self.sampler, noise_multiplier=0.0, **run)
        noise: dict[str, Any] = {"clip_norm": self.clip_norm, "noise_multiplier": sigma * self.sensitivity}
        if self.sampling is Sampling.POISSON:
            note = f"Poisson sampling, as accounted; {_ASYNCHRONY}"
            return PrivacyStatement.of(Gaussian(), self.sampler, note=note, **run, **noise)
        mechanism = Segmented(tuple(self.segments(self.strategy, sigma)))
        stated = PrivacyStatement.of(mechanism, self.sampler, **run, **noise)
        guarantee, note = stated.guarantee, self._note(stated.guarantee.upper)
        if unproven := self._leak or self._one_axis:
            guarantee = replace(guarantee, upper=math.inf, upper_by=unproven)
        return replace(stated, guarantee=guarantee, note=note)

    @property
    def _leak(self) -> str:
        """Reason that no guarantee holds, where none does; empty else."""
        if self.preparation is InputNormalisation.BATCH:
            return _BATCH_NORM
        return _LEAKS if self.preparation.is_exact else ""

    @property
    def _one_axis(self) -> str:
        """Reason that the bound of arsinh noise is no guarantee; empty for Gaussian noise."""
        return _ONE_AXIS if math.isfinite(self.strategy.arsinh_scale) else ""

    def _note(self, spent: float) -> str:
        """Say how the accounting relates to what is done."""
        parts = ["C_p of each round, composed (fixed batches, sensitivity 2C)", _ASYNCHRONY]
        sigmas = np.unique(self.strategy.noise(self.course))
        if len(sigmas) > 1:
            parts.append(f"segments with {', '.join(f'{value:.3g}' for value in sigmas)} times this noise, composed")
        sizes = dict.fromkeys(self.course.batch_sizes)
        if len(sizes) > 1:
            parts.append(f"segments with batches of {', '.join(map(str, sizes))}, each with its own rate, composed")
        if self._one_axis:
            parts.append(f"{self._one_axis}; such moves spend at most {spent:.3g}")
        if self.preparation.is_private:
            parts.append(f"with the preparation's sigma of {self.preparation_sigma():.4g}")
        if self.strategy.adaptive_quantile is not None:
            parts.append(_COUNTED)
        if self.strategy.batch_clip:
            parts.append(_BATCH_CLIP)
        if self._leak:
            parts.append(f"{self._leak}; the updates alone would spend {spent:.3g}")
        if self.sigma is not None:
            parts.append(_CHOSEN)
        return "; ".join(parts)


def _delta(given: float | str, records: int) -> float:
    """Return delta, in records of a client where it is given so (vandijk2023, section 3.2)."""
    return {"1/N": 1 / records, "1/(10 N)": 1 / (10 * records)}[given] if isinstance(given, str) else given


def _strategy(name: str, known: Mapping[str, Strategy]) -> Strategy:
    """Return the strategy of that name; raises InputError naming the known ones."""
    if name not in known:
        raise InputError(f"strategy: {name!r} is unknown, should be one of {', '.join(known)}")
    return known[name]


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


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: its keys, noise_multiplier (over the clip norm), one client's privacy statement.

    The noise meets the cell's epsilon, or is the cell's sigma: by C_p composed for batches of fixed size, by
    privacy-loss distributions for Poisson batches. Asynchrony does not enter. `description` is the dataset's,
    for its number of training records. Raises InputError for settings that cannot be used, ValueError for a budget out
    of reach.
    """
    known: dict[ClientPrivacy, dict[str, Any]] = {}
    rows = []
    for plan, cell in zip(_plans(job, description["records"]["train"]), job.cells, strict=True):
        if plan.posture not in known:
            inputs = plan.posture.preparation
            reads_records = inputs.is_exact or inputs is InputNormalisation.BATCH
            if plan.posture.sampling is Sampling.POISSON and reads_records:
                raise InputError("preparation: exact statistics have no statement for Poisson batches")
            statement = plan.posture.statement(plan.posture.round_sigma())
            known[plan.posture] = {"noise_multiplier": statement.noise_multiplier, **statement.columns()}
        rows.append({**as_columns(cell), **known[plan.posture]})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Train every cell and seed of `job`; return the run table, a row for each run, cells in order and seeds within.

    Metrics: accuracy_pct of the server's last model on the test set, accuracy_pct_by_epoch (JSON list), and what the
    events counted (dpfl.asynchronous.events.Program). A run whose weights left the numbers is "diverged".
    `calibration` is `calibrate`'s table. With `checkpoint`, training resumes after the last finished stack and ends
    with the same bytes. Everything runs on the CPU: the model is too small for more. Calls progress(rounds, all
    rounds). Raises InputError where data or settings cannot be used, or no update of a client reaches the server.
    """
    torch.set_num_threads(int(job.resources["threads"]))
    data = load_images(folders.arrays)
    plans = _plans(job, len(data.train_y))
    stacks: dict[tuple, list[int]] = {}
    for place, plan in enumerate(plans):
        alone = place if plan.network.max_distance is not None else None  # its weights decide its order of events
        stacks.setdefault((plan.shared, alone), []).append(place)
    inputs = (features(data.train_x), features(data.test_x))
    digest = _digest(job, calibration, data)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    finished: list[list[dict[str, Any]]] = restored["finished"] if restored else []
    tasks = [(seed, cells) for seed in job.seeds for cells in stacks.values()]
    sizes = [plans[cells[0]].clients * plans[cells[0]].posture.rounds for _, cells in tasks]
    tick = step_counter(progress, sum(sizes), sum(sizes[: len(finished)]))
    for seed, cells in tasks[len(finished) :]:
        noise = calibration["noise_multiplier"].to_numpy()[cells]
        finished.append(_stack([plans[place] for place in cells], noise, data, inputs, seed, tick))
        if checkpoint:
            checkpoints.save(checkpoint, {"finished": finished}, digest)
    results = {
        (index, seed): result
        for (seed, cells), stack in zip(tasks, finished, strict=True)
        for index, result in zip(cells, stack, strict=True)
    }
    noise = calibrated(calibration, job.cells)
    return run_table(job, data.description, noise, results, [_columns(given(job, cell)) for cell in job.cells])


def batch_rule(preparation: InputNormalisation) -> Callable[[Tensor], Tensor] | None:
    """Return how a batch's inputs are normalised in training: by themselves, or not at all."""
    return partial(normalised, axis=0) if preparation is InputNormalisation.BATCH else None


def _columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run table says of a run's settings: no epsilon where the noise was given."""
    return {name: settings[name] for name in COLUMNS} | ({"epsilon": None} if settings["sigma"] is not None else {})


def _plans(job: TrainingJob, records: int) -> list[AsyncCell]:
    """Return the plan of each cell."""
    return [AsyncCell.of(AsyncSettings.of(given(job, cell)), records) for cell in job.cells]


def given(job: TrainingJob, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a cell's on top, and with its scenario's between; raises InputError."""
    chosen = ScenarioSettings.of(job.settings, cell)
    scenarios, name = chosen.scenarios, chosen.scenario
    if name not in scenarios:
        raise InputError(f"scenario: {name!r} is unknown, should be one of {', '.join(scenarios)}")
    unknown = set(scenarios[name]) - set(Network.__dataclass_fields__)
    if unknown:
        raise InputError(f"scenarios.{name}: {min(unknown)} is unknown, should be a field of the network")
    return {**job.settings, **scenarios[name], **cell}


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
                clip_norms,
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


def _digest(job: TrainingJob, calibration: pd.DataFrame, data: ImageData) -> str:
    """Return a hash of what decides the numbers: settings, noise, data, torch."""
    description = json.dumps(data.description, sort_keys=True)
    noise = calibration["noise_multiplier"].map(float.hex).tolist()
    return hashlib.sha256(json.dumps([job.digest(), noise, description, torch.__version__]).encode()).hexdigest()
