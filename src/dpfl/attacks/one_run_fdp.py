"""Privacy auditing with one training run against a full trade-off curve instead of one (epsilon, delta).

Source: mahloujifar2025.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpfl.accounting.arguments import integer, real

InverseCurve = Callable[[float], float]
"""Maps the probability of an event in one world to the least probability that it can have in the other: the inverse of
1 - f, where f is a symmetric trade-off curve."""

_LARGEST_MU = 30.0


def gaussian_curve(mu: float) -> InverseCurve:
    """Return the inverse of 1 - G_mu: x -> Phi(Phi^-1(x) - mu)."""
    return lambda x: float(ndtr(ndtri(x) - mu))


def epsilon_delta_curve(epsilon: float, delta: float) -> InverseCurve:
    """Return the inverse of 1 - f for (epsilon, delta)-DP: the least y with x <= e^eps y + delta, and the same for
    the complements."""

    def least(x: float) -> float:
        return max(0.0, math.exp(-epsilon) * (x - delta), 1 - math.exp(epsilon) * (1 - x) - delta)

    return least


def p_value(curve: InverseCurve, *, canaries: int, guesses: int, right: int) -> float:
    """Return the most probable that `right` or more of the guesses are right where the trade-off curve holds.

    m = `canaries` bits are fair coins, r = `guesses` of them are guessed from the output, the others not. With A_i the
    probability of i or more right guesses, exchanging one bit bounds R_i by the curve of W_(i-1), where
    m R_i = i A_i + A_(i+1) + ... + A_r (a bit is guessed right, and i or more in all) and
    m W_(i-1) = (r - i + 1) A_(i-1) - A_i - ... - A_r (it is guessed wrong, and i - 1 or more in all); averaging over
    bits is Jensen's inequality. The least A_(i-1) rises with A_i ... A_r, so the least A_0 for a given A_right follows
    step by step, and an A_right that needs A_0 > 1 is impossible. Guarantee: for every mechanism with this curve in
    each bit, and every rule of guessing. Source: mahloujifar2025, Theorem 3.2 and Algorithm 3, with abstention.
    Raises ValueError naming the argument.
    """
    canaries = integer("canaries", canaries, at_least=1)
    guesses, right = integer("guesses", guesses), integer("right", right)
    if not right <= guesses <= canaries:
        raise ValueError(f"guesses: {right} right of {guesses} for {canaries} canaries cannot be")

    def needed(log_tail: float) -> float:
        return _least_total(curve, math.exp(log_tail), canaries, guesses, right) - 1

    if needed(0.0) <= 0:
        return 1.0
    lowest = -80.0
    if needed(lowest) > 0:
        return math.exp(lowest)
    return math.exp(float(brentq(needed, lowest, 0.0, xtol=1e-9)) + 1e-9)


def _least_total(curve: InverseCurve, tail: float, canaries: int, guesses: int, right: int) -> float:
    """Return the least A_0 that A_right = tail allows, cut off where it exceeds 1."""
    here, beyond = tail, 0.0
    for i in range(right, 0, -1):
        event = (i * here + beyond) / canaries
        beyond += here
        if event >= 1:
            return 2.0
        here = max(here, (canaries * curve(event) + beyond) / (guesses - i + 1))
        if here > 1:
            return here
    return here


def mu_lower_bound(*, canaries: int, guesses: int, right: int, confidence: float = 0.95) -> float:
    """Return the mu that the guesses refute: with probability `confidence` or more no smaller mu-GDP holds.

    The largest mu whose `p_value` is at most 1 - confidence; 0 where they refute none. Arguments as for `p_value`. To
    read an epsilon off it (dpfl.accounting.gaussian_dp.epsilon) assumes that the trade-off curve is Gaussian.
    Raises ValueError naming the argument.
    """
    level = 1 - real("confidence", confidence, above=0, below=1)
    counts = {"canaries": canaries, "guesses": guesses, "right": right}

    def excess(mu: float) -> float:
        return p_value(gaussian_curve(mu), **counts) - level

    if excess(0.0) > 0:
        return 0.0
    if excess(_LARGEST_MU) <= 0:
        return _LARGEST_MU
    return max(0.0, float(brentq(excess, 0.0, _LARGEST_MU, xtol=1e-7)) - 1e-7)
