"""Gaussian differential privacy: G_mu, its (epsilon, delta) curve, composition and groups.

Hockey-stick divergence between two Gaussians of equal covariance: the function theta behind every bound here. With a =
eps/r - r/2, b = eps/r + r/2 and the Mills ratio m = Q/phi, the identity phi(a) = e^eps phi(b) turns theta = Q(a) -
e^eps Q(b) into phi(a) (m(a) - m(b)), which neither overflows nor subtracts tiny tails. Where a < 0 the complement 1 -
theta = phi(a) (m(-a) + m(b)) is a sum of positive terms. Where a and b nearly coincide the difference of Mills ratios
is the integral of 1 - x m(x) from a to b, done by two Gauss-Legendre nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, erfinv, ndtr, ndtri

from dpfl.accounting.numerics import Array, integers, real, reals, root

# Hockey-stick divergence between two Gaussians of equal covariance: the function theta behind every bound here.

_NARROW = 1e-3  # b - a below this share of max(1, a): quadrature; above: subtraction loses at most three digits
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(2)
_FAR = 1e200  # stands for infinity in r and eps/r: its square overflows, itself it stays finite
_SERIES_FROM = 40.0  # 1 - x m(x) by its asymptotic series from here on
_LOG_SQRT_TAU = 0.5 * np.log(2.0 * np.pi)
_BLOCK = 1 << 14  # elements per pass: temporaries stay in the cache


def theta(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return E_{e^epsilon} between N(r u, I) and N(0, I), u any unit vector.

    epsilon >= 0 and r >= 0 (dimensionless) broadcast; the result is in [0, 1] and is 0 at r = 0.
    Relative error below 1e-11 for r <= 1e3 (beyond, that of rounding eps/r - r/2), underflowing only below 1e-308.
    Raises ValueError naming the argument. Source: asoodeh2021 eq. (6), asoodeh2020 eq. (10) with gamma = e^epsilon.
    """
    return _checked(epsilon, r, divergence)


def log_theta(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return the natural logarithm of `theta`, finite far below the smallest float64; -inf at r = 0.

    Arguments and errors are those of `theta`. Source: `theta`; stable form derived in the module.
    """
    return _checked(epsilon, r, log_divergence)


def one_minus_theta(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return 1 - `theta` with full relative accuracy where theta itself rounds to 1.

    Arguments and errors are those of `theta`. Source: `theta`; stable form derived in the module.
    """
    return _checked(epsilon, r, complement)


def divergence(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return `theta` of checked arguments; r may be +inf. Source: `theta`."""
    parts = _parts(epsilon, r)
    value = parts.value()
    return np.where(parts.is_theta, value, 1.0 - value)[()]


def log_divergence(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return `log_theta` of checked arguments; r may be +inf. Source: `log_theta`."""
    parts = _parts(epsilon, r)
    with np.errstate(divide="ignore"):
        return np.where(parts.is_theta, parts.log_value(), np.log1p(-np.where(parts.is_theta, 0.0, parts.value())))[()]


def complement(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return `one_minus_theta` of checked arguments; r may be +inf. Source: `one_minus_theta`."""
    parts = _parts(epsilon, r)
    value = parts.value()
    return np.where(parts.is_theta, 1.0 - value, value)[()]


def log_complement(epsilon: ArrayLike, r: ArrayLike) -> Array:
    """Return ln(1 - theta) of checked arguments, exact where 1 - theta underflows. Source: `one_minus_theta`."""
    parts = _parts(epsilon, r)
    return np.where(parts.is_theta, np.log1p(-np.where(parts.is_theta, parts.value(), 0.0)), parts.log_value())[()]


class _Parts(NamedTuple):
    """theta (or, where not `is_theta`, 1 - theta) as phi(a) * factor * scale: three factors that survive underflow."""

    is_theta: NDArray[np.bool_]
    exponent: Array
    factor: Array
    scale: Array

    def value(self) -> Array:
        """The product, which may underflow to 0."""
        return np.exp(self.exponent - _LOG_SQRT_TAU) * self.factor * self.scale

    def log_value(self) -> Array:
        """Its logarithm, -inf only where the exponent itself is."""
        with np.errstate(divide="ignore"):
            return self.exponent - _LOG_SQRT_TAU + np.log(self.factor) + np.log(self.scale)


def _parts(epsilon: ArrayLike, r: ArrayLike) -> _Parts:
    """Split theta at the sign of a and at the width b - a = r; see the module's docstring."""
    epsilon, r = np.broadcast_arrays(epsilon, np.minimum(r, _FAR))
    with np.errstate(over="ignore"):
        centre = np.divide(epsilon, r, out=np.full(r.shape, _FAR), where=r > 0.0)
        centre = np.minimum(centre, _FAR)
        a = centre - 0.5 * r
        exponent = -0.5 * a * a
    narrow = r < _NARROW * np.maximum(1.0, a)
    positive = a >= 0.0
    if narrow.all():
        return _Parts(narrow, exponent, _mean_descent(centre, 0.5 * r), r)
    near, far = _mills(np.abs(a)), _mills(centre + 0.5 * r)
    factor = np.asarray(np.where(positive, near - far, near + far))
    scale = np.ones(r.shape)
    if narrow.any():
        factor[narrow] = _mean_descent(centre[narrow], 0.5 * r[narrow])
        scale[narrow] = r[narrow]
    return _Parts(positive | narrow, exponent, factor, scale)


def _mills(x: Array) -> Array:
    """Mills ratio Q(x)/phi(x)."""
    return np.sqrt(np.pi / 2.0) * erfcx(x * np.sqrt(0.5))


def _mean_descent(centre: Array, half_width: Array) -> Array:
    """Mean of -m'(x) = 1 - x m(x) over [centre - half_width, centre + half_width]."""
    return sum(  # pyright: ignore[reportReturnType]  # two terms, so never the 0 of an empty sum
        0.5 * weight * _descent(centre + half_width * node) for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )


def _descent(x: Array) -> Array:
    """1 - x m(x); beyond x = 40 by the series x^-2 - 3 x^-4 + 15 x^-6 - ..., where subtraction would cancel."""
    small = np.minimum(x, _SERIES_FROM)
    direct = 1.0 - small * _mills(small)
    far = x > _SERIES_FROM
    if not far.any():
        return direct
    y = np.where(far, x, _SERIES_FROM) ** -2.0
    series = y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y * (1 - 11 * y * (1 - 13 * y))))))
    return np.where(far, series, direct)


