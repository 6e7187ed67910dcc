"""lowy2021's training on silos: settings and noise, and step sizes and clip norms chosen by training loss."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from dpfl.accounting import local_privacy
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import SAMPLERS, Sampler, Sampling
from dpfl.accounting.statements import ClippedMeanGaussian, Gaussian, Mechanism, PrivacyStatement
from dpfl.convex import local_sgd, minibatch_sgd
from dpfl.convex.federated_rounds import Clipping, Hyperparameters, Participation, Protocol, Trials
from dpfl.convex.problems import Array, Loss, losses
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Settings, Several, among
from dpfl.grid.training_job import TrainingJob, is_private
from dpfl.progress import step_counter

if TYPE_CHECKING:
    from dpfl.data.partition import Trial

# The noise of the experiments without a trusted server, and the privacy statement of what it protects.

EPSILON_TOLERANCE = 1e-3
"""Relative gap that the tight noise may leave below its target."""
MOST_SECANTS = 40


class NoiseRule(StrEnum):
    """Rules for the noise that an epsilon asks for."""

    ADVANCED_COMPOSITION = "advanced_composition"
    """lowy2021 Theorem 2.1."""
    MOMENTS = "moments"
    """The authors' later script."""
    TIGHT = "tight"
    """The least that an accountant of the mechanism allows."""


@dataclass(frozen=True)
class ClientMessages:
    """Messages of one client: `releases` noisy ones, each the mean of `message_records` clipped gradients.

    `batch_share` is K/n of the experiment, which the advanced-composition formula reads in local SGD too.
    """

    message_records: int
    records: int
    releases: int
    delta: float
    sampling: Sampling
    clipping: Clipping
    batch_share: float

    @property
    def share(self) -> float:
        """One record's share of a message: what its clipped part is divided by."""
        return 1.0 if self.clipping is Clipping.MEAN else float(self.message_records)

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism that hides a record in a message."""
        turns = self.clipping is Clipping.MEAN and self.message_records > 1
        return ClippedMeanGaussian() if turns else Gaussian()

    @property
    def sampler(self) -> Sampler:
        """Sampler of a message's records."""
        return cast("Any", SAMPLERS[self.sampling])(self.message_records, self.records)

    def stated(self, noise_multiplier: float, note: str = "") -> PrivacyStatement:
        """Return the statement for this noise; its clip norm is 1, for the noise is proportional to it."""
        return PrivacyStatement.of(
            self.mechanism,
            self.sampler,
            neighbouring=Neighbouring.REPLACE_ONE,
            records=self.records,
            clip_norm=1.0,
            noise_multiplier=noise_multiplier,
            steps=self.releases,
            delta=self.delta,
            note=note,
        )


@cache
def noise_multiplier(noise: NoiseRule, messages: ClientMessages, epsilon: float) -> float:
    """Return the noise's standard deviation over the norm bound of one record's share of a message, for `epsilon`.

    TIGHT spends between (1 - EPSILON_TOLERANCE) epsilon and epsilon by its accountant; the published formulas are
    those of dpfl.accounting.local_privacy for `releases` rounds. Raises ValueError where a formula has no answer.
    """
    if noise is NoiseRule.TIGHT:
        return _tight(messages, epsilon)
    run = {"rounds": messages.releases, "records": messages.records, "lipschitz": 1.0}
    run |= {"epsilon": epsilon, "delta": messages.delta}
    if noise is NoiseRule.MOMENTS:
        variance = local_privacy.moments_variance(**run)
    else:
        variance = local_privacy.advanced_composition_variance(**run, batch_share=messages.batch_share)
    return math.sqrt(variance) * messages.share


def statement(
    noise: NoiseRule,
    messages: ClientMessages,
    epsilon: float,
    unaccounted: str,
    calibrated_for: ClientMessages | None = None,
) -> PrivacyStatement:
    """Return the statement of the noise for `epsilon`, inf for no noise.

    `unaccounted` says what the statement leaves out. `calibrated_for`: the messages that the noise is calibrated for,
    where those that are sent are others.
    """
    if math.isinf(epsilon):
        return messages.stated(0.0)
    counted = calibrated_for or messages
    note = f"{_note(noise, messages, epsilon, counted.records)}; {unaccounted}"
    return messages.stated(noise_multiplier(noise, counted, epsilon), note)


