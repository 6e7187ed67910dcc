"""One-pass accelerated noisy SGD (lowy2021, Theorem 2.2): Algorithm 2 on records that are each used at most once.

No record is seen twice, so the gradients are those of the population, and every message is protected by its own noise
alone: nothing composes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.algorithms.minibatch_sgd import NoisyGradients
from dpfl.engine.federated_rounds import Hyperparameters, Protocol, Trials
from dpfl.models.glm import Array
from dpfl.randomness import generator


class OneRecordGradients:
    """The participants' noisy gradients of ONE record each, its own in every round; for accelerated.run.

    Client i shows in round r the r-th record of a permutation of its own, addressed (seed, "batches", i); who does not
    take part leaves it unused. Repetitions share the order, not the noise.
    Formal guarantee: a record moves one message only, by at most 2 clip_norm, whatever the rounds (lowy2021 Theorem
    2.2). Raises ValueError where batch_size is not 1, or the rounds exceed a client's records.
    """

    def __init__(self, trials: Trials, points: Hyperparameters, protocol: Protocol) -> None:
        if protocol.batch_size != 1:
            raise ValueError(f"batch_size is {protocol.batch_size}; one pass takes 1 record a round")
        if protocol.rounds > trials.fewest_records:
            raise ValueError(f"rounds: {protocol.rounds} exceed the {trials.fewest_records} records of a client")
        self.trials, self.points, self.protocol = trials, points, protocol
        self.shape = (len(trials.seeds), protocol.repetitions, trials.x.shape[-1], len(points.step_size))
        self.order = np.stack([record_order(trials, seed, protocol.rounds) for seed in trials.seeds])
        self._single = replace(protocol, sampling=Sampling.FULL)

    def at(self, weights: Array, round: int) -> Array:
        """Return the round's mean noisy gradient at `weights`, both (trials, repetitions, features, models)."""
        shown = (np.arange(len(self.order))[:, None], self.order[:, :, round])
        starts = np.arange(self.trials.clients + 1)
        one_each = Trials(self.trials.seeds, self.trials.x[shown], self.trials.y[shown], starts)
        return NoisyGradients(one_each, self.points, self._single).at(weights, round)


def record_order(trials: Trials, seed: int, rounds: int) -> NDArray[np.int64]:
    """Return which record of each client is shown in which round, shape (clients, rounds): never one twice."""
    bounds = zip(trials.starts[:-1], trials.starts[1:], strict=True)
    return np.stack(
        [
            start + generator(seed, "batches", client).permutation(stop - start)[:rounds]
            for client, (start, stop) in enumerate(bounds)
        ]
    )
