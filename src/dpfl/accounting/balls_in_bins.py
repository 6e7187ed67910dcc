"""Balls in bins (random allocation): each record is used in one step of every epoch, drawn uniformly.

Given the outputs of an epoch, the record's contribution is worst when it is the same unit vector direction in every
step, the other records' contributions being known: P = mean over t of N(e_t, sigma^2 I) against Q = N(0, sigma^2 I)
in as many dimensions as the epoch has steps (chua2024balls, the tightly dominating pair). P's likelihood ratio is
the mean of independent lognormals under Q, whose law `law_of_sum` brackets in convex order; convex order of the
ratio is the order of the pairs. So each epoch is dominated by one law on a grid and dominates another one (the idea
of feldman2026, with one transform in place of repeated doubling).

Laws of sums of independent lognormals of mean 1, bracketed in convex order: what balls in bins needs. A term Y = exp(s
Z - s^2/2), Z standard normal, is moved to an even grid. `SPREAD` assigns each cell's mass to its two ends and keeps its
mean: the sum is larger in convex order. `REDUCE` gathers a cell about each grid point and moves it down to that point:
calls E (S - x)+ only fall. `RAISE` moves it up: puts E (x - S)+ only fall. On an even grid a sum stays on the grid, so
nothing more is rounded. The sum's law is one Fourier transform to the power `terms`, of masses multiplied by e^(tilt
y), so that what the transform rounds is small where the tail is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, rfft
from scipy.special import ndtr, ndtri

from dpfl.accounting.loss_grids import GridLaw, LossGrid, from_points, from_tangents, grid_between
from dpfl.accounting.numerics import Array, wrapped_around

# Laws of sums of independent lognormals of mean 1, bracketed in convex order: what balls in bins needs.

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_NARROW = 0.02  # cells narrower than this share of the log-scale are integrated by the nodes above
_REACH = 37.5  # standard deviations of ln Y kept below: the mass beyond is 1e-307
_UNIT = 2.0**-53
_REFINED, _ROUNDS = 3000, 8
_OFFSETS = (0.25, 0.5, 1.0, 2.0, 4.0)
_OFFSETS_BELOW = (*_OFFSETS, 8.0, 16.0, 32.0, 64.0)
_CUT_OFF = -80.0  # logarithm of what a frequency may be left out for
_NOTHING = 1e-6  # share of the rounding of each mass below which what wraps around is not looked at further
MASS_ERROR = 1e-12
"""Relative error allowed to each mass of one term: quadrature and rounding stay below it."""


class Rounding(Enum):
    """Side on which a law on the grid errs."""

    SPREAD = auto()
    """Above in convex order: calls and puts rise."""
    REDUCE = auto()
    """Below for calls."""
    RAISE = auto()
    """Below for puts."""


@dataclass(frozen=True)
class Grid:
    """The even grid of one term, `start` + `step` k for k <= `count`; terms above its end are left out."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The last grid point: the largest term that is kept."""
        return self.start + self.step * self.count

    def points(self) -> Array:
        """The grid points, shape (count + 1,)."""
        return self.start + self.step * np.arange(self.count + 1, dtype=np.float64)


def lowest(spread: float) -> float:
    """Return a value that a term falls below with probability less than 1e-300; `spread` is s > 0.

    Source: elementary, the tail of the normal law.
    """
    return math.exp(-(spread**2) / 2 - _REACH * spread)


def above(y: float, spread: float) -> tuple[float, float]:
    """Return P[Y > y] and E[Y; Y > y] for y > 0, accurate however small.

    Source: elementary, moments of the lognormal law.
    """
    z = math.log(y) / spread
    return float(ndtr(-z - spread / 2)), float(ndtr(spread / 2 - z))


