"""Noisy local SGD for linear regression: the baseline that lowy2021's Fig. 2 sets beside noisy minibatch SGD.

Stack, participants, records and base noise are minibatch SGD's (dpfl.federated.minibatch).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpfl.federated.minibatch import Points, Protocol, Trials, draw_round
from dpfl.models.linear_regression import Array, Records, clipped_gradient_sums


def run(trials: Trials, points: Points, protocol: Protocol, progress: Callable[[], None]) -> Array:
    """Return the outputs of noisy local SGD from w = 0, shape (trials, repetitions, features, models).

    A round: every participant starts at the server's iterate and takes K = batch_size steps, each along ONE record's
    clipped gradient plus N(0, noise_std^2 I); the server takes the mean of their results. The output is the mean of
    the server's last iterates. A diverging run ends in large numbers, inf or NaN, and touches no other.
    `progress` is called after every round.
    Formal guarantee: a step has sensitivity 2 clip_norm to the replacement of the drawn record.
    """
    records = Records.of(trials.x, trials.y)
    features, models = trials.x.shape[-1], len(points.step_size)
    stack = (len(trials.seeds), protocol.repetitions)
    server, average = np.zeros((*stack, features, models)), np.zeros((*stack, features, models))
    weights = np.empty((*stack, protocol.participating, features, models))
    step, scaled = np.empty_like(weights), np.empty_like(weights)
    lengths = np.empty((*weights.shape[:3], 1, models))
    with np.errstate(over="ignore", invalid="ignore"):
        for round in range(protocol.rounds):
            drawn = draw_round(trials, records, protocol, round, steps=protocol.batch_size)
            weights[:] = server[:, :, None]
            for k in range(protocol.batch_size):
                one = drawn.records[:, :, :, k : k + 1]
                clipped_gradient_sums(weights, one, points.clip_norm, lengths, out=step)
                np.multiply(drawn.noise[:, :, :, k, :, None], points.noise_std, out=scaled)
                step += scaled
                step *= points.step_size
                weights -= step
            np.mean(weights, axis=2, out=server)
            if round >= protocol.rounds - protocol.last_iterates:
                average += server
            progress()
        average /= protocol.last_iterates
    return average
