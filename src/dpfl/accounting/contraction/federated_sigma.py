"""Noise for a wanted guarantee of asoodeh2021, Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from dpfl.accounting.arguments import real, reals
from dpfl.accounting.contraction.federated import federated_delta
from dpfl.accounting.contraction.rounds import last_model, read_rounds

_LOG_RANGE = 690.0  # sigma is sought between e^-690 and e^690
_SPACING = 2.0**-52


def federated_sigma(
    epsilon: float, delta: float, *, n: int, m: int, eta: ArrayLike, lipschitz: float, radius: float
) -> float:
    """Return the smallest constant sigma at which `federated_delta`(epsilon) <= delta.

    epsilon >= 0, 0 < delta < 1 and lipschitz > 0 scalars; eta a scalar or a schedule; other arguments as in
    `federated_delta`. The result is on the safe side of the root, by a few units in the last place. Raises
    ValueError naming the argument, and naming delta where no sigma or any sigma attains it. Formal guarantee: with that
    noise the last model is (epsilon, delta)-DP, as `federated_delta` has it. Source: asoodeh2021 Theorem 2, whose delta
    falls as sigma grows, solved by bracketing on log sigma.
    """
    epsilon = real("epsilon", epsilon, at_least=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    lipschitz = real("lipschitz", lipschitz, above=0.0)
    radius = real("radius", radius, at_least=0.0)
    eta = reals("eta", eta, above=0.0)
    read_rounds(n, m, eta, 1.0)

    def excess(log_sigma: float) -> float:
        """log delta above the target; floored, because brentq needs finite ends."""
        rounds = read_rounds(n, m, eta, math.exp(log_sigma))
        return max(float(last_model(epsilon, rounds, lipschitz, 2.0 * radius)) - math.log(delta), -1e300)

    start = float(np.clip(math.log(2.0 * lipschitz) - 0.5 * math.log(m), -_LOG_RANGE, _LOG_RANGE))
    sigma = math.exp(brentq(excess, *_bracket(excess, start), xtol=1e-15, rtol=4.0 * _SPACING))
    step = _SPACING
    while federated_delta(epsilon, n=n, m=m, eta=eta, sigma=sigma, lipschitz=lipschitz, radius=radius) > delta:
        sigma *= 1.0 + step
        step *= 2.0
    return sigma


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Widen from `start` until `excess`, a falling function, changes sign between the two ends."""
    ends = []
    for direction, outside in ((-1.0, lambda value: value <= 0.0), (1.0, lambda value: value > 0.0)):
        end, stride = start, 1.0
        while outside(excess(end)):
            if abs(end) >= _LOG_RANGE:
                reached = "every" if direction < 0.0 else "no"
                raise ValueError(f"delta: {reached} sigma between e^-690 and e^690 attains it")
            end = float(np.clip(end + direction * stride, -_LOG_RANGE, _LOG_RANGE))
            stride *= 2.0
        ends.append(end)
    return ends[0], ends[1]
