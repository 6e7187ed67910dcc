"""Which records one round of DP-SGD uses, every round drawn afresh."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.relations import Sampling
from dpfl.engine.randomness import generator
from dpfl.errors import InputError


def round_batch(
    records: int, batch_size: int, sampling: Sampling, *, seed: int, client: int, round: int
) -> NDArray[np.int64]:
    """Return indices into the client's own `records` records, in random order, addressed by (seed, client, round).

    FIXED: `batch_size` of them, uniform without replacement. POISSON: each by its own coin of batch_size / records, so
    that a batch has any size, zero included. Raises InputError for another sampling, or batch_size above records.
    Source: vandijk2023, sections 2.2 and 2.3.
    """
    if not 1 <= batch_size <= records:
        raise InputError(f"batch_size: is {batch_size}, must be from 1 to a client's {records} records")
    draw = generator(seed, "batches", client, round)
    if sampling is Sampling.FIXED:
        return draw.choice(records, batch_size, replace=False)
    if sampling is Sampling.POISSON:
        return draw.permutation(np.flatnonzero(draw.random(records) < batch_size / records))
    raise InputError(f"sampling: {sampling} is not done here, should be {Sampling.FIXED} or {Sampling.POISSON}")
