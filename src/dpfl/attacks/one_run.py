"""Privacy auditing with one training run: a lower confidence bound on epsilon from guesses about canaries.

Source: steinke2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from dpfl.accounting.numerics import integer, real
from dpfl.randomness import generator

# Privacy auditing with one training run against a full trade-off curve instead of one (epsilon, delta).
#
# Source: mahloujifar2025.

InverseCurve = Callable[[float], float]
"""Maps the probability of an event in one world to the least probability that it can have in the other: the inverse of
1 - f, where f is a symmetric trade-off curve."""

_LARGEST_MU = 30.0


def gaussian_curve(mu: float) -> InverseCurve:
    """Return the inverse of 1 - G_mu: x -> Phi(Phi^-1(x) - mu)."""
    return lambda x: float(ndtr(ndtri(x) - mu))


def curve_p_value(curve: InverseCurve, *, canaries: int, guesses: int, right: int) -> float:
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
    return math.exp(float(cast("Any", brentq)(needed, lowest, 0.0, xtol=1e-9)) + 1e-9)


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

    The largest mu whose `curve_p_value` is at most 1 - confidence; 0 where they refute none. Arguments as for that. To
    read an epsilon off it (dpfl.accounting.gaussian_dp.epsilon) assumes that the trade-off curve is Gaussian.
    Raises ValueError naming the argument.
    """
    level = 1 - real("confidence", confidence, above=0, below=1)
    counts = {"canaries": canaries, "guesses": guesses, "right": right}

    def excess(mu: float) -> float:
        return curve_p_value(gaussian_curve(mu), **counts) - level

    if excess(0.0) > 0:
        return 0.0
    if excess(_LARGEST_MU) <= 0:
        return _LARGEST_MU
    return max(0.0, float(cast("Any", brentq)(excess, 0.0, _LARGEST_MU, xtol=1e-7)) - 1e-7)


def coins(seed: int, count: int) -> NDArray[np.int64]:
    """Return a fair coin for each canary, 0 or 1; addressed by the seed alone."""
    return generator(seed, "participants", client=count).integers(0, 2, size=count)


_LARGEST = 60.0


def p_value(*, epsilon: float, delta: float, canaries: int, guesses: int, right: int) -> float:
    """Return the most probable that `right` or more of the guesses are right under (epsilon, delta)-DP.

    m = `canaries` bits are fair coins, r = `guesses` of them are guessed from the mechanism's output, the others not.
    steinke2023 Theorem 5.2: P[right >= v] <= P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i, where B is
    Binomial(r, e^epsilon / (1 + e^epsilon)) and i runs over 1 ... m. Guarantee: for every mechanism that is
    (epsilon, delta)-DP in each bit, and every rule of guessing. Raises ValueError naming the argument.
    """
    epsilon = real("epsilon", epsilon, at_least=0)
    delta = real("delta", delta, at_least=0, below=1)
    canaries = integer("canaries", canaries, at_least=1)
    guesses = integer("guesses", guesses)
    right = integer("right", right)
    if not right <= guesses <= canaries:
        raise ValueError(f"guesses: {right} right of {guesses} for {canaries} canaries cannot be")
    share = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, share))
    if right == 0:
        return 1.0
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, share))  # i = 1 ... right; beyond, it only falls
    worst = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * worst)


def epsilon_lower_bound(*, delta: float, canaries: int, guesses: int, right: int, confidence: float = 0.95) -> float:
    """Return the epsilon that the guesses refute: with probability `confidence` or more the true one is above it.

    The largest epsilon whose `p_value` is at most 1 - confidence; 0 where they refute none. Arguments as for `p_value`,
    `confidence` in (0, 1). The rule of guessing, and how many guesses, must not depend on the bits.
    Raises ValueError naming the argument.
    """
    level = 1 - real("confidence", confidence, above=0, below=1)
    counts = {"delta": delta, "canaries": canaries, "guesses": guesses, "right": right}

    def excess(epsilon: float) -> float:
        return p_value(epsilon=epsilon, **counts) - level

    if excess(0.0) > 0:
        return 0.0
    if excess(_LARGEST) <= 0:
        return _LARGEST
    return float(cast("Any", brentq)(excess, 0.0, _LARGEST, xtol=1e-9)) - 1e-9


def right_guesses(scores: ArrayLike, included: ArrayLike, guesses: int) -> int:
    """Return the number of right guesses: the `guesses` // 2 canaries of highest score are guessed in, as many of
    lowest score out, and the others are not guessed.

    `scores` and `included` (0 or 1) have shape (m,). Raises ValueError naming the argument.
    """
    score: NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    bits = np.asarray(included).astype(bool)
    side = integer("guesses", guesses, at_least=2) // 2
    if score.shape != bits.shape or score.ndim != 1 or 2 * side > len(score):
        raise ValueError(f"guesses: {guesses} for scores of shape {score.shape} and bits of shape {bits.shape}")
    order = np.argsort(score, kind="stable")
    return int(bits[order[-side:]].sum() + (~bits[order[:side]]).sum())
