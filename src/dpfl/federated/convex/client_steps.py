"""Steps that clients take on their own records: between averagings (bhaskar2025), or late (vandijk2023).

Stacks as in dpfl.federated.convex.steps: seeds x models. Records are dealt to the clients in equal shares by a
permutation a seed; each of a client's steps draws a batch of its own without replacement. Addresses: (seed, "batches"
or "noise", client, round, step).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpfl.engine.randomness import generator
from dpfl.federated.convex.steps import Points
from dpfl.mechanisms.projection import project
from dpfl.models.glm import Array, Loss, Records, clipped_gradient_sums


def shares(seed: int, users: int, clients: int) -> NDArray[np.int64]:
    """Return which records each client holds, (clients, users / clients): a uniform partition."""
    return generator(seed, "partition").permutation(users).reshape(clients, users // clients)


def averaged(
    loss: Loss,
    records: Records,
    held: NDArray[np.int64],
    seeds: Sequence[int],
    points: Points,
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
    clients, own = held.shape[1:]
    features, models = records.direction.shape[-1], len(points.noise_scale)
    server = np.zeros((len(seeds), features, models))
    weights = np.empty((len(seeds), clients, features, models))
    step, lengths = np.empty_like(weights), np.empty((len(seeds), clients, size, models))
    for round in range(passes):
        weights[:] = server[:, None]
        for place in range(own // size):
            drawn = [[_draws(seed, c, round, place, own, size, features) for c in range(clients)] for seed in seeds]
            rows = np.array([[held[s, c][drawn[s][c][0]] for c in range(clients)] for s in range(len(seeds))])
            noise = np.array([[each[1] for each in line] for line in drawn])
            clipped_gradient_sums(loss, weights, records[(rows,)], clip_norm, lengths, out=step)
            step /= size
            step += points.regularisation * weights + noise[..., None] * points.noise_scale
            weights = project(weights - points.step_size[:, 0] * step, points.radius)
            tick()
        server = weights.mean(axis=1)
    return server


def late(
    loss: Loss,
    records: Records,
    held: NDArray[np.int64],
    seeds: Sequence[int],
    points: Points,
    *,
    passes: int,
    size: int,
    delay: int,
    clip_norm: float,
    tick: Callable[[], None],
) -> Array:
    """Return the last model of a server that applies clients' updates one by one, computed on models of the past.

    Each turn of the clients comes in a uniform order; an update arrives computed on the model of min(d, all) updates
    ago, d uniform on {0..delay}. Returns (seeds, features, models); other arguments as in `averaged`. A simplified
    vandijk2023 Algorithm 1: no loss of messages, constant step size. Formal guarantee: as `averaged`, delays and
    orders do not depend on records.
    """
    clients, own = held.shape[1:]
    features, models = records.direction.shape[-1], len(points.noise_scale)
    past = [np.zeros((len(seeds), features, models))]
    step, lengths = np.empty_like(past[0]), np.empty((len(seeds), size, models))
    turns = passes * (own // size)
    for turn in range(turns):
        plans = [generator(seed, "participants", round=turn) for seed in seeds]
        orders = np.stack([plan.permutation(clients) for plan in plans])
        delays = np.stack([plan.integers(0, delay + 1, size=clients) for plan in plans])
        for place in range(clients):
            back = np.minimum(delays[:, place], len(past) - 1)
            stale = np.stack([past[-1 - b][s] for s, b in enumerate(back)])
            drawn = [_draws(seed, orders[s, place], turn, 0, own, size, features) for s, seed in enumerate(seeds)]
            rows = np.stack([held[s, orders[s, place]][drawn[s][0]] for s in range(len(seeds))])
            clipped_gradient_sums(loss, stale, records[(rows,)], clip_norm, lengths, out=step)
            step /= size
            noise = np.stack([each[1] for each in drawn])
            step += points.regularisation * stale + noise[..., None] * points.noise_scale
            past.append(project(past[-1] - points.step_size[:, 0] * step, points.radius))
            past = past[-delay - 1 :]
            tick()
    return past[-1]


def _draws(
    seed: int, client: int, round: int, step: int, own: int, size: int, features: int
) -> tuple[NDArray[np.int64], Array]:
    """Return one step's batch among a client's records, and its base noise."""
    rows = generator(seed, "batches", client, round, step).choice(own, size, replace=False)
    return rows, generator(seed, "noise", client, round, step).standard_normal(features)
