"""Projected noisy updates in one dimension, computed on a grid, to compare the theorems' bounds with.

Nothing here uses the bounds. A distribution on [low, high] is the vector of its masses on the two end points
(where the projection piles up what left the interval) and on equal cells in between. Merging points into cells
never raises a divergence, and treating the mass of a cell as sitting in its middle errs by the square of its width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import norm

from dpfl.accounting.contraction import hockey_stick
from dpfl.accounting.contraction.kernels import Array, DiscretisedInterval, NoiseLaw


@dataclass(frozen=True)
class ExactPnsgd:
    """Projected noisy SGD in one dimension whose record i has one of two losses of opposite slope.

    Record i's gradient at w is strong_convexity * w plus or minus the most that keeps it within `lipschitz` on
    the interval; the other records' is curvature * w. A step is w -> projected(w - eta * gradient + noise), and
    `noise` is the law of what is added (eta included). The start is the middle of the interval.
    """

    eta: float
    noise: NoiseLaw
    lipschitz: float
    diameter: float
    curvature: float
    strong_convexity: float = 0.0
    cells: int = 400

    def states(self, later: int, before: int = 0) -> Array:
        """Return the two laws of the state after record i and 0, 1, ... `later` further records; `before` precede it.

        Shape (later + 1, 2, cells + 2).
        """
        interval, step = self._interval, self._other
        kept = (1 - self.eta * self.strong_convexity) * (interval.points if before else np.zeros(1))
        shift = self.eta * (self.lipschitz - self.strong_convexity * self.diameter / 2)
        start = self.common(before)[-1] if before else np.ones(1)
        pairs = [np.stack([start @ interval.projected(kept + side * shift, self.noise) for side in (1, -1)])]
        for _ in range(later):
            pairs.append(pairs[-1] @ step)
        return np.stack(pairs)

    def common(self, records: int) -> Array:
        """Return the laws of the state after 1 to `records` >= 1 of the other records, (records, cells + 2)."""
        laws = [self._interval.projected(np.zeros(1), self.noise)[0]]
        for _ in range(records - 1):
            laws.append(laws[-1] @ self._other)
        return np.stack(laws)

    @cached_property
    def _interval(self) -> DiscretisedInterval:
        return DiscretisedInterval(-self.diameter / 2, self.diameter / 2, self.cells)

    @cached_property
    def _other(self) -> Array:
        """The step of another record."""
        return self._interval.projected((1 - self.eta * self.curvature) * self._interval.points, self.noise)

    def delta(self, epsilon: float, later: int) -> float:
        """Return delta at `epsilon` of the first of `later` + 1 records if the last state is released."""
        return float(hockey_stick(*self.states(later)[-1], epsilon))

    def stopped_delta(self, epsilon: float, i: int, n: int) -> float:
        """Return delta at `epsilon` of record i if the state after a uniform number of 1 to n records is released."""
        laws = self.states(n - i, before=i - 1).sum(axis=0)
        if i > 1:  # a stop before record i looks alike under both data sets
            laws = laws + self.common(i - 1).sum(axis=0)
        return float(hockey_stick(*laws / n, epsilon))


def gaussian_pnsgd(values: Mapping[str, float], curvature: float = 0.0) -> ExactPnsgd:
    """Return the algorithm with Gaussian noise for the keywords of `contraction.pnsgd_gaussian_delta`."""
    return ExactPnsgd(
        eta=values["eta"],
        noise=norm(scale=values["eta"] * values["sigma"]),
        lipschitz=values["lipschitz"],
        diameter=values["diameter"],
        curvature=curvature,
        strong_convexity=values["strong_convexity"],
    )


def stopped_delta(values: Mapping[str, float], epsilon: float, i: int) -> float:
    """Return the exact delta of record i when the algorithm stops after a uniform number of 1..n records."""
    return gaussian_pnsgd(values).stopped_delta(epsilon, i, int(values["n"]))
