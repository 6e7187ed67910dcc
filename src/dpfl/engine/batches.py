"""Which records each step of an epoch uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError
from dpfl.models.glm import Array
from dpfl.randomness import generator


def steps_per_epoch(records: int, batch_size: int) -> int:
    """Return ceil(records / batch_size), the steps of an epoch; its inverse is the sample rate that Opacus uses."""
    return -(-records // batch_size)


def expected_batch_size(records: int, batch_size: int) -> int:
    """Return the whole number by which a noisy gradient sum is divided: floor(records / steps per epoch).

    Opacus computes int(records * sample_rate) in floating point; this is the same without its rounding error.
    """
    return records // steps_per_epoch(records, batch_size)


def epoch_batches(
    records: int, batch_size: int, sampling: Sampling, *, seed: int, client: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Return the batches of one client's epoch: for each step, indices into the client's own `records` records.

    SHUFFLED: a fresh permutation cut into batches of `batch_size`, the last one maybe shorter, so every record is used
    once. POISSON: every step takes each record with probability 1/steps, so a batch has any size, zero included.
    The draw is addressed by (seed, "batches", client, epoch). Raises InputError for another kind of sampling.
    """
    draw = generator(seed, "batches", client, epoch)
    steps = steps_per_epoch(records, batch_size)
    if sampling is Sampling.SHUFFLED:
        order = draw.permutation(records)
        return [order[start : start + batch_size] for start in range(0, records, batch_size)]
    if sampling is Sampling.POISSON:
        return [np.flatnonzero(draw.random(records) < 1 / steps) for _ in range(steps)]
    raise InputError(f"sampling: {sampling} is not done here, should be {Sampling.SHUFFLED} or {Sampling.POISSON}")


def _draws(
    seed: int, client: int, round: int, step: int, own: int, size: int, features: int
) -> tuple[NDArray[np.int64], Array]:
    """Return one step's batch among a client's records, and its base noise."""
    rows = generator(seed, "batches", client, round, step).choice(own, size, replace=False)
    return rows, generator(seed, "noise", client, round, step).standard_normal(features)
