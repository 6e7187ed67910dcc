"""Draw rounds of federated learning without a trusted server, for many convex models at once.

Everything runs as one stack: trials x repetitions x models, where a model is one point (step size, clip norm, noise,
...) of a grid. The points of a stack see the same participants, the same records and the same base noise, each scaled
to its own standard deviation: every run keeps its own law, and comparisons between points are paired.

Randomness is addressed by (seed, role, client, round); one draw of an address covers all the round's steps and
repetitions. All algorithms read the same addresses: the records of local SGD's steps are minibatch SGD's batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.convex.problems import Array, FactoredRecords, Loss
from dpfl.randomness import generator

_COUNT_STEP = 1
"""The number of participants is drawn at step 1 of the address at whose step 0 they are drawn."""


class Aggregate(StrEnum):
    """Aggregate that the server steps along."""

    SUM = "sum"
    """The sum of the messages, as lowy2021's scripts do: the step size counts once a participant."""
    MEAN = "mean"
    """Their mean, as lowy2021's Algorithm 1 does."""


class Clipping(StrEnum):
    """Vectors that a client clips."""

    RECORD = "record"
    """Every record's gradient: a message moves by 2 clip_norm / K when a drawn record is replaced."""
    MEAN = "mean"
    """The mean of its batch, as lowy2021's scripts do: ONE record can move it by 2 clip_norm. It does not protect."""


@dataclass(frozen=True)
class Trials:
    """The clients' training records, one set per trial.

    x (trials, records, features) and y (trials, records) hold the clients one after the other: client c owns the
    records starts[c] to starts[c + 1] - 1 in every trial. seeds (trials,) address the randomness.
    """

    seeds: tuple[int, ...]
    x: Array
    y: Array
    starts: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return len(self.starts) - 1

    @property
    def fewest_records(self) -> int:
        """The records of the client with the fewest, n."""
        return int(np.diff(self.starts).min())


@dataclass(frozen=True)
class Hyperparameters:
    """The stacked models, each array (models,).

    step_size; clip_norm (inf: none); noise_std, the standard deviation, in every coordinate, of the Gaussian noise
    that a client adds to one message (minibatch) or to one step (local), in the gradient's unit, 0 without privacy;
    radius of the ball that the model is projected on (None or inf: none); regularisation lambda of lambda/2 |w|^2
    added to every client's objective (None: none).
    """

    step_size: Array
    clip_norm: Array
    noise_std: Array
    radius: Array | None = None
    regularisation: Array | None = None

    @classmethod
    def joined(cls, parts: Iterable[Hyperparameters]) -> Hyperparameters:
        """Return the models of all parts, one after the other; all parts have the same optional fields."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(
            *cast("Iterable[Any]", (None if column[0] is None else np.concatenate(column) for column in columns))
        )

    @property
    def projected(self) -> bool:
        """True if any model is projected."""
        return self.radius is not None and bool(np.isfinite(self.radius).any())


@dataclass(frozen=True)
class Participation:
    """Number of clients in a round: M_r uniform on `sizes`, which may repeat a number; one entry fixes it.

    Given M_r, the participants are drawn uniformly without replacement. Raises ValueError for a size below 1.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes is {self.sizes}; every number of participants must be at least 1")

    @property
    def most(self) -> int:
        """The largest M_r."""
        return max(self.sizes)

    @property
    def mean_inverse(self) -> float:
        """E[1/M_r], on which lowy2021's bounds depend."""
        return float(np.mean([1.0 / size for size in self.sizes]))


@dataclass(frozen=True)
class Protocol:
    """Settings that all runs of a stack share.

    loss of one record; rounds R; participation M_r; batch_size K records per client and round (the steps of local SGD),
    drawn uniformly WITH_REPLACEMENT, FIXED (no record twice within a round) or FULL (K = n, all records);
    repetitions of every run; last_iterates: the output is the mean of that many of the server's last iterates.
    Raises ValueError for another sampling.
    """

    loss: Loss
    rounds: int
    participation: Participation
    batch_size: int
    repetitions: int
    last_iterates: int = 1
    sampling: Sampling = Sampling.WITH_REPLACEMENT
    aggregate: Aggregate = Aggregate.SUM
    clipping: Clipping = Clipping.RECORD

    def __post_init__(self) -> None:
        if self.sampling not in (Sampling.WITH_REPLACEMENT, Sampling.FIXED, Sampling.FULL):
            raise ValueError(f"sampling must be WITH_REPLACEMENT, FIXED or FULL here, got {self.sampling!r}")

    def fits(self, trials: Trials) -> None:
        """Raise ValueError, naming the field, if the protocol asks for clients or records that do not exist."""
        if self.participation.most > trials.clients:
            raise ValueError(f"participation: {self.participation.most} of {trials.clients} clients cannot take part")
        sizes = np.diff(trials.starts)
        if sizes.min() < 1:
            raise ValueError(f"starts: client {int(np.argmin(sizes))} has no records")
        if self.sampling is Sampling.FIXED and self.batch_size > sizes.min():
            raise ValueError(f"batch_size {self.batch_size} exceeds the {sizes.min()} records of a client")
        if self.sampling is Sampling.FULL and not np.all(sizes == self.batch_size):
            raise ValueError(f"batch_size {self.batch_size} is not every client's number of records, {sizes.tolist()}")


