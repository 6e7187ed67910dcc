"""Projected noisy SGD with Gaussian noise, stopped after tau ~ uniform{1..n} steps; see `pnsgd_fixed_order`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import integers, reals
from dpfl.accounting.contraction.geometric import geometric
from dpfl.accounting.contraction.pnsgd_fixed_order import first_shift, later_shift
from dpfl.accounting.contraction.stable_arithmetic import Array, exponential, place, probability


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
