"""Projected noisy updates in one dimension, computed on a grid, to compare the theorems' bounds with.

Nothing here uses the bounds. A distribution on [low, high] is the vector of its masses on the two end points
(where the projection piles up what left the interval) and on equal cells in between. Merging points into cells
never raises a divergence, and treating the mass of a cell as sitting in its middle errs by the square of its width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dpfl.accounting.contraction import hockey_stick
from dpfl.accounting.contraction.kernels import Array, DiscretisedInterval, NoiseLaw


@dataclass(frozen=True)
class ExactPnsgd:
    """Projected noisy SGD in one dimension whose record i has one of two losses of opposite slope.

    Record i's gradient at w is strong_convexity * w plus or minus the most that keeps it within `lipschitz` on
    the interval; the other records' is curvature * w. A step is w -> projected(w - eta * gradient + noise), and
    `noise` is the law of what is added (eta included). The state before record i is the middle of the interval.
    """

    eta: float
    noise: NoiseLaw
    lipschitz: float
    diameter: float
    curvature: float
    strong_convexity: float = 0.0
    cells: int = 400

    def states(self, later: int) -> Array:
        """Return the two laws of the state after record i and 0, 1, ... `later` further records.

        Shape (later + 1, 2, cells + 2).
        """
        interval = DiscretisedInterval(-self.diameter / 2, self.diameter / 2, self.cells)
        shift = self.eta * (self.lipschitz - self.strong_convexity * self.diameter / 2)
        step = interval.projected((1 - self.eta * self.curvature) * interval.points, self.noise)
        pairs = [interval.projected(np.array([shift, -shift]), self.noise)]
        for _ in range(later):
            pairs.append(pairs[-1] @ step)
        return np.stack(pairs)

    def delta(self, epsilon: float, later: int) -> float:
        """Return delta at `epsilon` when the state after `later` further records is released."""
        return float(hockey_stick(*self.states(later)[-1], epsilon))

    def mixed_delta(self, epsilon: float, weights: Array) -> float:
        """Return delta at `epsilon` when the released state has k further records behind it with chance weights[k].

        What is missing to 1 is the chance that record i was not reached, alike under both data sets: it could only
        lower delta and is left out.
        """
        p, q = np.tensordot(weights, self.states(len(weights) - 1), axes=1)
        return float(hockey_stick(p, q, epsilon))


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
    weights = np.full(values["n"] - i + 1, 1 / values["n"])
    return gaussian_pnsgd(values).mixed_delta(epsilon, weights)
