"""Gaussian differential privacy: G_mu, its (epsilon, delta) curve, composition and groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfinv, ndtr, ndtri

from dpfl.accounting.arguments import integers, reals
from dpfl.accounting.gaussian_divergence import log_theta, theta
from dpfl.accounting.roots import root

_LARGEST_MU = 1e100  # keeps mu^2 finite; G_mu is numerically zero long before


def delta(epsilon: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The delta of a mu-Gaussian-DP mechanism at each epsilon >= 0; shapes broadcast.

    Guarantee: mu-GDP holds if and only if (epsilon, delta)-DP holds for all epsilon >= 0.
    Raises ValueError naming epsilon or mu. Source: vandijk2023 (6).
    """
    return theta(reals("epsilon", epsilon, at_least=0), reals("mu", mu, at_least=0))


def epsilon(delta: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The smallest epsilon >= 0 at which G_mu spends at most `delta`; shapes broadcast.

    Works down to delta = 1e-300; delta = 0 gives inf (0 where mu = 0). delta in [0, 1], mu in [0, 1e100]. Guarantee: a
    mu-GDP mechanism is (epsilon, `delta`)-DP. Raises ValueError naming delta or mu. Source: inverse of vandijk2023 (6)
    in epsilon.
    """
    delta, mu = np.broadcast_arrays(
        reals("delta", delta, at_least=0, at_most=1), reals("mu", mu, at_least=0, at_most=_LARGEST_MU)
    )
    result = np.where((delta == 0) & (mu > 0), np.inf, 0.0)
    open_ = (delta > 0) & (delta < theta(0.0, mu))
    target, positive_mu = delta[open_], mu[open_]
    # theta(eps, mu) < Q(eps/mu - mu/2), so the zero of the latter's gap bounds epsilon from above.
    highest = positive_mu * (positive_mu / 2 - ndtri(target))
    solved = root(_log_gap, 0.0, highest, positive_mu, np.log(target))
    # Beyond mu of about 1e16 rounding hides where theta falls: the upper bound is then the answer, to the last bits.
    hidden = _log_gap(highest, positive_mu, np.log(target)) > 0
    result[open_] = np.where(hidden, highest, solved)
    return result[()]


def mu(epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """The largest mu for which G_mu is (epsilon, delta)-DP: the analytic calibration sigma = sensitivity/mu.

    epsilon >= 0, delta in [0, 1]; shapes broadcast. delta = 0 gives 0, delta = 1 gives inf. Guarantee: Gaussian noise
    with that sigma is (epsilon, delta)-DP. Raises ValueError naming epsilon or delta. Source: inverse of vandijk2023
    (6) in mu.
    """
    epsilon, delta = np.broadcast_arrays(
        reals("epsilon", epsilon, at_least=0), reals("delta", delta, at_least=0, at_most=1)
    )
    result = np.where(delta == 1, np.inf, 0.0)
    open_ = (delta > 0) & (delta < 1)
    budget, target = epsilon[open_], delta[open_]
    lowest = _mu_floor(budget, target)
    highest = lowest * 2
    while np.any(short := log_theta(budget, highest) < np.log(target)):
        highest[short] *= 2
    result[open_] = root(lambda x, eps, log_delta: _log_gap(eps, x, log_delta), lowest, highest, budget, np.log(target))
    return result[()]


def _log_gap(epsilon: NDArray, mu: NDArray, log_delta: NDArray) -> NDArray[np.float64]:
    """ln theta(epsilon, mu) - ln delta: falls in epsilon and rises in mu, and keeps its digits in both tails."""
    return log_theta(epsilon, mu) - log_delta


def _mu_floor(epsilon: NDArray, delta: NDArray) -> NDArray[np.float64]:
    """A mu below the answer: from theta(eps, mu) <= Q(eps/mu - mu/2) and from theta(eps, mu) <= theta(0, mu)."""
    quantile = -ndtri(delta)
    reach = np.sqrt(quantile**2 + 2 * epsilon)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = np.where(quantile > 0, 2 * epsilon / (quantile + reach), reach - quantile)
    return np.maximum(tail, np.sqrt(8) * erfinv(delta))


def tradeoff(alpha: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu): the least type II error at type I error `alpha`; shapes broadcast.

    alpha in [0, 1], mu in [0, inf]. Convex, decreasing, at most 1 - alpha, its own inverse. Guarantee: no test of a
    mu-GDP mechanism has a smaller type II error. Raises ValueError naming alpha or mu. Source: vandijk2023 section 4.1.
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    mu = np.minimum(reals("mu", mu, at_least=0, infinite=True), _LARGEST_MU)
    return np.minimum(ndtr(-ndtri(alpha) - mu), 1 - alpha)[()]


def compose(mus: ArrayLike) -> NDArray[np.float64]:
    """The mu of the composition of G_mu over the last axis: the root of the sum of squares.

    mus: shape (..., k), each >= 0; returns shape (...). Tight also under adaptive composition. Guarantee: the composed
    mechanisms are GDP with this mu. Raises ValueError naming mus. Source: vandijk2023 section 4.3.
    """
    mus = np.atleast_1d(reals("mus", mus, at_least=0))
    largest = np.max(mus, axis=-1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return (scale[..., 0] * np.sqrt(np.sum((mus / scale) ** 2, axis=-1)))[()]


def group(mu: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """The mu for groups of g records: g mu, the g-fold iterate 1 - (1 - G_mu)^{o g} in closed form.

    mu >= 0, integer g >= 1; shapes broadcast. Guarantee: a mu-GDP mechanism is GDP with this mu for such groups. Raises
    ValueError naming mu or g. Source: vandijk2023 section 4.6.
    """
    return (reals("mu", mu, at_least=0) * integers("g", g, at_least=1))[()]


def renyi(order: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """Renyi divergence of N(mu, 1) from N(0, 1): order mu^2 / 2; so mu-GDP by Gaussian noise is (mu^2/2)-zCDP.

    order > 0, mu >= 0; shapes broadcast. Raises ValueError naming order or mu.
    Source: vandijk2023 before (5), with the sign of the exponent corrected: E[e^{(order - 1) Z}].
    """
    return (reals("order", order, above=0) * reals("mu", mu, at_least=0) ** 2 / 2)[()]


def loss_exceeds(epsilon: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The probability that the privacy loss of G_mu exceeds epsilon in absolute value; shapes broadcast.

    It is larger than delta(epsilon, mu): (epsilon, delta)-DP does not bound the loss by epsilon with
    probability 1 - delta, as vandijk2023 section 3.2 has it. epsilon >= 0, mu >= 0 (0 at mu = 0).
    Source: derived; the loss is N(mu^2/2, mu^2), dong2022.
    """
    epsilon, mu = np.broadcast_arrays(reals("epsilon", epsilon, at_least=0), reals("mu", mu, at_least=0))
    safe_mu = np.where(mu > 0, mu, 1.0)
    with np.errstate(over="ignore"):
        ratio = epsilon / safe_mu
    exceeds = ndtr(safe_mu / 2 - ratio) + ndtr(-safe_mu / 2 - ratio)
    return np.where(mu > 0, exceeds, 0.0)[()]
