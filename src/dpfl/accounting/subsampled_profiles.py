"""Privacy profiles of one Gaussian step on a sample: the delta at each epsilon, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import reals
from dpfl.accounting.gaussian_divergence import theta

_SMALLEST_RATE = 1e-300  # keeps 1/p finite


def amplified_epsilon(epsilon: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """ln(1 + (e^epsilon - 1)/p): where the unsampled curve is read, so that delta_p(epsilon) = p delta(this).

    epsilon >= 0, p in (0, 1]; shapes broadcast, no overflow. Raises ValueError naming epsilon or p. Source: Balle,
    Barthe, Gaboardi 2018, Theorem 9, solved for the inner epsilon; C_p of vandijk2023 section 4.2 read by its delta.
    """
    p = np.maximum(reals("p", p, above=0, at_most=1), _SMALLEST_RATE)
    epsilon = reals("epsilon", epsilon, at_least=0)
    return (epsilon + np.log1p(-np.expm1(-epsilon) * (1 - p) / p))[()]


def subsampled_delta(epsilon: ArrayLike, p: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The delta at epsilon >= 0 of C_p(G_mu), one fixed-size batch: p theta(ln(1 + (e^epsilon - 1)/p), mu).

    The same number is the remove direction of one Poisson batch: (1 - p) N(0, 1) + p N(mu, 1) against N(0, 1).
    p in [0, 1], mu >= 0; shapes broadcast. Guarantee: a mu-GDP round on a batch drawn without replacement with share p
    is (epsilon, this)-DP when one record is replaced. Raises ValueError naming the argument.
    Source: vandijk2023 section 4.2 with its (6); theta is asoodeh2020 eq. (10).
    """
    p = reals("p", p, at_least=0, at_most=1)
    inner = amplified_epsilon(epsilon, np.where(p > 0, p, 1.0))
    return (p * theta(inner, reals("mu", mu, at_least=0)))[()]


def poisson_add_delta(epsilon: ArrayLike, p: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The delta at epsilon >= 0 of one Poisson batch, add direction: N(0, 1) against (1 - p) N(0, 1) + p N(mu, 1).

    Zero once e^epsilon (1 - p) >= 1, and never above `subsampled_delta`. p in [0, 1], mu >= 0; shapes broadcast.
    Guarantee: what a Gaussian round spends at epsilon on the record added; the larger of the two is add_or_remove's.
    Raises ValueError naming the argument. Source: derived, the hockey stick of that pair (Zhu, Dong, Wang 2022) by
    theta of asoodeh2020 eq. (10).
    """
    epsilon, p, mu = np.broadcast_arrays(
        reals("epsilon", epsilon, at_least=0), reals("p", p, at_least=0, at_most=1), reals("mu", mu, at_least=0)
    )
    # p - (1 - e^-epsilon), in the form that keeps its digits; once it is spent, no outcome loses epsilon.
    near = epsilon < 0.7
    left = np.where(near, p + np.expm1(-epsilon), np.exp(-epsilon) - (1 - p))
    mixed = (left > 0) & (p < 1)
    share, growth = np.where(mixed, left, 1.0), np.where(mixed, epsilon, 0.0)
    rate = np.where(mixed, p, 1.0)
    logarithm = np.where(near, np.log1p(np.where(mixed & near, np.expm1(-epsilon), 0.0) / rate), np.log(share / rate))
    inner = np.where(mixed, -logarithm, epsilon)
    weight = np.where(mixed, np.exp(growth) * share, np.where(p == 1, 1.0, 0.0))
    return np.minimum(weight * theta(np.maximum(inner, 0.0), mu), 1.0)[()]
