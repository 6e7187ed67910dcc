"""Privacy profiles of single steps, ln delta(epsilon) for epsilon >= 0, from their densities: what the audit composes.

Each holds in both directions of its neighbouring relation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]
"""epsilon >= 0, shape (n,), to ln delta of one step, (n,): below -690 where there is none."""
_DEVIATIONS = 13.0
_CELLS = 400_001


def gaussian_log_delta(epsilon: Array, shift: Array) -> Array:
    """Return ln(Phi(shift/2 - epsilon/shift) - e^epsilon Phi(-shift/2 - epsilon/shift)), shift > 0; shapes broadcast.

    Source: asoodeh2020, eq. (10).
    """
    first = log_ndtr(shift / 2 - epsilon / shift)
    second = np.minimum(epsilon + log_ndtr(-shift / 2 - epsilon / shift) - first, -1e-300)
    return first + np.log(np.maximum(-np.expm1(second), 1e-300))


def laplace_log_delta(epsilon: float, shift: float) -> float:
    """Return ln delta of Laplace noise of scale 1 that a record moves by `shift`: where the loss exceeds epsilon."""
    if epsilon >= shift:
        return -math.inf
    cut = (shift - epsilon) / 2
    return math.log1p(-math.exp(-cut) / 2 - math.exp(epsilon + cut - shift) / 2)


def sampled_gaussian(shifts: Array, weights: Array) -> Profile:
    """Return the profile of a mixture: with `weights`[j] the step moves by `shifts`[j] deviations, else not at all.

    balle2018, Theorems 2 and 10, where the laws that differ are `rate` of the whole.
    """
    rate = float(weights.sum())
    return lambda epsilon: logsumexp(gaussian_log_delta(_inner(epsilon, rate)[:, None], shifts), b=weights, axis=1)


def sampled_arsinh(scale: float, sigma: float, rate: float) -> Profile:
    """Return the profile of noise scale * arsinh(N/scale), N of deviation `sigma`, that a record drawn with probability
    `rate` moves by 1; one coordinate."""
    reach = scale * math.asinh(_DEVIATIONS * sigma / scale)
    points = np.linspace(-reach, reach + 1, _CELLS)

    def log_density(y: Array) -> Array:
        normal = norm.logpdf(scale * np.sinh(y / scale), scale=sigma)
        return normal + np.logaddexp(y / scale, -y / scale) - math.log(2)

    alone = _of_densities(log_density(points - 1), log_density(points), points)
    return lambda epsilon: alone(_inner(epsilon, rate)) + math.log(rate)


def poisson_replaced(sigma: float, rate: float) -> Profile:
    """Return the profile of one Gaussian step on a Poisson sample, a record replaced by its opposite: the laws
    (1 - rate) N(0, sigma^2) + rate N(+-1, sigma^2)."""
    reach = 1 + _DEVIATIONS * sigma
    points = np.linspace(-reach, reach, _CELLS)

    def log_density(side: float) -> Array:
        still, moved = norm.logpdf(points, 0, sigma), norm.logpdf(points, side, sigma)
        return np.logaddexp(np.log1p(-rate) + still, math.log(rate) + moved) if rate < 1 else moved

    return _of_densities(log_density(1.0), log_density(-1.0), points)


def _inner(epsilon: Array, rate: float) -> Array:
    """Return where the profile without sampling is read: ln(1 + (e^epsilon - 1)/rate)."""
    return epsilon + np.log1p(-np.expm1(-epsilon) * (1 - rate) / rate)


def _of_densities(log_p: Array, log_q: Array, points: Array) -> Profile:
    """Return ln of the integral of (p - e^epsilon q)_+ by sums over even points, sorted by their loss."""
    losses = log_p - log_q
    order = np.argsort(-losses)
    width = points[1] - points[0]
    above = np.append(0.0, np.cumsum(np.exp(log_p[order]))) * width
    below = np.append(0.0, np.cumsum(np.exp(log_q[order]))) * width
    falling = -losses[order]

    def log_delta(epsilon: Array) -> Array:
        count = np.searchsorted(falling, -epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            left = above[count] - np.exp(epsilon) * below[count]
        return np.log(np.maximum(np.nan_to_num(left, nan=0.0, neginf=0.0), 1e-300))

    return log_delta
