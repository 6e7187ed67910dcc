"""Projected noisy SGD with Gaussian noise, stopped after tau ~ uniform{1..n} steps; see `pnsgd_fixed_order`.

Theorem 5 of asoodeh2020 needs a bounded set; the Renyi route of feldman2018, its comparator, does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import integers, reals
from dpfl.accounting.contraction.geometric import geometric
from dpfl.accounting.contraction.pnsgd_fixed_order import first_shift, later_shift
from dpfl.accounting.contraction.stable_arithmetic import Array, exponential, place, probability, ratio


def pnsgd_random_stop_delta(
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
    """Return delta at `epsilon` for the i-th record: (1/n) theta(2L/sigma) (1 - c^(n-i+1))/(1 - c).

    c = theta(M diameter/(eta sigma)). The record is untouched when tau < i. Never above theta(2L/sigma), unlike
    `pnsgd_random_stop_bound`. Formal guarantee: (epsilon, delta)-DP for replacing record i while the stopping time
    stays secret. Source: asoodeh2020 Theorem 5 before its last step (mean of Theorem 4 over tau).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    i, n = place(i, n)
    sigma = reals("sigma", sigma, above=0.0)
    link = later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    kept = geometric(
        gaussian_divergence.log_divergence(epsilon, link), gaussian_divergence.complement(epsilon, link), n - i + 1.0
    )
    log_first = gaussian_divergence.log_divergence(epsilon, first_shift(lipschitz, sigma))
    return probability(log_first + np.log(kept) - np.log(n))


def pnsgd_random_stop_bound(
    epsilon: ArrayLike,
    *,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return (1/n) theta(2L/sigma)/(1 - c), the same for every record; may exceed 1, up to inf.

    c = theta(M diameter/(eta sigma)); vacuous where contraction is weak. Formal guarantee: that of
    `pnsgd_random_stop_delta`. Source: asoodeh2020 Theorem 5, eq. (16).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    n = integers("n", n, at_least=1)
    sigma = reals("sigma", sigma, above=0.0)
    link = later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    log_first = gaussian_divergence.log_divergence(epsilon, first_shift(lipschitz, sigma))
    no_signal = np.isneginf(log_first)
    log_gap = np.where(no_signal, 0.0, gaussian_divergence.log_complement(epsilon, link))
    return exponential(log_first - log_gap - np.log(n))


def pnsgd_random_stop_renyi_delta(epsilon: ArrayLike, *, n: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> Array:
    """Return delta at `epsilon` from D_alpha <= alpha kappa, kappa = 4 L^2 H_n/(n sigma^2), at the best order allowed.

    H_n is the harmonic number. An order alpha is allowed where alpha (alpha - 1) <= sigma^2/(2 L^2): there the
    divergence of every model is at most 1/(alpha - 1), and that of their mixture at most twice the mean, (2/n) sum_k 2
    alpha L^2/(k sigma^2). delta is the least e^((alpha-1)(alpha kappa - epsilon)), 1 where none is smaller. Convex
    losses, steps of at most 2/beta, any convex set, bounded or not. Raises ValueError naming the argument. Formal
    guarantee: (epsilon, delta)-DP for replacing any record while the stopping time stays secret. Source: feldman2018
    Theorem 26, which asoodeh2020 names after its Theorem 5 (derived here from the bound for each model and the weak
    convexity of the divergence, with H_n; the printed constant is not among our sources); mironov2017, Proposition 3.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    n = integers("n", n, at_least=1)
    square = ratio(reals("lipschitz", lipschitz, at_least=0.0), reals("sigma", sigma, above=0.0), 1.0) ** 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        kappa = 4.0 * square * (digamma(n + 1.0) + np.euler_gamma) / n
        most = 0.5 + np.sqrt(0.25 + 0.5 / square)
        order = np.minimum(most, np.maximum(0.5 + 0.5 * epsilon / kappa, 1.0))
        exponent = np.where(order > 1.0, (order - 1.0) * (order * kappa - epsilon), 0.0)
    # without a gradient the two laws are one
    return np.where(square > 0.0, exponential(np.minimum(exponent, 0.0)), 0.0)[()]
