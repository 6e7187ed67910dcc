"""Projected noisy SGD by place of the record, and what a secret order or a random stop makes of it (asoodeh2020).

A record that differs at place j contributes delta_j = first * kept^(n - j) to the last model. A stop after
tau ~ uniform{1..n} steps averages over the later steps that are left; a secret uniform permutation of the records
averages over places, by joint convexity of the divergence (the variant that the paper names and leaves open).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.contraction.pnsgd_fixed_order import pnsgd_gaussian_delta, pnsgd_laplace_delta
from dpfl.accounting.contraction.stable_arithmetic import Array

_LEAST = 1e-300
_LOG_RANGE = 60.0


class Law(StrEnum):
    """The law of the noise on every gradient."""

    GAUSSIAN = "gaussian"
    """Standard deviation `scale` in every coordinate."""
    LAPLACE = "laplace"
    """Scale `scale`, one-dimensional models only."""


def place_deltas(
    epsilon: float, *, n: int, law: Law, scale: float, permuted: bool = False, random_stop: bool = False, **theory
) -> Array:
    """Return delta at `epsilon` of the record at each place 1..n of the data set, shape (n,).

    `theory`: eta, lipschitz, smoothness, strong_convexity, diameter as in `pnsgd_fixed_order`, one each. No options:
    Theorem 4 (Gaussian) or 3 (Laplace); `random_stop` gives (1/n) sum of those from the record's place on, Theorem 5
    before its last step; `permuted` gives every record the mean over places. Formal guarantee: (epsilon, delta_i)-DP
    for replacing record i; with `permuted` or `random_stop` while order or stopping time stay secret.
    Raises ValueError naming the argument. Source: asoodeh2020 Theorems 3, 4 and 5; the mean over places is derived
    (joint convexity of the divergence).
    """
    count = integer("n", n, at_least=1)
    scale, theory = real("scale", scale, above=0.0), {name: real(name, value) for name, value in theory.items()}
    positions = np.arange(1.0, count + 1.0)
    if member("law", Law, law) is Law.GAUSSIAN:
        deltas = pnsgd_gaussian_delta(epsilon, i=positions, n=count, sigma=scale, **theory)
    else:
        deltas = pnsgd_laplace_delta(epsilon, i=positions, n=count, scale=scale, **theory)
    if random_stop:
        deltas = np.cumsum(deltas[::-1])[::-1] / count
    return np.full(count, deltas.mean()) if permuted else deltas


def worst_epsilon(delta: float, *, law: Law, scale: float, lipschitz: float, **run) -> float:
    """Return the least epsilon at which no place has a delta above `delta` in (0, 1); keywords of `place_deltas`.

    Within 1e-9 above it. Formal guarantee: (epsilon, `delta`)-DP for replacing any one record, as `place_deltas` has
    it. Raises ValueError naming the argument. Source: `place_deltas`, solved for epsilon.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    values = {"law": law, "scale": scale, "lipschitz": lipschitz} | run
    alone = step_epsilon(delta, law=law, scale=scale, lipschitz=lipschitz)

    def excess(epsilon: float) -> float:
        return _log(place_deltas(epsilon, **values).max()) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(alone) >= 0.0:
        return alone
    root = brentq(excess, 0.0, alone, xtol=1e-10)
    return root if excess(root) <= 0.0 else min(alone, root + 1e-9)


def calibrated_scale(epsilon: float, delta: float, *, law: Law, lipschitz: float, **run) -> float:
    """Return the least scale at which every place's delta at `epsilon` > 0 is at most `delta` in (0, 1).

    Keywords of `place_deltas`; within 1e-9 of the root, on its safe side. Raises ValueError naming the argument. Formal
    guarantee: with that noise (epsilon, `delta`)-DP for replacing any one record, as `place_deltas` has it. Source:
    `place_deltas`, solved for the scale.
    """
    target = math.log(real("delta", delta, above=0.0, below=1.0))
    real("epsilon", epsilon, above=0.0)
    upper = math.log(_step_scale(epsilon, delta, law, lipschitz))

    def excess(log_scale: float) -> float:
        values = {"law": law, "lipschitz": lipschitz} | run
        return _log(place_deltas(epsilon, scale=math.exp(log_scale), **values).max()) - target

    lower = upper - 1.0
    while excess(lower) <= 0.0:
        upper, lower = lower, lower - 1.0
        if lower < -_LOG_RANGE:
            raise ValueError(f"delta: any scale attains {delta} at epsilon {epsilon}")
    root = upper if excess(upper) >= 0.0 else brentq(excess, lower, upper, xtol=1e-10)
    return math.exp(root + 1e-9)


def step_epsilon(delta: float, *, law: Law, scale: float, lipschitz: float) -> float:
    """Return epsilon at `delta` in [0, 1) with every model published: one noisy gradient of sensitivity 2 lipschitz.

    Exact; `lipschitz` > 0, `scale` > 0. Formal guarantee: (epsilon, `delta`)-DP of all models for replacing one record.
    Raises ValueError naming the argument. Source: for Gaussian noise the inverse in epsilon of asoodeh2020 eq. (10),
    for Laplace of its eq. (9).
    """
    shift = 2.0 * real("lipschitz", lipschitz, above=0.0) / real("scale", scale, above=0.0)
    delta = real("delta", delta, at_least=0.0, below=1.0)
    if member("law", Law, law) is Law.GAUSSIAN:
        return float(gaussian_dp.epsilon(delta, shift))
    return max(0.0, shift + 2.0 * math.log1p(-delta))


def _step_scale(epsilon: float, delta: float, law: Law, lipschitz: float) -> float:
    """Return the scale at which `step_epsilon` is `epsilon`. Raises ValueError naming lipschitz or law."""
    move = 2.0 * real("lipschitz", lipschitz, above=0.0)
    if member("law", Law, law) is Law.GAUSSIAN:
        return move / float(gaussian_dp.mu(epsilon, delta))
    return move / (epsilon - 2.0 * math.log1p(-delta))


def _log(value: float) -> float:
    """Return the logarithm of a probability that may have underflowed."""
    return math.log(max(float(value), _LEAST))
