"""Trade-off functions as plain callables: inverse, conjugates, groups, and the duality with (epsilon, delta)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from dpfl.accounting.arguments import integer, reals
from dpfl.accounting.tradeoff.curves import Curve

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""A function of an array, element by element."""

_HALVINGS = 200  # reaches roots down to 1e-60
_SECTIONS = 120  # golden sections: 700 down to 1e-22
_GOLDEN = (np.sqrt(5) - 1) / 2


def inverse(f: Function, alpha: ArrayLike) -> NDArray[np.float64]:
    """f^-1(alpha) = inf{t in [0, 1]: f(t) <= alpha} of a decreasing f with f(1) = 0; alpha in [0, 1], any shape.

    By bisection. Raises ValueError naming alpha. Source: vandijk2023 (7).
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    low, high = np.zeros_like(alpha), np.ones_like(alpha)
    at_once = f(low) <= alpha
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = f(middle) <= alpha
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(at_once, 0.0, high)[()]


def conjugate(f: Function, slope: ArrayLike) -> NDArray[np.float64]:
    """f*(slope) = sup over x in [0, 1] of slope x - f(x), for convex f, at real slopes of any shape.

    By golden-section search. Raises ValueError naming slope. Source: vandijk2023 section 4.2.
    """
    slope = reals("slope", slope)
    return _highest(lambda x: slope * x - f(x), np.zeros_like(slope), np.ones_like(slope))[()]


def double_conjugate(f: Function, knots: int = 4001) -> Curve:
    """f**, the largest convex function below f, from `knots` points that crowd towards 0 and 1.

    f need not be convex: min{f_p, f_p^-1}** is C_p(f). Error of the order of knots^-2.
    Raises ValueError naming knots. Source: vandijk2023 section 4.2.
    """
    reach = np.linspace(-40.0, 40.0, integer("knots", knots, at_least=3))
    alpha = np.concatenate([[0.0], expit(reach), [1.0]])
    return Curve.hull(alpha, np.clip(f(alpha), 0.0, 1 - alpha))


def group(f: Function, g: int) -> Function:
    """1 - (1 - f)^{o g}: what an f-DP mechanism guarantees to groups of g >= 1 records, as a function of alpha.

    Accurate to about 1e-16 in absolute terms; for G_mu use gaussian_dp.group. The curve refuses alpha outside
    [0, 1] by ValueError. Raises ValueError naming g. Source: vandijk2023 section 4.6.
    """
    g = integer("g", g, at_least=1)

    def grouped(alpha: ArrayLike) -> NDArray[np.float64]:
        level = reals("alpha", alpha, at_least=0, at_most=1)
        for _ in range(g - 1):
            level = 1 - f(level)
        return f(level)

    return grouped


def delta_of(f: Function, epsilon: ArrayLike) -> NDArray[np.float64]:
    """The delta of an f-DP mechanism at epsilon in [0, 700] of any shape: 1 + f*(-e^epsilon), f symmetric.

    Guarantee: an f-DP mechanism is (epsilon, delta)-DP for every epsilon. Raises ValueError naming epsilon. Source: the
    duality behind vandijk2023 (6).
    """
    epsilon = reals("epsilon", epsilon, at_least=0, at_most=700)
    return np.clip(1 + conjugate(f, -np.exp(epsilon)), 0.0, 1.0)[()]


def from_delta(delta: Function, alpha: ArrayLike) -> NDArray[np.float64]:
    """The symmetric trade-off curve at alpha in [0, 1], any shape, of a mechanism with the curve delta(epsilon).

    sup over epsilon of f_{epsilon,delta(epsilon)}(alpha), searched over [0, 700] by golden section; any
    epsilon gives a valid guarantee, so the answer is never too large. `delta` maps arrays of epsilon to [0, 1].
    Guarantee: (epsilon, delta(epsilon))-DP for every epsilon makes the mechanism DP with this curve.
    Raises ValueError naming alpha. Source: vandijk2023 section 4, where f_{epsilon,delta} is given.
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    low, high = np.zeros_like(alpha), np.full_like(alpha, 700.0)
    steep = _highest(lambda epsilon: 1 - delta(epsilon) - np.exp(epsilon) * alpha, low, high)
    flat = _highest(lambda epsilon: np.exp(-epsilon) * (1 - delta(epsilon) - alpha), low, high)
    return np.maximum(0.0, np.maximum(steep, flat))[()]


def _highest(objective: Function, low: NDArray, high: NDArray) -> NDArray[np.float64]:
    """The largest value of a function with one peak between `low` and `high`, ends included."""
    best = np.maximum(objective(low), objective(high))
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = objective(left), objective(right)
    for _ in range(_SECTIONS):
        best = np.maximum(best, np.maximum(at_left, at_right))
        lower = at_left >= at_right
        low, high = np.where(lower, low, left), np.where(lower, right, high)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = objective(left), objective(right)
    return best
