"""Composition of privacy losses on a grid: their sums, and epsilon from above and from below.

Certified on both sides and exact at any delta. `Composition` adds the losses of many steps, laws of `loss_grids`. It
multiplies each mass by e^(tilt loss), as for a saddle point, so that the losses about the epsilon asked for carry most
of the mass: the rounding of the Fourier transform then is small next to delta, be delta 1e-5 or 1e-200. What the
transform may round, what wraps around its ends and what the grid leaves out is bounded and counted on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter
from scipy.special import erfcx

from dpfl.accounting.loss_grids import UNIT, Cells, GridLaw, optimistic, pessimistic
from dpfl.accounting.numerics import Array, wrapped_around, zero_between

# Composition of privacy losses on an even grid, certified on both sides and exact at any delta.

MASS_ERROR = 1e-13
"""Relative error allowed to each mass on the grid: quadrature and rounding stay below it."""
TRANSFORM_ERROR = 8.0
"""Rounding of a Fourier transform of n values, relative to its root mean square, in units of UNIT log2(n)."""
MOST_PLACES = 1 << 22
WRAPPED = 1e-12
"""Tilted mass that may wrap around each end of the grid of the sum; what does is counted on the safe side."""
STEEPEST = 3000.0
"""Most that a tilt may set between the logarithms of the weights of one step's smallest and largest loss."""
_LARGEST_KINK = 700.0
_FAR = 60.0  # e^-_FAR of the tilted mass may be left out, and counts as rounding
_CUT_OFF = -80.0
_FINER = 16  # times more angles than places that show which frequencies are left
_FEWER, _FALLEN = 100, 5.0  # from so many times more places than frequencies on, and if the weights fall by e^-_FALLEN
_EXPONENTS = (0.6, 1.5, 3.0, 5.0, 7.4, 11.0, 30.0)


class Blend(NamedTuple):
    """Losses that each follow one of two `laws`: the second one with the chance `shares`[i], `counts`[i] times; (n,).

    The origins of the laws are multiples of their step.
    """

    laws: tuple[GridLaw, GridLaw]
    shares: Array
    counts: Array


Laws = Iterable[tuple[GridLaw, int] | Blend]
"""Laws on grids of one step, each with the number of its losses; and losses between two of them."""


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
        return self.origin + np.arange(self.first, self.first + self.masses.size, dtype=np.float64) * step


class _Mixed(NamedTuple):
    """A blend whose laws are tilted, with the shares under the tilt."""

    low: _Tilted
    high: _Tilted
    shares: Array
    counts: Array


