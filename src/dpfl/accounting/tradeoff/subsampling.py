"""What subsampling does to a Gaussian round: the operator C_p for fixed-size batches, and Poisson batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp, ndtr, ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.roots import root


def subsample(p: ArrayLike, mu: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """C_p(G_mu)(alpha) = min{f_p, f_p^-1}**(alpha) with f_p = p G_mu + (1 - p) Id; shapes broadcast.

    Exact: f_p up to the fixed point of G_mu, its mirror image f_p^-1 at the other end, and between the two
    the chord of slope -1. p and alpha in [0, 1], mu >= 0. Guarantee: a round that is mu-GDP on a fixed-size
    batch drawn without replacement with share p is C_p(G_mu)-DP when one record is replaced.
    Raises ValueError naming p, mu or alpha. Source: vandijk2023 section 4.2.
    """
    p, mu, alpha = np.broadcast_arrays(
        reals("p", p, at_least=0, at_most=1),
        reals("mu", mu, at_least=0, at_most=1e100),
        reals("alpha", alpha, at_least=0, at_most=1),
    )
    fixed_point = ndtr(-mu / 2)
    mirrored = p * fixed_point + (1 - p) * ndtr(mu / 2)
    chance = 1 - alpha
    falling = chance - p * (chance - gaussian_dp.tradeoff(alpha, mu))
    # The chord, fixed_point + mirrored - alpha, in the form that stays accurate when its ends are tiny.
    value = np.where(alpha <= fixed_point, falling, (1 - p) + 2 * p * fixed_point - alpha)
    value = np.where(p == 0, chance, value)
    mirror = (alpha > fixed_point) & (alpha >= mirrored) & (alpha < 1) & (p > 0)
    value[mirror] = _mirror_image(p[mirror], mu[mirror], alpha[mirror])
    return np.where(alpha == 1, 0.0, np.minimum(value, chance))[()]


def _mirror_image(p: NDArray, mu: NDArray, alpha: NDArray) -> NDArray[np.float64]:
    """f_p^-1(alpha) beyond the chord: Q(z) where p Phi(z - mu) + (1 - p) Phi(z) = alpha."""

    def gap(z: NDArray, p: NDArray, mu: NDArray, alpha: NDArray) -> NDArray[np.float64]:
        below = np.log(np.maximum(p * ndtr(z - mu) + (1 - p) * ndtr(z), 5e-324)) - np.log(alpha)
        above = 1 - (p * ndtr(mu - z) + (1 - p) * ndtr(-z)) / (1 - alpha)
        return np.where(alpha < 0.5, below, above)

    quantile = ndtri(alpha)
    return ndtr(-root(gap, np.maximum(mu / 2, quantile), quantile + mu, p, mu, alpha))


def poisson_renyi(order: int, p: float, mu: float) -> float:
    """Renyi divergence of whole `order` >= 2 of (1 - p) N(0, 1) + p N(mu, 1) from N(0, 1): one Poisson batch.

    Exact binomial sum in logarithms, with relative accuracy also where it is tiny; inf where it overflows. It also
    bounds that of C_p(G_mu) from below, which dominates this pair. p in (0, 1), mu >= 0; mu = 1/noise_multiplier.
    Raises ValueError naming the argument. Source: mironov2019, section 3.3.
    """
    order = integer("order", order, at_least=2)
    p, mu = real("p", p, above=0, below=1), real("mu", mu, at_least=0)
    # Without growth the terms sum to 1, and those of k = 0, 1 do not grow: ln(1 + x) with x from k >= 2, may be tiny.
    k = np.arange(2, order + 1)
    log_choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    with np.errstate(over="ignore", divide="ignore"):
        growth = k * (k - 1) / 2 * mu * mu
        terms = log_choose + k * np.log(p) + (order - k) * np.log1p(-p) + growth + np.log(-np.expm1(-growth))
        return float(np.logaddexp(0.0, logsumexp(terms)) / (order - 1))