@dataclass(frozen=True)
class Round:
    """One round's draws; the client axis has room for the largest M_r.

    records (trials, repetitions, clients, batch_size, ...); noise, standard normal, (trials, repetitions, clients,
    steps, features); participates (trials, repetitions, clients), 1.0 for who takes part. The directions and the noise
    of the others are 0, so sums over clients need no mask.
    """

    records: FactoredRecords
    noise: Array
    participates: Array

    @property
    def count(self) -> Array:
        """M_r, shape (trials, repetitions, 1, 1), to divide sums (trials, repetitions, features, models) by."""
        return self.participates.sum(axis=2)[..., None, None]


def participants(seed: int, round: int, clients: int, protocol: Protocol) -> tuple[NDArray[np.int64], Array]:
    """Return clients (repetitions, most) in ascending order, and who of them is participates, 1.0 or 0.0.

    Independent over repetitions, rounds and seeds. With M_r below the most, the last entries stand for no client.
    """
    sizes, most = protocol.participation.sizes, protocol.participation.most
    order = np.tile(np.arange(clients), (protocol.repetitions, 1))
    participates = np.ones((protocol.repetitions, most))
    if len(sizes) > 1:
        places = generator(seed, "participants", round=round, step=_COUNT_STEP).integers(
            len(sizes), size=protocol.repetitions
        )
        participates = (np.arange(most) < np.array(sizes)[places][:, None]).astype(np.float64)
    elif most == clients:
        return order, participates
    shuffled = generator(seed, "participants", round=round).permuted(order, axis=1)[:, :most]
    ranks = np.argsort(np.where(participates > 0, shuffled, clients), axis=1, kind="stable")
    return np.take_along_axis(shuffled, ranks, axis=1), participates


def draw_round(trials: Trials, records: FactoredRecords, protocol: Protocol, round: int, steps: int) -> Round:
    """Return the participants' records and base noise of one round, `steps` noise vectors per client."""
    size, repetitions = (len(trials.seeds), trials.clients), protocol.repetitions
    chosen, participates = (np.stack(part) for part in zip(*_all_participants(trials, protocol, round), strict=True))
    batch = np.zeros((*size, repetitions, protocol.batch_size), dtype=np.int64)
    noise = np.zeros((*size, repetitions, steps, trials.x.shape[-1]))
    for trial, seed in enumerate(trials.seeds):
        for client in np.unique(chosen[trial][participates[trial] > 0]):
            batch[trial, client] = _batches(trials, protocol, seed, client, round)
            generator(seed, "noise", client, round).standard_normal(out=noise[trial, client])
    trial = np.arange(len(trials.seeds))[:, None, None]
    repetition = np.arange(repetitions)[None, :, None]
    drawn = records[trial[..., None], batch[trial, chosen, repetition]]
    noise = noise[trial, chosen, repetition]
    if not participates.all():
        drawn = FactoredRecords(drawn.direction * participates[..., None, None], drawn.norms, drawn.targets)
        noise *= participates[..., None, None]
    return Round(drawn, noise, participates)


def mean_of_last(
    iterates: Iterable[Array], rounds: int, last_iterates: int, progress: Callable[[], None] = lambda: None
) -> Array:
    """Return the mean of the last of `rounds` iterates; `progress` is called after every one.

    A diverging run ends in large numbers, inf or NaN, without a warning, and touches no other.
    """
    total: Array | float = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for round, weights in enumerate(iterates):
            if round >= rounds - last_iterates:
                total = total + weights
            progress()
        return np.asarray(total / last_iterates)


def _all_participants(trials: Trials, protocol: Protocol, round: int) -> list[tuple[NDArray[np.int64], Array]]:
    """Return the participants of every trial."""
    return [participants(seed, round, trials.clients, protocol) for seed in trials.seeds]


def _batches(trials: Trials, protocol: Protocol, seed: int, client: int, round: int) -> NDArray[np.int64]:
    """Return a client's records of one round, shape (repetitions, batch_size)."""
    start, stop = int(trials.starts[client]), int(trials.starts[client + 1])
    shape = (protocol.repetitions, protocol.batch_size)
    if protocol.sampling is Sampling.FULL:
        return np.broadcast_to(np.arange(start, stop), shape)
    source = generator(seed, "batches", int(client), round)
    if protocol.sampling is Sampling.WITH_REPLACEMENT:
        return source.integers(start, stop, size=shape)
    order = np.tile(np.arange(start, stop), (protocol.repetitions, 1))
    return source.permuted(order, axis=1)[:, : protocol.batch_size]
