"""Epsilon of many steps of one pair of laws: the tilt and the grid that fit the answer, and the interval around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx

from dpfl.accounting.loss_composition import STEEPEST, UNIT, Cells, Composition, GridLaw, optimistic, pessimistic

Array = NDArray[np.float64]

TOLERANCE = 2e-6
"""Share of epsilon that the grid may add to the upper end; the lower end gives away about twice as much."""
LARGEST_DELTA = 1 - 1e-9
"""A larger delta is answered for this one."""
_FITS, _DOUBT = 2, 1e-5  # fits of tilt and grid at most; allowance for rounding above which they are repeated
_PLACES, _MOST_CELLS, _CELLS_TOGETHER = 1 << 21, 1 << 18, 17_000_000
_MANY, _COARSER = 50, 6.0
_ENDLESS = 1e200
_NEAR = {"rtol": 1e-3, "disp": False}
"""How brentq looks for a tilt: any is valid, so one that it has not settled on will do."""


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


class LossSearch:
    """The search for epsilon at `delta` of independent losses: those of all `parts`.

    Where they have more than one law, `cells` must answer for exactly the step that it is asked for.
    Source: derived; the tilt is that of the saddle point (alghamdi2023).
    """

    def __init__(self, parts: Sequence[LossPart], delta: float) -> None:
        self.parts, self.delta = parts, min(delta, LARGEST_DELTA)
        self.steps = sum(part.steps for part in parts)

    def interval(self, known: float, *, both: bool) -> tuple[float, float]:
        """Return (lower, upper) ends of epsilon; the lower one is 0 unless `both` are asked for.

        (0, `known`) where it is seen that epsilon is not above `known` > 0. Guarantee: that of
        loss_composition, for the losses in `cells`.
        """
        log_delta = math.log(self.delta)
        if known > 0 and self._chernoff(known) < log_delta - 1e-6:
            return 0.0, known
        tilt, centre, std = self._saddle()
        lower, upper = 0.0, math.inf
        if known > 0 and len(self.parts) > _MANY:  # a coarse grid may show it too, at a fraction of the work
            law = self._composed(pessimistic, _COARSER * self._grid_step(tilt, centre, std), tilt)
            if law.log_delta_above(known) <= log_delta:
                return 0.0, known
        for _ in range(_FITS):
            step = self._grid_step(tilt, centre, std)
            cells = [(part.cells(step), part.steps) for part in self.parts]
            law = Composition(((pessimistic(each), steps) for each, steps in cells), tilt)
            end = _root(lambda e, law=law: law.log_delta_above(e) - log_delta, centre, std, 1)
            if math.isinf(end):  # what may wrap around outweighs delta, less so under a steeper tilt
                tilt = max(4 * tilt, 1 / std)
                continue
            upper, doubt = min(upper, end), law.doubt(end)
            if upper <= known:
                return 0.0, known
            if both:
                law = Composition(((optimistic(each), steps) for each, steps in cells), tilt)
                lower = max(lower, _root(lambda e, law=law: law.log_delta_below(e) - log_delta, upper, std, -1))
            if abs(end - centre) < min(std, centre / 2) and not _DOUBT < doubt < 0.5:
                break
            tilt, centre, std = self._saddle_at(upper)
        rounding = 8 * UNIT * sum(part.steps * float(np.abs(part.losses).max()) for part in self.parts)
        return max(0.0, lower - rounding), upper + rounding if upper else 0.0

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """Return (lower, upper) ends of delta at `epsilon` >= 0. Guarantee: that of loss_composition."""
        tilt, _, std = self._saddle_at(epsilon)
        step = self._grid_step(tilt, epsilon, std)
        above, below = (self._composed(rounding, step, tilt) for rounding in (pessimistic, optimistic))
        return math.exp(below.log_delta_below(epsilon)), min(math.exp(above.log_delta_above(epsilon)), 1.0)

    def _composed(self, rounding: Callable[[Cells], GridLaw], step: float, tilt: float) -> Composition:
        """Return the sum of all losses, each rounded to a grid of that step."""
        return Composition(((rounding(part.cells(step)), part.steps) for part in self.parts), tilt)

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return ln E[e^(tilt S)], and mean and deviation of S under that tilt, up to quadrature."""
        log_mass = mean = variance = 0.0
        for part in self.parts:
            logs = part.log_masses + tilt * part.losses
            top = float(logs.max())
            weights = np.exp(logs - top)
            total = float(weights.sum())
            middle = float(weights @ part.losses) / total
            log_mass, mean = log_mass + part.steps * (top + math.log(total)), mean + part.steps * middle
            variance += part.steps * float(weights @ (part.losses - middle) ** 2) / total
        return log_mass, mean, math.sqrt(variance)

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
        return STEEPEST / max(part.width for part in self.parts)

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
            tilt = float(brentq(lambda t: self._log_delta(t) - log_delta, 0.0, high, **_NEAR)) if ends else steepest
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
            tilt = float(brentq(lambda t: self._moments(t)[1] - epsilon, 0.0, high, **_NEAR)) if ends else steepest
        return tilt, epsilon, self._moments(tilt)[2]

    def _grid_step(self, tilt: float, centre: float, std: float) -> float:
        """Return the grid's step that adds TOLERANCE of epsilon, about `centre`, if the grid's size allows."""
        room = 12 * TOLERANCE * max(centre, 0.1 * std) / (self.steps * (tilt + 1))
        widths = [part.width for part in self.parts]
        least = max(max(widths) / _MOST_CELLS, sum(widths) / _CELLS_TOGETHER, *(part.least_step for part in self.parts))
        return max(min(math.sqrt(room), std / 8), 18 * std / _PLACES, least)


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
    width = scale / 8
    if value(high) > 0 and value(_ENDLESS) > 0:
        return math.inf
    while value(high) > 0:
        low, high, width = high, high + width, 4 * width
    while low > 0 and value(low) <= 0:
        low, high, width = max(0.0, low - width), low, 4 * width
    if value(low) <= 0:
        return 0.0
    zero = float(brentq(value, low, high, xtol=1e-300, rtol=1e-7))
    room = 1e-8
    while side * value(zero) > 0:
        zero, room = zero * (1 + side * room), 4 * room
    return zero
