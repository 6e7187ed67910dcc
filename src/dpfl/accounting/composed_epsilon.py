"""Epsilon of a composition of losses on a grid, from above and from below."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx

from dpfl.accounting.loss_composition import STEEPEST, Composition, GridLaw

Phases = Sequence[tuple[GridLaw, int]]
"""Laws of the loss on grids of one step, each with the number of times that it is composed."""

_LEAST_TILT, _MOST_TILT, _LARGEST = 1e-6, 1e6, 1e7
_ROOT = 1e-10
_LEFT_OUT = ((1e-3, 0.5, 0.02), (0.05, 1.0, 0.1), (0.05, 1.0, 0.5))
"""Shares of delta: where the allowance for rounding is between the first two, rare losses of the third are left out."""


def epsilon_above(phases: Phases, delta: float) -> float:
    """Return an upper bound of epsilon at `delta` in (0, 1) of `phases` whose laws are pessimistic; may be inf.

    Guarantee: what the laws dominate is (this, delta)-DP in their order.
    Source: `loss_composition` (`pessimistic`).
    """
    if sum(count * law.lost for law, count in phases) >= delta:
        return math.inf
    epsilon, doubt = _epsilon_and_doubt(phases, delta)
    for least_doubt, most_doubt, share in _LEFT_OUT:
        if not least_doubt < doubt <= most_doubt:
            continue
        # Rare large losses outweigh all others under a tilt that reaches epsilon: count them as without bound.
        cut, doubt = _epsilon_and_doubt(_cut(phases, share * delta), delta)
        epsilon = min(epsilon, cut)
    return epsilon


def _epsilon_and_doubt(phases: Phases, delta: float) -> tuple[float, float]:
    """Return the upper bound under one tilt, and which share of delta there is allowance for rounding."""
    log_delta = math.log(delta)
    tilt, centre = _saddle(phases, log_delta)
    sums = Composition(phases, tilt)
    epsilon = _crossing(lambda epsilon: sums.log_delta_above(epsilon) - log_delta, centre)[1] * (1 + _ROOT)
    return epsilon, sums.doubt(epsilon) if math.isfinite(epsilon) else 1.0


def _cut(phases: Phases, mass: float) -> Phases:
    """Return the laws without their largest losses, which are lost: at most `mass` in the composition."""
    cut = []
    for law, count in phases:
        tail = np.cumsum(law.masses[::-1])[::-1]
        keep = int(np.searchsorted(-tail, -mass / (count * len(phases))))  # from here on there is less than that
        lost = float(tail[keep]) if keep < tail.size else 0.0
        cut.append((replace(law, masses=law.masses[:keep], lost=law.lost + lost * (1 + 1e-9)), count))
    return cut


def epsilon_below(phases: Phases, delta: float) -> float:
    """Return a lower bound of epsilon at `delta` in (0, 1) of `phases` whose laws are optimistic.

    Guarantee: what dominates the laws is not (e, delta)-DP for any e below this.
    Source: `loss_composition` (`optimistic`).
    """
    log_delta = math.log(delta)
    tilt, centre = _saddle(phases, log_delta)
    sums = Composition(phases, tilt)
    return _crossing(lambda epsilon: sums.log_delta_below(epsilon) - log_delta, centre)[0] * (1 - _ROOT)


def _saddle(phases: Phases, log_delta: float) -> tuple[float, float]:
    """Return the tilt whose sum, were it normal, had delta at its mean, and that mean: about epsilon."""
    cut = [(law.losses[law.masses > 0], np.log(law.masses[law.masses > 0]), count) for law, count in phases]

    def moments(tilt: float) -> tuple[float, float, float]:
        log_mass = mean = variance = 0.0
        for losses, logs, count in cut:
            tilted = logs + tilt * losses
            top = float(tilted.max())
            weights = np.exp(tilted - top)
            total = float(weights.sum())
            middle = float(weights @ losses) / total
            log_mass, mean = log_mass + count * (top + math.log(total)), mean + count * middle
            variance += count * float(weights @ (losses - middle) ** 2) / total
        return log_mass, mean, math.sqrt(variance)

    def excess(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        log_mass, mean, std = moments(tilt)
        argument = tilt * std / math.sqrt(2)
        share = float(erfcx(argument) - erfcx(argument + std / math.sqrt(2))) / 2
        return log_mass - tilt * mean + math.log(max(share, 1e-300)) - log_delta

    # Losses of 1e-9 need a steeper one.
    widest = max(float(losses[-1] - losses[0]) for losses, _, _ in cut)
    most = max(_MOST_TILT, STEEPEST / widest) if widest > 0 else _MOST_TILT
    ends = (math.log(_LEAST_TILT), math.log(most))
    if excess(ends[0]) <= 0:  # epsilon is about 0: one deviation, or what may wrap around would outweigh a tiny delta
        tilt = 1 / max(moments(_LEAST_TILT)[2], 1 / most)
    else:
        tilt = math.exp(ends[1] if excess(ends[1]) > 0 else brentq(excess, *ends, xtol=0.02))
    return tilt, moments(tilt)[1]


def _crossing(excess: Callable[[float], float], centre: float) -> tuple[float, float]:
    """Return two numbers between which the falling `excess` is 0, equal where it was found; 0 where it is never above.

    Beyond _LARGEST nothing is looked for: the second is inf.
    """
    low = high = max(centre, 0.0)
    width = 0.05 * max(high, 1e-3)
    while excess(high) > 0:
        low, high, width = high, high + width, 2 * width
        if high > _LARGEST:
            return low, math.inf
    while low > 0 and excess(low) <= 0:
        low, high, width = max(0.0, low - width), low, 2 * width
    if excess(low) <= 0:
        return 0.0, 0.0
    found = float(brentq(lambda epsilon: max(excess(epsilon), -1e4), low, high, xtol=1e-300, rtol=_ROOT / 4))
    return found, found
