"""Amplification by shuffling: a report hides among clones, which look as if they came from the same two inputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.elementwise import elementwise

_MOST_CLONES, _BINS = 20_000, 4000
"""Above this number of clone counts they are binned, each less than a hundredth of their deviation wide."""


def clones_delta(epsilon: ArrayLike, n: ArrayLike, epsilon0: ArrayLike) -> float | NDArray[np.float64]:
    """Return delta at `epsilon` >= 0 of `n` >= 1 shuffled reports, each epsilon0-DP (pure); arrays broadcast.

    The hockey-stick divergence of (A + D, C - A + 1 - D) and (A + 1 - D, C - A + D), summed exactly, where
    C ~ Bin(n - 1, e^-epsilon0), A ~ Bin(C, 1/2), D ~ Bernoulli(e^epsilon0 / (1 + e^epsilon0)).
    Guarantee: (epsilon, delta)-DP under replace_one, adaptive reports included.
    Source: feldman2021, Theorem 3.2. Raises ValueError naming the argument.
    """

    def one(epsilon: float, n: float, epsilon0: float) -> float:
        level = real("epsilon0", epsilon0, at_least=0, at_most=300)
        divergence = _divergence(integer("n", n, at_least=1), level, math.exp(-level))
        return min(1.0, divergence(real("epsilon", epsilon, at_least=0)))

    return elementwise(one, epsilon=epsilon, n=n, epsilon0=epsilon0)


def clones_epsilon(
    n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike, delta0: ArrayLike = 0.0
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `n` shuffled reports, each (epsilon0, delta0)-DP; arrays broadcast.

    The least epsilon with clones_delta(epsilon) + (e^epsilon + 1)(1 + e^-epsilon0 / 2) n delta0 <= delta, and
    `epsilon0` where there is none below it (shuffling never hurts). `n` >= 1, `epsilon0` >= 0, `delta` in
    (0, 1), 0 <= `delta0` <= `delta`. Source: feldman2021, Theorems 3.2 and 3.8.
    Guarantee: as for clones_delta. Raises ValueError naming the argument.
    """

    def one(n: float, epsilon0: float, delta: float, delta0: float) -> float:
        count, level, total = _checked(n, epsilon0, delta)
        local = real("delta0", delta0, at_least=0, at_most=total)
        if local == 0:
            return _epsilon(count, level, total, math.exp(-level))
        return _epsilon_with_failures(count, level, total, local)

    return elementwise(one, n=n, epsilon0=epsilon0, delta=delta, delta0=delta0)


def restricted_clones_epsilon(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` by the larger clone probability 2/(1 + e^epsilon0); arguments as clones_epsilon.

    Caveat: the authors withdrew the general claim. It holds for randomisers all of whose output laws are at
    least (R_x + R_x') / (1 + e^epsilon0) for the two inputs compared, binary randomised response for one; not for
    Gaussians. Guarantee: that of clones_delta, for such randomisers only. Source: feldman2023. Raises ValueError naming
    the argument.
    """

    def one(n: float, epsilon0: float, delta: float) -> float:
        count, level, total = _checked(n, epsilon0, delta)
        return _epsilon(count, level, total, 2 / (1 + math.exp(level)))

    return elementwise(one, n=n, epsilon0=epsilon0, delta=delta)


def _checked(n: float, epsilon0: float, delta: float) -> tuple[int, float, float]:
    """The three arguments, each in its range."""
    return (
        integer("n", n, at_least=1),
        real("epsilon0", epsilon0, at_least=0, at_most=300),
        real("delta", delta, above=0, below=1),
    )


def _divergence(n: int, epsilon0: float, clone_probability: float, tail: float = 1e-18) -> Callable[[float], float]:
    """The divergence of the two pairs of counts as a function of epsilon.

    Numbers of clones further off the mean than Bernstein's inequality allows for `tail` count as lost.
    """
    mean, log_tail = (n - 1) * clone_probability, -math.log(tail)
    reach = log_tail / 3 + math.sqrt(log_tail**2 / 9 + 2 * log_tail * mean * (1 - clone_probability))
    first, last = max(0, math.floor(mean - reach)), min(n - 1, math.ceil(mean + reach))
    # More clones never hurt: one more is drawn without a look at the input. So each bin counts as its fewest clones.
    width = 1 if last - first < _MOST_CLONES else (last - first) // _BINS
    clones = np.arange(first, last + 1, width)
    if width == 1:
        weights = binom.pmf(clones, n - 1, clone_probability)
    else:
        ends = np.append(clones, last + 1) - 1
        below, above = (side(ends, n - 1, clone_probability) for side in (binom.cdf, binom.sf))
        weights = np.where(clones < mean, np.diff(below), -np.diff(above))

    def delta(epsilon: float) -> float:
        if epsilon >= epsilon0:
            return 0.0
        # With a of c + 1 reports on our side the likelihood ratio exceeds e^epsilon when 1 - a/(c + 1) is below `rest`,
        # which is computed by itself: at a large epsilon0 it is lost in 1 - rest.
        rest = math.expm1(epsilon - epsilon0) / (math.expm1(-epsilon0) * (1 + math.exp(epsilon)))
        threshold = clones + 1 - np.ceil(rest * (clones + 1))
        at, above = binom.pmf(threshold, clones, 0.5), binom.sf(threshold, clones, 0.5)
        gain = at * -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0)) - above * math.expm1(epsilon)
        return float(weights @ np.maximum(gain, 0)) + 2 * tail

    return delta


def _epsilon(n: int, epsilon0: float, delta: float, clone_probability: float) -> float:
    """The epsilon at which the divergence is `delta`, between 0 and `epsilon0`."""
    divergence = _divergence(n, epsilon0, clone_probability, min(1e-18, 1e-9 * delta))
    nearly = epsilon0 * (1 - 1e-12)
    if divergence(0.0) <= delta:
        return 0.0
    if divergence(nearly) > delta:
        return epsilon0
    # To a share of epsilon however small it is; the answer is past what the search may have stopped short of.
    result = brentq(
        lambda epsilon: math.log(divergence(epsilon) / delta), 0.0, nearly, xtol=1e-300, rtol=1e-12, maxiter=1000
    )
    return min(epsilon0, result * (1 + 2e-12))


def _epsilon_with_failures(n: int, epsilon0: float, delta: float, delta0: float) -> float:
    """The least epsilon below `epsilon0` whose divergence leaves room for the local failures, else `epsilon0`."""
    failures = (1 + math.exp(-epsilon0) / 2) * n * delta0
    divergence = _divergence(n, epsilon0, math.exp(-epsilon0), min(1e-18, 1e-9 * delta))

    def excess(growth: float) -> float:
        return divergence(math.log1p(growth)) + (growth + 2) * failures - delta

    if excess(0.0) <= 0:
        return 0.0
    room = min(math.expm1(epsilon0), delta / failures - 2)
    feasible = _nonpositive_point(excess, room) if room > 0 else None
    return epsilon0 if feasible is None else math.log1p(brentq(excess, 0.0, feasible, xtol=1e-14, rtol=1e-12))


def _nonpositive_point(convex: Callable[[float], float], top: float) -> float | None:
    """Return a point of [0, top] where `convex` is at most 0, None if it has none.

    A divergence is convex in e^epsilon, hence the variable of the caller.
    """
    best = minimize_scalar(convex, bounds=(0.0, top), method="bounded", options={"xatol": 1e-12 * top}).x
    candidates = [*top * np.geomspace(1e-9, 1, 40), best]
    return next((float(x) for x in candidates if convex(float(x)) <= 0), None)