@cache
def _proven(messages: ClientMessages, noise_multiplier: float) -> float:
    """Return an upper bound of the epsilon of a client's messages."""
    return messages.stated(noise_multiplier).guarantee.upper


def _note(noise: NoiseRule, messages: ClientMessages, epsilon: float, counted: int) -> str:
    """Return the relation of the statement to the epsilon asked for."""
    if noise is NoiseRule.TIGHT:
        source = f"noise calibrated to spend epsilon {epsilon:g} by this accountant"
    else:
        source = f"noise as published ({noise}) for epsilon {epsilon:g}"
    if counted != messages.records:
        source += f", for n = {counted} records as the authors' script counts them, of which {messages.records} train"
    if messages.clipping is Clipping.MEAN and messages.message_records > 1:
        source += "; the batch's mean is clipped, so one record can turn it around: this does not protect"
    return source


def _tight(messages: ClientMessages, epsilon: float) -> float:
    """Search by the secant rule, on logarithmic scales, until what is spent lies below epsilon within the tolerance."""

    def excess(log_multiplier: float) -> float:
        return math.log(_proven(messages, math.exp(log_multiplier)) / epsilon) + EPSILON_TOLERANCE / 2

    # Where the steps are many and each is seldom drawn, they add up to a Gaussian of this mean.
    rate = messages.message_records / messages.records
    mean = 2 * rate * math.sqrt(messages.releases) * math.sqrt(2 * math.log(1 / messages.delta)) / epsilon
    first, second = math.log(mean + 0.7), math.log(mean + 0.7) + 0.1
    value = excess(first)
    for _ in range(MOST_SECANTS):
        latest = excess(second)
        if abs(latest) <= EPSILON_TOLERANCE / 2:
            return math.exp(second)
        slope = min((latest - value) / (second - first), -0.5)  # what is spent falls at least like a square root
        first, value, second = second, latest, second - max(-1.0, min(1.0, latest / slope))
    raise ValueError(f"epsilon {epsilon:g}: no noise found that spends it, within {EPSILON_TOLERANCE:g} below")


# Settings of an experiment without a trusted server, checked: protocols, mechanisms, and the grid to choose from.


class LdpAlgorithm(StrEnum):
    """An algorithm that a cell may name."""

    MINIBATCH = "minibatch"
    LOCAL = "local"


RUN = {
    LdpAlgorithm.MINIBATCH: minibatch_sgd.averaged_minibatch_sgd,
    LdpAlgorithm.LOCAL: local_sgd.averaged_local_sgd,
}
"""Its training."""


@dataclass(frozen=True)
class ClientCounts:
    """Counts that the data decide: clients, each one's records before the split, and the fewest that one trains on."""

    clients: int
    before_split: int
    training: int


class CountedRecords(StrEnum):
    """Ways to count a client's records in the noise of local SGD."""

    TRAINING = "training"
    """Those that it trains on."""
    BEFORE_SPLIT = "before_split"
    """All of them, as the authors' scripts do: less noise than the formula asks for."""


