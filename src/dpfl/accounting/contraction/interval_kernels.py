"""Projected noisy updates on an interval, discretised: transition kernels for exact one-dimensional runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class NoiseLaw(Protocol):
    """A law on the line, such as scipy.stats.norm(scale=2)."""

    def cdf(self, x: Array) -> Array: ...

    def sf(self, x: Array) -> Array: ...


@dataclass(frozen=True)
class DiscretisedInterval:
    """The set that the algorithm projects on, cut into equal cells."""

    low: float
    high: float
    cells: int = 400

    @property
    def edges(self) -> Array:
        """Borders of the cells, shape (cells + 1,)."""
        return np.linspace(self.low, self.high, self.cells + 1)

    @property
    def points(self) -> Array:
        """Return the positions of the masses: low, the middles of the cells, high; shape (cells + 2,)."""
        edges = self.edges
        return np.concatenate([[self.low], (edges[1:] + edges[:-1]) / 2, [self.high]])

    def projected(self, centres: Array, noise: NoiseLaw) -> Array:
        """Return the masses of projected (centre + noise), one row per centre; shape (centres, cells + 2)."""
        away = self.edges - np.asarray(centres, dtype=np.float64)[..., None]
        below = noise.cdf(away)
        return np.concatenate([below[..., :1], np.diff(below, axis=-1), noise.sf(away[..., -1:])], axis=-1)
