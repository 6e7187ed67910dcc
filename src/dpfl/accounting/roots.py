"""Zeros of monotone functions: element by element over arrays, and by few evaluations where one takes seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import elementwise


def root(
    function: Callable[..., NDArray[np.float64]], lower: ArrayLike, upper: ArrayLike, *arguments: ArrayLike
) -> NDArray[np.float64]:
    """Return the zero of the monotone `function(x, *arguments)` in x between `lower` and `upper`.

    Everything broadcasts; `function` is called with 1-D arrays and answers element by element. Bracketing
    (Chandrupatla's method) to the last bits of x. Where rounding leaves both ends on one side of zero, the
    end with the smaller value is returned, so the answer is never NaN.
    Source: chandrupatla1997.
    """
    arrays = np.broadcast_arrays(lower, upper, *arguments)
    shape = arrays[0].shape
    low, high, *rest = (np.asarray(array, dtype=np.float64).ravel() for array in arrays)
    at_low, at_high = function(low, *rest), function(high, *rest)
    zero = np.where(np.abs(at_low) <= np.abs(at_high), low, high)
    crossed = np.sign(at_low) * np.sign(at_high) < 0
    if np.any(crossed):
        ends = (low[crossed], high[crossed])
        zero[crossed] = elementwise.find_root(function, ends, args=tuple(array[crossed] for array in rest)).x
    return zero.reshape(shape)


def least_noise(
    excess: Callable[[float], float],
    start: float,
    *,
    slope: float,
    room: float,
    aim: float | None = None,
    flattest: float = -0.1,
    longest: float = math.inf,
    low: float = -math.inf,
    high: float = math.inf,
    known: bool = False,
    tries: int = 20,
) -> float | None:
    """Return x in [`low`, `high`] where the falling `excess` is in [-`room`, 0]: the least noise but for `room`.

    `excess`: of ln noise, ln of what is spent over the target, nearly straight; -inf where nothing is spent. Secant
    steps from `start` and its `slope` < 0, to where it is `aim` (half of `room` below 0), none `longer` than that, no
    slope flatter than `flattest`, a step of 1 where the excess is infinite and `longest` too; halving where a step
    leaves the bracket. Returns `low` where even that is not in excess, the least x found in no excess after `tries`
    looks or where the bracket has no number inside, and None where there is none (`known`: there is one, at `high`).
    Source: the secant rule.
    """
    aim = -room / 2 if aim is None else aim
    far = longest if math.isfinite(longest) else 1.0
    here, safe, last = min(max(start, low), high), high if known else None, None
    above, below = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)  # in excess, and not
    for _ in range(tries):
        value = excess(here)
        if -room <= value <= 0 or (value <= 0 and here == low):
            return here
        if value <= 0:
            below = safe = here
        else:
            above = here
            if here == high:
                return None
        if last is not None and math.isfinite(value):
            slope = min((value - last[1]) / (here - last[0]), flattest)
        last = (here, value) if math.isfinite(value) else None
        step = (aim - value) / slope if math.isfinite(value) else math.copysign(far, value)
        there = min(max(here + min(max(step, -longest), longest), low), high)
        here = there if above < there < below else (above + below) / 2
        if not above < here < below:
            break
    return safe
