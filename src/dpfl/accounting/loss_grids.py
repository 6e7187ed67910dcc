"""Laws of a privacy loss on an even grid, certified above or below: from profiles, atoms and cells.

A pair of laws (P, Q) is known by P's mass at the losses ln(P/Q) on a grid. Its profile is f(x) = sup over events of
P - x Q, convex in x = e^epsilon. A profile that is linear between the grid points e^(j step) is that of losses on the
grid, and a larger profile dominates, step by step and in composition (zhu2022, Definition 7 and Theorem 10).
`pessimistic` and `optimistic` put a continuous loss there so that the pair on the grid dominates the true one, or is
dominated by it; `from_points` and `from_tangents` do it for a profile. Near x = 0 the profile is 1 - x + `put`; the put
keeps its digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.signal import lfilter

from dpfl.accounting.numerics import binned

if TYPE_CHECKING:
    from dpfl.accounting.numerics import Array

UNIT = 2.0**-53
ATOM_ERROR = 1e-10
MOST_LAW_PLACES = 200_000
KEPT = 0.5
"""Share of the profile that lowering it by `optimistic` leaves at the upper end of a cell at least."""
_MOST_OF_SUM = 3 << 19  # places that 16 deviations of the sum may take
_LARGEST_EXPONENT = 650.0


@dataclass(frozen=True)
class LossGrid:
    """Losses j `step` for `first` <= j <= `last`, with `first` < 0 < `last`."""

    first: int
    last: int
    step: float

    @property
    def losses(self) -> Array:
        """The losses, shape (last - first + 1,)."""
        return np.arange(self.first, self.last + 1, dtype=np.float64) * self.step

    def middles(self) -> Array:
        """The losses halfway between neighbours, shape (last - first,)."""
        return self.losses[:-1] + self.step / 2


class Cells(NamedTuple):
    """A loss cut into even cells: cell i reaches from the loss `origin` + i `step` to the next.

    `below`, `above` (k,): the shares of P's mass in a cell that go to its two ends so that P's and Q's mass stay.
    `lost`: P's mass outside of the cells, at most. `atom` (3,): mass about grid point `place` that is not in the cells,
    as it goes to the grid points `place` - 1, `place`, `place` + 1; merged, its loss is that of `place`.
    Source: doroshenko2022, Algorithm 1.
    """

    origin: float
    step: float
    below: Array
    above: Array
    lost: float
    atom: tuple[float, float, float] = (0.0, 0.0, 0.0)
    place: int = 1

    def masses(self) -> Array:
        """Return P's mass at the k + 1 grid points, without the atom's."""
        return np.append(self.below, 0.0) + np.append(0.0, self.above)


@dataclass(frozen=True)
class GridLaw:
    """P's `masses` (k,) at the losses `origin` + i `step`; `lost` bounds P's mass at losses without bound.

    Source: doroshenko2022, section 3.
    """

    origin: float
    step: float
    masses: Array
    lost: float = 0.0

    @property
    def losses(self) -> Array:
        """The losses at which the masses are, shape (k,)."""
        return self.origin + np.arange(self.masses.size, dtype=np.float64) * self.step


def pessimistic(cells: Cells) -> GridLaw:
    """Return the law on the grid that dominates a loss, by connecting the dots of its privacy profile.

    Guarantee: the pair on the grid dominates every pair whose loss has these `cells`.
    Source: doroshenko2022, Algorithm 1.
    """
    masses = cells.masses()
    masses[cells.place - 1 : cells.place + 2] += cells.atom
    return GridLaw(cells.origin, cells.step, masses, cells.lost)


def optimistic(cells: Cells) -> GridLaw:
    """Return a law on the grid that the loss dominates; what is outside of the cells is dropped.

    The profile f, convex in y = e^epsilon, is in each cell above the tangents at its two ends. Lowering f at the
    grid points so far that each chord passes below the point where the two tangents meet gives a polygon below f,
    and so does its convex hull, the profile of a pair on the grid. Guarantee: the true pair dominates it, and so it
    does for products (zhu2022, Theorem 10, whose proof needs no unit mass).
    Source: derived here; the error is of second order in the step, as that of connecting the dots. Where e^step is no
    float, every loss is rounded down: the profile of each outcome falls.
    """
    if cells.step > _LARGEST_EXPONENT:
        masses = np.append(cells.below + cells.above, 0.0)
        masses[cells.place] += sum(cells.atom)
        return GridLaw(cells.origin, cells.step, masses)
    growth, decay = math.expm1(cells.step), -math.expm1(-cells.step)
    masses = cells.masses()
    masses[cells.place] += sum(cells.atom)  # merging outcomes is processing them
    upper = cells.above * (1 - decay)
    total = np.where(cells.below + upper > 0, cells.below + upper, 1.0)
    # The tangents meet at the share `where` of the cell; next to a grid point 1 - where would have no digits left.
    where, rest = upper / total, cells.below / total
    lowered = _lowering(masses, growth * cells.below * where, where, rest, cells.step)
    change = np.diff(np.concatenate([[0.0], lowered, [0.0]]))
    masses = masses - change[1:] / growth + change[:-1] / decay
    # The grid point before the first is not lowered: its kink is below 0, and the hull moves it to the first.
    masses[0] -= change[0] / growth
    return GridLaw(cells.origin, cells.step, convex(masses, cells.step))


def _lowering(masses: Array, gap: Array, where: Array, rest: Array, step: float) -> Array:
    """Return by how much to lower the profile at the grid points: in each cell by `gap` at its share `where`, of which
    `rest` is left.

    Evenly, where that leaves KEPT of the profile f and of f(y) - (1 - y), which both are positive: near an end of the
    losses the other end of the cell goes down further, and only where both are too near to 0 the lower one gives way.
    """
    beyond = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)
    decay = -math.expm1(-step)
    smoothed = np.asarray(lfilter([decay], [1.0, decay - 1.0], beyond[::-1]))
    most_right = (1 - KEPT) * smoothed[::-1][1:]
    most_left = (1 - KEPT) * step * np.append(0.0, np.cumsum(np.cumsum(masses)))[:-2]
    right, left = np.minimum(gap, most_right), np.minimum(gap, most_left)
    for _ in range(2):
        right = np.maximum(right, np.minimum(most_right, (gap - rest * left) / np.maximum(where, 1e-300)))
        left = np.maximum(left, np.minimum(most_left, (gap - where * right) / np.maximum(rest, 1e-300)))
    left = np.maximum(left, (gap - where * right) / np.maximum(rest, 1e-300))
    return np.maximum(np.append(left, 0.0), np.append(0.0, right))


def convex(masses: Array, step: float) -> Array:
    """Take the convex hull of a profile that has the kinks `masses`, of P, at even losses: no kink stays negative.

    Dropping a kink joins its neighbours by a chord: its mass goes to them so that P's and Q's mass stay.
    Source: derived here, the lower convex hull of a piecewise linear function.
    """
    todo = np.flatnonzero(masses < 0).tolist()
    if not todo:
        return masses
    kinks = masses.tolist()
    last = len(kinks) - 1
    left, right = list(range(-1, last)), list(range(1, last + 2))
    while todo:
        i = todo.pop()
        mass, low, high = kinks[i], left[i], right[i]
        if mass >= 0:
            continue
        kinks[i] = 0.0
        if low >= 0:
            right[low] = high
        if high <= last:
            left[high] = low
        share = 1.0 if low < 0 else math.expm1((low - i) * step) / math.expm1((low - high) * step)
        for neighbour, part in ((high, share), (low, 1.0 - share)):
            if 0 <= neighbour <= last:
                kinks[neighbour] += mass * part
                todo.append(neighbour)
    return np.array(kinks)


def from_points(grid: LossGrid, values: Array) -> tuple[GridLaw, GridLaw]:
    """Return the laws of the loss in both orders, P||Q and Q||P, that dominate a profile known at the grid points.

    `values`, shape (points,): at losses below zero an upper bound of the put f(x) - 1 + x, from zero on of f.
    Beyond the ends f counts as constant: that mass is lost, of infinite loss.
    Source: doroshenko2022, Algorithm 1 (connecting the dots).
    """
    x = np.exp(grid.losses)
    masses = convex(_kinks(grid, values), grid.step)
    return _both_orders(grid, masses, float(values[-1]), float(values[0] / x[0]))


def from_tangents(grid: LossGrid, p_side: Array, q_side: Array) -> tuple[GridLaw, GridLaw]:
    """Return laws of the loss in both orders that are dominated by any pair with these events.

    One event per cell of the grid, shape (points - 1,): where the cell's middle is above zero loss, P and Q of an event
    (a loss above it); below zero, of the opposite event. Each is a line p - x q under the profile, or x q - p under
    the put. At a grid point the lower of its two neighbours' lines is taken: the chords then stay under the profile. A
    line that falls below 0 within its cell says 0 alone: a chord to 0 would be above it.
    Source: derived here.
    """
    x, step = np.exp(grid.losses), grid.step
    sign = np.where(grid.middles() > 0, 1.0, -1.0)
    lower_end, upper_end = (sign * (p_side - q_side * ends) for ends in (x[:-1], x[1:]))
    above = np.minimum(lower_end, upper_end) > 0
    lower_end, upper_end = np.where(above, lower_end, 0.0), np.where(above, upper_end, 0.0)
    # Around zero loss a put and a call meet: f = put + 1 - x.
    values = np.minimum(np.append(lower_end, np.inf), np.append(np.inf, upper_end))
    values[0] = values[-1] = 0.0
    masses = convex(_kinks(grid, values), step)
    return _both_orders(grid, masses, 0.0, 0.0)


def from_atoms(grid: LossGrid, p_mass: Array, q_mass: Array, beyond: float = 0.0) -> tuple[GridLaw, GridLaw]:
    """Return laws of the loss in both orders that are dominated by a pair with these masses of disjoint events.

    `p_mass`, `q_mass`, shape (events,), relative error at most ATOM_ERROR; each law may have `beyond` more mass,
    anywhere. Merging outcomes to events only loses.
    Source: derived here, by `from_tangents`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(p_mass) - np.log(q_mass)
    order = np.argsort(loss[~np.isnan(loss)])
    loss, p_mass, q_mass = (each[~np.isnan(loss)][order] for each in (loss, p_mass, q_mass))
    index = np.searchsorted(loss, grid.middles(), side="right")
    calls = grid.middles() > 0
    p_side, q_side = (
        np.where(calls, np.append(np.cumsum(mass[::-1])[::-1], 0.0)[index], np.append(0.0, np.cumsum(mass))[index])
        for mass in (p_mass, q_mass)
    )
    sign = np.where(calls, 1.0, -1.0)
    p_side, q_side = p_side * (1 - sign * ATOM_ERROR), q_side * (1 + sign * ATOM_ERROR)
    return from_tangents(grid, p_side + beyond * ~calls, q_side + beyond * calls)


