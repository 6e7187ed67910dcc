"""Five papers' algorithms on one task, at one budget, as an entry of the grid: what does trust buy?

The task is regularised logistic regression (is the label odd?) on n records; every algorithm starts at 0, projects on
the same ball and gets the same epsilon at the same delta, for replacing one record. Clients hold equal random shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import model_validator

from dpfl.accounting import shuffling
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon, release_sigma
from dpfl.accounting.local_privacy import composed_sigma
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, FullBatch, Sampler, Sampling, ShuffledEpochs
from dpfl.accounting.statements import Gaussian, PrivacyStatement, ShuffledGaussian
from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task, records_of
from dpfl.convex.problems import Array, FactoredRecords, Loss, clipped_gradient_sums
from dpfl.convex.projected_sgd import BLOCK, ProjectedHyperparameters, UserSampling, batches, models_at, projected_sgd
from dpfl.engine.batches import batch_and_noise
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings
from dpfl.mechanisms import project
from dpfl.progress import step_counter
from dpfl.randomness import generator

if TYPE_CHECKING:
    from dpfl.data.binary_classification import BinaryTask
    from dpfl.grid.training_job import Folders, TrainingJob

# Federated averaging of stacked convex models: every client passes once over its records in each round.


def deal_records(seed: int, users: int, clients: int) -> NDArray[np.int64]:
    """Return the records of each client, (clients, users / clients): a uniform partition."""
    return generator(seed, "partition").permutation(users).reshape(clients, users // clients)


def fedavg(
    loss: Loss,
    records: FactoredRecords,
    held: NDArray[np.int64],
    seeds: Sequence[int],
    points: ProjectedHyperparameters,
    *,
    passes: int,
    size: int,
    clip_norm: float,
    tick: Callable[[], None],
) -> Array:
    """Return the last average, (seeds, features, models): each round every client passes once over its records.

    held (seeds, clients, records of a client). A round starts every client at the average and takes a client's records
    / size noisy steps; only the first step size of `points` is used. Source: bhaskar2025 Algorithm 1 with E = 1.
    Formal guarantee: a step has sensitivity 2 clip_norm/size to the replacement of one of the client's records.
    """
    clients, held_count = held.shape[1:]
    features, models = records.direction.shape[-1], len(points.noise_std)
    server = np.zeros((len(seeds), features, models))
    weights = np.empty((len(seeds), clients, features, models))
    step, lengths = np.empty_like(weights), np.empty((len(seeds), clients, size, models))
    for round in range(passes):
        weights[:] = server[:, None]
        for batch in range(held_count // size):
            drawn = [
                [batch_and_noise(seed, c, round, batch, held_count, size, features) for c in range(clients)]
                for seed in seeds
            ]
            rows = np.array([[held[s, c][drawn[s][c][0]] for c in range(clients)] for s in range(len(seeds))])
            noise = np.array([[each[1] for each in line] for line in drawn])
            clipped_gradient_sums(loss, weights, records[(rows,)], clip_norm, lengths, out=step)
            step /= size
            step += points.regularisation * weights + noise[..., None] * points.noise_std
            weights = project(weights - points.step_size[:, 0] * step, points.radius)
            tick()
        server = weights.mean(axis=1)
    return server


# SGD with delayed gradients: a server applies the clients' updates one by one, each computed on an older model.


def delayed_sgd(  # noqa: PLR0913
    loss: Loss,
    records: FactoredRecords,
    held: NDArray[np.int64],
    seeds: Sequence[int],
    points: ProjectedHyperparameters,
    *,
    passes: int,
    size: int,
    delay: int,
    clip_norm: float,
    tick: Callable[[], None],
) -> Array:
    """Return the server's last model; it applies clients' updates one by one, computed on older models.

    Each turn of the clients comes in a uniform order; an update arrives computed on the model of min(d, all) updates
    ago, d uniform on {0..delay}. Returns (seeds, features, models); other arguments as in
    `fedavg`. Source: vandijk2023 Algorithm 1, simplified: no loss of messages, constant step size.
    Formal guarantee: as `fedavg`; delays and orders do not depend on records.
    """
    clients, held_count = held.shape[1:]
    features, models = records.direction.shape[-1], len(points.noise_std)
    past = [np.zeros((len(seeds), features, models))]
    step, lengths = np.empty_like(past[0]), np.empty((len(seeds), size, models))
    turns = passes * (held_count // size)
    for turn in range(turns):
        plans = [generator(seed, "participants", round=turn) for seed in seeds]
        orders = np.stack([plan.permutation(clients) for plan in plans])
        delays = np.stack([plan.integers(0, delay + 1, size=clients) for plan in plans])
        for position in range(clients):
            back = np.minimum(delays[:, position], len(past) - 1)
            stale = np.stack([past[-1 - b][s] for s, b in enumerate(back)])
            drawn = [
                batch_and_noise(seed, orders[s, position], turn, 0, held_count, size, features)
                for s, seed in enumerate(seeds)
            ]
            rows = np.stack([held[s, orders[s, position]][drawn[s][0]] for s in range(len(seeds))])
            clipped_gradient_sums(loss, stale, records[(rows,)], clip_norm, lengths, out=step)
            step /= size
            noise = np.stack([each[1] for each in drawn])
            step += points.regularisation * stale + noise[..., None] * points.noise_std
            past.append(project(past[-1] - points.step_size[:, 0] * step, points.radius))
            past = past[-delay - 1 :]
            tick()
    return past[-1]


# Eight algorithms of five papers to spend one budget on one task: whom they trust, and the noise that they need.
#
# All hold for replacing one record, at one delta. There are n records, dealt to N clients of n/N records where an
# algorithm has clients.


class TrustAlgorithm(StrEnum):
    """Algorithms that spend the budget."""

    CENTRAL = "central"
    CENTRAL_FULL = "central_full"
    LAST_MODEL = "last_model"
    PNSGD = "pnsgd"
    SHUFFLED = "shuffled"
    MINIBATCH = "minibatch"
    AVERAGING = "averaging"
    ASYNCHRONOUS = "asynchronous"


TRUST_MODEL = {
    TrustAlgorithm.CENTRAL: "trusted aggregator",
    TrustAlgorithm.CENTRAL_FULL: "trusted aggregator",
    TrustAlgorithm.LAST_MODEL: "trusted aggregator, last model only",
    TrustAlgorithm.PNSGD: "trusted aggregator, last model only",
    TrustAlgorithm.SHUFFLED: "trusted shuffler",
    TrustAlgorithm.MINIBATCH: "no trust outside the client",
    TrustAlgorithm.AVERAGING: "no trust outside the client",
    TrustAlgorithm.ASYNCHRONOUS: "no trust outside the client",
}
ONE_PASS = (TrustAlgorithm.LAST_MODEL, TrustAlgorithm.PNSGD)
FULL_BATCH = (TrustAlgorithm.CENTRAL_FULL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH)
LOCAL = (TrustAlgorithm.AVERAGING, TrustAlgorithm.ASYNCHRONOUS)


class TrustCell(Settings):
    """A cell within its job's settings.

    batch_size m of a round at the aggregator; local_batch_size of a client's own step; rounds of full batches; passes
    over the records by the algorithms that draw batches afresh; `step` the step size, constant; `delay` of the
    asynchronous updates; `dimension` of the model.
    """

    model: str
    dimension: Count
    algorithm: Choice[TrustAlgorithm]
    epsilon: Epsilon
    delta: Probability
    step: Positive
    users: Count
    clients: Count
    batch_size: Count
    local_batch_size: Count
    rounds: Count
    passes: Count
    delay: Count
    radius: Positive
    regularisation: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where a batch or a client's records are no equal part of the records."""
        for name, part, of in (
            ("clients", self.clients, self.users),
            ("batch_size", self.batch_size, self.users),
            ("local_batch_size", self.local_batch_size, self.users // self.clients),
        ):
            if part > of or of % part:
                raise ValueError(f"{name}: {part} must divide {of}, the records that it is a part of")
        return self

    @property
    def size(self) -> int:
        """Records of one noisy step."""
        if self.algorithm in FULL_BATCH:
            return self.users
        sizes = {
            TrustAlgorithm.CENTRAL: self.batch_size,
            TrustAlgorithm.LAST_MODEL: self.batch_size,
            TrustAlgorithm.PNSGD: 1,
        }
        return sizes.get(self.algorithm, self.local_batch_size)

    @property
    def steps(self) -> int:
        """Noisy steps that read one record's holder: the aggregator's rounds, or one client's own steps."""
        if self.algorithm in FULL_BATCH:
            return self.rounds
        if self.algorithm in ONE_PASS:
            return self.users // self.size
        return self.passes * self.records // self.size

    @property
    def records(self) -> int:
        """Records among which a step draws: a client's own, or all."""
        return self.users // self.holders

    @property
    def sampler(self) -> Sampler:
        """Sampler of a step among the records of its holder."""
        if self.algorithm in FULL_BATCH:
            return FullBatch()
        kind = ShuffledEpochs if self.algorithm in ONE_PASS else FixedBatches
        return kind(self.size, self.records)

    @property
    def holders(self) -> int:
        """Number of those who add noise, each to its own records' share: the clients, or the one aggregator."""
        return self.clients if self.algorithm in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 1


def noise_std(plan: TrustCell) -> float:
    """Return the deviation, in every coordinate, of the noise of a step's mean gradient; 0 without privacy.

    A step is the server's for the algorithms that step together, a client's own for the others.
    """
    if math.isinf(plan.epsilon):
        return 0.0
    if plan.algorithm in ONE_PASS:
        return release_sigma(plan.epsilon, plan.delta, _release(plan)) / math.sqrt(plan.size)
    if plan.algorithm in FULL_BATCH:
        shuffles = plan.algorithm is TrustAlgorithm.SHUFFLED
        crowd = (plan.clients, plan.records, plan.dimension)
        multiplier = _message_multiplier(shuffles, plan.epsilon, plan.delta, plan.rounds, *crowd)
        return multiplier * LIPSCHITZ / plan.records / math.sqrt(plan.holders)
    return composed_sigma(*_composition(plan, plan.epsilon)) / math.sqrt(plan.size)


def privacy(plan: TrustCell, noise_std: float) -> dict[str, Any]:
    """Return the statement's columns, with whom it trusts and epsilon by contraction (nan: no answer).

    noise_multiplier is the deviation of the noise in a step's sum over one record's largest share of it.
    """
    extra = {
        "privacy_trust": TRUST_MODEL[plan.algorithm],
        "privacy_released": "last model" if plan.algorithm in ONE_PASS else "all models",
    }
    multiplier = noise_std * plan.size / LIPSCHITZ
    if plan.algorithm in FULL_BATCH:
        multiplier = noise_std * math.sqrt(plan.holders) * plan.records / LIPSCHITZ
    last_model = math.nan if noise_std > 0 else math.inf
    if plan.algorithm in ONE_PASS and noise_std > 0:
        last_model = release_epsilon(plan.delta, _release(plan), sigma=noise_std * math.sqrt(plan.size))
    shuffled = ShuffledGaussian(plan.clients, plan.records, plan.dimension)
    statement = PrivacyStatement.of(
        shuffled if plan.algorithm is TrustAlgorithm.SHUFFLED else Gaussian(),
        plan.sampler,
        neighbouring=Neighbouring.REPLACE_ONE,
        records=plan.records,
        clip_norm=LIPSCHITZ,
        noise_multiplier=multiplier,
        steps=plan.steps,
        delta=plan.delta,
        note=_NOTES[plan.algorithm],
    )
    return {**statement.columns(), **extra, "privacy_epsilon_contraction": last_model}


_NOTES = {
    TrustAlgorithm.CENTRAL: "fresh batches without replacement, composed; whoever sees all models",
    TrustAlgorithm.LAST_MODEL: "epsilon_contraction is of the last model alone; epsilon_proven of all models",
    TrustAlgorithm.PNSGD: "epsilon_contraction is of the last model alone, secret order; epsilon_proven of all models",
    TrustAlgorithm.CENTRAL_FULL: "full batches: Gaussian mechanisms, composed exactly; whoever sees all models",
    TrustAlgorithm.SHUFFLED: (
        "against whoever sees the shuffled messages only: the blanket of the other clients, composed"
    ),
    TrustAlgorithm.MINIBATCH: "against whoever sees every message of a client",
    TrustAlgorithm.AVERAGING: (
        "a client's budget for its own records, against whoever sees its models; batches composed"
    ),
    TrustAlgorithm.ASYNCHRONOUS: (
        "a client's budget for its own records, against whoever sees its updates; batches composed"
    ),
}


def _composition(plan: TrustCell, first: float) -> tuple[float, float, int, int, int, Sampling]:
    """Return the arguments of composed_sigma."""
    return first, plan.delta, plan.records, plan.size, plan.steps, Sampling.FIXED


@cache
def _message_multiplier(
    shuffles: bool, epsilon: float, delta: float, rounds: int, clients: int, records: int, dimension: int
) -> float:
    """Return sigma n_c/L of one client's message on its full batch, once for every step size."""
    if not shuffles:
        return shuffling.local_noise_multiplier(epsilon=epsilon, delta=delta, rounds=rounds)
    run = {"rounds": rounds, "clients": clients, "records": records, "delta": delta, "dimension": dimension}
    return shuffling.noise_multiplier(target_epsilon=epsilon, **run)


def _release(plan: TrustCell) -> FederatedRelease:
    """Return a one-pass plan as the contraction analysis takes it."""
    return FederatedRelease(
        n=plan.users,
        m=plan.size,
        eta=plan.step,
        lipschitz=LIPSCHITZ,
        radius=plan.radius,
        smoothness=CURVATURE + plan.regularisation,
        strong_convexity=plan.regularisation,
        first_stop=plan.users // plan.size,
    )


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: its keys, noise_std (of a step's mean gradient), noise_multiplier, privacy_* columns.

    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in job.cells:
        plan = TrustCell.of(job.settings, cell)
        std = noise_std(plan)
        columns = privacy(plan, std)
        noise = {"noise_std": std, "noise_multiplier": columns["privacy_noise_multiplier"]}
        rows.append({**as_columns(cell), **noise, **columns})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row for each run, cells in order and seeds within.

    Metrics: excess_risk over the n records above the optimum in the ball, accuracy_pct on the test set, and the
    optimum's. `progress` counts noisy steps of a whole stack. `checkpoint` is not used: minutes at most.
    Raises InputError where settings, cells, data or calibration cannot be used.
    """
    plans = [TrustCell.of(job.settings, cell) for cell in job.cells]
    task = load_task(plans[0].model, folders)
    noise = calibrated(calibration, job.cells)
    noise_stds = [each["noise_std"] for each in noise]
    _check(task, plans)
    users = plans[0].users
    goal = RegularisedRisk(task.train_x[:users], task.train_y[:users], plans[0].regularisation, plans[0].radius)
    records = records_of(task)[(slice(users),)]
    groups = {each: [place for place, plan in enumerate(plans) if plan.algorithm is each] for each in TrustAlgorithm}
    total = sum(_turns(plans[places[0]]) for places in groups.values() if places)
    tick = step_counter(progress, total)
    best = float(accuracy_pct(goal.optimum[:, None], task.test_x, task.test_y)[0])
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for places in filter(None, groups.values()):
        stack = [plans[place] for place in places]
        weights = _run(records, stack, [noise_stds[place] for place in places], job, tick)
        for model, place in enumerate(places):
            own = weights[..., model].T
            facts = {"optimum_accuracy_pct": best, "trust": TRUST_MODEL[plans[place].algorithm]}
            measured = zip(goal.excess(own), accuracy_pct(own, task.test_x, task.test_y), strict=True)
            for seed, (excess, accuracy) in zip(job.seeds, measured, strict=True):
                results[place, seed] = {"excess_risk": float(excess), "accuracy_pct": float(accuracy), **facts}
    return run_table(job, task.description, noise, results)


def _run(
    records: FactoredRecords,
    stack: list[TrustCell],
    noise_stds: list[float],
    job: TrainingJob,
    tick: Callable[[], None],
) -> Array:
    """Return the released models of one algorithm's cells, (seeds, features, models)."""
    plan, seeds = stack[0], job.seeds
    models, rounds = len(stack), plan.steps if plan.algorithm not in LOCAL else 1
    points = ProjectedHyperparameters(
        step_size=np.tile(np.array([[each.step] for each in stack]), (1, rounds)),
        noise_std=np.array(noise_stds),
        radius=np.full(models, plan.radius),
        regularisation=np.full(models, plan.regularisation),
    )
    if plan.algorithm in LOCAL:
        held = np.stack([deal_records(seed, plan.users, plan.clients) for seed in seeds])
        common = {"passes": plan.passes, "size": plan.size, "clip_norm": LIPSCHITZ, "tick": tick}
        if plan.algorithm is TrustAlgorithm.AVERAGING:
            return fedavg(LOSS, records, held, seeds, points, **common)
        return delayed_sgd(LOSS, records, held, seeds, points, delay=plan.delay, **common)
    draw = UserSampling.ONE_PASS if plan.algorithm in ONE_PASS else UserSampling.FRESH
    source = (
        _everything(records, len(seeds))
        if plan.algorithm in FULL_BATCH
        else batches(records, draw, seeds, plan.users, plan.size)
    )
    last = np.full((len(seeds), models, 1), rounds)
    return models_at(projected_sgd(LOSS, source, seeds, points, clip_norm=LIPSCHITZ), last, tick)[:, 0]


def _everything(records: FactoredRecords, seeds: int) -> Callable[[int], FactoredRecords]:
    """Return the source whose every round reads all records, without a copy."""
    views = (np.broadcast_to(part, (seeds, BLOCK, *part.shape)) for part in vars(records).values())
    block = FactoredRecords(*views)
    return lambda number: block


def _turns(plan: TrustCell) -> int:
    """Return how many steps of a whole stack an algorithm takes."""
    return plan.steps * plan.clients if plan.algorithm is TrustAlgorithm.ASYNCHRONOUS else plan.steps


def _check(task: BinaryTask, plans: list[TrustCell]) -> None:
    """Raise InputError where data and cells do not fit together."""
    records, dimension = task.train_x.shape
    if dimension != plans[0].dimension:
        raise InputError(f"dimension is {plans[0].dimension}; {plans[0].model} has {dimension} features")
    if plans[0].users > records:
        raise InputError(f"users: n = {plans[0].users}, but {task.description['name']} has {records} training records")
