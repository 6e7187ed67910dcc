"""SGD with delayed gradients: a server applies the clients' updates one by one, each computed on an older model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpfl.algorithms.projected_sgd import ProjectedHyperparameters
from dpfl.engine.batches import batch_and_noise
from dpfl.mechanisms.projection import project
from dpfl.models.glm import Array, FactoredRecords, Loss, clipped_gradient_sums
from dpfl.randomness import generator


def delayed_sgd(
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
    `convex_fedavg.fedavg`. Source: vandijk2023 Algorithm 1, simplified: no loss of messages, constant step size.
    Formal guarantee: as `convex_fedavg.fedavg`; delays and orders do not depend on records.
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
