"""Balls in bins (random allocation): each record is used in one step of every epoch, drawn uniformly.

Given the outputs of an epoch, the record's contribution is worst when it is the same unit vector direction in every
step, the other records' contributions being known: P = mean over t of N(e_t, sigma^2 I) against Q = N(0, sigma^2 I)
in as many dimensions as the epoch has steps (chua2024balls, Theorem 3.2). P's likelihood ratio is
the mean of independent lognormals under Q, whose law `lognormal_sums` brackets in convex order; convex order of the
ratio is the order of the pairs. So each epoch is dominated by one law on a grid and dominates another one (the idea
of feldman2026, with one transform in place of repeated doubling).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from dpfl.accounting.lognormal_sums import (
    MASS_ERROR,
    Grid,
    Rounding,
    SumLaw,
    above,
    law_of_sum,
    log_moment,
    lowest,
    one_term,
)
from dpfl.accounting.loss_composition import GridLaw
from dpfl.accounting.profile_laws import LossGrid, from_points, from_tangents, grid_between

Array = NDArray[np.float64]

LEAST_NOISE = 0.2
"""Least noise multiplier of the accountant: below it no amplification is to be had."""
MOST_BINS = 20_000
"""Most bins of the accountant. More bins spend less: drop all but as many, the record's among them, at random."""
_EXCESS = 18.0  # growth of the moment, beyond that of the mean, that a tilt may bring: six deviations of a normal
_WRAPPED = -45.0  # logarithm of the tilted mass that may wrap around
_MANY, _TOGETHER = 100_000, 32
_BELOW = 0.75  # share of a window below the sum's mean at most


@dataclass(frozen=True)
class _Scale:
    """One grid of the terms, with the masses of a term spread on it, and the window of the sum that it is good for."""

    grid: Grid
    spread_masses: Array
    size: int
    first: int
    tilt: float

    def law(self, spread: float, terms: int, rounding: Rounding, *, capped: bool = False) -> SumLaw:
        """Return the law of the sum; terms above the grid are left out, or, if `capped`, moved down to its end."""
        spreads = rounding is Rounding.SPREAD
        masses = self.spread_masses.copy() if spreads else one_term(self.grid, spread, rounding)
        if capped:
            masses[-1] += above(self.grid.end, spread)[0]
        return law_of_sum(masses, self.grid, terms, self.size, self.first, self.tilt)


@lru_cache(maxsize=4)
def laws_above(
    noise_multiplier: float, bins: int, epochs: int, delta: float, *, rough: bool = False
) -> tuple[GridLaw, GridLaw]:
    """Return laws of one epoch's loss, P||Q and Q||P, that dominate balls in bins under add_or_remove and zero_out.

    noise_multiplier > 0, bins >= 2; `epochs` and `delta` only set how fine the grid is and how far it reaches, and so
    does `rough`: many times as fast, and less tight, where bins are many.
    """
    spread = 1 / noise_multiplier
    grid, scales = _plan(spread, bins, epochs, delta, rough)
    points = np.minimum(np.exp(grid.losses), 1.0)
    for scale, calls in scales:
        law = scale.law(spread, bins, Rounding.SPREAD, capped=not calls and scale.first > 0)
        at = grid.losses >= 0 if calls else grid.losses < 0
        bound = _call_points if calls else _put_points
        points[at] = np.minimum(points[at], bound(law, scale, spread, bins, np.exp(grid.losses[at])))
    return from_points(grid, points * (1 + 2 * bins * MASS_ERROR))


@lru_cache(maxsize=4)
def laws_below(noise_multiplier: float, bins: int, epochs: int, delta: float) -> tuple[GridLaw, GridLaw]:
    """Return laws of one epoch's loss, P||Q and Q||P, that balls in bins dominates; arguments as `laws_above`."""
    spread = 1 / noise_multiplier
    grid, scales = _plan(spread, bins, epochs, delta, False)
    middles = grid.middles()
    sides, best = np.zeros((2, middles.size)), np.zeros(middles.size)
    for scale, calls in scales:
        law = scale.law(spread, bins, Rounding.REDUCE if calls else Rounding.RAISE)
        at = middles > 0 if calls else middles < 0
        x = np.exp(middles[at])
        lines = (_call_lines if calls else _put_lines)(law, scale, spread, bins, x)
        value = (lines[0] - x * lines[1]) * (1 if calls else -1)
        better = value > best[at]
        best[at] = np.where(better, value, best[at])
        sides[:, at] = np.where(better, lines, sides[:, at])
    return from_tangents(grid, *(sides / (1 + 2 * bins * MASS_ERROR)))


