"""Tests between two worlds: chosen on some trainings, counted on others.

The trainings that are counted have no part in the choice, so one confidence bound holds whatever was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.attacks.distinguishers import Statistic
from dpfl.attacks.lower_bounds import Claims, TestErrors, binomial_bounds, log_likelihood_excess

Array = NDArray[np.float64]
_THRESHOLDS, _ABOVE = 200, 100


@dataclass(frozen=True)
class Evidence:
    """The test that was strongest by design, and its errors on trainings that had no part in the choice.

    With `reversed` the test calls world Q where the statistic is at most `threshold`, and `errors` count Q as positive;
    else it calls P where the statistic is at least that. `excess` is `log_likelihood_excess` of the bounds of the
    errors: above 0 it refutes the claims at the confidence that was asked for.
    """

    statistic: str
    reversed: bool
    threshold: float
    errors: TestErrors
    excess: float


def strongest_test(
    design: tuple[Array, Array],
    evaluation: tuple[Array, Array],
    statistics: Mapping[str, Statistic],
    claims: Claims,
    confidence: float,
) -> Evidence:
    """Return the test that is strongest against `claims` on the trials of `design`, counted on those of `evaluation`.

    Each is a pair of observations (trials, epochs, steps) from the worlds P and Q; `design` may be simulated. The
    trials of `evaluation` are independent of it. Guarantee: where the claims hold and trials are independent, the
    excess is above 0 with probability 1 - confidence at most. Raises ValueError naming what has no trials or is not
    finite.
    """
    for name, pair in (("design", design), ("evaluation", evaluation)):
        if not all(len(each) and np.isfinite(each).all() for each in pair):
            raise ValueError(f"{name}: trials of finite numbers are needed from both worlds")
    best: tuple[float, str, bool, float] = (-np.inf, next(iter(statistics)), False, np.inf)
    for name, statistic in statistics.items():
        scores = statistic(design[0]), statistic(design[1])
        for backwards in (False, True):
            counted = len(evaluation[backwards]), len(evaluation[not backwards])
            gain, threshold = _best_threshold(*_oriented(*scores, backwards), counted, claims, confidence)
            if gain > best[0]:
                best = gain, name, backwards, threshold
    _, name, backwards, threshold = best
    positive, negative = _oriented(statistics[name](evaluation[0]), statistics[name](evaluation[1]), backwards)
    errors = TestErrors(
        int((positive >= threshold).sum()), len(positive), int((negative >= threshold).sum()), len(negative)
    )
    excess = float(log_likelihood_excess(*errors.rates(confidence), claims))
    return Evidence(name, backwards, -threshold if backwards else threshold, errors, excess)


def _oriented(scores_in: Array, scores_out: Array, backwards: bool) -> tuple[Array, Array]:
    """Return the scores of the world that counts as positive, large where it is called, and those of the other."""
    return (-scores_out, -scores_in) if backwards else (scores_in, scores_out)


def _shares(trials: int) -> Array:
    """Return the shares of scores at which a test may cut: even ones, and rare ones that enough trials are above."""
    even = np.linspace(0, 1, _THRESHOLDS)
    if trials <= _ABOVE * _THRESHOLDS:
        return even
    return np.append(even, 1 - np.geomspace(_ABOVE / trials, 1 / _THRESHOLDS, _THRESHOLDS))


def _best_threshold(
    positive: Array, negative: Array, counted: tuple[int, int], claims: Claims, confidence: float
) -> tuple[float, float]:
    """Return the largest excess over thresholds, and the threshold, where `counted` trials show the scores' rates."""
    thresholds = np.unique(np.concatenate([np.quantile(each, _shares(len(each))) for each in (positive, negative)]))
    rates = (1 - np.searchsorted(np.sort(each), thresholds) / len(each) for each in (positive, negative))
    right, wrong = (rate * count for rate, count in zip(rates, counted, strict=True))
    miss = (1 - confidence) / 2
    lower, _ = binomial_bounds(right, counted[0], miss)
    _, upper = binomial_bounds(wrong, counted[1], miss)
    gains = log_likelihood_excess(lower, upper, claims)
    best = int(np.argmax(gains))
    return float(gains[best]), float(thresholds[best])