class LdpSettings(Settings):
    """A job's settings. step_exponents by algorithm: (first, last, count) of the step sizes' natural logarithms.

    batch_size "published" is the K of the authors' scripts at the setting largest_epsilon, the same for every cell; as
    in their experiments it counts a client's records before the split, which makes it larger than lowy2021's
    Theorem 2.1 asks for. A whole number is taken as it is. local_noise_records: the n of the formula for the noise of
    local SGD, with its delta 1/n^2; that of minibatch SGD always counts training records.
    """

    noise: Choice[NoiseRule]
    largest_epsilon: Positive
    rounds: Count
    participating: Count
    batch_size: Literal["published"] | Count
    repetitions: Count
    last_iterates: Count
    sampling: Annotated[Choice[Sampling], among(Sampling.WITH_REPLACEMENT, Sampling.FIXED)]
    clipping: Choice[Clipping]
    delta: Literal["1/n^2"]
    local_noise_records: Choice[CountedRecords] = CountedRecords.TRAINING
    step_exponents: dict[str, Annotated[tuple[float, float, Count], Field(strict=False)]]
    clip_norms: Several[Annotated[float, Field(gt=0)]]
    divergence_loss: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where settings do not go together."""
        if self.last_iterates > self.rounds:
            raise ValueError(f"last_iterates is {self.last_iterates}; it must be at most the {self.rounds} rounds")
        if not any(map(math.isfinite, self.clip_norms)):
            raise ValueError(f"clip_norms is {list(self.clip_norms)}; one of them must be finite")
        if self.local_noise_records is CountedRecords.BEFORE_SPLIT and self.noise is NoiseRule.TIGHT:
            raise ValueError("local_noise_records: before_split is for the published formulas, and noise is tight")
        return self


class LdpCell(Settings):
    """A cell: its algorithm, one of RUN, and its budget."""

    algorithm: Choice[LdpAlgorithm]
    epsilon: Epsilon


@dataclass(frozen=True)
class LdpPlan:
    """A job's settings on its data. step_sizes by algorithm and clip_norms span the grid that a run is chosen from.

    Every client adds the same noise, calibrated to the client with the fewest training records, `records`; that of
    local SGD to one with `local_noise_records`.
    """

    protocol: Protocol
    clients: int
    records: int
    local_noise_records: int
    delta: float
    noise: NoiseRule
    step_sizes: dict[str, Array]
    clip_norms: Array
    divergence_loss: float

    @classmethod
    def of(cls, settings: LdpSettings, cells: Iterable[LdpCell], loss: Loss, records: ClientCounts) -> LdpPlan:
        """Return the plan; raises InputError naming the setting or the cell's key that cannot be used."""
        if settings.participating > records.clients:
            raise InputError(f"participating is {settings.participating}; there are {records.clients} clients")
        protocol = Protocol(
            loss=loss,
            rounds=settings.rounds,
            participation=Participation((settings.participating,)),
            batch_size=_batch_size(settings, records),
            repetitions=settings.repetitions,
            last_iterates=settings.last_iterates,
            sampling=settings.sampling,
            clipping=settings.clipping,
        )
        plan = cls(
            protocol=protocol,
            clients=records.clients,
            records=records.training,
            local_noise_records=(
                records.before_split
                if settings.local_noise_records is CountedRecords.BEFORE_SPLIT
                else records.training
            ),
            delta=1.0 / records.training**2,
            noise=settings.noise,
            step_sizes={name: np.exp(np.linspace(*exps)) for name, exps in settings.step_exponents.items()},
            clip_norms=np.array(settings.clip_norms, dtype=np.float64),
            divergence_loss=settings.divergence_loss,
        )
        for cell in cells:
            plan._check_cell(cell.epsilon, settings.largest_epsilon)
        return plan

    def protocol_of(self, algorithm: str) -> Protocol:
        """Return an algorithm's protocol: a step of local SGD draws its record again, whatever a minibatch does."""
        fields = dict(vars(self.protocol))
        if algorithm == "local":
            fields["sampling"] = Sampling.WITH_REPLACEMENT
        return Protocol(**fields)

    def messages(self, algorithm: str) -> ClientMessages:
        """Return what a client that joins every round releases: R messages of K records, or K R of one record."""
        protocol = self.protocol_of(algorithm)
        batch_size = protocol.batch_size
        return ClientMessages(
            message_records=batch_size if algorithm == "minibatch" else 1,
            records=self.records,
            releases=protocol.rounds * (1 if algorithm == "minibatch" else batch_size),
            delta=self.delta,
            sampling=protocol.sampling,
            clipping=protocol.clipping,
            batch_share=min(1.0, batch_size / self.records),
        )

    def calibrated_messages(self, algorithm: str) -> ClientMessages:
        """Return the messages that the noise is calibrated for: a client's, with the records that it counts."""
        messages = self.messages(algorithm)
        counted = self.records if algorithm == "minibatch" else self.local_noise_records
        if counted == self.records:
            return messages
        share = min(1.0, self.protocol.batch_size / counted)
        return replace(messages, records=counted, delta=1.0 / counted**2, batch_share=share)

    def points(self, cell: Mapping[str, Any], noise_multiplier: float) -> Hyperparameters:
        """Return the cell's grid, step sizes outside, clip norms inside; only without privacy may a norm be inf."""
        clips = self.clip_norms[np.isfinite(self.clip_norms)] if is_private(cell) else self.clip_norms
        steps, clips = (part.ravel() for part in np.meshgrid(self.step_sizes[cell["algorithm"]], clips, indexing="ij"))
        if not is_private(cell):
            return Hyperparameters(steps, clips, np.zeros_like(steps))
        return Hyperparameters(steps, clips, noise_multiplier * clips / self.messages(cell["algorithm"]).share)

    def _check_cell(self, epsilon: float, largest_epsilon: float) -> None:
        """Raise InputError where a cell's budget cannot be used."""
        if math.isinf(epsilon):
            return
        if epsilon > largest_epsilon:
            raise InputError(f"epsilon is {epsilon} in a cell, above largest_epsilon {largest_epsilon}")
        covered = math.log(2.0 / self.delta)
        if self.noise is NoiseRule.ADVANCED_COMPOSITION and epsilon > covered:
            raise InputError(
                f"epsilon is {epsilon} in a cell; for a client with {self.records} training records the published "
                f"noise is stated up to ln(2/delta) = {covered:.3g}: take fewer clients or a smaller epsilon"
            )
        if self.noise is NoiseRule.TIGHT and self.protocol.clipping is Clipping.MEAN:
            raise InputError("noise: tight needs clipping: record, for clipping the mean does not protect a record")