def one_term(grid: Grid, spread: float, rounding: Rounding) -> Array:
    """Return the masses on `grid`, shape (count + 1,), of Y cut off at `grid.end`, moved by `rounding`.

    Source: derived here; see the module.
    """
    points, step = grid.points(), grid.step
    if rounding is Rounding.SPREAD:
        mass, excess = _cells(points, points[:-1], spread)
        up = np.clip(excess / step, 0.0, mass)
        return np.append(mass - up, 0.0) + np.append(0.0, up)
    edges = _centred(points, spread, rounding is Rounding.RAISE)
    mass, excess = _cells(edges, points, spread)
    if rounding is Rounding.REDUCE:
        return _moved(mass, excess, step)
    return _moved(mass[::-1], -excess[::-1], step)[::-1]


def _moved(mass: Array, excess: Array, step: float) -> Array:
    """Return the masses at the points once each cell's mean is brought to its point, or above and then down to it.

    A cell whose mean is below its point takes so much of the next cell's mass, at that cell's mean, as brings it up.
    """
    mean = np.where(mass > 0, excess / np.where(mass > 0, mass, 1.0), 0.0)
    following, ahead = np.append(mass[1:], 0.0), np.append(step + mean[1:], step)
    taken = np.where(mean < 0, -excess / np.maximum(ahead, step / 2) * (1 + 1e-9), 0.0)
    fits = taken <= following * 0.5
    taken = np.where(fits, taken, 0.0)
    masses = np.where(fits, mass + taken - np.append(0.0, taken[:-1]), 0.0)
    masses[:-1] += np.where(fits, 0.0, mass - np.append(0.0, taken[:-1]))[1:]  # down to the point before
    return masses


def _centred(points: Array, spread: float, low: bool) -> Array:
    """Return the ends of cells about `points` whose means are as near to them as can be.

    The first means are below with certainty if `low`: no lighter neighbour could lower them.
    """
    step = points[1] - points[0]
    edges = points[:-1] + step / 2
    # A cell's mean is off its middle by step^2/12 times the slope of ln density: shift the cell against it.
    shift = step**2 / 12 * (1.5 + np.log(edges) / spread**2) / edges
    edges = np.concatenate([[points[0]], np.clip(edges + shift, points[:-1], points[1:]), [points[-1]]])
    few = min(_REFINED, points.size - 1)  # farther up the shift is as good as exact
    aim = points[:few].copy()
    aim[:3] -= 0.02 * step * low
    for _ in range(_ROUNDS):
        mass, excess = _cells(edges[: few + 1], aim, spread)
        mass = np.maximum(mass, 1e-300)
        off = excess / mass
        density, mean = _density(edges[: few + 1], spread), aim + off
        # How the mean follows the cell's lower and upper end: where mass rises steeply the upper end alone counts.
        lower = np.clip(density[:-1] * (mean - edges[:few]) / mass, 1e-6, 4.0)
        upper = np.clip(density[1:] * (edges[1 : few + 1] - mean) / mass, 1e-6, 4.0)
        step_by = off / (lower + upper)
        move = (upper[:-1] * step_by[:-1] + lower[1:] * step_by[1:]) / (upper[:-1] + lower[1:])
        edges[1:few] = np.clip(edges[1:few] - move, points[: few - 1], points[1:few])
    return edges


