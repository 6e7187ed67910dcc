"""Hockey-stick divergence between two Gaussians of equal covariance: the function theta behind every bound here.

With a = eps/r - r/2, b = eps/r + r/2 and the Mills ratio m = Q/phi, the identity phi(a) = e^eps phi(b) turns
theta = Q(a) - e^eps Q(b) into phi(a) (m(a) - m(b)), which neither overflows nor subtracts tiny tails. Where a < 0
the complement 1 - theta = phi(a) (m(-a) + m(b)) is a sum of positive terms. Where a and b nearly coincide the
difference of Mills ratios is the integral of 1 - x m(x) from a to b, done by two Gauss-Legendre nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

from dpfl.accounting.arguments import reals

Array = NDArray[np.float64]

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


def divergence(epsilon: Array, r: Array) -> Array:
    """Return `theta` of checked arguments; r may be +inf. Source: `theta`."""
    parts = _parts(epsilon, r)
    value = parts.value()
    return np.where(parts.is_theta, value, 1.0 - value)[()]


def log_divergence(epsilon: Array, r: Array) -> Array:
    """Return `log_theta` of checked arguments; r may be +inf. Source: `log_theta`."""
    parts = _parts(epsilon, r)
    with np.errstate(divide="ignore"):
        return np.where(parts.is_theta, parts.log_value(), np.log1p(-np.where(parts.is_theta, 0.0, parts.value())))[()]


def complement(epsilon: Array, r: Array) -> Array:
    """Return `one_minus_theta` of checked arguments; r may be +inf. Source: `one_minus_theta`."""
    parts = _parts(epsilon, r)
    value = parts.value()
    return np.where(parts.is_theta, 1.0 - value, value)[()]


def log_complement(epsilon: Array, r: Array) -> Array:
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


def _parts(epsilon: Array, r: Array) -> _Parts:
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
    return sum(
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