@lru_cache(maxsize=1)
def _plan(
    spread: float, bins: int, epochs: int, delta: float, rough: bool
) -> tuple[LossGrid, tuple[tuple[_Scale, bool], ...]]:
    """Return the loss grid of one epoch and the grids of the terms."""
    grid, *ends = _loss_grid(spread, bins, epochs, delta)
    size = 1 << (17 if bins <= 200 or rough else 18 if bins <= 600 else 19 if bins <= 4000 else 20)
    return grid, tuple(_scales(spread, bins, ends, size, 4 if delta > 1e-9 * epochs else 2))


def _loss_grid(spread: float, bins: int, epochs: int, delta: float) -> tuple[LossGrid, float, float, float]:
    """Return the loss grid of one epoch, the least sum, the largest term and the largest sum that matter at `delta`."""
    tail = max(1e-3 * delta / epochs, 1e-300)
    largest_term = math.exp(spread**2 / 2 - ndtri(tail) * spread)
    # All terms below y with probability tail: the sum is hardly ever less than y, nor far below its mean.
    normal = _quantile_of_log(math.log(tail) / bins)
    deviation = math.sqrt(bins * min(math.expm1(spread**2), 3.0))
    reach = math.sqrt(-2 * math.log(tail)) + 1
    near = min(bins - reach * deviation, _hardly_below(spread, bins, math.log(tail)))
    lowest_sum = max(math.exp(spread * (normal - spread / 2)), near)
    high = math.log1p((largest_term + reach * deviation) / bins)
    high = min(high, math.log1p(reach * deviation / bins) + math.log(largest_term) + 1)
    low = math.log(bins / lowest_sum)
    grid = grid_between(low, high, min(deviation / bins, 1.0) ** 2, epochs)
    return grid, lowest_sum, largest_term, bins * math.exp(grid.last * grid.step)


def _hardly_below(spread: float, bins: int, log_tail: float) -> float:
    """Return about the largest value that the sum is below with chance e^`log_tail` at most, by Chernoff's bound."""
    z = np.linspace(-12.0, 40.0, 2000)
    log_density, terms = -(z**2) / 2, np.exp(spread * z - spread**2 / 2)
    best = 0.0
    for tilt in np.geomspace(1e-3, 1e5, 60) / math.sqrt(bins):
        moment = logsumexp(log_density - tilt * terms) - logsumexp(log_density)
        best = max(best, float(log_tail - bins * moment) / tilt)
    return best


def _quantile_of_log(log_share: float) -> float:
    """The standard normal's quantile at a share that may round to 1, given by its logarithm."""
    return float(ndtri(math.exp(log_share))) if log_share < -0.5 else -float(ndtri(-math.expm1(log_share)))


def _scales(spread: float, bins: int, ends: Sequence[float], size: int, ratio: int) -> list[tuple[_Scale, bool]]:
    """Return grids that together reach all sums that matter, each with whether it is for calls (else for puts)."""
    lowest_sum, largest_term, largest_sum = ends
    variance = math.expm1(min(spread**2, 700.0))
    deviation = math.sqrt(bins * min(variance, 3.0))
    step = max(min(0.01 * math.sqrt(variance), 0.02 * math.exp(-(spread**2) / 2)), 40 * deviation / size)
    scales, width = [], step * size
    while True:
        scale = _scale(spread, bins, width, size, 1)
        scales.append((scale, True))
        if scale.grid.end >= largest_term and (scale.first + size) * scale.grid.step >= largest_sum:
            break
        width *= ratio
    width = min(step * size, 2.5 * bins)
    if width < min(2.0 * (bins - lowest_sum), bins / _BELOW):  # no room from the least sum that matters to the mean
        scales.append((_scale(spread, bins, 2.0 * (bins - lowest_sum), size, -1), False))
    scales.append((_scale(spread, bins, width, size, -1), False))
    while width / size > 0.005 * lowest_sum and width > 2 * lowest_sum:
        width /= 16
        scales.append((_scale(spread, bins, width, size, -1), False))
    return scales