def _density(y: Array, spread: float) -> Array:
    """Return the density of a term."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(y) / spread + spread / 2
        return np.where(y > 0, np.exp(-(z**2) / 2) / (y * spread * math.sqrt(2 * math.pi)), 0.0)


def _cells(edges: Array, origins: Array, spread: float) -> tuple[Array, Array]:
    """Return P[Y in cell] and E[Y - origin; Y in cell] of the cells between `edges`, shape (cells,) each."""
    left, right = edges[:-1], edges[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = ~((right - left) / (left * spread) < _NARROW)
    mass, excess = np.empty(left.size), np.empty(left.size)
    with np.errstate(divide="ignore"):
        low, high = np.log(left[wide]) / spread, np.log(right[wide]) / spread
    mass[wide] = mass_between(low + spread / 2, high + spread / 2)
    excess[wide] = mass_between(low - spread / 2, high - spread / 2) - origins[wide] * mass[wide]
    left, right, origin = left[~wide], right[~wide], origins[~wide]
    half = (right - left) / 2
    total, moment = np.zeros(left.size), np.zeros(left.size)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        y = left + half * (1 + node)
        z = np.log(y) / spread + spread / 2
        density = np.exp(-(z**2) / 2) * (half * weight / (spread * math.sqrt(2 * math.pi))) / y
        total += density
        moment += density * (y - origin)
    mass[~wide], excess[~wide] = total, moment
    return mass, excess


def mass_between(low: Array, high: Array) -> Array:
    """Return the standard normal's mass between `low` and `high`, accurate in both tails; shapes broadcast.

    Source: elementary.
    """
    upper = low > 0
    return np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def log_moment(masses: Array, points: Array, tilt: float) -> float:
    """Return the logarithm of the sum of masses times e^(tilt points).

    Source: elementary, the cumulant generating function of a discrete law.
    """
    there = masses > 0
    exponents = np.log(masses[there]) + tilt * points[there]
    top = float(np.max(exponents))  # the largest term, not the farthest point: the mass there may underflow
    return top + math.log(float(np.exp(exponents - top).sum()))


@dataclass(frozen=True)
class SumLaw:
    """Masses of a sum of terms at the even `values`, both shape (k,), in units of e^(log_scale - tilt value).

    `noise` bounds what rounding changed in each mass, `noise_norm` the root of the sum of its squares; `wrapped` the
    sum of what other sums, outside of the values, may have added to all of them; all in the same units. `below` bounds
    the mass of sums below the values, in no units, where the tilt is below 0.
    """

    values: Array
    masses: Array
    tilt: float
    log_scale: float
    noise: float
    noise_norm: float
    wrapped: float
    below: float

    def units(self) -> Array:
        """Return the units of the masses, shape (k,); capped at e^300 if no bound is to be had."""
        with np.errstate(under="ignore"):
            return np.exp(np.minimum(self.scale(self.values), 300.0))

    def scale(self, value: Array) -> Array:
        """Return the logarithm of the units at a value of the sum."""
        return self.log_scale - self.tilt * value


def law_of_sum(masses: Array, grid: Grid, terms: int, size: int, first: int, tilt: float) -> SumLaw:
    """Return the law of the sum of `terms` terms with `masses` on `grid`, from the grid index `first` on.

    `size` grid points are kept; sums outside of them wrap around and are bounded in `wrapped` by the tilted moments at
    other tilts (Chernoff). Index k is the value terms * start + k step.
    Source: koskela2020 (transform); the tilt and the bounds are derived here.
    """
    points = grid.points() - grid.start
    log_one = log_moment(masses, points, tilt)
    with np.errstate(divide="ignore"):
        weighted = np.exp(np.log(masses) + (tilt * points - log_one))
    spectrum = np.asarray(rfft(wrapped_around(weighted, size), size))
    powered, every = np.zeros_like(spectrum), np.abs(spectrum)
    kept = every > math.exp(_CUT_OFF / max(terms - 1, 1))
    size_of = every[kept]
    powered[kept] = np.exp(terms * (np.log(size_of) + 1j * np.angle(spectrum[kept])))
    law = np.roll(np.asarray(irfft(powered, size)), -first)
    # Rounding: of the transform there, raised to the power; of the power itself; of the transform back; of the cut.
    size_log, cut_off = math.log2(size), math.exp(_CUT_OFF)
    there = terms * (1 + size_log * float(np.linalg.norm(weighted))) + 40
    gains, back = np.abs(powered[kept]) / size_of, 8 * size_log * float(np.linalg.norm(law))
    noise = 4 * _UNIT * (there * float(gains.sum()) / spectrum.size + back / math.sqrt(size)) + 2 * cut_off
    noise_norm = 4 * _UNIT * (there * float(np.linalg.norm(gains)) * math.sqrt(2 / size) + back) + size * cut_off
    used = masses > 0
    masses, points = masses[used], points[used]

    def log_wrapped(tilts: Sequence[float], edge: float, enough: float) -> float:
        """Logarithm of Chernoff's bound of the tilted mass beyond an edge: the least, or the first below `enough`."""
        least = 0.0
        for other in tilts:
            found = terms * (log_moment(masses, points, other) - log_one) - (other - tilt) * edge
            if found >= least:  # it is convex in the other tilt
                break
            least = found
            if least < enough:
                break
        return least

    enough, lowest_value = math.log(_NOTHING * noise), first * grid.step
    above_all = log_wrapped([tilt + factor * abs(tilt) for factor in _OFFSETS], (first + size) * grid.step, enough)
    wrapped, below = math.exp(above_all), 0.0
    if first:
        lower_tilts = [tilt - factor * abs(tilt) for factor in _OFFSETS_BELOW]
        log_below = log_wrapped(lower_tilts, lowest_value, enough if tilt > 0 else -math.inf)
        wrapped += math.exp(log_below)
        if tilt < 0:  # only puts ask for it
            below = math.exp(min(0.0, log_below + terms * log_one - tilt * lowest_value))
    values = terms * grid.start + (first + np.arange(size, dtype=np.float64)) * grid.step
    # Tilted by y - start: e^(-tilt (value - terms start)) brings the masses back.
    return SumLaw(values, law, tilt, terms * (log_one + tilt * grid.start), noise, noise_norm, wrapped, below)


