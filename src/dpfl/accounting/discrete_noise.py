"""Integer noise in shares, for secure aggregation: Skellam and discrete Gaussian, with clients that drop out.

A sum of integer vectors hides one client's among the others by the shares of noise that are in it. Those of clients who
drop out are not: `shares` is the number of those that came. The bounds are of the sum before any modulus, which only
processes it. `l2` and `l1` are the largest distances between the client's two vectors (to 0 under zero_out).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.numerics import integer, integers, real


def skellam_divergence(
    order: ArrayLike, *, shares: int, share_variance: float, l2: float, l1: float
) -> NDArray[np.float64]:
    """Return a bound of the Renyi divergence of a sum with Skellam noise, at whole orders of at least 2, any shape.

    The noise of each of `shares` >= 1 clients is the difference of two Poisson variables of mean `share_variance`/2 > 0
    in each coordinate; their sum is Skellam again. l1 >= l2 >= 0. Guarantee: no larger divergence, in either order.
    Source: agarwal2021, Corollary 4.1 at scale 1: with the variance v of the sum,
    a l2^2/(2 v) + min(((2 a - 1) l2^2 + 6 l1)/(4 v^2), 3 l1/(2 v)). Raises ValueError naming the argument.
    """
    at = integers("order", order, at_least=2)
    variance = integer("shares", shares, at_least=1) * real("share_variance", share_variance, above=0)
    move, sum_of = _norms(l2, l1)
    square = move**2
    beyond = np.minimum(((2 * at - 1) * square + 6 * sum_of) / (4 * variance**2), 3 * sum_of / (2 * variance))
    return (at * square / (2 * variance) + beyond)[()]


def discrete_gaussian_rho(*, shares: int, share_variance: float, l2: float, l1: float, dimension: int) -> float:
    """Return rho of the concentrated privacy of a sum with discrete Gaussian noise of `shares` >= 1 clients.

    Each adds discrete Gaussian noise N_Z(0, `share_variance`) to each of `dimension` >= 1 coordinates; their sum is
    nearly one. share_variance >= 1/4, l1 >= l2 >= 0. Guarantee: the sum is rho-zCDP. Source: kairouz2021,
    Proposition 14: rho = ((l2/s)^2 + 2 t l1/s + t^2 d)/2 with s^2 = n share_variance and
    t = 10 sum_k e^(-2 pi^2 share_variance k/(k+1)) over k = 1..n-1. Raises ValueError naming the argument.
    """
    count, variance = integer("shares", shares, at_least=1), real("share_variance", share_variance, at_least=0.25)
    move, sum_of = _norms(l2, l1)
    size = integer("dimension", dimension, at_least=1)
    if move == 0:
        return 0.0
    k = np.arange(1, count, dtype=np.float64)
    apart = 10 * float(np.sum(np.exp(-2 * math.pi**2 * variance * k / (k + 1))))
    deviation = math.sqrt(count * variance)
    across = min(sum_of, math.sqrt(size) * move)  # Cauchy and Schwarz
    return ((move / deviation) ** 2 + 2 * apart * across / deviation + apart**2 * size) / 2


def _norms(l2: float, l1: float) -> tuple[float, float]:
    """Return the two norms. Raises ValueError naming one that is none, or an l1 below l2: no vector has such norms."""
    move = real("l2", l2, at_least=0)
    return move, real("l1", l1, at_least=move * (1 - 1e-12))
