"""Shuffling bounds as printed in feldman2021 and feldman2023, which lowy2021 builds on: for comparison only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import reals
from dpfl.accounting.shuffling.published_noise import _NEWTON_STEPS, Array, _checked, _require, _require_room


def clones_epsilon_as_printed(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike, delta0: ArrayLike = 0.0) -> Array:
    """Return ln(1 + tanh(e0/2) (8 sqrt(e^e0 ln(4/d)/n) + 8 e^e0/n)), e0 = `epsilon0` of each report.

    The theorem spends d + (e^epsilon + 1)(1 + e^-e0 / 2) n `delta0` in all, for any d. Here d is the largest that
    keeps this within `delta`, which makes epsilon the least that the theorem gives: epsilon falls in d. A search
    over a grid of d ends above it. `n` >= 1, `epsilon0` >= 0, `delta` in (0, 1), `delta0` >= 0 of reports that are
    (epsilon0, delta0)-DP; arrays broadcast. May exceed `epsilon0`.
    Source: feldman2021, Theorems 3.1 and 3.8, under epsilon0 <= ln(n / (16 ln(2/d))).
    Raises ValueError naming the argument, `epsilon0` where that condition fails and `delta0` where no d fits.
    """
    n, epsilon0, delta = _checked(n, epsilon0, delta)
    failures = (1 + np.exp(-epsilon0) / 2) * n * reals("delta0", delta0, at_least=0)
    power = np.exp(epsilon0)
    root, rest = 8 * np.tanh(epsilon0 / 2) * np.sqrt(power / n), 8 * np.tanh(epsilon0 / 2) * power / n
    # In g = e^epsilon - 1 the equation reads g = root sqrt(ln(4/d)) + rest with d = delta - (g + 2) failures. Its
    # right side is convex and rises, so Newton's steps from g = 0 rise to its least root and never pass it.
    growth = np.float64(0.0)
    for _ in range(_NEWTON_STEPS):
        left = delta - (growth + 2) * failures
        _require_room(left > 0)
        _require(power * 16 * np.log(2 / left) <= n, "ln(n / (16 ln(2/delta)))")
        logs = np.sqrt(np.log(4 / left))
        slope = root * failures / (2 * left * logs)
        _require_room(slope < 1)
        step = np.maximum(root * logs + rest - growth, 0) / (1 - slope)
        growth = growth + step
        if np.all(step <= 1e-16 * growth):
            break
    return np.log1p(growth)


def restricted_clones_epsilon_as_printed(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike) -> Array:
    """Return ln(1 + (e^e0 - 1)(4 sqrt(2 ln(4/delta) / ((e^e0 + 1) n)) + 4/n)), e0 = `epsilon0` of each pure report.

    Arguments as for clones_epsilon_as_printed. Caveat: only for the restricted class that
    clones.restricted_clones_epsilon describes; never for Gaussians.
    Source: feldman2023, Theorem 3.1, under epsilon0 <= ln(n / (8 ln(2/delta)) - 1).
    Raises ValueError naming the argument, `epsilon0` where that condition fails.
    """
    n, epsilon0, delta = _checked(n, epsilon0, delta)
    _require((np.exp(epsilon0) + 1) * 8 * np.log(2 / delta) <= n, "ln(n / (8 ln(2/delta)) - 1)")
    root = np.sqrt(2 * np.log(4 / delta) / ((np.exp(epsilon0) + 1) * n))
    return np.log1p(np.expm1(epsilon0) * (4 * root + 4 / n))