LEAST_NOISE = 0.2
"""Least noise multiplier of the accountant: below it no amplification is to be had."""
MOST_NOISE = 1e4
"""Most noise of the accountant: above it the differences of the ratios are next to rounding. More noise spends less."""
MOST_BINS = 20_000
"""Most bins of the accountant. More bins spend less: drop all but as many, the record's among them, at random."""
_EXCESS = 18.0  # growth of the moment, beyond that of the mean, that a tilt may bring: six deviations of a normal
_WRAPPED = -45.0  # logarithm of the tilted mass that may wrap around
_BELOW_BY = (0.5, 2.0, 8.0)  # by which multiples of a tilt to look at what wraps around from below
_FEW = 2_000  # cells of a term's grid that are enough to choose a tilt by
_GOOD_BELOW = 4.0  # by how many losses below its end a window that begins at 0 is good
_SHARE_BELOW = 0.75  # share of a window below the sum's mean at most
_ROUGH, _ABOVE, _BELOW = 1 << 15, 1 << 19, 1 << 20  # most points of a window, for which purpose
_TOGETHER = {_ROUGH: math.inf, _ABOVE: 5 * _ABOVE, _BELOW: 10 * _BELOW}  # most points of all windows together
_REACHED = 3  # windows at most that reach the largest sum: the wider, the less wraps around


@dataclass(frozen=True)
class _Scale:
    """One grid of the terms, the window of the sum that it is good for, and the tilt for it."""

    grid: Grid
    size: int
    first: int
    tilt: float
    log_wrapped: float
    """Logarithm of about what sums above the window may add to a call."""

    def law(self, spread: float, terms: int, rounding: Rounding, *, capped: bool = False) -> SumLaw:
        """Return the law of the sum; terms above the grid are left out, or, if `capped`, moved down to its end."""
        masses = one_term(self.grid, spread, rounding)
        if capped:
            masses[-1] += above(self.grid.end, spread)[0]
        return law_of_sum(masses, self.grid, terms, self.size, self.first, self.tilt)


def in_range(noise_multiplier: float, bins: int) -> bool:
    """Return whether the accountant knows a lower bound. Source: the definition of its range, above."""
    return LEAST_NOISE <= noise_multiplier <= MOST_NOISE and bins <= MOST_BINS


@lru_cache(maxsize=4)
def laws_above(
    noise_multiplier: float, bins: int, epochs: int, delta: float, *, rough: bool = False
) -> tuple[GridLaw, GridLaw]:
    """Return laws of one epoch's loss, P||Q and Q||P, that dominate balls in bins under add_or_remove and zero_out.

    noise_multiplier > 0, bins >= 2; `epochs` and `delta` only set how fine the grid is and how far it reaches, and so
    does `rough`: many times as fast, and less tight, where bins are many.
    """
    spread = 1 / noise_multiplier
    grid, scales = _plan(spread, bins, epochs, delta, _ROUGH if rough else _ABOVE)
    points = np.minimum(np.exp(grid.losses), 1.0)
    for scale, calls, at in _windows(scales, grid.losses, bins):
        law = scale.law(spread, bins, Rounding.SPREAD, capped=not calls and scale.first > 0)
        bound = _call_points if calls else _put_points
        points[at] = np.minimum(points[at], bound(law, scale, spread, bins, np.exp(grid.losses[at])))
    return from_points(grid, np.maximum(points, 0.0) * (1 + 2 * bins * MASS_ERROR))  # rounding may leave less than 0


