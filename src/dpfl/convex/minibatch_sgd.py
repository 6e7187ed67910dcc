"""Noisy minibatch SGD (lowy2021, Algorithm 1) on stacked convex models; with noise 0 and no clipping, minibatch SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol as Interface

import numpy as np

from dpfl.convex.federated_rounds import (
    Aggregate,
    Clipping,
    Hyperparameters,
    Protocol,
    Round,
    Trials,
    draw_round,
    mean_of_last,
)
from dpfl.convex.problems import Array, FactoredRecords, clipped_gradient_sums
from dpfl.mechanisms import clip_factors, project


class NoisyGradientSource(Interface):
    """Source of a round's noisy gradient: NoisyGradients, or mean_gradients.MeanGradients."""

    points: Hyperparameters
    protocol: Protocol
    shape: tuple[int, ...]
    """(trials, repetitions, features, models)."""

    def at(self, weights: Array, round: int) -> Array:
        """Return the participants' mean noisy gradient at `weights`, both of that shape."""
        ...


class NoisyGradients:
    """Release of a round to the server: the sum or mean of the participants' noisy, clipped mean gradients.

    Shared by the algorithms whose clients send one message per round; it keeps the working memory between rounds.
    Formal guarantee: with Clipping.RECORD a message has sensitivity 2 clip_norm / K to the replacement of one drawn
    record; with Clipping.MEAN 2 clip_norm, however small the record's share. The regularisation reads no record.
    Raises ValueError where the protocol does not fit the trials.
    """

    def __init__(self, trials: Trials, points: Hyperparameters, protocol: Protocol) -> None:
        protocol.fits(trials)
        self.trials, self.points, self.protocol = trials, points, protocol
        self.records = FactoredRecords.of(trials.x, trials.y)
        stack, models = (len(trials.seeds), protocol.repetitions), len(points.step_size)
        features, clients = trials.x.shape[-1], protocol.participation.most
        self.shape = (*stack, features, models)
        merged = protocol.clipping is Clipping.RECORD
        batch = (clients * protocol.batch_size,) if merged else (clients, protocol.batch_size)
        self._lengths = np.empty((*stack, *batch, models))
        self._sums = np.empty(self.shape if merged else (*stack, clients, features, models))
        self._scaled = np.empty(self.shape)

    def at(self, weights: Array, round: int) -> Array:
        """Return the round's noisy gradient at `weights`, both (trials, repetitions, features, models).

        The regularisation's gradient is added without noise, once per message that is summed. The result is overwritten
        by the next call.
        """
        drawn = draw_round(self.trials, self.records, self.protocol, round, steps=1)
        total = self._clipped(weights, drawn)
        np.multiply(drawn.noise.sum(axis=(2, 3))[..., None], self.points.noise_std, out=self._scaled)
        total += self._scaled
        counts = drawn.count
        if self.protocol.aggregate is Aggregate.MEAN:
            total /= counts
            counts = np.ones_like(counts)
        if self.points.regularisation is not None:
            total += counts * self.points.regularisation * weights
        return total

    def _clipped(self, weights: Array, drawn: Round) -> Array:
        """The sum over the participants of their clipped mean gradients, without noise."""
        loss, size = self.protocol.loss, self.protocol.batch_size
        if self.protocol.clipping is Clipping.RECORD:
            merged = FactoredRecords(*(_merge_clients(part) for part in vars(drawn.records).values()))
            sums = clipped_gradient_sums(loss, weights, merged, self.points.clip_norm, self._lengths, out=self._sums)
            sums /= size
            return sums
        unclipped = np.full_like(self.points.clip_norm, np.inf)
        means = clipped_gradient_sums(loss, weights[:, :, None], drawn.records, unclipped, self._lengths, self._sums)
        means /= size
        norms = np.linalg.norm(means, axis=-2, keepdims=True)
        factors = clip_factors(norms, self.points.clip_norm)
        means *= factors
        np.copyto(means, 0.0, where=np.isnan(factors) & np.isfinite(self.points.clip_norm))
        return means.sum(axis=2)


def minibatch_sgd(trials: Trials, points: Hyperparameters, protocol: Protocol) -> Iterator[Array]:
    """Yield the server's model after every round, (trials, repetitions, features, models), from w = 0.

    A round: every participant sends the mean of its K clipped gradients plus N(0, noise_std^2 I); the server steps by
    step_size times the messages' sum or mean, then projects. The array is overwritten by the next round.
    Source: lowy2021 Algorithm 1. Raises ValueError where the protocol does not fit the trials.
    """
    return descend(NoisyGradients(trials, points, protocol))


def descend(gradients: NoisyGradientSource) -> Iterator[Array]:
    """Yield the server's model after every round of Algorithm 1 on these gradients, as `minibatch_sgd` does."""
    points, weights = gradients.points, np.zeros(gradients.shape)
    for round in range(gradients.protocol.rounds):
        step = gradients.at(weights, round)
        step *= points.step_size
        weights -= step
        if points.projected:
            assert points.radius is not None
            weights[:] = project(weights, points.radius)
        yield weights


def weighted_mean(iterates: Iterable[Array], strong_convexity: float, step_size: Array) -> Array:
    """Return sum_r gamma_r w_r / sum_r gamma_r over all iterates, with gamma_r = (1 - mu eta)^-(r + 1).

    mu `strong_convexity` >= 0, eta `step_size` (models,), with mu eta < 1; for mu = 0 it is the plain mean, and the
    larger mu eta is, the more the last iterates count. It is computed as a running mean, so that nothing overflows.
    Source: lowy2021 Algorithm 1, whose output it is, after stich2019 (reference 67 there), for constant steps.
    Raises ValueError for mu eta of 1 or more, and without an iterate.
    """
    decay = 1.0 - strong_convexity * np.asarray(step_size, dtype=np.float64)
    if np.any(decay <= 0):
        raise ValueError(f"step_size is {step_size}; times strong_convexity {strong_convexity} it must be below 1")
    mean: Array | None = None
    total = np.zeros_like(decay)
    for weights in iterates:
        total = decay * total + 1.0  # sum_k gamma_k / gamma_r
        mean = weights.copy() if mean is None else mean
        mean += (weights - mean) / total
    if mean is None:
        raise ValueError("iterates is empty; there is nothing to average")
    return mean


def averaged_minibatch_sgd(
    trials: Trials, points: Hyperparameters, protocol: Protocol, progress: Callable[[], None] = lambda: None
) -> Array:
    """Return the outputs of noisy minibatch SGD, the mean of the last iterates; see `iterates` and `mean_of_last`."""
    return mean_of_last(minibatch_sgd(trials, points, protocol), protocol.rounds, protocol.last_iterates, progress)


def _merge_clients(part: Array) -> Array:
    """Return (trials, repetitions, clients, records, ...) with the clients' records in one axis."""
    return part.reshape(*part.shape[:2], part.shape[2] * part.shape[3], *part.shape[4:])
