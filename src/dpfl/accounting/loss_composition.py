"""Composition of privacy losses on an even grid, certified on both sides and exact at any delta.

A pair of laws (P, Q) is known by P's mass at the losses ln(P/Q) on a grid. `pessimistic` and `optimistic` put a
continuous loss there so that the pair on the grid dominates the true one, or is dominated by it. `Composition` adds
the losses of many steps. It multiplies each mass by e^(tilt loss), as for a saddle point, so that the losses about
the epsilon asked for carry most of the mass: the rounding of the Fourier transform then is small next to delta, be
delta 1e-5 or 1e-200. What the transform may round, what wraps around its ends and what the grid leaves out is
bounded and counted on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter

Array = NDArray[np.float64]

UNIT = 2.0**-53
MASS_ERROR = 1e-13
"""Relative error allowed to each mass on the grid: quadrature and rounding stay below it."""
TRANSFORM_ERROR = 8.0
"""Rounding of a Fourier transform of n values, relative to its root mean square, in units of UNIT log2(n)."""
MOST_PLACES = 1 << 22
WRAPPED = 1e-12
"""Tilted mass that may wrap around each end of the grid of the sum; what does is counted on the safe side."""
KEPT = 0.5
"""Share of the profile that lowering it by `optimistic` leaves at the upper end of a cell at least."""
STEEPEST = 3000.0
"""Most that a tilt may set between the logarithms of the weights of one step's smallest and largest loss."""
_LARGEST_EXPONENT = 650.0
_FAR = 60.0  # e^-_FAR of the tilted mass may be left out, and counts as rounding
_CUT_OFF = -80.0
_EXPONENTS = (0.6, 1.5, 3.0, 5.0, 7.4, 11.0, 30.0)


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
        return self.origin + np.arange(self.masses.size) * self.step


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
    where = upper / total  # the tangents meet at this share of the cell
    change = np.diff(np.concatenate([[0.0], _lowering(masses, growth * cells.below * where, where, cells.step), [0.0]]))
    masses = masses - change[1:] / growth + change[:-1] / decay
    # The grid point before the first is not lowered: its kink is below 0, and the hull moves it to the first.
    masses[0] -= change[0] / growth
    return GridLaw(cells.origin, cells.step, convex(masses, cells.step))


def _lowering(masses: Array, gap: Array, where: Array, step: float) -> Array:
    """Return by how much to lower the profile at the grid points: in each cell by `gap` at its share `where`.

    Evenly, where that leaves KEPT of the profile f and of f(y) - (1 - y), which both are positive: near an end of the
    losses the other end of the cell goes down further, and only where both are too near to 0 the lower one gives way.
    """
    beyond = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)
    decay = -math.expm1(-step)
    most_right = (1 - KEPT) * lfilter([decay], [1.0, decay - 1.0], beyond[::-1])[::-1][1:]
    most_left = (1 - KEPT) * step * np.append(0.0, np.cumsum(np.cumsum(masses)))[:-2]
    right, left = np.minimum(gap, most_right), np.minimum(gap, most_left)
    for _ in range(2):
        right = np.maximum(right, np.minimum(most_right, (gap - (1 - where) * left) / np.maximum(where, 1e-300)))
        left = np.maximum(left, np.minimum(most_left, (gap - where * right) / np.maximum(1 - where, 1e-300)))
    left = np.maximum(left, (gap - where * right) / np.maximum(1 - where, 1e-300))
    return np.maximum(np.append(left, 0.0), np.append(0.0, right))


def convex(masses: Array, step: float) -> Array:
    """Take the convex hull of a profile that has the kinks `masses`, of P, at even losses: no kink stays negative.

    Dropping a kink joins its neighbours by a chord: its mass goes to them so that P's and Q's mass stay.
    Source: derived here, the lower convex hull of a piecewise linear function.
    """
    kinks = masses.tolist()
    last = len(kinks) - 1
    left, right = list(range(-1, last)), list(range(1, last + 2))
    todo = np.flatnonzero(masses < 0).tolist()
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


class _Tilted(NamedTuple):
    """The tilted `masses` of one step's losses, `origin` + (`first` + i) step, and how many `steps` there are.

    The first and the last mass are above 0; none is below.
    """

    masses: Array
    origin: float
    first: int
    steps: int

    def losses(self, step: float) -> Array:
        """Return the losses, shape (k,)."""
        return self.origin + np.arange(self.first, self.first + self.masses.size) * step