def fitting_grid(p_mass: Array, q_mass: Array, steps: int) -> LossGrid:
    """Return a grid that is fine enough for `steps` steps whose outcomes fall into events with these masses.

    Source: `grid_between`.
    """
    both = (p_mass > 0) & (q_mass > 0)
    loss = np.log(p_mass[both]) - np.log(q_mass[both])
    variance = float(np.sum((p_mass + q_mass)[both] * loss**2)) / 2
    low, high = max(-float(loss.min()), 0.0), max(float(loss.max()), 0.0)
    return grid_between(low, high, variance, steps, min(MOST_LAW_PLACES, p_mass.size // 3))


def grid_between(low: float, high: float, variance: float, steps: int, places: int = MOST_LAW_PLACES) -> LossGrid:
    """Return a grid from the loss -`low` to `high` for `steps` steps whose loss has this `variance`.

    Source: derived here.
    """
    step = max(min(math.sqrt(variance) / 30, step_of_sum(variance, steps)), (high + low) / places, 1e-300)
    return LossGrid(-max(math.ceil(low / step), 2), max(math.ceil(high / step), 2), step)


def step_of_sum(variance: float, steps: int) -> float:
    """Return a grid step that is fine enough for the sum of `steps` >= 1 losses of this mean `variance`.

    Moving a loss to the ends of its cell adds step^2/12 to its mean; that stays below 1e-5 of epsilon, or of 1; below
    2e-4 of it for ten million steps, whose sum needs a coarser grid.
    Source: derived here.
    """
    fine = min(1e-3, math.sqrt(6e-5 * (1 / steps + variance / 2)))
    return max(fine, 16 * math.sqrt(steps * variance) / _MOST_OF_SUM)


def regrid(law: GridLaw, step: float) -> Cells:
    """Return the loss of `law` cut into cells of the multiples of `step`, for `pessimistic` or `optimistic`.

    A loss that misses a multiple by the rounding of floats is there: next to it, `optimistic` would drop all that the
    largest loss adds. Source: doroshenko2022, Algorithm 1.
    """
    support = law.masses > 0
    losses, masses = law.losses[support], law.masses[support]
    places = losses / step
    nearest, noise = np.rint(places), 8 * UNIT * (abs(law.origin) + np.abs(losses)) / step
    places = np.where(np.abs(places - nearest) <= noise, nearest, places)
    first = math.floor(places[0])
    index = np.floor(places - first).astype(np.intp)
    share = np.clip(np.expm1((first + index - places) * step) / math.expm1(-step), 0.0, 1.0)
    count = int(index[-1]) + 1
    below, above = (binned(index, part, count) for part in (masses * (1 - share), masses * share))
    return Cells(first * step, step, below, above, law.lost)


def _kinks(grid: LossGrid, values: Array) -> Array:
    """P's mass at each grid point: the kinks of the piecewise linear profile through `values`, shape (points,)."""
    x = np.exp(grid.losses)
    slopes = np.diff(values) / (x[:-1] * math.expm1(grid.step))
    left, right = np.append(-np.inf, slopes), np.append(slopes, 0.0)
    left[0] = values[0] / x[0]  # from the put 0 at x = 0
    # The point at zero joins both sides: its left slope is the put's, less 1.
    zero = -grid.first
    left[zero] -= 1.0
    return (right - left) * x


def _both_orders(grid: LossGrid, masses: Array, lost: float, lost_back: float) -> tuple[GridLaw, GridLaw]:
    """The laws of P||Q and of Q||P behind P's masses on the grid."""
    back = (masses * np.exp(-grid.losses))[::-1]
    return (
        GridLaw(grid.first * grid.step, grid.step, masses, lost),
        GridLaw(-grid.last * grid.step, grid.step, back, lost_back),
    )
