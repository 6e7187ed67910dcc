"""Composition of a mechanism that is known by its privacy profile alone, or by the masses of its outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpfl.accounting.composition import LossPart, LossSearch
from dpfl.accounting.loss_grids import Cells
from dpfl.accounting.numerics import Array, binned

_LOOKED_AT = 20_000  # places of the profile from which tilt and grid are chosen


def composed_epsilon(profile: Callable[[Array], Array], *, largest: float, steps: int, delta: float) -> float:
    """Return epsilon at `delta` of `steps` adaptive uses of a mechanism with the given `profile`.

    `profile` maps an array of epsilon in [0, `largest`] to delta and holds in both directions of the neighbouring
    relation; it must fall, be convex in e^epsilon and never be below the truth. What it leaves at `largest` counts as
    lost in every step; inf where that is delta; 0 where all it has at 0, the total variation, adds up to no more.
    Guarantee: the uses are (epsilon, `delta`)-DP, up to the rounding of `profile` itself. The grid fits the answer: it
    adds some 2e-6 of epsilon where the number of points allows. Sources: zhu2022, Theorem 10 (such a curve has a
    dominating pair); doroshenko2022 (its grid).
    """

    def cells(step: float) -> Cells:
        return _of_profile(profile, largest, max(2, math.ceil(largest / step)))

    if steps * float(profile(np.zeros(1))[0]) <= delta:
        return 0.0
    coarse = _of_profile(profile, largest, _LOOKED_AT)
    if steps * coarse.lost >= delta:
        return math.inf
    return _search(cells, coarse, steps, delta).interval(0.0, both=False)[1]


def pair_epsilon_below(losses: Array, masses: Array, *, steps: int, delta: float) -> float:
    """Return an epsilon at `delta` that `steps` independent outcomes spend at least, in the one direction given.

    An outcome has probability `masses`[i] > 0, shape (k,), and the loss `losses`[i], ascending; outcomes may be merged
    or left out; a single one has loss 0 or less. Guarantee: the product is not (e, `delta`)-DP for any e below the
    answer. Source: `composition` (`optimistic`).
    """
    if losses[-1] <= 0:
        return 0.0

    def cells(step: float) -> Cells:
        return _of_outcomes(losses, masses, step)

    coarse = _of_outcomes(losses, masses, float(losses[-1] - losses[0]) / _LOOKED_AT)
    return _search(cells, coarse, steps, delta).interval(0.0, both=True)[0]


def _search(cells: Callable[[float], Cells], coarse: Cells, steps: int, delta: float) -> LossSearch:
    """Return the search whose tilt and grid are chosen from the `coarse` cells."""
    masses = coarse.masses()
    losses = coarse.origin + np.arange(masses.size, dtype=np.float64) * coarse.step
    support = masses > 0
    return LossSearch([LossPart(cells, losses[support], np.log(masses[support]), steps)], delta)


def _of_profile(profile: Callable[[Array], Array], largest: float, count: int) -> Cells:
    """Connect the dots of a profile at `count` + 1 even places, and at their mirror images below 0."""
    step = largest / count
    losses = np.arange(count + 1, dtype=np.float64) * step
    deltas = np.minimum.accumulate(np.clip(profile(losses), 0.0, 1.0))
    falls = np.append(-np.diff(deltas) / math.expm1(step), 0.0)
    above = np.maximum(falls[:-1] * math.exp(step) - falls[1:], 0.0)
    # The mass at -epsilon is e^-epsilon of that at epsilon, by exchanging the two laws; the rest has no loss.
    mirrored = (above * np.exp(-losses[1:]))[::-1]
    rest = max(0.0, 1 - float(deltas[-1]) - float(above.sum()) - float(mirrored.sum()))
    masses = np.concatenate([mirrored, [rest], above])
    return Cells(-largest, step, masses[:-1], np.append(np.zeros(masses.size - 2), masses[-1]), float(deltas[-1]))


def _of_outcomes(losses: Array, masses: Array, step: float) -> Cells:
    """Cut a discrete law of the loss into cells of that step."""
    count = max(3, math.ceil(float(losses[-1] - losses[0]) / step))
    owner = np.minimum(((losses - losses[0]) / step).astype(np.int64), count - 1)
    ahead = losses - losses[0] - owner * step
    above = masses * np.clip(np.expm1(-ahead) / math.expm1(-step), 0.0, 1.0)
    return Cells(float(losses[0]), step, binned(owner, masses - above, count), binned(owner, above, count), 0.0)
