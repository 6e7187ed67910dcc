"""Federated averaging of stacked convex models: every client passes once over its records in each round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpfl.algorithms.projected_sgd import ProjectedHyperparameters
from dpfl.engine.batches import batch_and_noise
from dpfl.mechanisms.projection import project
from dpfl.models.glm import Array, FactoredRecords, Loss, clipped_gradient_sums
from dpfl.randomness import generator


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
