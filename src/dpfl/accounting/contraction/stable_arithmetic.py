"""Checked arguments and stable ratios of them, shared by the modules of this package."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integers

Array = NDArray[np.float64]


def place(i: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    """Return the record's place i and the number of records n, 1 <= i <= n. Raises ValueError naming the argument."""
    n, i = integers("n", n, at_least=1), integers("i", i, at_least=1)
    if np.any(i > n):
        raise ValueError("i must be at most n, the number of records")
    return i, n


def ratio(numerator: ArrayLike, *divisors: ArrayLike) -> Array:
    """numerator / divisors, one after the other: the product of the divisors may be beyond float64."""
    with np.errstate(over="ignore", under="ignore"):
        for divisor in divisors:
            numerator = np.divide(numerator, divisor)
    return numerator


def power(log_base: Array, exponent: Array) -> Array:
    """exponent * log_base with 0 * (-inf) = 0: the logarithm of base^exponent, an empty product being 1."""
    product = np.zeros(np.broadcast(log_base, exponent).shape)
    with np.errstate(over="ignore"):
        return np.multiply(log_base, exponent, out=product, where=exponent != 0)


def probability(log_value: Array) -> Array:
    """exp, at most 1: rounding, or a T = n/m that is no integer, may lift a sum of probabilities above it."""
    return exponential(np.minimum(log_value, 0.0))


def exponential(log_value: Array) -> Array:
    """exp that silently gives inf or 0 beyond the range of float64."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(log_value)