def _checked(epsilon: ArrayLike, r: ArrayLike, function: Callable[[Array, Array], Array]) -> Array:
    """Check and broadcast the two arguments, then apply `function` block by block."""
    epsilon, r = np.broadcast_arrays(reals("epsilon", epsilon, at_least=0.0), reals("r", r, at_least=0.0))
    if epsilon.size <= _BLOCK:
        return function(epsilon, r)
    result = np.empty(epsilon.shape)
    flat, epsilon, r = result.reshape(-1), epsilon.reshape(-1), r.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        flat[block] = function(epsilon[block], r[block])
    return result


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


def epsilon_or_inf(delta: float, mu: float) -> float:
    """Return `epsilon` of one delta and one mu, as an upper bound: inf beyond the largest mu that it knows, to inf.

    Guarantee, source and errors: those of `epsilon`.
    """
    failure, moved = real("delta", delta, at_least=0, at_most=1), real("mu", mu, at_least=0, infinite=True)
    return float(epsilon(failure, moved)) if moved <= _LARGEST_MU else math.inf


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
    mu = reals("mu", mu, at_least=0, infinite=True)
    least = np.minimum(ndtr(-ndtri(alpha) - np.minimum(mu, _LARGEST_MU)), 1 - alpha)
    return np.where(np.isinf(mu), 0.0, least)[()]


def compose(mus: ArrayLike) -> NDArray[np.float64]:
    """The mu of the composition of G_mu over the last axis: the root of the sum of squares.

    mus: shape (..., k), each >= 0; returns shape (...). Tight also under adaptive composition. Guarantee: the composed
    mechanisms are GDP with this mu. Raises ValueError naming mus. Source: vandijk2023 section 4.3.
    """
    mus = np.atleast_1d(reals("mus", mus, at_least=0))
    largest = np.max(mus, axis=-1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return (scale[..., 0] * np.sqrt(np.sum((mus / scale) ** 2, axis=-1)))[()]


def joint_noise(noise_multipliers: ArrayLike) -> NDArray[np.float64]:
    """The noise multiplier of one Gaussian step that releases as much as several Gaussian parts on one batch.

    noise_multipliers: shape (..., k), each > 0; returns shape (...), 1 / sqrt(sum of 1 / z^2) over the last axis. By
    their noise the parts are scaled to one vector, which a record moves by at most that much: the step may be sampled
    as any other. Adaptive clipping releases a sum with z, and a count of clipped records, less 1/2 each, with noise s:
    joint_noise([z, 2 s]).
    Raises ValueError naming noise_multipliers. Source: andrew2021, Theorem 1; exact, as the Gaussian is a product.
    """
    parts = np.atleast_1d(reals("noise_multipliers", noise_multipliers, above=0))
    least = np.min(parts, axis=-1, keepdims=True, initial=_FAR)
    with np.errstate(divide="ignore"):  # no part at all is infinite noise
        return (least[..., 0] / np.sqrt(np.sum((least / parts) ** 2, axis=-1)))[()]


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
    Raises ValueError naming epsilon or mu. Source: derived; the loss is N(mu^2/2, mu^2), dong2022.
    """
    epsilon, mu = np.broadcast_arrays(reals("epsilon", epsilon, at_least=0), reals("mu", mu, at_least=0))
    safe_mu = np.where(mu > 0, mu, 1.0)
    with np.errstate(over="ignore"):
        ratio = epsilon / safe_mu
    exceeds = ndtr(safe_mu / 2 - ratio) + ndtr(-safe_mu / 2 - ratio)
    return np.where(mu > 0, exceeds, 0.0)[()]