class Composition:
    """The sum of the losses of independent steps, each law of `phases` that many times, under one tilt >= 0.

    Source: koskela2020 (transform), with the tilt and its bounds derived here.
    """

    def __init__(self, phases: Laws, tilt: float) -> None:
        """phases: (law, steps) or blends, all on grids of one step. Raises ValueError naming it where they are not."""
        self.tilt, self.step = tilt, math.nan
        self.lost = self.origin = self.log_mass = self.error = 0.0
        self._last: tuple[GridLaw, _Tilted, float] | None = None
        tilted = [self._mixed(each) if isinstance(each, Blend) else self._repeated(*each) for each in phases]
        self._transform(tilted)

    def _repeated(self, law: GridLaw, steps: int) -> _Tilted:
        """Return the tilted law of that many steps, which count from now on."""
        masses, first, log_mass = self._tilted(law)
        self._count(law, steps, log_mass)
        self.lost += steps * law.lost
        self.origin += steps * law.origin
        self.log_mass += steps * log_mass
        return _Tilted(masses, law.origin, first, steps)

    def _mixed(self, blend: Blend) -> _Mixed:
        """Return the tilted laws of a blend, whose losses count from now on, with the shares under the tilt."""
        known = []
        for law, weights in zip(blend.laws, (1 - blend.shares, blend.shares), strict=True):
            if self._last is None or self._last[0] is not law:  # neighbouring blends share a law
                masses, first, log_mass = self._tilted(law)
                self._last = law, _Tilted(masses, 0.0, round(law.origin / law.step) + first, 1), log_mass
            self._count(law, float(blend.counts.sum()), self._last[2])  # as if all were of each
            self.lost += float(weights @ blend.counts) * law.lost
            known.append(self._last[1:])
        (low, at_low), (high, at_high) = known
        with np.errstate(divide="ignore"):
            logs = np.log1p(-blend.shares) + at_low, np.log(blend.shares) + at_high
        log_masses = np.logaddexp(*logs)
        self.log_mass += float(log_masses @ blend.counts)
        return _Mixed(low, high, np.exp(logs[1] - log_masses), blend.counts)

    def _tilted(self, law: GridLaw) -> tuple[Array, int, float]:
        """Return the tilted masses, from the first that is above 0 to the last, their place, and ln of their sum."""
        if not math.isnan(self.step) and law.step != self.step:
            raise ValueError("phases must be on grids of the same step")
        self.step = law.step
        with np.errstate(divide="ignore"):
            logs = np.log(law.masses) + self.tilt * law.losses
        top = float(logs.max())
        masses = np.exp(logs - top)
        total = float(masses.sum())
        support = np.flatnonzero(masses)
        first, last = int(support[0]), int(support[-1]) + 1
        return masses[first:last] / total, first, top + math.log(total)

    def _count(self, law: GridLaw, steps: float, log_mass: float) -> None:
        """Add what the rounding of so many steps may be."""
        farthest = max(abs(float(law.losses[0])), abs(float(law.losses[-1])))
        self.error += steps * (MASS_ERROR + 4 * UNIT * (self.tilt * farthest + abs(log_mass) + 1))

    def _transform(self, tilted: list[_Tilted | _Mixed]) -> None:
        """Set the tilted masses of the sum at `first` + i, in steps from `origin`, and the bounds of their errors."""
        exponents, growths, mean = _growths(tilted, self.step)
        room = -math.log(WRAPPED)
        top = min((growths[1] + room) / exponents)
        bottom = max(-(growths[0] + room) / exponents)
        least = min(MOST_PLACES, max(64, math.ceil((top - bottom) / self.step) + 2))
        size = cast("int", next_fast_len(least, real=True))  # scipy's own annotations have none of it
        # Where the places do not reach from bottom to top, the mean is inside, and near the end that it is nearer to.
        share = min(max((mean - bottom) / (top - bottom), 0.0), 1.0)
        self.first = math.floor((bottom + share * (top - bottom) - self.origin) / self.step) - int(share * size)
        self.bottom = self.origin + self.first * self.step
        # Chernoff's bounds of the tilted mass below and above the grid.
        below = min(growths[0] + exponents * self.bottom)
        above = min(growths[1] - exponents * (self.bottom + (size - 1) * self.step))
        self.tails = math.exp(min(below, 0.0)), math.exp(min(above, 0.0))
        self._size = size
        self._kept, self._values, blur = _spectrum(tilted, size)
        # Half a spectrum's norm becomes that of the masses by sqrt(2 / size); what is cut off is below e^_CUT_OFF each.
        self.rounding = TRANSFORM_ERROR * UNIT * math.log2(size) * blur * math.sqrt(2 / size) + 1e-33 * size

    @cached_property
    def masses(self) -> Array:
        """The tilted masses of the sum, shape (size,)."""
        spectrum = np.zeros(self._size // 2 + 1, dtype=complex)
        spectrum[self._kept] = self._values
        return np.roll(np.asarray(irfft(spectrum, self._size)), -(self.first % self._size))

    def _gain(self, epsilon: float) -> tuple[float, float]:
        """Return E[e^(-tilt (S - epsilon)) (1 - e^(epsilon - S))_+] under the tilted law, and its rounding at most."""
        end = self._size
        ahead = (epsilon - self.bottom) / self.step  # beyond all integers where the step is tiny
        start = min(max(0, math.floor(min(ahead, end)) + 1), end)
        if _FEWER * self._kept.size <= end and self.tilt * self.step * (end - start) > _FALLEN:
            return self._gain_of_waves(self.bottom + start * self.step - epsilon, start)
        if start == end:
            return 0.0, 0.0
        if self.tilt * self.step * (end - start) > _FAR:  # the masses are 1 together: what is beyond adds e^-_FAR
            end = min(end, start + math.ceil(_FAR / (self.tilt * self.step)) + 1)
        excess = np.maximum(self.bottom + np.arange(start, end) * self.step - epsilon, 0.0)
        weights = np.exp(-self.tilt * excess) * -np.expm1(-excess)
        rounding = self.rounding * float(np.linalg.norm(weights)) + 2 * math.exp(-_FAR)
        return float(weights @ self.masses[start:end]), rounding

    def _gain_of_waves(self, excess: float, start: int) -> tuple[float, float]:
        """Return `_gain` of the masses from place `start` on, where the loss is `excess` above epsilon, by frequencies.

        With q = e^(i angle - tilt step) and rho = e^-step, the weights of a wave add up, without end, to
        e^(-tilt excess) ((1 - e^-excess) / (1 - q) + e^-excess q (1 - rho) / ((1 - q) (1 - q rho))). Masses come again
        after the last place, so what is beyond it is the same sum from the first place on. The squares of the weights
        add up alike.
        """
        excess = max(excess, 0.0)
        beyond = excess + (self._size - start) * self.step
        *waves, first = self._waves
        turned = np.exp(1j * _angles(self._kept, start, self._size))

        def endless(excess: float, slow: complex, fast: complex) -> float:
            return math.exp(-self.tilt * excess) * (-math.expm1(-excess) * slow.real + math.exp(-excess) * fast.real)

        gain = endless(excess, *(turned @ wave for wave in waves)) - endless(beyond, *first)  # pyright: ignore[reportArgumentType]
        ones, decays = -math.expm1(-excess), math.exp(-excess) * -math.expm1(-self.step)
        falls = [-math.expm1(-(2 * self.tilt + more) * self.step) for more in range(3)]
        square, rho = math.exp(-2 * self.tilt * self.step), math.exp(-self.step)
        squares = ones**2 / falls[0] + 2 * ones * decays * square / (falls[0] * falls[1])
        squares += decays**2 * square * (1 + square * rho) / math.prod(falls)
        return gain, self.rounding * math.exp(-self.tilt * excess) * math.sqrt(squares)

    @cached_property
    def _waves(self) -> tuple[NDArray[np.complex128], NDArray[np.complex128], tuple[complex, complex]]:
        """The frequencies that are left, times the endless sums of their weights in `_gain_of_waves`, and the sums."""
        both = np.where((self._kept == 0) | (2 * self._kept == self._size), 1.0, 2.0) / self._size
        values = both * self._values * np.exp(1j * _angles(self._kept, self.first, self._size))
        exponents = 1j * _angles(self._kept, 1, self._size) - self.tilt * self.step
        slow = values / -np.expm1(exponents)
        fast = slow * np.exp(exponents) * -math.expm1(-self.step) / -np.expm1(exponents - self.step)
        return slow, fast, (complex(slow.sum()), complex(fast.sum()))

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

    def profile(self) -> Profile:
        """Return the bounds of delta at 0 and at all losses of the sum from 0 to 700: its kinks in e^epsilon.

        Source: `log_delta_above` and `log_delta_below`, for all losses at once.
        """
        above_0, below_0 = math.exp(min(self.log_delta_above(0.0), 0.0)), math.exp(self.log_delta_below(0.0))
        first = max(0, math.floor(-self.bottom / self.step) + 1)
        last = min(self._size, math.ceil((_LARGEST_KINK - self.bottom) / self.step))
        if last <= first:
            return Profile(np.ones(1), np.array([above_0]), np.zeros(1))
        losses = self.bottom + np.arange(first, last) * self.step
        slow, fast = (
            np.asarray(lfilter([1.0], [1.0, -math.exp(-tilt * self.step)], self.masses[first:][::-1]))[::-1]
            for tilt in (self.tilt, self.tilt + 1)
        )
        slow, fast = slow[: last - first], fast[: last - first]
        terms = self._size - np.arange(first, last)
        # A term rounds its factor, product and sum; the masses weigh at most 1.
        rounding = 6 * UNIT * terms * np.maximum(slow, 0.0) + self.rounding * np.sqrt(terms)
        gains, scale, slack = np.maximum(slow - fast, 0.0), self.log_mass - self.tilt * losses, self._slack(losses[-1])
        above = np.exp(scale + slack) * (gains + rounding + self.tails[1] * self._peak) + self.lost
        below = np.exp(scale - slack) * (gains - rounding - sum(self.tails) * self._peak)
        below = np.append(below[:-1], 0.0)  # whatever is beyond
        if self.bottom > 0:  # nor is it known between 0 and the first, where it is no less than there
            below_0 = below[0]
        growths, above = np.exp(np.append(0.0, losses)), np.minimum(np.append(above_0, above), 1.0)
        return Profile(growths, above, np.maximum(np.append(below_0, below), 0.0))

    def doubt(self, epsilon: float) -> float:
        """Return which share of delta at `epsilon` is allowance for rounding and for what wraps around, 0 to 1."""
        gain, rounding = self._gain(epsilon)
        rounding += self._wrapped(epsilon) * self._peak
        return rounding / (max(gain, 0.0) + rounding) if rounding > 0 else 0.0

    def _slack(self, epsilon: float) -> float:
        """The error of ln delta by the rounding of masses and exponents."""
        return self.error + 4 * UNIT * (abs(self.log_mass) + self.tilt * abs(epsilon))


class Profile(NamedTuple):
    """Bounds of delta at `growths` e^epsilon >= 1, ascending, between which it is linear; each of shape (k,)."""

    growths: Array
    above: Array
    below: Array


def _spectrum(tilted: Sequence[_Tilted | _Mixed], size: int) -> tuple[NDArray[np.intp], NDArray[np.complex128], float]:
    """Return the frequencies of the sum that are not next to nothing, its spectrum there, and the norm of its blur.

    The blur is the spectrum's size times the sum of steps / |spectrum of a step|: what a relative error of one step's
    transform becomes. The product only falls as steps are added, so a frequency that is left is left for good.
    """
    kept: NDArray[np.intp] = np.arange(min(_left(each, size) for each in tilted))
    log_size = angle = share = np.zeros(1)
    last: tuple[_Tilted | None, NDArray[np.complex128]] = None, np.empty(0, dtype=complex)
    for each in tilted:
        if isinstance(each, _Tilted):
            one = _at(each.masses, kept, size)
            # Of many steps hardly a frequency is left: the rest comes after the cut.
            alive = one.real**2 + one.imag**2 > np.exp(2 * (_CUT_OFF - log_size) / each.steps)
            log_size, angle, share = (np.broadcast_to(part, alive.shape)[alive] for part in (log_size, angle, share))
            kept, one = kept[alive], one[alive]
            of_one = np.abs(one)
            log_size += each.steps * np.log(of_one)
            angle += each.steps * (np.angle(one) - _angles(kept, each.first, size))
            share += each.steps / of_one
        else:
            ends = []
            for law in (each.low, each.high):
                if last[0] is not law:  # neighbouring blends share a law
                    last = law, np.asarray(rfft(wrapped_around(law.masses, size), size))
                ends.append(last[1][kept] * np.exp(-1j * _angles(kept, law.first, size)))
            # What is between two ends is no larger than the larger one.
            most = np.log(np.maximum(np.maximum(np.abs(ends[0]), np.abs(ends[1])), 1e-300))
            alive = log_size + each.counts.sum() * most > _CUT_OFF
            log_size, angle, share = (np.broadcast_to(part, alive.shape)[alive] for part in (log_size, angle, share))
            kept, ends = kept[alive], [end[alive] for end in ends]
            change = ends[1] - ends[0]
            for chance, count in zip(each.shares, each.counts, strict=True):
                one = ends[0] + chance * change
                of_one = np.maximum(np.abs(one), 1e-300)
                log_size += count * np.log(of_one)
                angle += count * np.angle(one)
                share += np.minimum(count / np.maximum(of_one, 1e-280), 1e300)
            alive = log_size > _CUT_OFF
            kept, (log_size, angle, share) = kept[alive], (part[alive] for part in (log_size, angle, share))
    blur = float(np.linalg.norm((share + 1) * np.exp(log_size)))
    return kept, np.exp(log_size + 1j * angle), blur


def _left(each: _Tilted | _Mixed, size: int) -> int:
    """Return how many of the lowest frequencies may be left of a law's steps: all, where no fewer are seen to be.

    The square of a step's spectrum at an angle is g = E cos(angle D), D the difference of two losses in places. Where
    |D angle| <= pi, 1 - g is at least (2 deviation angle / pi)^2, as sin x >= 2 x / pi. Farther out g is known at even
    angles, in between by |g''| <= E D^2 = 2 variance. Source: derived here.
    """
    every, count = size // 2 + 1, each.masses.size if isinstance(each, _Tilted) else size
    if not isinstance(each, _Tilted) or count < 2 or _FINER * count > size:
        return every
    places = np.arange(count) - each.masses @ np.arange(count)
    variance = float(each.masses @ places**2)
    least = -math.expm1(2 * _CUT_OFF / each.steps)  # 1 - g, of a frequency that is not left
    looks = cast("int", next_fast_len(_FINER * count, real=True))
    far = np.abs(np.asarray(rfft(each.masses, looks))[looks // (2 * (count - 1)) :]) ** 2
    lowest = math.sqrt(least / variance) / 2  # angle / pi
    if lowest > 1 / (count - 1) or float(far.max()) + variance * (math.pi / looks) ** 2 + 1e-12 > 1 - least:
        return every
    return min(every, math.floor(lowest * size / 2) + 1)


def _at(masses: Array, kept: NDArray[np.intp], size: int) -> NDArray[np.complex128]:
    """Return the masses' spectrum of `size` at some frequencies: the sums themselves, where these are few terms."""
    if kept.size * masses.size <= size:
        return np.exp(-1j * _angles(kept[:, None], np.arange(masses.size), size)) @ masses  # pyright: ignore[reportReturnType]
    return np.asarray(rfft(wrapped_around(masses, size), size))[kept]


def _angles(kept: NDArray[np.intp], place: int | NDArray[np.intp], size: int) -> Array:
    """Return the angles of the frequencies at a place, of `size` in all."""
    return np.asarray((place * kept) % size, dtype=np.float64) * (2 * math.pi / size)


def _growths(tilted: Sequence[_Tilted | _Mixed], step: float) -> tuple[Array, Array, float]:
    """Return exponents (m,) that fit the sum's deviation, ln E[e^(-+ exponent S)] of the tilted law, (2, m), and E S.

    The deviation counts as one `step` at least.
    """
    laws = {id(law): law for each in tilted for law in ((each,) if isinstance(each, _Tilted) else each[:2])}
    moments = {key: _mean_and_variance(law, step) for key, law in laws.items()}  # neighbouring blends share a law
    variance = total = 0.0
    for each in tilted:
        if isinstance(each, _Tilted):
            mean, spread = moments[id(each)]
            total, variance = total + each.steps * mean, variance + each.steps * spread
        else:
            (low, spread_low), (high, spread_high) = (moments[id(law)] for law in each[:2])
            between = each.shares * (1 - each.shares) * (high - low) ** 2
            total += float(each.counts @ (low + each.shares * (high - low)))
            variance += float(each.counts @ (spread_low + each.shares * (spread_high - spread_low) + between))
    exponents = np.array(_EXPONENTS) / max(math.sqrt(variance), step)
    longest = max(law.masses.size for law in laws.values())
    # e^(-exponent i step): a stretch of it, turned around for exponents above 0, serves every law.
    falls = np.exp(np.maximum(-exponents[:, None] * step * np.arange(longest), -745.0))

    def of_one(law: _Tilted) -> Array:
        """ln E[e^(-+ exponent loss)] of one loss, (2, m)."""
        size = law.masses.size
        # Far from the largest the masses may underflow: 1e-320 stands for zero.
        ends = law.origin + law.first * step, law.origin + (law.first + size - 1) * step
        down, up = falls[:, :size] @ law.masses, falls[:, :size] @ law.masses[::-1]
        logs = np.log(np.maximum(down, 1e-320)), np.log(np.maximum(up, 1e-320))
        return np.array([logs[0] - exponents * ends[0], logs[1] + exponents * ends[1]])

    ones = {key: of_one(law) for key, law in laws.items()}
    growths = np.zeros((2, exponents.size))
    for each in tilted:
        if isinstance(each, _Tilted):
            growths += each.steps * ones[id(each)]
        else:
            low, high, shares = ones[id(each.low)][..., None], ones[id(each.high)][..., None], each.shares
            top = np.maximum(low, high)
            growths += (top + np.log((1 - shares) * np.exp(low - top) + shares * np.exp(high - top))) @ each.counts
    return exponents, growths, total


def _mean_and_variance(each: _Tilted, step: float) -> tuple[float, float]:
    """Return the moments of one tilted loss."""
    losses = each.losses(step)
    mean = float(each.masses @ losses)
    return mean, float(each.masses @ (losses - mean) ** 2)


# Epsilon of many steps of one pair of laws: the tilt and the grid that fit the answer, and the interval around it.

TOLERANCE, ROUGH_TOLERANCE = 2e-6, 2e-4
"""Share of epsilon that the grid may add to the upper end; the lower end gives away about twice as much."""
LARGEST_DELTA = 1 - 1e-9
"""A larger delta is answered for this one from above, and by 0 from below."""
_FITS, _DOUBT = 3, 1e-5  # fits of tilt and grid at most; allowance for rounding above which they are repeated
_PLACES, _MOST_CELLS, _CELLS_TOGETHER = 1 << 21, 1 << 18, 17_000_000
_MANY, _COARSER = 50, 6.0
_ENDLESS = 1e200
_NEAR = 1e-3
"""How near a tilt is looked for, relative to it: any is valid, so one that is not settled on will do."""


class LossPart(NamedTuple):
    """`steps` independent losses of one law.

    `losses` and `log_masses` (k,), ascending: the law of one loss, roughly, for tilt and grid only. `cells` cuts the
    true one into cells of about a given step: what the guarantees rest on. `least_step`: the finest that it can.
    """

    cells: Callable[[float], Cells]
    losses: Array
    log_masses: Array
    steps: int
    least_step: float = 0.0

    @property
    def width(self) -> float:
        """The largest loss less the smallest."""
        return float(self.losses[-1] - self.losses[0])


class Between(NamedTuple):
    """Losses of laws between the laws of two parts, `low` and `high`, of one step each.

    Loss i is dominated by that of `high` with the chance `above`[i], else of `low`; and it dominates that of `high`
    with the chance `below`[i], else of `low`, if these are first rounded down, then `trimmed`. It occurs `counts`[i]
    times. Shape (n,).
    """

    low: LossPart
    high: LossPart
    above: Array
    below: Array
    counts: Array
    trimmed: Callable[[GridLaw], GridLaw]


class LossSearch:
    """The search for epsilon at `delta` of independent losses: of all `parts`, and of laws `between` parts.

    Where they have more than one law, `cells` must answer for exactly the step that it is asked for. `tolerance`: the
    share of epsilon that the grid may add.
    Source: derived; the tilt is that of the saddle point (alghamdi2023).
    """

    def __init__(
        self, parts: Sequence[LossPart], delta: float, between: Sequence[Between] = (), tolerance: float = TOLERANCE
    ) -> None:
        self.parts, self.between, self.delta = parts, between, min(delta, LARGEST_DELTA)
        self.tolerance, self._known_below = tolerance, delta <= LARGEST_DELTA
        self.steps = sum(part.steps for part in parts) + sum(int(each.counts.sum()) for each in between)
        ends = (
            end
            for each in between
            for end in ((each.low, (1 - each.above) * each.counts), (each.high, each.above * each.counts))
        )
        # Roughly, for tilt and grid only: every loss has the law of one end or the other.
        self._rough = [(part, float(part.steps)) for part in parts]
        self._rough += [(part, float(shares.sum())) for part, shares in ends]

    def interval(self, known: float, *, both: bool) -> tuple[float, float]:
        """Return (lower, upper) ends of epsilon; the lower one is 0 unless `both` are asked for.

        (0, `known`) where it is seen that epsilon is not above `known` > 0; the lower one is 0 too for a delta above
        `LARGEST_DELTA`. Guarantee: that of the module, for the losses in `cells`.
        """
        both = both and self._known_below
        log_delta = math.log(self.delta)
        if known > 0 and not self.between and self._chernoff(known) < log_delta - 1e-6:
            return 0.0, known
        tilt, centre, std = self._saddle()
        lower, upper = 0.0, math.inf
        if known > 0 and len(self._rough) > _MANY:  # a coarse grid may show it too, at a fraction of the work
            law = self._composed(pessimistic, _COARSER * self._grid_step(tilt, centre, std), tilt)
            if law.log_delta_above(known) <= log_delta:
                return 0.0, known
        for _ in range(_FITS):
            step = self._grid_step(tilt, centre, std)
            cells = self._cut(step)
            law = Composition(self._rounded(pessimistic, cells), tilt)
            end = _root(lambda e, law=law: law.log_delta_above(e) - log_delta, centre, std, 1)
            if math.isinf(end):  # what may wrap around outweighs delta, less so under a steeper tilt
                tilt = max(4 * tilt, 1 / std if std else 0.0)  # the law under a steep tilt may be a single point
                continue
            upper, doubt = min(upper, end), law.doubt(end)
            if upper <= known:
                return 0.0, known
            if both:
                law = Composition(self._rounded(optimistic, cells), tilt)
                lower = max(lower, _root(lambda e, law=law: law.log_delta_below(e) - log_delta, upper, std, -1))
            if abs(end - centre) < min(std, centre / 2) and not _DOUBT < doubt < 0.5:
                break
            tilt, centre, std = self._saddle_at(upper)
        rounding = 8 * UNIT * sum(steps * float(np.abs(part.losses).max()) for part, steps in self._rough)
        return max(0.0, lower - rounding), upper + rounding if upper else 0.0

    def sum_above(self, epsilon: float) -> Composition:
        """Return the sum of losses that dominate the true ones, sharp about `epsilon` >= 0. Source: the module."""
        return self._about(pessimistic, epsilon)

    def sum_below(self, epsilon: float) -> Composition:
        """Return the sum of losses that the true ones dominate, sharp about `epsilon` >= 0. Source: the module."""
        return self._about(optimistic, epsilon)

    def _about(self, rounding: Callable[[Cells], GridLaw], epsilon: float) -> Composition:
        """Return the sum under the tilt and on the grid that fit `epsilon`."""
        tilt, _, std = self._saddle_at(epsilon)
        step = self._grid_step(tilt, epsilon, std)
        if tilt > 0:
            return self._composed(rounding, step, tilt)
        laws = list(self._rounded(rounding, self._cut(step)))
        return Composition(_trimmed(laws, WRAPPED, pessimistic=rounding is pessimistic), tilt)

    def _composed(self, rounding: Callable[[Cells], GridLaw], step: float, tilt: float) -> Composition:
        """Return the sum of all losses, each rounded to a grid of that step."""
        return Composition(self._rounded(rounding, self._cut(step)), tilt)

    def _cut(self, step: float) -> list[Cells]:
        """Return the cells of the parts, then of the ends of `between`, of which neighbours share one."""
        cells = [part.cells(step) for part in self.parts]
        last: tuple[LossPart | None, Cells | None] = None, None
        for each in self.between:
            for end in (each.low, each.high):
                if last[0] is not end:
                    last = end, end.cells(step)
                cells.append(cast("Cells", last[1]))
        return cells

    def _rounded(
        self, rounding: Callable[[Cells], GridLaw], cells: Sequence[Cells]
    ) -> Iterator[tuple[GridLaw, int] | Blend]:
        """Yield the laws of all losses on a grid."""
        for part, each in zip(self.parts, cells, strict=False):
            yield rounding(each), part.steps
        last: tuple[Cells | None, GridLaw | None] = None, None
        ends = iter(cells[len(self.parts) :])
        for each in self.between:
            laws = []
            for end in (next(ends), next(ends)):
                if last[0] is not end:
                    law = rounding(end)
                    last = end, law if rounding is pessimistic else each.trimmed(law)
                laws.append(cast("GridLaw", last[1]))
            yield Blend((laws[0], laws[1]), each.above if rounding is pessimistic else each.below, each.counts)

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return ln E[e^(tilt S)], and mean and deviation of S under that tilt, up to quadrature."""
        return _moments(((part.losses, part.log_masses, steps) for part, steps in self._rough), tilt)

    def _chernoff(self, epsilon: float) -> float:
        """Return an upper bound of ln delta at `epsilon`: the least over some tilts."""

        def bound(tilt: float) -> float:
            return self._moments(tilt)[0] - tilt * epsilon

        tilt = 1.0
        while bound(2 * tilt) < bound(tilt) and tilt < 1e12:
            tilt *= 2
        return bound(tilt)

    def _log_delta(self, tilt: float) -> float:
        """Return ln delta where the sum is tilted to epsilon, as if the tilted sum were normal."""
        log_mass, mean, std = self._moments(tilt)
        argument = tilt * std / math.sqrt(2)
        if std < 1e-3:
            share = std / math.sqrt(2) * max(2 / math.sqrt(math.pi) - 2 * argument * float(erfcx(argument)), 1e-12)
        else:
            share = float(erfcx(argument) - erfcx(argument + std / math.sqrt(2)))
        return log_mass - tilt * mean + math.log(max(share, 1e-300) / 2)

    @property
    def _steepest(self) -> float:
        """A tilt under which the smallest loss weighs e^-STEEPEST of the largest."""
        return STEEPEST / max(part.width for part, _ in self._rough)

    def _saddle(self) -> tuple[float, float, float]:
        """Return the tilt under which the sum's mean is about epsilon, that mean and its deviation."""
        log_delta = math.log(self.delta)
        tilt = 0.0
        if self._log_delta(0.0) > log_delta:
            high, steepest = 1 / self._moments(0.0)[2], self._steepest
            while self._log_delta(high) > log_delta and high < steepest:
                high *= 2
            # Where the largest loss decides, no tilt gets there, and any steep one will do.
            ends = self._log_delta(high) <= log_delta
            tilt = _tilt(lambda t: self._log_delta(t) - log_delta, high) if ends else steepest
        _, mean, std = self._moments(tilt)
        return tilt, mean, std

    def _saddle_at(self, epsilon: float) -> tuple[float, float, float]:
        """Return the tilt >= 0 under which the sum's mean is `epsilon`, or nearest to it, epsilon and the deviation."""
        tilt = 0.0
        if self._moments(0.0)[1] < epsilon:
            high, steepest = 1 / self._moments(0.0)[2], self._steepest
            while self._moments(high)[1] < epsilon and high < steepest:
                high *= 2
            ends = self._moments(high)[1] >= epsilon
            tilt = _tilt(lambda t: self._moments(t)[1] - epsilon, high) if ends else steepest
        return tilt, epsilon, self._moments(tilt)[2]

    def _grid_step(self, tilt: float, centre: float, std: float) -> float:
        """Return the grid's step that adds the tolerance to epsilon, about `centre`, if the grid's size allows."""
        room = 12 * self.tolerance * max(centre, 0.1 * std) / (self.steps * (tilt + 1))
        widths = [part.width for part, _ in self._rough]
        finest = (part.least_step for part, _ in self._rough)
        least = max(max(widths) / _MOST_CELLS, sum(widths) / _CELLS_TOGETHER, *finest)
        return max(min(math.sqrt(room), std / 8), 18 * std / _PLACES, least)


def _moments(parts: Iterable[tuple[Array, Array, float]], tilt: float) -> tuple[float, float, float]:
    """Return ln E[e^(tilt S)], and mean and deviation of S under that tilt: S sums `steps` losses of each part.

    parts: (losses, logarithms of their masses, steps).
    """
    log_mass = mean = variance = 0.0
    for losses, log_masses, steps in parts:
        logs = log_masses + tilt * losses
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        middle = float(weights @ losses) / total
        log_mass, mean = log_mass + steps * (top + math.log(total)), mean + steps * middle
        variance += steps * float(weights @ (losses - middle) ** 2) / total
    return log_mass, mean, math.sqrt(variance)


def _tilt(excess: Callable[[float], float], high: float) -> float:
    """Return a tilt in [0, `high`] near the zero of `excess`."""
    return zero_between(excess, 0.0, high, rtol=_NEAR, settled=False)


def _root(excess: Callable[[float], float], start: float, scale: float, side: int) -> float:
    """Return a point >= 0 near the zero of the falling `excess`, on the side where it is <= 0 (1) or >= 0 (-1).

    Within 1e-7 of the zero or so, looked for from `start` in steps of about `scale`; 0 where `excess` is <= 0 at 0, inf
    where it stays above 0.
    """
    values: dict[float, float] = {}

    def value(x: float) -> float:
        if x not in values:
            values[x] = max(excess(x), -1e4)
        return values[x]

    low = high = max(0.0, start)
    width = scale / 8 or 1e-9 * max(high, 1e-9)  # a law under a steep tilt may be a single point
    if value(high) > 0 and value(_ENDLESS) > 0:
        return math.inf
    while value(high) > 0:
        low, high, width = high, high + width, 4 * width
    while low > 0 and value(low) <= 0:
        low, high, width = max(0.0, low - width), low, 4 * width
    if value(low) <= 0:
        return 0.0
    zero = zero_between(value, low, high, xtol=1e-300, rtol=1e-7)
    room = 1e-8
    while side * value(zero) > 0:
        zero, room = zero * (1 + side * room), 4 * room
    return zero


# Epsilon of a composition of losses on a grid, from above and from below.

Phases = Sequence[tuple[GridLaw, int]]
"""Laws of the loss on grids of one step, each with the number of times that it is composed."""

_LEAST_TILT, _MOST_TILT, _LARGEST = 1e-6, 1e6, 1e7
_ROOT = 1e-10
_THINNED = 20_000
_LEFT_OUT = ((1e-3, 0.5, 0.02), (0.05, 1.0, 0.1), (0.05, 1.0, 0.5))
"""Shares of delta: where the allowance for rounding is between the first two, rare losses of the third are left out."""


def epsilon_above(phases: Phases, delta: float) -> float:
    """Return an upper bound of epsilon at `delta` in (0, 1) of `phases` whose laws are pessimistic; may be inf.

    Guarantee: what the laws dominate is (this, delta)-DP in their order.
    Source: `Composition` of laws by `pessimistic`.
    """
    if sum(count * law.lost for law, count in phases) >= delta:
        return math.inf
    epsilon, doubt = _epsilon_and_doubt(phases, delta)
    for least_doubt, most_doubt, share in _LEFT_OUT:
        if not least_doubt < doubt <= most_doubt:
            continue
        # Rare large losses outweigh all others under a tilt that reaches epsilon: count them as without bound.
        cut, doubt = _epsilon_and_doubt(_cut(phases, share * delta), delta)
        epsilon = min(epsilon, cut)
    return epsilon


def _epsilon_and_doubt(phases: Phases, delta: float) -> tuple[float, float]:
    """Return the upper bound under one tilt, and which share of delta there is allowance for rounding."""
    log_delta = math.log(delta)
    tilt, centre = _saddle(phases, log_delta)
    sums = Composition(phases, tilt)
    epsilon = _crossing(lambda epsilon: sums.log_delta_above(epsilon) - log_delta, centre)[1] * (1 + _ROOT)
    return epsilon, sums.doubt(epsilon) if math.isfinite(epsilon) else 1.0


def _cut(phases: Phases, mass: float) -> Phases:
    """Return the laws without their largest losses, which are lost: at most `mass` in the composition."""
    cut = []
    for law, count in phases:
        tail = np.cumsum(law.masses[::-1])[::-1]
        keep = int(np.searchsorted(-tail, -mass / (count * len(phases))))  # from here on there is less than that
        lost = float(tail[keep]) if keep < tail.size else 0.0
        cut.append((replace(law, masses=law.masses[:keep], lost=law.lost + lost * (1 + 1e-9)), count))
    return cut


def _trimmed(phases: Sequence[tuple[GridLaw, int] | Blend], mass: float, *, pessimistic: bool) -> Laws:
    """Return the laws without their rarest losses at both ends, of at most `mass` in the composition at each.

    Under no tilt they decide nothing, but spread the sum so far that bounds of its tails fail. The largest ones are
    lost; the smallest ones become the smallest that is left where the laws are `pessimistic`, else they are dropped.
    """
    trimmed: list[tuple[GridLaw, int] | Blend] = []
    plain = [each for each in phases if not isinstance(each, Blend)]
    blends = [each for each in phases if isinstance(each, Blend)]
    for each in blends:
        count = int(each.counts.sum())
        share = mass * count / sum(float(other.counts.sum()) for other in blends)
        laws = _trimmed([(law, count) for law in each.laws], share, pessimistic=pessimistic)
        low, high = (law for law, _ in cast("Phases", laws))
        trimmed.append(Blend((low, high), each.shares, each.counts))
    phases = plain
    for law, count in _cut(phases, mass):
        head = np.cumsum(law.masses)
        first = min(int(np.searchsorted(head, mass / (count * len(phases)), side="right")), law.masses.size - 1)
        masses = law.masses[first:].copy()
        if pessimistic and first:
            masses[0] += head[first - 1] * (1 + 1e-9)
        trimmed.append((replace(law, origin=law.origin + first * law.step, masses=masses), count))
    return trimmed


def epsilon_below(phases: Phases, delta: float, known: float = 0.0) -> float:
    """Return a lower bound of epsilon at `delta` in (0, 1) of `phases` whose laws are optimistic; 0 if below `known`.

    Guarantee: what dominates the laws is not (e, delta)-DP for any e below this.
    Source: `Composition` of laws by `optimistic`.
    """
    log_delta = math.log(delta)
    tilt, centre = _saddle(phases, log_delta)
    sums = Composition(phases, tilt)
    if known > 0 and sums.log_delta_below(known) <= log_delta:
        return 0.0
    return _crossing(lambda epsilon: sums.log_delta_below(epsilon) - log_delta, centre)[0] * (1 - _ROOT)


def largest_below(laws: Iterable[GridLaw], steps: int, delta: float) -> float:
    """Return the largest of the lower bounds of epsilon at `delta` in (0, 1) of `steps` losses of one of the laws.

    Source: `epsilon_below`; a law that does not reach the best one so far is not followed to its end.
    """
    best = 0.0
    for law in laws:
        best = max(best, epsilon_below([(law, steps)], delta, best))
    return best


def _saddle(phases: Phases, log_delta: float) -> tuple[float, float]:
    """Return the tilt whose sum, were it normal, had delta at its mean, and that mean: about epsilon."""
    cut = [(*_thinned(law), count) for law, count in phases]

    def excess(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        log_mass, mean, std = _moments(cut, tilt)
        argument = tilt * std / math.sqrt(2)
        share = float(erfcx(argument) - erfcx(argument + std / math.sqrt(2))) / 2
        return log_mass - tilt * mean + math.log(max(share, 1e-300)) - log_delta

    # Losses of 1e-9 need a steeper one.
    widest = max(float(losses[-1] - losses[0]) for losses, _, _ in cut)
    most = max(_MOST_TILT, STEEPEST / widest) if widest > 0 else _MOST_TILT
    ends = (math.log(_LEAST_TILT), math.log(most))
    if excess(ends[0]) <= 0:  # epsilon is about 0: one deviation, or what may wrap around would outweigh a tiny delta
        tilt = 1 / max(_moments(cut, _LEAST_TILT)[2], 1 / most)
    else:
        tilt = math.exp(ends[1] if excess(ends[1]) > 0 else zero_between(excess, *ends, xtol=0.02))
    return tilt, _moments(cut, tilt)[1]


def _thinned(law: GridLaw) -> tuple[Array, Array]:
    """Return losses and logarithms of their masses, neighbours together where there are many: for a tilt only."""
    support = np.flatnonzero(law.masses > 0)
    starts = np.arange(0, support.size, 1 + support.size // _THINNED)
    masses = np.add.reduceat(law.masses[support], starts)
    return np.add.reduceat(law.masses[support] * law.losses[support], starts) / masses, np.log(masses)


def _crossing(excess: Callable[[float], float], centre: float) -> tuple[float, float]:
    """Return two numbers between which the falling `excess` is 0, equal where it was found; 0 where it is never above.

    Beyond _LARGEST nothing is looked for: the second is inf.
    """
    low = high = max(centre, 0.0)
    width = 0.05 * max(high, 1e-3)
    while excess(high) > 0:
        low, high, width = high, high + width, 2 * width
        if high > _LARGEST:
            return low, math.inf
    while low > 0 and excess(low) <= 0:
        low, high, width = max(0.0, low - width), low, 2 * width
    if excess(low) <= 0:
        return 0.0, 0.0
    found = zero_between(lambda epsilon: max(excess(epsilon), -1e4), low, high, xtol=1e-300, rtol=_ROOT / 4)
    return found, found