@lru_cache(maxsize=4)
def laws_below(noise_multiplier: float, bins: int, epochs: int, delta: float) -> tuple[GridLaw, GridLaw]:
    """Return laws of one epoch's loss, P||Q and Q||P, that balls in bins dominates; arguments as `laws_above`."""
    spread = 1 / noise_multiplier
    grid, scales = _plan(spread, bins, epochs, delta, _BELOW)
    middles = grid.middles()
    sides, best = np.zeros((2, middles.size)), np.zeros(middles.size)
    for scale, calls, at in _windows(scales, middles, bins):
        law = scale.law(spread, bins, Rounding.REDUCE if calls else Rounding.RAISE)
        x = np.exp(middles[at])
        lines = (_call_lines if calls else _put_lines)(law, scale, spread, bins, x, math.expm1(grid.step / 2))
        value = (lines[0] - x * lines[1]) * (1 if calls else -1)
        better = value > best[at]
        best[at] = np.where(better, value, best[at])
        sides[:, at] = np.where(better, lines, sides[:, at])
    return from_tangents(grid, *(sides / (1 + 2 * bins * MASS_ERROR)))


def _windows(scales: Sequence[tuple[_Scale, bool]], losses: Array, bins: int) -> Iterator[tuple[_Scale, bool, slice]]:
    """Yield the scales that are good for some of the ascending losses, and for which."""
    zero = int(np.searchsorted(losses, 0.0))
    for place, (scale, calls) in enumerate(scales):
        end = math.log((scale.first + scale.size) * scale.grid.step / bins + scale.grid.start)
        start = end - _GOOD_BELOW if place and scale.first == 0 else 0.0
        first, last = (int(np.searchsorted(losses, loss)) for loss in (start, end))
        at = slice(max(first, zero), last) if calls else slice(0, min(last, zero))
        if at.start < at.stop:
            yield scale, calls, at


@lru_cache(maxsize=2)
def _plan(
    spread: float, bins: int, epochs: int, delta: float, most: int
) -> tuple[LossGrid, tuple[tuple[_Scale, bool], ...]]:
    """Return the loss grid of one epoch and the grids of the terms, of `most` points at most."""
    grid, *ends = _loss_grid(spread, bins, epochs, delta)
    size = min(most, 1 << (17 if bins <= 200 else 18 if bins <= 600 else 19 if bins <= 4000 else 20))
    ratio = 4 if delta > 1e-9 * epochs else 2
    scales = _scales(spread, bins, ends, size, ratio)
    while len(scales) * size > _TOGETHER[most] and size > _ROUGH:
        size //= 2
        scales = _scales(spread, bins, ends, size, ratio)
    return grid, tuple(scales)


def _loss_grid(spread: float, bins: int, epochs: int, delta: float) -> tuple[LossGrid, float, float, float, float]:
    """Return the loss grid of one epoch, the least sum, the largest term and the largest sum that matter at `delta`,
    and the logarithm of a call that does not."""
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
    return grid, lowest_sum, largest_term, bins * math.exp(grid.last * grid.step), math.log(tail)


@lru_cache(maxsize=8)
def _hardly_below(spread: float, bins: int, log_tail: float) -> float:
    """Return about the largest value that the sum is below with chance e^`log_tail` at most, by Chernoff's bound."""
    z = np.linspace(-12.0, 40.0, 2000)
    density, terms = np.exp(-(z**2) / 2), np.exp(spread * z - spread**2 / 2)
    density /= density.sum()
    best = 0.0
    for tilt in np.geomspace(1e-3, 1e5, 60) / math.sqrt(bins):
        moment = math.log(max(float(density @ np.exp(-tilt * terms)), 1e-300))
        best = max(best, float(log_tail - bins * moment) / tilt)
    return best


