"""Projected noisy SGD that takes its n records in a fixed order and releases only the last model (asoodeh2020).

Common arguments, all broadcasting: `i` the place (1..n) of the record in which neighbours differ (replace one); `eta`
> 0 the step size; `sigma` (Gaussian, a coordinate) or `scale` (Laplace, variance 2 scale^2) > 0 the noise added to
each gradient; `lipschitz` >= 0; `smoothness` > 0; `strong_convexity` in [0, smoothness]; `diameter` >= 0 of the
compact convex set projected on. All functions raise ValueError naming the argument, also for
eta > 2/(smoothness + strong_convexity), where the theorems do not hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import reals
from dpfl.accounting.contraction import laplace
from dpfl.accounting.contraction.contraction_factor import contraction_factor
from dpfl.accounting.contraction.stable_arithmetic import Array, place, power, probability, ratio


def pnsgd_gaussian_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return delta at `epsilon` >= 0 for the i-th record under Gaussian noise.

    Formal guarantee: theta(2L/sigma) theta(M diameter/(eta sigma))^(n-i); at i = n the Gaussian mechanism.
    Source: asoodeh2020 Theorem 4.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    i, n = place(i, n)
    sigma = reals("sigma", sigma, above=0.0)
    log_first = gaussian_divergence.log_divergence(epsilon, first_shift(lipschitz, sigma))
    log_later = gaussian_divergence.log_divergence(
        epsilon, later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    )
    return probability(log_first + power(log_later, n - i))


def pnsgd_laplace_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return delta at `epsilon` >= 0 for the i-th record under Laplace noise, one-dimensional model on [a, b].

    Formal guarantee: (1 - e^(eps/2 - L/v))_+ ((1 - e^(eps/2 - M (b-a)/(2 eta v)))_+)^(n-i) with v = `scale` and
    b - a = `diameter`; the empty product at i = n is 1. Source: asoodeh2020 Theorem 3.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    i, n = place(i, n)
    scale = reals("scale", scale, above=0.0)
    log_first = laplace.log_divergence(epsilon, first_shift(lipschitz, scale))
    log_later = laplace.log_divergence(epsilon, later_shift(eta, scale, smoothness, strong_convexity, diameter))
    return probability(log_first + power(log_later, n - i))


def pnsgd_laplace_pure_epsilon(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return the smallest epsilon at which `pnsgd_laplace_delta` is 0.

    min(2L/v, M (b-a)/(eta v)) for i < n, but 2L/v for the last record, whom no later step protects. Formal guarantee:
    (epsilon, 0)-DP for replacing record i. Source: asoodeh2020 Theorem 3, its consequence with the case i = n set
    right.
    """
    i, n = place(i, n)
    scale = reals("scale", scale, above=0.0)
    first = first_shift(lipschitz, scale)
    later = later_shift(eta, scale, smoothness, strong_convexity, diameter)
    return np.where(i < n, np.minimum(first, later), first)[()]


def first_shift(lipschitz: ArrayLike, noise: Array) -> Array:
    """Ratio 2L/noise: how far apart the differing record may push its own step, in units of the noise.

    Raises ValueError naming lipschitz. Source: asoodeh2020 Theorems 3 and 4, first factor.
    """
    return ratio(reals("lipschitz", lipschitz, at_least=0.0), noise, 0.5)


def later_shift(
    eta: ArrayLike, noise: Array, smoothness: ArrayLike, strong_convexity: ArrayLike, diameter: ArrayLike
) -> Array:
    """Ratio M diameter/(eta noise): how far apart a later step may leave two models, in units of its noise.

    Raises ValueError naming the argument. Source: asoodeh2020 Theorems 3 and 4, the power's base.
    """
    factor = contraction_factor(eta, smoothness, strong_convexity)
    return ratio(factor * reals("diameter", diameter, at_least=0.0), reals("eta", eta), noise)
