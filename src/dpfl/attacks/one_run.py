"""Privacy auditing with one training run: a lower confidence bound on epsilon from guesses about canaries.

Source: steinke2023.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting.arguments import integer, real
from dpfl.randomness import generator


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
    return float(brentq(excess, 0.0, _LARGEST, xtol=1e-9)) - 1e-9


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
