"""Privacy losses on an even grid from points or tangents of a privacy profile: certified above or below.

The profile of a pair (P, Q) is f(x) = sup over events of P - x Q, convex in x = e^epsilon. A profile that is linear
between the grid points e^(j step) is that of losses on the grid, and a larger profile dominates, step by step and in
composition (zhu2022, Definition 7 and Theorem 10). Near x = 0 the profile is 1 - x + `put`; the put keeps its digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.loss_composition import Cells, GridLaw, convex

Array = NDArray[np.float64]

ATOM_ERROR = 1e-10
MOST_PLACES = 200_000
_MOST_OF_SUM = 3 << 19  # places that 16 deviations of the sum may take


@dataclass(frozen=True)
class LossGrid:
    """Losses j `step` for `first` <= j <= `last`, with `first` < 0 < `last`."""

    first: int
    last: int
    step: float

    @property
    def losses(self) -> Array:
        """The losses, shape (last - first + 1,)."""
        return np.arange(self.first, self.last + 1) * self.step

    def middles(self) -> Array:
        """The losses halfway between neighbours, shape (last - first,)."""
        return self.losses[:-1] + self.step / 2


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
    return grid_between(low, high, variance, steps, min(MOST_PLACES, p_mass.size // 3))


def grid_between(low: float, high: float, variance: float, steps: int, places: int = MOST_PLACES) -> LossGrid:
    """Return a grid from the loss -`low` to `high` for `steps` steps of that `variance` of the loss.

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

    Source: doroshenko2022, Algorithm 1.
    """
    support = law.masses > 0
    losses, masses = law.losses[support], law.masses[support]
    first = math.floor(losses[0] / step)
    index = np.floor(losses / step - first).astype(np.intp)
    share = np.clip(np.expm1((first + index) * step - losses) / math.expm1(-step), 0.0, 1.0)
    count = int(index[-1]) + 1
    below, above = (np.bincount(index, part, count) for part in (masses * (1 - share), masses * share))
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
