"""Noisy minibatch SGD (lowy2021, Algorithm 1) for linear regression, and what it shares with noisy local SGD.

Everything runs as one stack: trials x repetitions x models, where a model is one point (step size, clip norm, noise)
of a grid. The points of a stack see the same participants, the same records and the same base noise, each scaled
to its own standard deviation: every run keeps its own law, and comparisons between points are paired.

Randomness is addressed by (seed, role, client, round); one draw of an address covers all the round's steps and
repetitions. Both algorithms read the same addresses: the records of local SGD's steps are minibatch SGD's batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.engine.randomness import generator
from dpfl.models.linear_regression import Array, Records, clipped_gradient_sums


@dataclass(frozen=True)
class Trials:
    """The clients' training records, one set a trial.

    x (trials, records, features) and y (trials, records) hold the clients one after the other: client c owns the
    records starts[c] to starts[c + 1] - 1 in every trial. seeds (trials,) address the randomness.
    """

    seeds: tuple[int, ...]
    x: Array
    y: Array
    starts: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Points:
    """The stacked models: step_size, clip_norm (inf: none) and noise_std, each (models,).

    noise_std is the standard deviation, in every coordinate, of the Gaussian noise that a client adds to one message
    (minibatch) or to one step (local); it is in the gradient's unit, and 0 without privacy.
    """

    step_size: Array
    clip_norm: Array
    noise_std: Array


@dataclass(frozen=True)
class Protocol:
    """What all runs of a stack share.

    rounds R; participating M clients a round, drawn uniformly without replacement; batch_size K records a client and
    round, drawn uniformly with replacement (the steps of local SGD); repetitions of every run; last_iterates: the
    server's last so many iterates are averaged into the output.
    """

    rounds: int
    participating: int
    batch_size: int
    repetitions: int
    last_iterates: int


@dataclass(frozen=True)
class Round:
    """One round's draws: records (trials, repetitions, participating, batch_size, ...), noise standard normal.

    noise has shape (trials, repetitions, participating, steps, features).
    """

    records: Records
    noise: Array


def participants(seed: int, round: int, clients: int, protocol: Protocol) -> NDArray[np.int64]:
    """Return the clients of one round in ascending order, shape (repetitions, participating).

    Uniform without replacement, independent over repetitions, rounds and seeds.
    """
    order = np.tile(np.arange(clients), (protocol.repetitions, 1))
    if protocol.participating == clients:
        return order
    shuffled = generator(seed, "participants", round=round).permuted(order, axis=1)
    return np.sort(shuffled[:, : protocol.participating], axis=1)


def draw_round(trials: Trials, records: Records, protocol: Protocol, round: int, steps: int) -> Round:
    """Return the participants' records and base noise of one round, `steps` noise vectors a client."""
    size, repetitions = (len(trials.seeds), trials.clients), protocol.repetitions
    features = trials.x.shape[-1]
    batch = np.empty((*size, repetitions, protocol.batch_size), dtype=np.int64)
    noise = np.empty((*size, repetitions, steps, features))
    for trial, seed in enumerate(trials.seeds):
        for client, (start, stop) in enumerate(zip(trials.starts[:-1], trials.starts[1:], strict=True)):
            batches = generator(seed, "batches", client, round)
            batch[trial, client] = batches.integers(start, stop, size=batch.shape[2:])
            generator(seed, "noise", client, round).standard_normal(out=noise[trial, client])
    chosen = np.stack([participants(seed, round, trials.clients, protocol) for seed in trials.seeds])
    trial = np.arange(len(trials.seeds))[:, None, None]
    repetition = np.arange(repetitions)[None, :, None]
    batch, noise = batch[trial, chosen, repetition], noise[trial, chosen, repetition]
    return Round(records[trial[..., None], batch], noise)


def run(trials: Trials, points: Points, protocol: Protocol, progress: Callable[[], None]) -> Array:
    """Return the outputs of noisy minibatch SGD from w = 0, shape (trials, repetitions, features, models).

    A round: every participant sends the mean of its K per-record clipped gradients plus N(0, noise_std^2 I); the
    server steps by step_size times the SUM of the messages, as in the authors' experiments (Algorithm 1 takes their
    mean: a factor M in the step size). The output is the mean of the last iterates. A diverging run ends in large
    numbers, inf or NaN, and touches no other. `progress` is called after every round.
    Formal guarantee: a message has sensitivity 2 clip_norm / K to the replacement of one drawn record.
    """
    records = Records.of(trials.x, trials.y)
    stack, models = (len(trials.seeds), protocol.repetitions), len(points.step_size)
    batch_size = protocol.participating * protocol.batch_size
    weights = np.zeros((*stack, trials.x.shape[-1], models))
    step, scaled, average = np.empty_like(weights), np.empty_like(weights), np.zeros_like(weights)
    lengths = np.empty((*stack, batch_size, models))
    with np.errstate(over="ignore", invalid="ignore"):
        for round in range(protocol.rounds):
            drawn = draw_round(trials, records, protocol, round, steps=1)
            batch = Records(*(merge_clients(part) for part in vars(drawn.records).values()))
            clipped_gradient_sums(weights, batch, points.clip_norm, lengths, out=step)
            step /= protocol.batch_size
            np.multiply(drawn.noise.sum(axis=(2, 3))[..., None], points.noise_std, out=scaled)
            step += scaled
            step *= points.step_size
            weights -= step
            if round >= protocol.rounds - protocol.last_iterates:
                average += weights
            progress()
        average /= protocol.last_iterates
    return average


def merge_clients(part: Array) -> Array:
    """Return (trials, repetitions, clients, records, ...) with the clients' records in one axis."""
    return part.reshape(*part.shape[:2], part.shape[2] * part.shape[3], *part.shape[4:])
