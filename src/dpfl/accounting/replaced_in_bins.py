"""Balls in bins under replace_one: the law of an epoch's loss if a record takes another's place.

In units of the noise, s = 1/noise. Given the other records' bins and all that was seen, the record falls into each of
the T steps alike: P is the mean over t of N(g_t e_t, I), Q that of N(h_t e_t, I), |g_t| and |h_t| at most s; each move
may depend on the steps before. Let M be N(0, I), a_t = e^(g_t y_t - g_t^2/2) and b_t = e^(h_t y_t - h_t^2/2) the ratios
of one step to it, and D_t = a_t - x b_t. The profile at x is E_M (mean of D_t)_+.

The worst moves are opposite and of full length. For a convex f, the mean of f(S + a - x b) over y depends on the
variances and on the covariance c of the two exponents alone. Its derivative in c is E[f'' (-x a b)], and in the
variances E[f'' a^2]/2 and E[f'' x^2 b^2]/2: a and b keep the mean 1, so that f' cancels (Plackett's identity, as in
Slepian's inequality). So at given lengths the least covariance, that of opposite moves, is the worst; and for opposite
moves of lengths r and r' the mean rises in both. What follows a step has, as a mean of convex functions of the sum so
far, a value that is convex in it: by induction from the last step on, no choice that looks at the steps before does
better. So the pair "mean of N(s e_t, I) against mean of N(-s e_t, I)" dominates every epoch, and it occurs (others 0,
the record +C or -C). Epochs compose (zhu2022, Theorem 10).

With z standard normal D = 2 e^((ln x - s^2)/2) sinh(s z - ln(x)/2): its law is known in closed form, and that of the
sum of T of them is one Fourier transform for each x >= 1. The pair is its own mirror image: the put at x < 1 is x times
the profile at 1/x. Every error is on the safe side: a term goes to the ends of its cell at its mean (the sum rises in
convex order), below the grid up to its start; where a term is above the grid, all of P's mass counts; rounding and
what wraps around count as in `balls_in_bins`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.balls_in_bins import MASS_ERROR, Grid, law_of_sum, mass_between
from dpfl.accounting.loss_grids import GridLaw, LossGrid, from_points

if TYPE_CHECKING:
    from dpfl.accounting.numerics import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_NARROW = 0.1  # cells of z, times 1 + |z| + s, below which the nodes are used: else closed forms lose few digits
_SIZES, _ROUGH_SIZE = ((1.1, 1 << 14), (1.6, 1 << 15), (math.inf, 1 << 16)), 1 << 13  # up to a spread; of a sum's grid
_NODES_OF_Z, _TILTS, _FAR = 500, 40, 9.0  # by which the tilt is chosen
_ROUNDED = -34.0  # logarithm of what the transform rounds, about
_LEFT_OUT = 1e-4  # share of delta, over the epochs, that terms above the grid may have
_NEGLIGIBLE = 1e-3  # the same of the profile at the largest loss
_TOLERANCE, _ROUGH_TOLERANCE = 3e-4, 3e-3  # of epsilon, that cutting the losses into cells may add
_MOST_POINTS, _ROUGH_POINTS = 900, 120
_DEVIATIONS = 12.0
_LARGEST_LOSS = 60.0


@dataclass(frozen=True)
class _Term:
    """D = 2 e^((loss - s^2)/2) sinh(s z - loss/2) for one x = e^loss."""

    spread: float
    loss: float

    @property
    def scale(self) -> float:
        """2 e^((loss - s^2)/2)."""
        return 2 * math.exp((self.loss - self.spread**2) / 2)

    def value(self, z: Array) -> Array:
        """Return D at z."""
        return self.scale * np.sinh(self.spread * z - self.loss / 2)

    def normal(self, value: Array) -> Array:
        """Return z at D."""
        return (np.arcsinh(value / self.scale) + self.loss / 2) / self.spread

    def masses(self, grid: Grid) -> Array:
        """Return the masses on `grid` of D: each cell's at its two ends, those below the grid at its start; none above.

        The mean within the grid is kept, so that the sum rises in convex order.
        """
        points = grid.points()
        edges = self.normal(points)
        low, high = edges[:-1], edges[1:]
        mass, up = np.empty(low.size), np.empty(low.size)
        narrow = (high - low) * (1 + np.maximum(np.abs(low), np.abs(high)) + self.spread) < _NARROW
        wide, x, s = ~narrow, math.exp(self.loss), self.spread
        mass[wide] = mass_between(low[wide], high[wide])
        up[wide] = mass_between(low[wide] - s, high[wide] - s) - x * mass_between(low[wide] + s, high[wide] + s)
        up[wide] -= points[:-1][wide] * mass[wide]
        half, origin = (high - low)[narrow] / 2, points[:-1][narrow]
        total, moment = np.zeros(half.size), np.zeros(half.size)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            z = low[narrow] + half * (1 + node)
            density = half * weight / math.sqrt(2 * math.pi) * np.exp(-(z**2) / 2)
            total += density
            moment += density * (self.value(z) - origin)
        mass[narrow], up[narrow] = total, moment
        up = np.clip(up / grid.step, 0.0, mass)
        masses = np.append(mass - up, 0.0) + np.append(0.0, up)
        masses[0] += ndtr(edges[0])
        return masses


@lru_cache(maxsize=4)
def law_above(noise_multiplier: float, bins: int, epochs: int, delta: float, *, rough: bool = False) -> GridLaw:
    """Return a law of one epoch's loss, in both orders, that dominates balls in bins under replace_one.

    noise_multiplier > 0, bins >= 2; `epochs` and `delta` only set how fine the grid is and how far it reaches, and so
    does `rough`. Guarantee: an epoch's pair, whatever was seen before, is dominated by that of the law.
    Source: derived in the module; zhu2022, Definition 7 (dominating pairs).
    """
    spread, left_out = 1 / noise_multiplier, _LEFT_OUT * delta / epochs
    size = _ROUGH_SIZE if rough else next(size for most, size in _SIZES if spread <= most)

    def profile(loss: float) -> float:
        return profile_above(spread, bins, loss, left_out, size)

    low, high = 0.0, 1 / bins + spread
    while profile(high) > _NEGLIGIBLE * delta / epochs and high < _LARGEST_LOSS:
        low, high = high, 2 * high
    for _ in range(3):
        middle = (low + high) / 2
        low, high = (low, middle) if profile(middle) <= _NEGLIGIBLE * delta / epochs else (middle, high)
    step = _loss_step(spread, bins, epochs, delta, _ROUGH_TOLERANCE if rough else _TOLERANCE)
    step = max(step, high / (_ROUGH_POINTS if rough else _MOST_POINTS))
    last = max(math.ceil(high / step), 2)
    grid = LossGrid(-last, last, step)
    upper = np.array([profile(j * step) for j in range(last + 1)])
    puts = np.exp(grid.losses[:last]) * upper[:0:-1]
    return from_points(grid, np.append(puts, upper) * (1 + 2 * bins * MASS_ERROR))[0]


def times_two_moves(
    noise_multiplier: float, bins: int, epochs: int, delta: float, laws: tuple[GridLaw, GridLaw], epsilon: float
) -> float:
    """Return a lower bound on the rough profile, in multiples of the profile of a removal, then an addition.

    `laws`: of the two moves, which spend `epsilon` together; the losses looked at are about those that decide. Where
    little noise meets many bins the law's grid is too coarse for the sum. 0 where the two moves spend inf.
    Source: derived from the triangle of the hockey-stick divergence, for one epoch.
    """
    if not math.isfinite(epsilon):
        return 0.0
    least, left_out = math.inf, _LEFT_OUT * delta / epochs
    for loss in (0.0, epsilon / epochs):
        remove, add = (float(law.masses @ -np.expm1(np.minimum(loss / 2 - law.losses, 0.0))) + law.lost for law in laws)
        found = profile_above(1 / noise_multiplier, bins, loss, left_out, _ROUGH_SIZE)
        least = min(least, found / (remove + math.exp(loss / 2) * add))
    return least


def _loss_step(spread: float, bins: int, epochs: int, delta: float, tolerance: float) -> float:
    """Return a step of the losses' grid that adds about that share of epsilon; the loss is taken as if normal."""
    variance = 2 * (math.expm1(min(spread**2, 50.0)) - math.expm1(-(spread**2))) / bins
    variance = min(variance, 4 * spread**2)
    mu = math.sqrt(epochs * variance)
    epsilon = float(gaussian_dp.epsilon(delta, mu))
    order = 1.5 + epsilon / mu**2
    room = 12 * tolerance * max(epsilon, 0.1 * mu) / (epochs * order)
    return min(math.sqrt(room), math.sqrt(variance) / 3)