def _quantile_of_log(log_share: float) -> float:
    """The standard normal's quantile at a share that may round to 1, given by its logarithm."""
    return float(ndtri(math.exp(log_share))) if log_share < -0.5 else -float(ndtri(-math.expm1(log_share)))


def _scales(spread: float, bins: int, ends: Sequence[float], size: int, ratio: int) -> list[tuple[_Scale, bool]]:
    """Return grids that together reach all sums that matter, each with whether it is for calls (else for puts)."""
    lowest_sum, largest_term, largest_sum, log_tail = ends
    variance = math.expm1(min(spread**2, 700.0))
    deviation = math.sqrt(bins * min(variance, 3.0))
    step = max(min(0.01 * math.sqrt(variance), 0.02 * math.exp(-(spread**2) / 2)), 40 * deviation / size)
    scales, width = [], step * size
    reached = 0
    while reached < _REACHED:
        scale = _scale(spread, bins, width, size, 1)
        scales.append((scale, True))
        if scale.grid.end >= largest_term and (scale.first + size) * scale.grid.step >= largest_sum:
            reached = _REACHED if scale.log_wrapped < log_tail else reached + 1
        width *= ratio
    width = min(step * size, 2.5 * bins)
    if width < min(2.0 * (bins - lowest_sum), bins / _SHARE_BELOW):  # no room from the least sum to the mean
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
    if sign < 0:  # a larger term makes the ratio above 1, where no put is looked at
        most = min(most, bins - start)
    share = max(0.2, min(0.3, 2.5 * bins / width)) if sign > 0 else 1 - 1 / size
    count = min(int(share * size), math.ceil(most / step))
    grid = Grid(start, step, count)
    drop = min(30 * math.sqrt(bins * math.expm1(min(spread**2, 50.0))), bins)
    if drop > _SHARE_BELOW * width:  # rare large terms make the deviation: sums far below the mean are rarer still
        drop = bins - _hardly_below(spread, bins, _WRAPPED)
    first = max(0, math.floor((bins - drop - bins * start) / step))
    few = min(count, _FEW)
    coarse = Grid(start, step * count / few, few)
    masses, points = one_term(coarse, spread, Rounding.SPREAD), coarse.points() - start
    mean, end = 1 - start, (first + size) * step

    def moment(tilt: float) -> float:
        return bins * log_moment(masses, points, tilt)

    chosen, best, log_wrapped = sign / end, math.inf, math.inf
    for tilt in sign * np.geomspace(1, 1e5, 21) / end:
        at = moment(tilt)
        if at - tilt * bins * mean > _EXCESS:
            break
        wraps = moment(tilt + abs(tilt) / 2) - at - abs(tilt) / 2 * end
        if first:
            below = (moment(tilt - factor * abs(tilt)) + factor * abs(tilt) * first * step for factor in _BELOW_BY)
            wraps = max(wraps, min(below) - at)
        if wraps < best:
            chosen, best = float(tilt), max(wraps, _WRAPPED)
            log_wrapped = at - chosen * end + math.log(end / bins + start)
    return _Scale(grid, size, first, chosen, log_wrapped)


def _left_out(scale: _Scale, spread: float, bins: int) -> tuple[float, float]:
    """P's and Q's mass where some term is above the grid."""
    q_term, p_term = above(scale.grid.end, spread)
    q_rest = (bins - 1) * math.log1p(-q_term)
    return -math.expm1(q_rest + math.log1p(-p_term)), -math.expm1(q_rest + math.log1p(-q_term))


class _Events(NamedTuple):
    """Events that the sum is above (or below) some x bins: P's and Q's masses, and what rounding may do to them.

    `room` bounds the error of the sum of |value / bins - x| over the event, `q_room` that of Q's mass.
    """

    p_mass: Array
    q_mass: Array
    room: Array
    q_room: Array


