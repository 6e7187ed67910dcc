"""Arithmetic shared by this package: checked arguments, stable ratios, root searches, functions over arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Checks of the arguments of the accounting functions: a wrong one is named, never turned into NaN.

Array = NDArray[np.float64]
Choice = TypeVar("Choice", bound=StrEnum)


def reals(
    name: str,
    value: ArrayLike,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> Array:
    """Return `value` as a float64 array after checking every element.

    `infinite` allows +inf (never NaN); the other keywords are bounds. Truth values, texts and complex numbers are
    no real numbers. Raises ValueError naming the argument and its first offending element.
    """
    try:
        values = np.asarray(value)
        if values.dtype.kind not in "iufO":
            raise TypeError
        array = np.asarray(values, dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{name} must be within the range of float64") from None
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number or an array of them, got {value!r}") from None
    checks = [
        (~np.isnan(array), "not NaN"),
        (np.isfinite(array) | (infinite & (array > 0)), "finite"),
        (array >= at_least if at_least is not None else True, f"at least {at_least}"),
        (array > above if above is not None else True, f"above {above}"),
        (array <= at_most if at_most is not None else True, f"at most {at_most}"),
        (array < below if below is not None else True, f"below {below}"),
    ]
    for holds, rule in checks:
        if not np.all(holds):
            first = array[~np.broadcast_to(holds, array.shape)].flat[0]
            raise ValueError(f"{name} must be {rule}, got {first}")
    return array


class Bounds(TypedDict, total=False):
    """The bounds of `reals`, as keywords."""

    at_least: float | None
    above: float | None
    at_most: float | None
    below: float | None
    infinite: bool


def real(name: str, value: ArrayLike, **bounds: Unpack[Bounds]) -> float:
    """Return `value` as one float; bounds as for `real`. Raises ValueError naming the argument."""
    array = reals(name, value, **bounds)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got an array of shape {array.shape}")
    return float(array)


def integers(name: str, value: ArrayLike, **bounds: Unpack[Bounds]) -> Array:
    """Return `value` as a float64 array of integers; 3.0 is accepted, 10/3 is refused; bounds as in `real`.

    Raises ValueError naming the argument and its first offending element.
    """
    array = reals(name, value, **bounds)
    fractions = array[np.isfinite(array) & (array != np.floor(array))]
    if fractions.size:
        raise ValueError(f"{name} must be a whole number, got {fractions.flat[0]}")
    return array


def integer(name: str, value: ArrayLike, *, at_least: int = 0) -> int:
    """Return `value` as an int; 3.0 is accepted, 10/3 is refused. Raises ValueError naming the argument."""
    return int(integers(name, real(name, value, at_least=at_least)))


def require_at_most(name: str, values: ArrayLike, limit_name: str, limits: ArrayLike) -> None:
    """Raise ValueError naming the argument, its first element above its limit, and that limit; arrays broadcast."""
    value, limit = np.broadcast_arrays(values, limits)
    if (above := np.flatnonzero(value > limit)).size:
        first = above[0]
        raise ValueError(f"{name} must be at most {limit_name} = {limit.flat[first]:g}, got {value.flat[first]:g}")


def member(name: str, kind: type[Choice], value: str) -> Choice:
    """Return `value` as a member of the enum `kind`. Raises ValueError naming the argument and the members."""
    try:
        return kind(value)
    except ValueError:
        members = ", ".join(repr(each.value) for each in kind)
        raise ValueError(f"{name} must be one of {members}, got {value!r}") from None


# Functions of single numbers (a root search, a convolution) offered over arrays.


def by_element(function: Callable[..., float], **arguments: ArrayLike) -> float | Array:
    """Call `function` with keywords on every element of the broadcast `arguments`.

    Returns a float for scalar arguments, else a float64 array of the broadcast shape. `function` names and
    checks its own arguments. Raises ValueError naming them all when their shapes do not broadcast.
    """
    arrays = [np.asarray(value, dtype=object) for value in arguments.values()]
    try:
        cells = np.broadcast(*arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(arguments, arrays, strict=True))
        raise ValueError(f"the shapes do not broadcast: {shapes}") from None
    values = [function(**dict(zip(arguments, cell, strict=True))) for cell in cells]
    return values[0] if cells.shape == () else np.array(values, dtype=np.float64).reshape(cells.shape)


# Zeros of monotone functions: element by element over arrays, and by few evaluations where one takes seconds.


def root(function: Callable[..., Array], lower: ArrayLike, upper: ArrayLike, *arguments: ArrayLike) -> Array:
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
        from scipy.optimize import elementwise  # every command reads this module, and scipy takes long to import

        zero[crossed] = elementwise.find_root(function, ends, args=tuple(array[crossed] for array in rest)).x
    return zero.reshape(shape)


def zero_between(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = 4 * float(np.finfo(np.float64).eps),
    looks: int = 100,
    settled: bool = True,
) -> float:
    """Return a zero of `function`, whose signs at `low` and `high` differ: to `xtol` plus `rtol` times its size.

    By Brent's method, with `looks` at the function at most; where these are not enough, the last one where it need not
    have `settled`. Raises ArithmeticError where it must. Source: brent1973, chapter 4.
    """
    from scipy.optimize import root_scalar  # see `root`

    found = root_scalar(function, bracket=(low, high), method="brentq", xtol=xtol, rtol=rtol, maxiter=looks)
    if settled and not found.converged:
        raise ArithmeticError(f"no zero was found between {low} and {high} in {looks} looks")
    return float(found.root)


def falling_zero(excess: Callable[[float], float], highest: float, *, xtol: float) -> float:
    """Return the least x in [0, `highest`] from where the falling `excess` is at most 0, or up to `xtol` more.

    0 where it never is above 0, and `highest` where it is not below 0 even there. Source: `zero_between`.
    """
    if excess(0.0) <= 0:
        return 0.0
    if excess(highest) >= 0:
        return highest
    zero = zero_between(excess, 0.0, highest, xtol=xtol)
    return zero if excess(zero) <= 0 else min(highest, zero + 10 * xtol)


def binned(index: NDArray[np.integer], masses: Array, bins: int) -> Array:
    """Return the sums of the `masses` with index 0, 1, ..., `bins` - 1, shape (bins,)."""
    return np.bincount(index, masses, bins).astype(np.float64, copy=False)


def wrapped_around(masses: Array, size: int) -> Array:
    """Return the `masses`, (k,), those beyond `size` places added to the first ones: at most (size,)."""
    return binned(np.arange(masses.size) % size, masses, size) if masses.size > size else masses


def least_noise(  # noqa: PLR0913
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

    `excess`: of ln noise, ln of what is spent over the target, nearly straight; -inf if nothing is spent. Secant
    steps from `start` and its `slope` < 0, to where it is `aim` (half of `room` below 0), none over `longest`, no slope
    flatter than `flattest`, a step of 1 where the excess is infinite and `longest` too; halving where a step
    leaves the bracket. Returns `low` where even that is not in excess, the least x found in no excess after `tries`
    looks or where the bracket has no number inside, and None if there is none (`known`: there is one, at `high`).
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


# Checked arguments and stable ratios of them, shared by the modules of this package.


def place(i: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    """Return the record's place i and the number of records n, 1 <= i <= n. Raises ValueError naming the argument."""
    n, i = integers("n", n, at_least=1), integers("i", i, at_least=1)
    if np.any(i > n):
        raise ValueError("i must be at most n, the number of records")
    return i, n


def ratio(numerator: ArrayLike, *divisors: ArrayLike) -> Array:
    """numerator / divisors, one after the other: the product of the divisors may be beyond float64."""
    with np.errstate(over="ignore", under="ignore"):
        for divisor in divisors:
            numerator = np.divide(numerator, divisor)
    return numerator  # pyright: ignore[reportReturnType]  # there is a divisor, so it is an array


def power(log_base: ArrayLike, exponent: ArrayLike) -> Array:
    """exponent * log_base with 0 * (-inf) = 0: the logarithm of base^exponent, an empty product being 1."""
    product = np.zeros(np.broadcast(log_base, exponent).shape)
    with np.errstate(over="ignore"):
        return np.multiply(log_base, exponent, out=product, where=np.not_equal(exponent, 0))


def probability(log_value: Array) -> Array:
    """exp, at most 1: rounding, or a fractional T = n/m, may lift a sum of probabilities above it."""
    return exponential(np.minimum(log_value, 0.0))


def exponential(log_value: Array) -> Array:
    """exp that silently gives inf or 0 beyond the range of float64."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(log_value)