def profile_above(spread: float, bins: int, loss: float, left_out: float, size: int) -> float:
    """Return an upper bound of the profile of one epoch at e^`loss`, `loss` >= 0: delta of one epoch at that epsilon.

    `left_out` > 0 is what terms above the grid may add; `size`, a power of 2, is how fine the grid is.
    Source: derived in the module.
    """
    term = _Term(spread, loss)
    top = max(spread - float(ndtri(left_out / 2)), -float(ndtri(left_out / (2 * bins))))
    end = max(float(term.value(np.array(top))), term.scale * spread)
    x, variance = math.exp(loss), math.expm1(min(spread**2, 50.0))
    deviation = math.sqrt(bins * min(variance * (1 + x**2), end**2))
    highest = end + _DEVIATIONS * min(deviation, math.sqrt(bins) * end)
    start = max(-highest, float(term.value(np.array(-spread - 8.0))))
    lowest = -min(_DEVIATIONS * deviation, -bins * start)
    step = (highest - lowest) / size
    grid = Grid(start, step, math.ceil((end - start) / step))
    tilt = _tilt(term, top, bins, highest)
    first = max(0, math.floor((lowest - bins * start) / step))
    law = law_of_sum(term.masses(grid), grid, bins, size, first, tilt)
    counted = law.values > 0
    values, units = law.values[counted] / bins, law.units()[counted]
    weights = values * units
    room = min(law.noise * float(weights.sum()), law.noise_norm * float(np.linalg.norm(weights)))
    beyond = law.values[-1] + step  # tilt * beyond >= 1: value times units falls from there on
    wrapped = min(law.wrapped, 1.0) * math.exp(min(float(law.scale(beyond)), 700.0)) * beyond / bins
    # Where some term is above the grid the positive part of the mean is at most that of the a_t.
    z = float(term.normal(np.array(grid.end)))
    rest = (bins - 1) * math.log1p(-float(ndtr(-z)))
    out = -math.expm1(rest + math.log1p(-float(ndtr(spread - z))))
    # Rounded masses may be negative, and where all else underflows their sum too; what they stand for is not.
    return min(max(float(weights @ law.masses[counted]), 0.0) + room + wrapped + out, 1.0)


def _tilt(term: _Term, top: float, bins: int, highest: float) -> float:
    """Return a tilt of at least 2 / `highest` under which little is rounded, and little is above `highest`."""
    z = np.linspace(-_FAR, top, _NODES_OF_Z)
    log_masses, tilts = -(z**2) / 2 - math.log(math.sqrt(2 * math.pi) / (z[1] - z[0])), np.geomspace(2, 300, _TILTS)
    exponents = log_masses + tilts[:, None] / highest * term.value(z)
    tops = exponents.max(axis=1)
    moments = bins * (tops + np.log(np.exp(exponents - tops[:, None]).sum(axis=1)))
    # What is above the highest sum wraps around to lower ones, where its units are larger: bounded by other tilts.
    wraps = np.where(tilts > tilts[:, None], moments - (tilts - tilts[:, None]), np.inf).min(axis=1)
    best = np.argmin(np.logaddexp(moments + np.logaddexp(_ROUNDED, -tilts), np.minimum(wraps, moments)))
    return float(tilts[best]) / highest
