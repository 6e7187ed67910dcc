"""Gaussian steps on Poisson samples: the interval that certainly holds epsilon.

The dominating pairs, in units of the noise's deviation, with q = `sample_rate` and a = 1 / `noise_multiplier`:
remove  (1 - q) N(0, 1) + q N(a, 1)  against  N(0, 1),
add     N(0, 1)  against  (1 - q) N(0, 1) + q N(a, 1),
replace (1 - q) N(0, 1) + q N(a, 1)  against  (1 - q) N(0, 1) + q N(-a, 1).
add_or_remove and zero_out spend the larger of the first two (Zhu, Dong, Wang 2022, Theorem 11), replace_one the third.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, ndtri_exp

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.loss_composition import UNIT, Cells, Composition, optimistic, pessimistic
from dpfl.accounting.neighbouring import Neighbouring

Array = NDArray[np.float64]
Order = Literal["remove", "add", "replace"]

LEAST_DELTA = 1e-290
"""Below it masses underflow: refused."""
TOLERANCE = 1e-5
"""Share of epsilon that the grid may add to the upper end; the lower end gives away about twice as much."""
CLOSED_FORM_ERROR = 1e-10
"""Relative error of delta in the closed forms and in one step's integral: below 1e-11."""
_LEFT_OUT = 1e-9  # share of delta that the ends of the losses may hold
_LARGEST_DELTA = 1 - 1e-9  # a larger delta is answered for this one
WIDE = 3e-4
"""Relative width of the interval above which tilt and grid are fitted anew, to the upper end found."""
_FITS = 3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_PLACES, _MOST_CELLS = 1 << 21, 1 << 19


@dataclass(frozen=True)
class Step:
    """One Gaussian step on a Poisson sample, one order of its pair; x is P's outcome, along which the loss grows."""

    shift: float
    rate: float
    order: Order

    def loss(self, x: Array) -> Array:
        """Return ln(P/Q) at x."""
        if self.order == "replace":
            return self._gain(x) - self._gain(-x)
        return self._gain(x) if self.order == "remove" else -self._gain(-x)

    def log_density(self, x: Array) -> Array:
        """Return the logarithm of P's density at x."""
        normal = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
        return normal if self.order == "add" else normal + self._gain(x)

    def place(self, loss: Array) -> Array:
        """Return where the loss is reached; -inf or inf where it never is."""
        if self.order == "replace":
            with np.errstate(divide="ignore"):
                half = np.abs(loss) / 2
                log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
                ratio = log_sinh - math.log(self.rate) + self.shift**2 / 2 + np.log1p(-self.rate)
            inverse = np.where(ratio < 20, np.arcsinh(np.exp(np.minimum(ratio, 20))), ratio + math.log(2))
            return np.sign(loss) * (half + inverse) / self.shift
        return self._ungain(loss) if self.order == "remove" else -self._ungain(-loss)

    def _gain(self, x: Array) -> Array:
        """Return ln(1 - q + q e^(a x - a^2/2))."""
        power = self.shift * x - self.shift**2 / 2
        near = np.log1p(self.rate * np.expm1(np.minimum(power, 30.0))) if self.rate < 1 else power
        far = math.log(self.rate) + power + np.log1p((1 - self.rate) / self.rate * np.exp(-np.maximum(power, 30.0)))
        return np.where(power > 30, far, near)

    def _ungain(self, gain: Array) -> Array:
        """Return the inverse of `_gain`; -inf below its range."""
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(gain, 1.0)) / self.rate, -1.0))
            large = gain - math.log(self.rate) + np.log1p(-(1 - self.rate) * np.exp(-np.maximum(gain, 1.0)))
        return np.where(gain < 1, small, large) / self.shift + self.shift / 2

    def far(self, log_tail: float) -> float:
        """Return x such that P has at most e^log_tail beyond x, and so below -x."""
        return self.shift + float(-ndtri_exp(log_tail))

    def mesh(self, low: float, high: float) -> Array:
        """Return points from `low` to `high` between which density and loss are smooth."""
        width = min(0.25, 2 / max(abs(low), abs(high)), 1 / self.shift)
        return np.linspace(low, high, 2 + int(min((high - low) / width, 2e5)))


