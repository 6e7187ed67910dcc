"""Algorithm 1 of asoodeh2021 with the steps eta_t = 1/(lambda t) of its Corollary 1; arguments as in `federated`.

`strong_convexity` is lambda > 0; the noise sigma > 0 is one number; m must divide n (T = n/m rounds).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import real
from dpfl.accounting.contraction.rounds import Rounds, last_model, non_negative, read_rounds, read_users
from dpfl.accounting.contraction.stable_arithmetic import Array, probability, ratio


def federated_harmonic_delta(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    sigma: float,
    lipschitz: float,
    radius: float,
    strong_convexity: float,
    smoothness: float | None = None,
) -> Array:
    """Return delta of the last model: Theorem 2 with link_j = 2 radius lambda sqrt(m) j/sigma.

    The steps t < smoothness/(2 lambda) exceed 2/smoothness, where the theorem's diameter 2 radius does not hold: with
    `smoothness` given those steps take 2 (radius + eta_t L), without it the paper's assumption is taken on trust.
    Formal guarantee: (epsilon, delta)-DP of the last model, one user's data replaced; without `smoothness` under that
    assumption. Source: asoodeh2021 Corollary 1, first line of eq. (11), rederived.
    """
    steps = _harmonic_rounds(n, m, sigma, strong_convexity)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    diameter = np.full(steps.eta.shape, 2.0 * radius)
    if smoothness is not None:
        too_long = steps.eta > 2.0 / real("smoothness", smoothness, above=0.0)
        with np.errstate(over="ignore"):
            diameter += np.where(too_long, 2.0 * lipschitz * steps.eta, 0.0)
    return probability(last_model(epsilon, steps, lipschitz, diameter))


def federated_harmonic_bound(
    epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float, radius: float, strong_convexity: float
) -> Array:
    """Return the closed upper bound of `federated_harmonic_delta`: every link at its largest, j = n/m.

    Holds for any n/m, integer or not. Formal guarantee: that of `federated_harmonic_delta` without `smoothness`.
    Source: asoodeh2021 eq. (11), second line.
    """
    n, m = read_users(n, m)
    smallest_step = 1.0 / (real("strong_convexity", strong_convexity, above=0.0) * n / m)
    sigma = real("sigma", sigma, above=0.0)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(last_model(epsilon, read_rounds(n, m, smallest_step, sigma), lipschitz, 2.0 * radius))


def _harmonic_rounds(n: int, m: int, sigma: float, strong_convexity: float) -> Rounds:
    """The T = n/m rounds with eta_t = 1/(lambda t)."""
    n, m = read_users(n, m)
    if n % m:
        raise ValueError(f"m must divide n for the steps 1/(lambda t), got n = {n} and m = {m}")
    rate = real("strong_convexity", strong_convexity, above=0.0)
    eta = ratio(1.0, rate, np.arange(1.0, n // m + 1.0))
    return read_rounds(n, m, eta, real("sigma", sigma, above=0.0))
