"""Nesterov's smoothing of losses with a kink, by their Moreau envelope; lowy2021 runs its algorithms on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpfl.models.glm import Absolute, Array, Hinge


@dataclass(frozen=True)
class Smoothed:
    """phi_b(s) = min_t phi(t, y) + b/2 (s - t)^2 of a loss with a kink, b = `sharpness` > 0, in slope per score.

    Guarantee: phi - 1/(2b) <= phi_b <= phi, phi_b is convex, its slope is bounded as phi's is, its curvature by b.
    For records with |x| = 1 it is the f_beta of lowy2021's Theorems 2.1 and 2.3 with beta = b and v free: minimised
    over all weights v, v - w is a multiple of x. With |x| < 1 it is smoother than that by |x|^2.
    Raises ValueError for a sharpness that is not above 0, and for a loss other than Absolute and Hinge.
    """

    loss: Absolute | Hinge
    sharpness: float
    slope_bound: float = field(init=False, default=1.0)
    curvature: float = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Absolute | Hinge):
            raise ValueError(f"loss must be Absolute or Hinge, the ones with a kink, got {self.loss!r}")
        if not 0 < self.sharpness < np.inf:
            raise ValueError(f"sharpness is {self.sharpness}; it must be above 0 and finite")
        object.__setattr__(self, "curvature", float(self.sharpness))

    def value(self, scores: Array, targets: Array) -> Array:
        """Return phi_b: a parabola within 1/b of the kink, phi less a constant beyond."""
        distance, slope, _ = self._around_kink(scores, targets)
        return slope * distance - np.square(slope) / (2.0 * self.sharpness)

    def slope(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of phi_b by the score, b times the way from the score to the minimising t."""
        _, slope, direction = self._around_kink(scores, targets)
        return slope * direction

    def uniform_error(self) -> float:
        """Return sup phi - phi_b = 1/(2b), reached wherever |phi'| = 1 farther than 1/b from the kink."""
        return self.slope_bound**2 / (2.0 * self.sharpness)

    def _around_kink(self, scores: Array, targets: Array) -> tuple[Array, Array, Array | float]:
        """Return the signed distance to the kink, phi_b's slope by it, and the distance's derivative by the score."""
        if isinstance(self.loss, Absolute):
            distance = scores - targets
            return distance, np.clip(self.sharpness * distance, -1.0, 1.0), 1.0
        distance = 1.0 - targets * scores
        return distance, np.clip(self.sharpness * distance, 0.0, 1.0), -np.asarray(targets)


def sharpness_for(excess: float, slope_bound: float = 1.0) -> float:
    """Return the b whose uniform error is `excess` > 0: smoothing then costs no more than that.

    Source: lowy2021, proof of Theorem 2.1 by Nesterov's smoothing. Raises ValueError for an excess not above 0.
    """
    if not excess > 0:
        raise ValueError(f"excess is {excess}; it must be above 0")
    return slope_bound**2 / (2.0 * excess)
