"""Comparators of Theorem 4 of asoodeh2020: Renyi and Gaussian-DP amplification by iteration.

Arguments as in `pnsgd_fixed_order`. None of these needs a bounded set: they carry the record's influence forward by
shifting the two processes towards each other over the remaining n - i steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import integers, reals
from dpfl.accounting.contraction.contraction_factor import contraction_loss, log_contraction_factor
from dpfl.accounting.contraction.geometric import geometric
from dpfl.accounting.contraction.renyi import linear_renyi_delta
from dpfl.accounting.contraction.stable_arithmetic import Array, exponential, place, power

_LOG_2 = np.log(2.0)


def pnsgd_renyi_coefficient(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return kappa with D_alpha <= alpha kappa: 2L^2 M^(n-i+1)/((n-i) sigma^2), and 2L^2/sigma^2 at i = n.

    Formal guarantee: (alpha, alpha kappa)-Renyi DP for replacing record i, at every alpha > 1. Source: asoodeh2020
    Proposition 1.
    """
    i, n = place(i, n)
    later = n - i
    log_factor = log_contraction_factor(eta, smoothness, strong_convexity)
    log_decay = np.where(later > 0, power(log_factor, later + 1.0) - np.log(np.maximum(later, 1.0)), 0.0)
    return exponential(_log_first(lipschitz, sigma) + log_decay)


def pnsgd_renyi_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    conversion: str = "mironov",
) -> Array:
    """Return delta at `epsilon` from `pnsgd_renyi_coefficient` kappa.

    conversion "mironov" is eq. (15), exp(-(eps - kappa)^2/(4 kappa)), and 1 where eps <= kappa; "tight" minimises over
    the order the best known bound for one order. Formal guarantee: (epsilon, delta)-DP for replacing record i. Source:
    asoodeh2020 Proposition 1.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    kappa = pnsgd_renyi_coefficient(
        i=i, n=n, eta=eta, sigma=sigma, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity
    )
    return linear_renyi_delta(epsilon, kappa, conversion)


def pnsgd_renyi_optimal_shift_coefficient(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return the kappa of the best split of the shift over the steps: (2L^2/sigma^2)/sum_{k=0}^{n-i} M^(-2k).

    Never above `pnsgd_renyi_coefficient`. Raises ValueError naming the argument. Formal guarantee: (alpha, alpha
    kappa)-Renyi DP for replacing record i, at every alpha > 1. Source: derived, the shifts of least sum of squares in
    the argument of feldman2018.
    """
    return exponential(_log_optimal(i, n, eta, sigma, lipschitz, smoothness, strong_convexity))


def pnsgd_renyi_optimal_shift_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    conversion: str = "mironov",
) -> Array:
    """Return delta at `epsilon` from `pnsgd_renyi_optimal_shift_coefficient`; conversions as in `pnsgd_renyi_delta`.

    Formal guarantee: (epsilon, delta)-DP for replacing record i. Raises ValueError naming the argument. Source:
    `pnsgd_renyi_optimal_shift_coefficient`.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    kappa = pnsgd_renyi_optimal_shift_coefficient(
        i=i, n=n, eta=eta, sigma=sigma, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity
    )
    return linear_renyi_delta(epsilon, kappa, conversion)


def pnsgd_shifted_gdp_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return theta(mu) with mu = (2L/sigma)/sqrt(sum_{k=0}^{n-i} M^(-2k)): shifted interpolation, mu-Gaussian DP.

    mu^2/2 is `pnsgd_renyi_optimal_shift_coefficient`, so this is below its two conversions at every epsilon. Formal
    guarantee: mu-Gaussian DP, so (epsilon, delta)-DP, for replacing record i. Raises ValueError naming the argument.
    Source: bok2024, section 3, for one use.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    log_kappa = _log_optimal(i, n, eta, sigma, lipschitz, smoothness, strong_convexity)
    return gaussian_divergence.divergence(epsilon, exponential(0.5 * (log_kappa + _LOG_2)))


def iteration_renyi(order: ArrayLike, *, n: ArrayLike, distance: ArrayLike, sigma: ArrayLike) -> Array:
    """Return alpha distance^2/(2 n sigma^2): Renyi divergence after n contractive noisy steps from two points.

    order alpha > 1, integer n >= 1, distance >= 0 between the starts, sigma > 0 per coordinate. Raises ValueError
    naming the argument. Exact for translations. Source: asoodeh2020 eq. (3) with the square that its print lacks.
    """
    order, n, distance, sigma = _iteration(order, n, distance, sigma)
    with np.errstate(over="ignore"):
        return order * (distance / sigma) ** 2 / (2.0 * n)


def _iteration(order: ArrayLike, n: ArrayLike, distance: ArrayLike, sigma: ArrayLike) -> tuple[Array, ...]:
    """Check the arguments of eq. (3)."""
    return (
        reals("order", order, above=1.0),
        integers("n", n, at_least=1),
        reals("distance", distance, at_least=0.0),
        reals("sigma", sigma, above=0.0),
    )


def _log_optimal(
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """log of `pnsgd_renyi_optimal_shift_coefficient`."""
    i, n = place(i, n)
    log_squared = 2.0 * log_contraction_factor(eta, smoothness, strong_convexity)
    loss = contraction_loss(eta, smoothness, strong_convexity)
    # sum_k M^-2k = M^-2(n-i) (1 + M^2 + ... + M^2(n-i)): powers below 1 cannot overflow
    log_decay = power(log_squared, n - i) - np.log(geometric(log_squared, loss, n - i + 1.0))
    return _log_first(lipschitz, sigma) + log_decay


def _log_first(lipschitz: ArrayLike, sigma: ArrayLike) -> Array:
    """log(2 L^2/sigma^2), half the squared shift of the differing step."""
    lipschitz = reals("lipschitz", lipschitz, at_least=0.0)
    with np.errstate(divide="ignore"):
        return 2.0 * (np.log(lipschitz) - np.log(reals("sigma", sigma, above=0.0))) + _LOG_2
