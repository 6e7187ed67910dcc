"""From a Renyi divergence that is linear in its order, D_alpha <= alpha kappa, to delta."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from dpfl.accounting.arguments import member
from dpfl.accounting.contraction.stable_arithmetic import Array, exponential

_LOG_RANGE = 700.0  # order - 1 is sought between e^-700 and e^700
_HALVINGS = 62  # of an interval of 1400 in log(order - 1): down to the spacing of float64


class Conversion(StrEnum):
    """Conversion of a Renyi bound to delta."""

    MIRONOV = "mironov"
    TIGHT = "tight"


def linear_renyi_delta(epsilon: Array, kappa: Array, conversion: str) -> Array:
    """delta at `epsilon` from D_alpha <= alpha kappa for every order alpha > 1.

    "mironov": exp(-(epsilon - kappa)^2/(4 kappa)), 1 where epsilon <= kappa. "tight": the minimum over alpha of
    e^((alpha-1)(alpha kappa - epsilon)) (1 - 1/alpha)^alpha/(alpha - 1). 0 at kappa = 0, where the two laws are one, by
    either. Arguments are not checked but `conversion` (ValueError). Formal guarantee: (epsilon, delta)-DP where the
    divergences are bounded so in both orders of the neighbours. Source: asoodeh2020 eq. (15); tight: canonne2020,
    Proposition 12.
    """
    conversion = member("conversion", Conversion, conversion)
    epsilon, kappa = np.broadcast_arrays(epsilon, kappa)
    positive = np.where(kappa > 0.0, kappa, 1.0)
    if conversion is Conversion.TIGHT:
        return np.where(kappa > 0.0, _tight(epsilon, positive), 0.0)[()]
    excess = np.maximum(epsilon - positive, 0.0)
    with np.errstate(over="ignore"):
        return np.where(kappa > 0.0, exponential(-(0.25 * excess / positive) * excess), 0.0)[()]


def _tight(epsilon: Array, kappa: Array) -> Array:
    """Bisect for the order: the logarithm of the objective is convex in x = alpha - 1."""
    low = np.full(epsilon.shape, -_LOG_RANGE)
    high = np.full(epsilon.shape, _LOG_RANGE)
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            rising = (2.0 * np.exp(middle) + 1.0) * kappa - epsilon - np.logaddexp(0.0, -middle) > 0.0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        x = np.exp(0.5 * (low + high))
        exponent = x * ((x + 1.0) * kappa - epsilon) - x * np.log1p(1.0 / x) - np.log1p(x)
    return exponential(np.minimum(exponent, 0.0))
