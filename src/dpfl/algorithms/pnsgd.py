"""PNSGD (asoodeh2020): the order of the records, and their source for `projected_sgd`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpfl.algorithms.projected_sgd import _rows
from dpfl.models.glm import FactoredRecords
from dpfl.randomness import generator


def ordered_records(records: FactoredRecords, orders: NDArray[np.int64]) -> Callable[[int], FactoredRecords]:
    """Return the source that takes single records in given orders (seeds, records): PNSGD's."""
    return _rows(records, orders[:, :, None])


def _orders(seeds: tuple[int, ...], n: int, permuted: bool) -> NDArray[np.int64]:
    """Return the order in which each seed takes the sorted records, (seeds, n)."""
    if not permuted:
        return np.tile(np.arange(n), (len(seeds), 1))
    return np.stack([generator(seed, "partition").permutation(n) for seed in seeds])
