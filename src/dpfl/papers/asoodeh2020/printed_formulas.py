"""Formulas of asoodeh2020 as printed, where they are wrong: for the table of errata and comparisons only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import reals
from dpfl.accounting.contraction.pnsgd_fixed_order import first_shift, later_shift
from dpfl.accounting.contraction.renyi_comparators import _iteration
from dpfl.accounting.contraction.stable_arithmetic import Array, ratio


def iteration_renyi_as_printed(order: ArrayLike, *, n: ArrayLike, distance: ArrayLike, sigma: ArrayLike) -> Array:
    """Return alpha distance/(2 n sigma^2), eq. (3) of asoodeh2020 as printed. Not a bound for distance > 1."""
    order, n, distance, sigma = _iteration(order, n, distance, sigma)
    return ratio(order * distance, 2.0 * n, sigma, sigma)


def pnsgd_laplace_pure_epsilon_as_printed(
    *,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return min(2L/v, M (b-a)/(eta v)) for every record, as printed. Not a guarantee for i = n.

    Source: asoodeh2020 Theorem 3, last sentence.
    """
    scale = reals("scale", scale, above=0.0)
    later = later_shift(eta, scale, smoothness, strong_convexity, diameter)
    return np.minimum(first_shift(lipschitz, scale), later)
