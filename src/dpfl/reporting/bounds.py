"""Bounds as text that stay true when they are rounded: a proven epsilon up, one that is exceeded down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_NOISE = Context(prec=12)
"""Digits of a number that count: those beyond are the rounding of a float, and move no bound by a last digit."""


def at_most(value: float, digits: int = 4, *, places: int | None = None) -> str:
    """Return an upper bound in decimals, rounded up: to `digits` significant ones, or to `places` behind the point.

    "∞" for infinity. Raises ValueError for nan and for digits below 1.
    """
    return _rounded(value, digits, places, ROUND_CEILING)


def at_least(value: float, digits: int = 4, *, places: int | None = None) -> str:
    """Return a lower bound in decimals, rounded down; else as `at_most`."""
    return _rounded(value, digits, places, ROUND_FLOOR)


def _rounded(value: float, digits: int, places: int | None, rounding: str) -> str:
    """Return a number as text, rounded in one direction."""
    if math.isnan(value) or digits < 1:
        raise ValueError(f"value = {value}, digits = {digits}: a bound is a number, of one digit or more")
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    number = _NOISE.create_decimal(repr(float(value)))
    least = -places if places is not None else (number.adjusted() - digits + 1 if number else 0)
    rounded = number.quantize(Decimal((0, (1,), least)), rounding)
    if places is None and rounded and rounded.adjusted() > number.adjusted():
        rounded = rounded.quantize(Decimal((0, (1,), least + 1)))  # 9.996 as 10.00: a digit too many
    return f"{rounded:f}"