def _scale(spread: float, bins: int, width: float, size: int, sign: int) -> _Scale:
    """Return the grid of a window of that width, tilted up (`sign` 1) or down (-1) as far as nothing wraps around."""
    start, step = lowest(spread), width / size
    most = math.exp(min(spread**2 / 2 + 37.5 * spread, 700.0)) - start
    share = max(0.2, min(0.3, 2.5 * bins / width)) if sign > 0 else 1 - 1 / size
    count = min(int(share * size), math.ceil(most / step))
    grid = Grid(start, step, count)
    drop = min(30 * math.sqrt(bins * math.expm1(min(spread**2, 50.0))), bins)
    if drop > _BELOW * width:  # rare large terms make the deviation: sums far below the mean are rarer still
        drop = bins - _hardly_below(spread, bins, _WRAPPED)
    first = max(0, math.floor((bins - drop - bins * start) / step))
    masses, points = one_term(grid, spread, Rounding.SPREAD), grid.points() - start
    mean, end = 1 - start, (first + size) * step
    coarse = _grouped(masses, points)

    def moment(tilt: float) -> float:
        return bins * log_moment(*coarse, tilt)

    chosen, best = sign / end, math.inf
    for tilt in sign * np.geomspace(1, 1e5, 21) / end:
        at = moment(tilt)
        wraps = moment(tilt + abs(tilt) / 2) - at - abs(tilt) / 2 * end
        if at - tilt * bins * mean > _EXCESS:
            break
        if wraps < best:
            chosen, best = float(tilt), max(wraps, _WRAPPED)
    return _Scale(grid, masses, size, first, chosen)


def _grouped(masses: Array, points: Array) -> tuple[Array, Array]:
    """Return the masses of neighbouring points, joined where there are very many: enough to choose a tilt by."""
    if masses.size <= _MANY:
        return masses, points
    starts = np.append(np.arange(_TOGETHER), np.arange(_TOGETHER, masses.size, _TOGETHER))
    return np.add.reduceat(masses, starts), points[starts]


def _left_out(scale: _Scale, spread: float, bins: int) -> tuple[float, float]:
    """P's and Q's mass where some term is above the grid."""
    q_term, p_term = above(scale.grid.end, spread)
    q_rest = (bins - 1) * math.log1p(-q_term)
    return -math.expm1(q_rest + math.log1p(-p_term)), -math.expm1(q_rest + math.log1p(-q_term))


def _sums(law: SumLaw, bins: int, noise: int) -> tuple[Array, Array]:
    """P's and Q's masses at the values of the sum: P's is the ratio's value times Q's."""
    q_mass = law.natural(noise)
    return q_mass * law.values / bins, q_mass


def _tails(masses: Array) -> Array:
    """Sums from each place on, with a 0 behind the last."""
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


def _heads(masses: Array) -> Array:
    """Sums of all before each place."""
    return np.append(0.0, np.cumsum(masses))


def _call_points(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> Array:
    """Upper bounds of E_Q (L - x)+; sums are split by whether a term is above the grid: then all of L counts."""
    p_mass, q_mass = _sums(law, bins, 1)
    index = np.searchsorted(law.values, x * bins, side="right")
    p_out, q_out = _left_out(scale, spread, bins)
    inside = x * bins <= scale.grid.end  # there the ratio is above x wherever a term is above the grid
    end = law.values[-1] + scale.grid.step
    log_wrapped = law.log_scale - law.tilt * end + math.log(end / bins)
    wrapped = math.exp(min(log_wrapped, 0.0)) if law.tilt * end >= 1 else 1.0
    points = _tails(p_mass)[index] - x * _tails(q_mass)[index] + p_out - x * q_out * inside + wrapped
    return np.where(x * bins < end, points, np.inf)


def _call_lines(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> tuple[Array, Array]:
    """P and Q of L > x, or of as much of it as is certain."""
    p_mass, q_mass = _sums(law, bins, -1)
    index = np.searchsorted(law.values, x * bins, side="right")
    p_out, q_out = _left_out(scale, spread, bins)
    # What wrapped around counts at most where value times units is largest: from the event's first value on.
    largest = np.maximum(x * bins, 1 / law.tilt)
    wrapped = law.wrapped * np.exp(np.minimum(law.scale(largest), 500.0)) * largest / bins
    return _tails(p_mass)[index] + p_out - wrapped, _tails(q_mass)[index] + q_out


def _put_points(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> Array:
    """Upper bounds of E_Q (x - L)+: a term above the grid leaves nothing, or is capped at its end, which only adds."""
    p_mass, q_mass = _sums(law, bins, 1)
    index = np.searchsorted(law.values, x * bins, side="left")
    points = x * (_heads(q_mass)[index] + law.below) - _heads(p_mass)[index]
    return np.where(x * bins <= law.values[-1], points, np.inf)


def _put_lines(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> tuple[Array, Array]:
    """P and Q of L < x, or of as much of it as is certain."""
    p_mass, q_mass = _sums(law, bins, -1)
    index = np.searchsorted(law.values, x * bins, side="left")
    wrapped = law.wrapped * np.exp(np.minimum(law.scale(x * bins), 500.0))
    return _heads(p_mass)[index], _heads(q_mass)[index] - wrapped