def _events(law: SumLaw, bins: int, x: Array, *, calls: bool) -> _Events:
    """Return the events L > x for calls, L < x for puts; x ascends.

    P's mass is the ratio's value times Q's. A weighted sum of masses is off by at most noise times the sum of weights,
    and by at most noise_norm times the root of the sum of their squares (Cauchy and Schwarz).
    """
    places = np.searchsorted(law.values, x * bins, side="right" if calls else "left")
    new = np.diff(places, prepend=-1) > 0
    cuts, where = places[new], np.cumsum(new) - 1

    def sums(parts: Array) -> Array:
        """Sums of `parts` from each place on, or of all before it."""
        pieces = np.add.reduceat(parts, np.append(0, cuts))  # between the cuts; first, before them all
        pieces[0] *= cuts[0] > 0  # an empty stretch counts its first element
        return (np.cumsum(pieces[:0:-1])[::-1] if calls else np.cumsum(pieces[:-1]))[where]

    # No mass at one more place: a cut may be behind all.
    ratio, units, masses = np.append(law.values / bins, 0.0), np.append(law.units(), 0.0), np.append(law.masses, 0.0)
    p_units = units * ratio
    ones, means, squares, products, fourth = map(sums, (units, p_units, units**2, units * p_units, p_units**2))
    # The differences below lose digits: allow for some.
    near = np.maximum(fourth - 2 * x * products + x**2 * squares, 0.0) + 1e-12 * (fourth + x**2 * squares)
    far = np.abs(means - x * ones) + 1e-12 * (means + x * ones)
    room = np.minimum(law.noise * far, law.noise_norm * np.sqrt(near))
    q_room = np.minimum(law.noise * ones, law.noise_norm * np.sqrt(squares))
    return _Events(sums(p_units * masses), sums(units * masses), room, q_room)


def _call_points(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> Array:
    """Upper bounds of E_Q (L - x)+; sums are split by whether a term is above the grid: then all of L counts."""
    event = _events(law, bins, x, calls=True)
    p_out, q_out = _left_out(scale, spread, bins)
    inside = x * bins <= scale.grid.end  # there the ratio is above x wherever a term is above the grid
    end = law.values[-1] + scale.grid.step
    log_wrapped = law.log_scale - law.tilt * end + math.log(end / bins)
    wrapped = math.exp(min(log_wrapped, 0.0)) if law.tilt * end >= 1 else 1.0
    points = event.p_mass - x * event.q_mass + event.room + p_out - x * q_out * inside + wrapped
    return np.where(x * bins < end, points, np.inf)


def _call_lines(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array, width: float) -> tuple[Array, Array]:
    """P and Q of L > x, such that the line P - y Q is under E_Q (L - y)+ wherever y is within `width` x of x."""
    event = _events(law, bins, x, calls=True)
    p_out, q_out = _left_out(scale, spread, bins)
    # What wrapped around counts at most where value times units is largest: from the event's first value on.
    largest = np.maximum(x * bins, 1 / law.tilt)
    wrapped = law.wrapped * np.exp(np.minimum(law.scale(largest), 500.0)) * largest / bins
    return event.p_mass - event.room - width * x * event.q_room + p_out - wrapped, event.q_mass + q_out


def _put_points(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array) -> Array:
    """Upper bounds of E_Q (x - L)+: a term above the grid leaves nothing, or is capped at its end, which only adds."""
    event = _events(law, bins, x, calls=False)
    points = x * (event.q_mass + law.below) - event.p_mass + event.room
    return np.where(x * bins <= law.values[-1], points, np.inf)


def _put_lines(law: SumLaw, scale: _Scale, spread: float, bins: int, x: Array, width: float) -> tuple[Array, Array]:
    """P and Q of L < x, such that the line y Q - P is under E_Q (y - L)+ wherever y is within `width` x of x."""
    event = _events(law, bins, x, calls=False)
    wrapped = law.wrapped * np.exp(np.minimum(law.scale(x * bins), 500.0))
    return event.p_mass + event.room + width * x * event.q_room, event.q_mass - wrapped