class Composition:
    """The sum of the losses of independent steps, each law of `phases` that many times, under one tilt >= 0.

    Source: koskela2020 (transform), with the tilt and its bounds derived here.
    """

    def __init__(self, phases: Iterable[tuple[GridLaw, int]], tilt: float) -> None:
        """phases: (law, steps), all on grids of one step. Raises ValueError naming `phases` where they are not."""
        self.tilt, self.step = tilt, math.nan
        self.lost = self.origin = self.log_mass = self.error = 0.0
        tilted = []
        for law, steps in phases:
            if tilted and law.step != self.step:
                raise ValueError("phases must be on grids of the same step")
            self.step = law.step
            self.lost += steps * law.lost
            self.origin += steps * law.origin
            losses = law.losses
            with np.errstate(divide="ignore"):
                logs = np.log(law.masses) + tilt * losses
            top = float(logs.max())
            masses = np.exp(logs - top)
            total = float(masses.sum())
            log_mass = top + math.log(total)
            self.log_mass += steps * log_mass
            support = np.flatnonzero(masses)
            first, last = int(support[0]), int(support[-1]) + 1
            tilted.append(_Tilted(masses[first:last] / total, law.origin, first, steps))
            farthest = max(abs(float(losses[0])), abs(float(losses[-1])))
            self.error += steps * (MASS_ERROR + 4 * UNIT * (tilt * farthest + abs(log_mass) + 1))
        self._transform(tilted)

    def _transform(self, tilted: list[_Tilted]) -> None:
        """Set the tilted masses of the sum at `first` + i, in steps from `origin`, and the bounds of their errors."""
        exponents, growths, mean = _growths(tilted, self.step)
        room = -math.log(WRAPPED)
        top = min((growths[1] + room) / exponents)
        bottom = max(-(growths[0] + room) / exponents)
        size = next_fast_len(min(MOST_PLACES, max(64, math.ceil((top - bottom) / self.step) + 2)), real=True)
        # Where the places do not reach from bottom to top, the mean is inside, and near the end that it is nearer to.
        share = min(max((mean - bottom) / (top - bottom), 0.0), 1.0)
        self.first = math.floor((bottom + share * (top - bottom) - self.origin) / self.step) - int(share * size)
        self.bottom = self.origin + self.first * self.step
        # Chernoff's bounds of the tilted mass below and above the grid.
        below = min(growths[0] + exponents * self.bottom)
        above = min(growths[1] - exponents * (self.bottom + (size - 1) * self.step))
        self.tails = math.exp(min(below, 0.0)), math.exp(min(above, 0.0))
        kept, values, blur = _spectrum(tilted, size)
        spectrum = np.zeros(size // 2 + 1, dtype=complex)
        spectrum[kept] = values
        self.masses = np.roll(irfft(spectrum, size), -(self.first % size))
        # Half a spectrum's norm becomes that of the masses by sqrt(2 / size); what is cut off is below e^_CUT_OFF each.
        self.rounding = TRANSFORM_ERROR * UNIT * math.log2(size) * blur * math.sqrt(2 / size) + 1e-33 * size

    def _gain(self, epsilon: float) -> tuple[float, float]:
        """Return E[e^(-tilt (S - epsilon)) (1 - e^(epsilon - S))_+] under the tilted law, and its rounding at most."""
        end = self.masses.size
        ahead = (epsilon - self.bottom) / self.step  # beyond all integers where the step is tiny
        start = min(max(0, math.floor(min(ahead, end)) + 1), end)
        if self.tilt * self.step * (end - start) > _FAR:  # the masses are 1 together: what is beyond adds e^-_FAR
            end = min(end, start + math.ceil(_FAR / (self.tilt * self.step)) + 1)
        excess = np.maximum(self.bottom + np.arange(start, end) * self.step - epsilon, 0.0)
        weights = np.exp(-self.tilt * excess) * -np.expm1(-excess)
        rounding = self.rounding * float(np.linalg.norm(weights)) + 2 * math.exp(-_FAR)
        return float(weights @ self.masses[start:end]), rounding

    @property
    def _peak(self) -> float:
        """The largest weight in `_gain`."""
        return math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (1 + self.tilt) if self.tilt > 0 else 1.0

    def _wrapped(self, epsilon: float) -> float:
        """Return how much tilted mass above `epsilon` may be at other places, at most: below the grid too, if it is."""
        return self.tails[1] + (self.tails[0] if epsilon < self.bottom else 0.0)

    def log_delta_above(self, epsilon: float) -> float:
        """Return ln of an upper bound of delta at `epsilon`, of laws that are pessimistic."""
        gain, rounding = self._gain(epsilon)
        gain = max(gain, 0.0) + rounding + self._wrapped(epsilon) * self._peak
        with np.errstate(divide="ignore"):
            log_gain = np.log(gain) + self.log_mass - self.tilt * epsilon + self._slack(epsilon)
            return float(np.logaddexp(log_gain, np.log(self.lost)))

    def log_delta_below(self, epsilon: float) -> float:
        """Return ln of a lower bound of delta at `epsilon`, of laws that are optimistic; -inf where it is 0."""
        gain, rounding = self._gain(epsilon)
        gain -= rounding + sum(self.tails) * self._peak
        return math.log(gain) + self.log_mass - self.tilt * epsilon - self._slack(epsilon) if gain > 0 else -math.inf

    def doubt(self, epsilon: float) -> float:
        """Return which share of delta at `epsilon` is allowance for rounding and for what wraps around, 0 to 1."""
        gain, rounding = self._gain(epsilon)
        rounding += self._wrapped(epsilon) * self._peak
        return rounding / (max(gain, 0.0) + rounding) if rounding > 0 else 0.0

    def _slack(self, epsilon: float) -> float:
        """The error of ln delta by the rounding of masses and exponents."""
        return self.error + 4 * UNIT * (abs(self.log_mass) + self.tilt * abs(epsilon))


def _spectrum(tilted: Sequence[_Tilted], size: int) -> tuple[NDArray[np.intp], NDArray[np.complex128], float]:
    """Return the frequencies of the sum that are not next to nothing, its spectrum there, and the norm of its blur.

    The blur is the spectrum's size times the sum of steps / |spectrum of a step|: what a relative error of one step's
    transform becomes. The product only falls as steps are added, so a frequency that is left is left for good.
    """
    kept: NDArray[np.intp] = np.arange(size // 2 + 1)
    log_size, angle, share = (np.zeros(kept.size) for _ in range(3))
    for each in tilted:
        if each.first + each.masses.size <= size:
            one = rfft(each.masses, size)[kept]
            turn = (each.first * kept) % size * (-2 * math.pi / size)
        else:
            places = np.arange(each.first, each.first + each.masses.size) % size
            one, turn = rfft(np.bincount(places, each.masses, minlength=size))[kept], 0.0
        of_one = np.maximum(np.abs(one), 1e-300)
        log_size += each.steps * np.log(of_one)
        angle += each.steps * (np.angle(one) + turn)
        share += np.minimum(each.steps / np.maximum(of_one, 1e-280), 1e300)
        alive = log_size > _CUT_OFF
        if not alive.all():
            kept, log_size, angle, share = (part[alive] for part in (kept, log_size, angle, share))
    blur = float(np.linalg.norm((share + 1) * np.exp(log_size)))
    return kept, np.exp(log_size + 1j * angle), blur


def _growths(tilted: Sequence[_Tilted], step: float) -> tuple[Array, Array, float]:
    """Return exponents (m,) that fit the sum's deviation, ln E[e^(-+ exponent S)] of the tilted law, (2, m), and E S.

    The deviation counts as one `step` at least.
    """
    variance = total = 0.0
    for each in tilted:
        losses = each.losses(step)
        mean = float(each.masses @ losses)
        total += each.steps * mean
        variance += each.steps * float(each.masses @ (losses - mean) ** 2)
    exponents = np.array(_EXPONENTS) / max(math.sqrt(variance), step)
    longest = max(each.masses.size for each in tilted)
    # e^(-exponent i step): a stretch of it, turned around for exponents above 0, serves every law.
    falls = np.exp(np.maximum(-exponents[:, None] * step * np.arange(longest), -745.0))
    growths = np.zeros((2, exponents.size))
    for each in tilted:
        size = each.masses.size
        # Far from the largest the masses may underflow: 1e-320 stands for zero.
        ends = each.origin + each.first * step, each.origin + (each.first + size - 1) * step
        down, up = falls[:, :size] @ each.masses, falls[:, :size] @ each.masses[::-1]
        growths[0] += each.steps * (-exponents * ends[0] + np.log(np.maximum(down, 1e-320)))
        growths[1] += each.steps * (exponents * ends[1] + np.log(np.maximum(up, 1e-320)))
    return exponents, growths, total
