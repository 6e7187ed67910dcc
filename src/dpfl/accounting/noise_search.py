"""The least noise that keeps a target, by few evaluations of what a noise spends."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from dpfl.accounting.roots import least_noise

LEAST_NOISE, MOST_NOISE = 1e-3, 1e9
"""Range of noise multipliers searched by `noise_multiplier`."""
TOLERANCE = 1e-5
"""Most that the upper bound at the noise returned may fall below its target, relative to it."""
_JUMP = 1.003  # what is spent at the ends of a bracket of 1e-4: a larger ratio is a jump
_STALLED = 0.5  # a look that leaves a larger share of the least distance so far is followed by halving
_STEEPNESS = 1.3
"""Approximate fall of ln epsilon per unit of ln noise, for the second look of a search."""


def no_less(spent: Callable[[float], float], target: float, start: float) -> float:
    """Return `start`, or a little more where rounding asks for it. Source: elementary."""
    noise = start
    while spent(noise) > target:
        noise *= 1 + 1e-11
    return noise


def corrected_search(spent: Callable[..., float], target: float, enough: float, likely: float) -> float:
    """Return what `search` does, by few evaluations of `spent`: `rough` ones show where to begin, and the slope.

    Source: the secant rule.
    """
    rough = partial(spent, rough=True)
    start = search(rough, target, enough, likely, tolerance=1e-3)
    if start <= LEAST_NOISE:
        return search(spent, target, enough, likely)
    highest = math.log(enough)
    here = min(math.log(start), highest - 1e-3)

    def excess(x: float, spent: Callable[[float], float] = spent) -> float:
        value = spent(math.exp(x))
        return math.log(value / target) if value > 0 else -math.inf

    slope = (excess(here + 1e-3, rough) - excess(here, rough)) / 1e-3
    likely_one = -4 * _STEEPNESS <= slope <= -_STEEPNESS / 4  # rough answers may be uneven
    try:
        found = least_noise(
            excess,
            here,
            slope=slope if likely_one else -2 * _STEEPNESS,
            room=TOLERANCE,
            longest=0.05,
            low=math.log(LEAST_NOISE),
            high=highest,
            known=True,
            tries=60,
        )
    except ZeroDivisionError:  # two looks at one place: a jump between neighbouring floats
        return search(spent, target, enough, likely)
    return no_less(spent, target, enough) if found is None else math.exp(found)  # None: enough but for rounding


def search(
    spent: Callable[[float], float], target: float, enough: float, likely: float, tolerance: float = TOLERANCE
) -> float:
    """Return noise that spends between (1 - tolerance) target and target: secants in logarithms, within a bracket.

    `spent` falls; at the noise `enough` it is at most `target`; the search starts at `likely`. Where LEAST_NOISE is
    enough, that is the answer; 0.0 where nothing is spent even there.
    Source: the secant rule.
    """
    high, low, step = math.log(enough), -math.inf, 0.7
    best, points, ends = None, [], [math.inf, 0.0]
    least = math.log(LEAST_NOISE)
    here = max(min(math.log(likely), high - 1e-3), least)
    for _ in range(60):
        value = spent(math.exp(here))
        if here == least and value <= target:
            return LEAST_NOISE if value else 0.0
        if value <= target:
            high, ends[1] = min(here, high), value
            best = math.exp(high)  # what was looked at, to the last bit
            if value >= target * (1 - tolerance):
                break
        else:
            low, ends[0] = max(here, low), value
        stalled = False
        if 0 < value < math.inf:
            stalled = bool(points) and abs(math.log(value / target)) > _STALLED * points[0][0]
            points = sorted([*points, (abs(math.log(value / target)), here, math.log(value / target))])[:3]
        if high - low < (1e-7 if ends[0] < _JUMP * ends[1] else 1e-4):
            break
        here = max(_next([] if stalled and low > -math.inf else points, low, high, step), least)
        step *= 2
    return no_less(spent, target, enough) if best is None else best


def _next(points: list[tuple[float, float, float]], low: float, high: float, step: float) -> float:
    """Return where to look next: by a curve through the nearest points if that is inside, else by halving."""
    aim = math.log1p(-TOLERANCE / 2)
    least = low if math.isfinite(low) else high - 8
    for count in range(len(points), 0, -1):
        guess = _through(points[:count], aim)
        if least < guess < high:
            return guess
    return (low + high) / 2 if math.isfinite(low) else high - step


def _through(points: list[tuple[float, float, float]], aim: float) -> float:
    """Return where the curve through the points is `aim`, its place a polynomial of its value; NaN where it is none."""
    if len(points) == 1:
        return points[0][1] + (points[0][2] - aim) / _STEEPNESS
    guess = 0.0
    for _, place, value in points:
        others = [other for _, _, other in points if other != value]
        if len(others) < len(points) - 1:
            return math.nan
        guess += place * math.prod((aim - other) / (value - other) for other in others)
    return guess
