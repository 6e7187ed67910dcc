"""Checks of the arguments of the accounting functions: a wrong one is named, never turned into NaN."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
) -> NDArray[np.float64]:
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


def real(name: str, value: ArrayLike, **bounds) -> float:
    """Return `value` as one float; the bounds are those of `real`. Raises ValueError naming the argument."""
    array = reals(name, value, **bounds)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got an array of shape {array.shape}")
    return float(array)


def integers(name: str, value: ArrayLike, **bounds) -> NDArray[np.float64]:
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


def member(name: str, kind: type[Choice], value: str) -> Choice:
    """Return `value` as a member of the enum `kind`. Raises ValueError naming the argument and the members."""
    try:
        return kind(value)
    except ValueError:
        members = ", ".join(repr(each.value) for each in kind)
        raise ValueError(f"{name} must be one of {members}, got {value!r}") from None
