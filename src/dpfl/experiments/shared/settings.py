"""Typed settings, one module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from dpfl.errors import InputError

Kind = TypeVar("Kind", bound=StrEnum)


def positive_int(settings: Mapping[str, Any], name: str, at_most: int | None = None) -> int:
    """Return a whole setting of at least 1; raises InputError naming it."""
    value = settings[name]
    if not (isinstance(value, int) and value >= 1 and (at_most is None or value <= at_most)):
        limit = "at least 1" if at_most is None else f"from 1 to {at_most}"
        raise InputError(f"{name} is {value!r} in the settings; it must be a whole number, {limit}")
    return value


def positive_float(settings: Mapping[str, Any], name: str, below: float = math.inf) -> float:
    """Return a setting above 0, finite; raises InputError naming it."""
    value = settings[name]
    if not (isinstance(value, int | float) and 0 < value < below):
        raise InputError(f"{name} is {value!r} in the settings; it must be above 0 and finite")
    return float(value)


def choice(settings: Mapping[str, Any], name: str, kind: type[Kind], known: Iterable[Kind] | None = None) -> Kind:
    """Return a setting as one of `known` members of an enum, all of them by default; raises InputError naming it."""
    names = [member.value for member in known or kind]
    if settings[name] not in names:
        raise InputError(f"{name} is {settings[name]!r} in the settings; it must be one of {', '.join(names)}")
    return kind(settings[name])


Choice = TypeVar("Choice", bound=StrEnum)


def _choice(given: Mapping[str, Any], name: str, first: Choice, *others: Choice) -> Choice:
    """Return one of the known values of a setting, the first where the setting is left out."""
    value = given.get(name, first)
    for known in (first, *others):
        if known == value:
            return known
    raise InputError(f"{name}: {value!r} is not done here, should be one of {', '.join((first, *others))}")


def _one_of(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return a setting that is one of `known`; raises InputError naming it."""
    if given[name] not in known:
        raise InputError(f"{name}: {given[name]!r} is unknown, should be one of {', '.join(known)}")
    return given[name]
