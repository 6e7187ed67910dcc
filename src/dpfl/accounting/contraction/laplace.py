"""Hockey-stick divergence between two Laplace distributions of equal scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import reals
from dpfl.accounting.contraction.stable_arithmetic import Array, ratio


def laplace_divergence(epsilon: ArrayLike, m1: ArrayLike, m2: ArrayLike, scale: ArrayLike) -> Array:
    """Return E_{e^epsilon} between Laplace(m1, scale) and Laplace(m2, scale), by broadcasting.

    epsilon >= 0; `scale` > 0 in the unit of the means m1 and m2 (variance 2 scale^2). The result is 0 once epsilon >=
    |m1 - m2|/scale. Formal guarantee: a number with that noise is (epsilon, this)-DP where a neighbour moves it from m1
    to m2. Raises ValueError naming the argument. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    with np.errstate(over="ignore"):
        distance = np.abs(reals("m1", m1) - reals("m2", m2))
    return divergence(epsilon, ratio(distance, reals("scale", scale, above=0.0)))


def divergence(epsilon: Array, distance: Array) -> Array:
    """Value [1 - e^((epsilon - distance)/2)]_+ for a distance in units of the scale; +inf is allowed.

    Arguments are not checked. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    return -np.expm1(0.5 * np.minimum(epsilon - distance, 0.0))


def log_divergence(epsilon: Array, distance: Array) -> Array:
    """Logarithm of `divergence`, accurate where that rounds to 1; -inf where it is 0.

    Arguments are not checked. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    exponent = 0.5 * np.minimum(epsilon - distance, 0.0)
    shallow = exponent > -np.log(2.0)
    with np.errstate(divide="ignore"):
        return np.where(
            shallow,
            np.log(-np.expm1(np.where(shallow, exponent, 0.0))),
            np.log1p(-np.exp(np.where(shallow, -1.0, exponent))),
        )
