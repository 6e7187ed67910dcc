"""Sums of powers of a contraction factor, stable from a factor of 0 to one that rounds to 1.

Every function takes the factor x twice, as log x and as gap = 1 - x, because float64 keeps neither from the other.
`terms` may be fractional (the closed form of asoodeh2021 Theorem 2 is drawn at T = 10/3).
"""

from __future__ import annotations

import numpy as np

from dpfl.accounting.contraction.stable_arithmetic import Array

_FEW = 1e-2  # below this terms * gap the direct double sum cancels and its series takes over
_SERIES_TERMS = 7


def geometric(log_factor: Array, gap: Array, terms: Array) -> Array:
    """Sum 1 + x + ... + x^(terms - 1) = (1 - x^terms)/(1 - x); `terms` itself at x = 1. Shapes broadcast.

    Source: elementary; the sum over rounds of asoodeh2021 Theorem 2.
    """
    shape = np.broadcast(log_factor, gap, terms).shape
    limit = np.array(np.broadcast_to(terms, shape), dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        vanished = -np.expm1(terms * log_factor)
    return np.divide(vanished, gap, out=limit, where=(gap > 0.0) & (terms > 0.0))


def double_geometric(log_factor: Array, gap: Array, terms: Array) -> Array:
    """Sum over k = 1..terms of `geometric`(k): terms (terms + 1)/2 at x = 1.

    For terms * gap small, the binomial series C(N+1, 2) - C(N+1, 3) gap + C(N+1, 4) gap^2 - ... is used. Shapes
    broadcast. Source: elementary; the double sum of asoodeh2021 Corollary 3.
    """
    few = terms * gap < _FEW
    safe_gap = np.where(few, 1.0, gap)
    direct = (terms - np.exp(log_factor) * geometric(log_factor, gap, terms)) / safe_gap
    small_gap = np.where(few, gap, 0.0)
    binomial = (terms + 1.0) * terms / 2.0
    series = np.zeros(np.broadcast(log_factor, gap, terms).shape)
    for order in range(2, 2 + _SERIES_TERMS):
        series = series + binomial
        binomial = -binomial * small_gap * (terms + 1.0 - order) / (order + 1.0)
    return np.where(few, series, direct)
