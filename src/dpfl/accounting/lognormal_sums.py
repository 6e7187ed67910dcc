"""Laws of sums of independent lognormals of mean 1, bracketed in convex order: what balls in bins needs.

A term Y = exp(s Z - s^2/2), Z standard normal, is moved to an even grid. `SPREAD` assigns each cell's mass to its two
ends and keeps its mean: the sum is larger in convex order. `REDUCE` gathers a cell about each grid point and moves
it down to that point: calls E (S - x)+ only fall. `RAISE` moves it up: puts E (x - S)+ only fall. On an even grid a sum
stays on the grid, so nothing more is rounded. The sum's law is one Fourier transform to the power `terms`, of masses
multiplied by e^(tilt y), so that what the transform rounds is small where the tail is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.special import ndtr

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_NARROW = 0.02  # cells narrower than this share of the log-scale are integrated by the nodes above
_REACH = 37.5  # standard deviations of ln Y kept below: the mass beyond is 1e-307
_UNIT = 2.0**-53
_REFINED, _ROUNDS = 3000, 8
_OFFSETS = (0.25, 0.5, 1.0, 2.0, 4.0)
_OFFSETS_BELOW = (*_OFFSETS, 8.0, 16.0, 32.0, 64.0)
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
        return self.start + self.step * np.arange(self.count + 1)


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
    mass[wide] = _between(low + spread / 2, high + spread / 2)
    excess[wide] = _between(low - spread / 2, high - spread / 2) - origins[wide] * mass[wide]
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


def _between(low: Array, high: Array) -> Array:
    """Return the standard normal's mass between, accurate in both tails."""
    upper = low > 0
    return np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def log_moment(masses: Array, points: Array, tilt: float) -> float:
    """Return the logarithm of the sum of masses times e^(tilt points).

    Source: elementary, the cumulant generating function of a discrete law.
    """
    top = float(np.max(tilt * points))
    return top + math.log(float(masses @ np.exp(tilt * points - top)))


@dataclass(frozen=True)
class SumLaw:
    """Masses of a sum of terms at the even `values`, both shape (k,), in units of e^(log_scale - tilt value).

    `noise` bounds what rounding changed in each mass, `noise_norm` the root of the sum of its squares; `wrapped` the
    sum of what other sums, outside of the values, may have added to all of them; all in the same units. `below` bounds
    the mass of sums below the values, in no units.
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
        """Return the units of the masses, shape (k,); capped at e^300 where no bound is to be had."""
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
    weighted = masses * np.exp(tilt * points - log_one)
    spectrum = rfft(np.bincount(np.arange(points.size) % size, weighted, size), size)
    with np.errstate(divide="ignore", under="ignore"):
        size_of = np.maximum(np.abs(spectrum), 1e-300)
        powered = np.exp(terms * (np.log(size_of) + 1j * np.angle(spectrum)))
    law = np.roll(irfft(powered, size), -first)
    lowest_value, highest_value = first * grid.step, (first + size) * grid.step
    used = masses > 0
    masses, points = masses[used], points[used]

    def chernoff(other: float, edge: float) -> float:
        gain = terms * (log_moment(masses, points, other) - log_one)
        return math.exp(min(gain - (other - tilt) * edge, 0.0))

    wrapped, below = min(chernoff(tilt + factor * abs(tilt), highest_value) for factor in _OFFSETS), 0.0
    if first:
        lower_tilts = [tilt - factor * abs(tilt) for factor in _OFFSETS_BELOW]
        wrapped += min(chernoff(other, lowest_value) for other in lower_tilts)
        logs = [terms * log_moment(masses, points, t) - t * lowest_value for t in lower_tilts if t < 0]
        below = math.exp(min(0.0, *logs))
    # Rounding: of the transform there, raised to the power; of the power itself; of the transform back.
    size_log = math.log2(size)
    there = terms * (1 + size_log * float(np.linalg.norm(weighted))) + 40
    gains, back = np.abs(powered) / size_of, 8 * size_log * float(np.linalg.norm(law))
    noise = 4 * _UNIT * (there * float(np.mean(gains)) + back / math.sqrt(size))
    noise_norm = 4 * _UNIT * (there * float(np.linalg.norm(gains)) * math.sqrt(2 / size) + back)
    values = terms * grid.start + (first + np.arange(size)) * grid.step
    # Tilted by y - start: e^(-tilt (value - terms start)) brings the masses back.
    return SumLaw(values, law, tilt, terms * (log_one + tilt * grid.start), noise, noise_norm, wrapped, below)