def _batch_size(settings: LdpSettings, records: ClientCounts) -> int:
    """Return the K of every round, at least 1, and without replacement at most n."""
    size = settings.batch_size
    if size == "published":
        client = {
            "epsilon": settings.largest_epsilon,
            "rounds": settings.rounds,
            "records": records.before_split,
        }
        if settings.noise is NoiseRule.MOMENTS:
            least = local_privacy.least_batch_moments(**client)
        else:
            least = local_privacy.least_batch_advanced(**client, delta=1.0 / records.before_split**2)
        size = math.floor(least)
        if size < 1:
            raise InputError(f"largest_epsilon: {settings.largest_epsilon} gives a batch of K = 0 records; raise it")
    if settings.sampling is Sampling.FIXED and size > records.training:
        raise InputError(
            f"batch_size: K = {size} records without replacement exceed the {records.training} that a client trains on"
        )
    return size


# Training and choosing: every trial runs a grid of step sizes and clip norms, and its training loss decides.
#
# What is shared by the experiments without a trusted server. The choice reads the training records too, and no privacy
# statement here accounts for it.

STACK_BYTES = 2**25
"""Rough limit of one stack's working memory; a job with more trials runs them one stack after the other."""


class LdpTask(typing.Protocol):
    """Data and measures that an experiment adds to the shared training."""

    plan: LdpPlan

    def trial(self, seed: int) -> Trial:
        """Return the clients' records of one trial."""
        ...

    def measures(self, trial: Trial, weights: Array) -> dict[str, Array]:
        """Return the test metrics of models (..., features, models), each (..., models)."""
        ...

    def references(self, trial: Trial) -> dict[str, float]:
        """Return what a trial can be held against, one column each."""
        ...


def calibrate_plan(plan: LdpPlan, cells: tuple[dict[str, Any], ...], unaccounted: str) -> pd.DataFrame:
    """Return a row for each cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of what is released:
    clip_norm / K in the mean that minibatch SGD sends, clip_norm in a step of local SGD (replacing a record moves
    either by twice that). It is the same for every clip norm; privacy_epsilon_proven bounds what it spends,
    privacy_clip_norm is nan until training has chosen. privacy_note ends with `unaccounted`: what the statement leaves
    out.
    """
    rows = []
    for cell in cells:
        algorithm = cell["algorithm"]
        sent, counted = plan.messages(algorithm), plan.calibrated_messages(algorithm)
        stated = statement(plan.noise, sent, cell["epsilon"], unaccounted, calibrated_for=counted)
        noise = {"batch_size": plan.protocol.batch_size, "noise_multiplier": stated.noise_multiplier}
        rows.append({**as_columns(cell), **noise, **stated.columns(), "privacy_clip_norm": math.nan})
    return pd.DataFrame(rows)