def epsilon_interval(
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    neighbouring: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
) -> tuple[float, float]:
    """Return (lower, upper) that hold epsilon at `delta` of `steps` Gaussian steps on Poisson samples.

    `noise_multiplier` > 0 is the noise's standard deviation over the norm bound of one record's contribution,
    under every relation; `sample_rate` in (0, 1]; `steps` >= 0; `delta` in [1e-290, 1).
    Guarantee: the steps are (upper, delta)-DP under `neighbouring`, and not (e, delta)-DP for any e < lower. The two
    are within some 3e-5 of each other, relative, up to a million steps; rounding is bounded and counted in. `upper` is
    never above what the same noise spends without sampling.
    Sources: the module's pairs; pessimistic grid of Doroshenko et al. 2022, optimistic one derived in
    loss_composition; without sampling and for one step closed forms (vandijk2023 (6), asoodeh2020 (10)).
    Raises ValueError naming the argument.
    """
    relation = member("neighbouring", Neighbouring, neighbouring)
    shift = 1 / real("noise_multiplier", noise_multiplier, above=0)
    rate = real("sample_rate", sample_rate, above=0, at_most=1)
    count = integer("steps", steps)
    failure = real("delta", delta, at_least=LEAST_DELTA, below=1)
    if count == 0:
        return 0.0, 0.0
    whole = (2 if relation is Neighbouring.REPLACE_ONE else 1) * shift * math.sqrt(count)
    ends = [float(gaussian_dp.epsilon(min(failure * (1 + sign), 1.0), whole)) for sign in _MARGINS]
    unsampled = (ends[0] * (1 - 4 * UNIT), ends[1] * (1 + 4 * UNIT))
    if rate == 1 or unsampled[1] == 0:
        return unsampled
    orders: tuple[Order, ...] = ("replace",) if relation is Neighbouring.REPLACE_ONE else ("remove", "add")
    lower = upper = 0.0
    for order in orders:
        step = Step(shift, rate, order)
        found = _one_step(step, failure, unsampled[1]) if count == 1 else _Steps(step, count, failure).interval(upper)
        lower, upper = max(lower, found[0]), max(upper, found[1])
    return lower, min(upper, unsampled[1])


_MARGINS = (CLOSED_FORM_ERROR, -CLOSED_FORM_ERROR)


