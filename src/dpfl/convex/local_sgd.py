"""Noisy local SGD on stacked convex models: the baseline that lowy2021 compares with noisy minibatch SGD.

A gradient is along its record, so a block of local steps needs no model until it ends: scores follow from the scores
at its start, the records' inner products and the slopes so far. That is the plain loop, reordered, and touches the
stacked models once a block instead of once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dpfl.convex.federated_rounds import Hyperparameters, Protocol, Trials, draw_round, mean_of_last
from dpfl.convex.problems import Array, FactoredRecords, Loss
from dpfl.mechanisms import clip_lengths, project

BLOCK_STEPS = 16
"""Local steps between two updates of the stacked models: about the fastest for 7 to 50 features."""


def local_sgd(trials: Trials, points: Hyperparameters, protocol: Protocol) -> Iterator[Array]:
    """Yield the server's model after every round, (trials, repetitions, features, models), from w = 0.

    A round: every participant starts at the server's model and takes K = batch_size steps, each along ONE record's
    clipped gradient plus N(0, noise_std^2 I), projected where the points say so; the server takes the mean of their
    results, whatever the protocol's aggregate. The array is overwritten by the next round.
    Formal guarantee: a step has sensitivity 2 clip_norm to the replacement of the drawn record.
    Raises ValueError where the protocol does not fit the trials.
    """
    protocol.fits(trials)
    records = FactoredRecords.of(trials.x, trials.y)
    stack = (len(trials.seeds), protocol.repetitions)
    server = np.zeros((*stack, trials.x.shape[-1], len(points.step_size)))
    constrained = points.projected or points.regularisation is not None
    block = 1 if constrained else min(BLOCK_STEPS, protocol.batch_size)
    for round in range(protocol.rounds):
        drawn = draw_round(trials, records, protocol, round, steps=protocol.batch_size)
        weights = np.repeat(server[:, :, None], protocol.participation.most, axis=2)
        for first in range(0, protocol.batch_size, block):
            steps = slice(first, first + block)
            moved = block_movement(
                protocol.loss, weights, drawn.records[:, :, :, steps], drawn.noise[:, :, :, steps], points
            )
            if points.regularisation is not None:
                moved += points.step_size * points.regularisation * weights
            weights -= moved
            if points.projected:
                assert points.radius is not None
                weights = project(weights, points.radius)
        np.einsum("trc,trcdm->trdm", drawn.participates / drawn.count[..., 0], weights, out=server)
        yield server


def block_movement(
    loss: Loss, weights: Array, records: FactoredRecords, noise: Array, points: Hyperparameters
) -> Array:
    """Return how far consecutive noisy steps, one per record, move down from `weights` (..., features, models).

    records (..., steps, ...) and noise (..., steps, features) are in the order of the steps. Step k sees the score
    x_k . w_0 less step_size times (sum over j < k of length_j x_k . u_j + noise_std x_k . z_j), where u_j is the
    direction of x_j and length_j the clipped, signed length of step j's gradient.
    """
    direction, norms, targets = records.direction, records.norms[..., None], records.targets[..., None]
    steps = direction.shape[-2]
    lengths = np.einsum("...nd,...dm->...nm", direction, weights)
    earlier = np.einsum("...nd,...kd->...nk", direction, direction)
    drift = np.einsum("...nd,...nd->...n", direction, np.cumsum(noise, axis=-2) - noise)
    for k in range(steps):
        score = lengths[..., k, :]
        if k:
            pulls = np.einsum("...j,...jm->...m", earlier[..., k, :k], lengths[..., :k, :])
            pulls += drift[..., k, None] * points.noise_std
            pulls *= points.step_size
            score = score - pulls
        length = loss.derivative(score * norms[..., k, :], targets[..., k, :])
        length *= norms[..., k, :]
        clip_lengths(length, points.clip_norm, out=lengths[..., k, :])
    moved = np.einsum("...nd,...nm->...dm", direction, lengths)
    moved += noise.sum(axis=-2)[..., None] * points.noise_std
    moved *= points.step_size
    return moved


def averaged_local_sgd(
    trials: Trials, points: Hyperparameters, protocol: Protocol, progress: Callable[[], None] = lambda: None
) -> Array:
    """Return the outputs of noisy local SGD, the mean of the last iterates; see `iterates` and `mean_of_last`."""
    return mean_of_last(local_sgd(trials, points, protocol), protocol.rounds, protocol.last_iterates, progress)