def train_plan(
    task: LdpTask,
    job: TrainingJob,
    description: Mapping[str, Any],
    calibration: pd.DataFrame,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row an (algorithm, epsilon, seed), cells in the job's order and seeds within them.

    The metrics are those of `choose`, the task's measures and its references; clip_norm inf is none. status is
    "diverged", and the metrics nan, where no point of the grid can be chosen; diverged_share counts the grid's runs,
    repetitions apart. `progress` counts rounds of whole stacks. Raises InputError where the calibration does not fit.
    """
    plan = task.plan
    algorithms = dict.fromkeys(cell["algorithm"] for cell in job.cells)
    noise = calibrated(calibration, job.cells)
    first = task.trial(job.seeds[0])
    chunks = list(_chunks(plan, job, first.train_x.shape[1]))
    total = plan.protocol.rounds * len(algorithms) * len(chunks)
    tick = step_counter(progress, total)
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for seeds in chunks:
        trials = [first if seed == job.seeds[0] else task.trial(seed) for seed in seeds]
        references = [task.references(trial) for trial in trials]
        x, y = np.stack([trial.train_x for trial in trials]), np.stack([trial.train_y for trial in trials])
        stack = Trials(seeds, x, y, first.starts)
        for algorithm in algorithms:
            cells = [index for index, cell in enumerate(job.cells) if cell["algorithm"] == algorithm]
            grid = [plan.points(job.cells[index], noise[index]["noise_multiplier"]) for index in cells]
            outputs = RUN[algorithm](stack, Hyperparameters.joined(grid), plan.protocol_of(algorithm), tick)
            starts = np.cumsum([len(points.step_size) for points in grid])[:-1]
            for seed, trial, reference, own in zip(seeds, trials, references, outputs, strict=True):
                for index, points, weights in zip(cells, grid, np.split(own, starts, axis=-1), strict=True):
                    rows[index, seed] = {**choose(task, trial, points, weights), **reference}
    settings = [{**job.settings, **cell, "batch_size": plan.protocol.batch_size} for cell in job.cells]
    table = run_table(job, description, noise, rows, settings)
    return table.assign(privacy_clip_norm=table["clip_norm"])


def choose(task: LdpTask, trial: Trial, points: Hyperparameters, weights: Array) -> dict[str, Any]:
    """Return the columns of the point of least mean training loss (so of least mean excess) over the repetitions.

    weights: (repetitions, features, models). A run diverges when its training loss exceeds the plan's divergence_loss
    or is no number; a point with a run that diverged is never chosen.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        train_loss = losses(task.plan.protocol.loss, weights, trial.train_x, trial.train_y)
        diverged = ~(train_loss <= task.plan.divergence_loss)
        means = np.where(diverged.any(axis=0), np.inf, train_loss.mean(axis=0))
    best = int(np.argmin(means))
    found = math.isfinite(means[best])
    chosen = weights[..., [best, best]] if found else np.zeros_like(weights[..., :2])
    measured = {name: float(each[:, 0].mean()) for name, each in task.measures(trial, chosen).items()}
    row = {**measured, "train_loss": float(means[best])}
    row |= {"step_size": float(points.step_size[best]), "clip_norm": float(points.clip_norm[best])}
    if not found:
        row = dict.fromkeys(row, math.nan)
    return {"status": "finished" if found else "diverged", **row, "diverged_share": float(diverged.mean())}


def _chunks(plan: LdpPlan, job: TrainingJob, features: int) -> Iterator[tuple[int, ...]]:
    """Yield the seeds that run together, as many as STACK_BYTES has room for, one at least."""
    protocol, widest = plan.protocol, 0
    for algorithm in dict.fromkeys(cell["algorithm"] for cell in job.cells):
        models = sum(len(plan.points(cell, 0.0).step_size) for cell in job.cells if cell["algorithm"] == algorithm)
        rows = max(3 * features, protocol.batch_size if algorithm == "minibatch" else 0)
        widest = max(widest, protocol.participation.most * rows * models)
    size = max(1, STACK_BYTES // (8 * protocol.repetitions * widest))
    for first in range(0, len(job.seeds), size):
        yield tuple(job.seeds[first : first + size])