def _one_step(step: Step, delta: float, largest: float) -> tuple[float, float]:
    """Return the interval of a single step, by the integral of its hockey-stick divergence."""

    def log_delta(epsilon: float) -> float:
        low = float(step.place(np.array(epsilon)))
        if not math.isfinite(low):
            return -math.inf if low > 0 else 0.0
        mesh = step.mesh(low, max(low, step.shift) + 12)
        x, weights = _quadrature(mesh)
        logs = step.log_density(x)
        gains = -np.expm1(np.minimum(epsilon - step.loss(x), 0.0))
        top = float(logs.max())
        return top + math.log(max(float(np.sum(weights * np.exp(logs - top) * gains)), 1e-320))

    lower, upper = (
        _crossing(lambda e, log=log: log_delta(e) - log, 0.0, largest) for log in math.log(delta) + np.array(_MARGINS)
    )
    return lower * (1 - 1e-13), upper * (1 + 1e-13)


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where `falling` is 0 between `low` and `high`, or the end where it never is."""
    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    return float(brentq(lambda x: max(falling(x), -1e4), low, high, xtol=1e-300, rtol=1e-14))


def _quadrature(mesh: Array) -> tuple[Array, Array]:
    """Return nodes and weights, shape (cells, 6), of Gauss-Legendre quadrature in the cells of `mesh`."""
    half = np.diff(mesh)[:, None] / 2
    return mesh[:-1, None] + half * (1 + _NODES), half * _WEIGHTS


class _Steps:
    """Many steps of one order of the pair, and the tilt and grid that fit their epsilon at `delta`."""

    def __init__(self, step: Step, steps: int, delta: float) -> None:
        self.step, self.steps, self.delta = step, steps, min(delta, _LARGEST_DELTA)
        self.log_tail = math.log(self.delta) + math.log(_LEFT_OUT / 2) - math.log(steps)
        self.far = step.far(self.log_tail)
        x = step.mesh(-self.far, self.far)
        self.losses, self.log_densities = step.loss(x), step.log_density(x) + math.log(x[1] - x[0])

    def interval(self, known: float) -> tuple[float, float]:
        """Return the interval of epsilon; (0, `known`) where it is seen at once that it is not above `known` > 0."""
        log_delta = math.log(self.delta)
        if known > 0 and self._chernoff(known) < log_delta - 1e-6:
            return 0.0, known
        tilt, centre, spread = self._saddle()
        lower, upper = 0.0, math.inf
        for _ in range(_FITS):
            above, below = self._compositions(tilt, centre, spread)
            found = _solve(lambda e, law=above: law.log_delta_above(e) - log_delta, centre, spread)
            upper = min(upper, found)
            found = _solve(lambda e, law=below: law.log_delta_below(e) - log_delta, min(centre, upper), spread)
            lower = max(lower, found)
            if upper - lower <= WIDE * upper:
                break
            tilt, centre, spread = self._saddle_at(upper)
        if upper - lower > WIDE * upper:  # one step spends no more than many
            lower = max(lower, _one_step(self.step, self.delta, upper)[0])
        rounding = 8 * UNIT * self.steps * float(np.abs(self.losses).max())
        return max(0.0, lower - rounding), upper + rounding if upper else 0.0

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return ln E[e^(tilt S)], and mean and deviation of S under that tilt, up to quadrature."""
        logs = self.log_densities + tilt * self.losses
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        mean = float(weights @ self.losses) / total
        variance = float(weights @ (self.losses - mean) ** 2) / total
        return self.steps * (top + math.log(total)), self.steps * mean, math.sqrt(self.steps * variance)

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
        log_mass, mean, spread = self._moments(tilt)
        place = tilt * spread / math.sqrt(2)
        if spread < 1e-3:
            share = spread / math.sqrt(2) * max(2 / math.sqrt(math.pi) - 2 * place * float(erfcx(place)), 1e-12)
        else:
            share = float(erfcx(place) - erfcx(place + spread / math.sqrt(2)))
        return log_mass - tilt * mean + math.log(max(share, 1e-300) / 2)

    def _saddle(self) -> tuple[float, float, float]:
        """Return the tilt under which the sum's mean is about epsilon, that mean and its deviation."""
        log_delta = math.log(self.delta)
        tilt = 0.0
        if self._log_delta(0.0) > log_delta:
            high = 1 / self._moments(0.0)[2]
            while self._log_delta(high) > log_delta and high < 1e15:
                high *= 2
            tilt = float(brentq(lambda t: self._log_delta(t) - log_delta, 0.0, high, rtol=1e-3))
        _, mean, spread = self._moments(tilt)
        return tilt, mean, spread

    def _saddle_at(self, epsilon: float) -> tuple[float, float, float]:
        """Return the tilt >= 0 under which the sum's mean is `epsilon`, or nearest to it, epsilon and the deviation."""
        tilt = 0.0
        if self._moments(0.0)[1] < epsilon:
            high = 1 / self._moments(0.0)[2]
            while self._moments(high)[1] < epsilon and high < 1e15:
                high *= 2
            tilt = float(brentq(lambda t: min(self._moments(t)[1] - epsilon, 1e300), 0.0, high, rtol=1e-3))
        return tilt, epsilon, self._moments(tilt)[2]

    def _compositions(self, tilt: float, centre: float, spread: float) -> tuple[Composition, Composition]:
        """Return the sums of pessimistic and of optimistic losses on a grid that fits epsilon about `centre`."""
        room = 12 * TOLERANCE * max(centre, 0.1 * spread) / (self.steps * (tilt + 1))
        width = float(self.losses[-1] - self.losses[0])
        interval = max(min(math.sqrt(room), spread / 8), 18 * spread / _PLACES, width / _MOST_CELLS)
        cells = self._cells(interval)
        return (
            Composition([(pessimistic(cells), self.steps)], tilt),
            Composition([(optimistic(cells), self.steps)], tilt),
        )

    def _cells(self, interval: float) -> Cells:
        """Return the loss of one step cut into cells; a bulk narrower than a cell becomes an atom on the grid."""
        step = self.step
        bulk, atom, origin = self._bulk(interval)
        low, high = float(step.loss(np.array(-self.far))), float(step.loss(np.array(self.far)))
        first = math.floor((low - origin) / interval)
        grid = origin + (first + np.arange(math.ceil((high - origin) / interval) - first + 1)) * interval
        edges = np.clip(step.place(grid), -self.far, self.far)
        edges[0], edges[-1] = -self.far, self.far
        mesh = np.sort(np.concatenate([edges, step.mesh(-self.far, self.far), [-bulk, bulk]]))
        middles = (mesh[1:] + mesh[:-1]) / 2
        owner = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, grid.size - 2)
        x, weights = _quadrature(mesh)
        weights = weights * np.exp(step.log_density(x))
        place = np.clip(np.expm1(grid[owner][:, None] - step.loss(x)) / math.expm1(-interval), 0.0, 1.0)
        above = np.sum(weights * place, axis=1)
        below = np.sum(weights * (1 - place), axis=1)
        if atom:
            inside = np.abs(middles) < bulk
            above[inside] = below[inside] = 0.0
        cells = grid.size - 1
        return Cells(
            float(grid[0]),
            interval,
            np.bincount(owner, below, cells),
            np.bincount(owner, above, cells),
            2 * math.exp(self.log_tail),
            atom,
            -first,
        )

    def _bulk(self, interval: float) -> tuple[float, float, float]:
        """Return (x, mass, loss): |x| within which the losses differ by less than `interval`, merged to one loss.

        Merging outcomes is optimistic, and done only where most of the mass is meant; else (0, 0, 0).
        """
        step = self.step
        reach = np.linspace(1.5, 9.0, 76)
        narrow = step.loss(reach) - step.loss(-reach) <= interval
        if not narrow[0]:
            return 0.0, 0.0, 0.0
        bulk = float(reach[narrow][-1])
        x, weights = _quadrature(step.mesh(-bulk, bulk))
        weights = weights * np.exp(step.log_density(x))
        mass = float(weights.sum())
        return bulk, mass, -math.log1p(float(np.sum(weights * np.expm1(-step.loss(x)))) / mass)


def _solve(excess: Callable[[float], float], centre: float, spread: float) -> float:
    """Return where the falling `excess` is 0 above 0, looked for about `centre`; 0 where it never is above 0."""
    low, high, width = max(0.0, centre), max(0.0, centre), spread / 4
    while excess(high) > 0:
        low, high, width = high, high + width, 2 * width
    while low > 0 and excess(low) <= 0:
        low, high, width = max(0.0, low - width), low, 2 * width
    if excess(low) <= 0:
        return 0.0
    return float(brentq(lambda e: max(excess(e), -1e4), low, high, xtol=1e-300, rtol=1e-10))
