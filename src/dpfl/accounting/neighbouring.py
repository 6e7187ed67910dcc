"""Neighbouring relations between data sets."""

from __future__ import annotations

from enum import StrEnum


class Neighbouring(StrEnum):
    """Relation between the two data sets that must be indistinguishable."""

    ADD_OR_REMOVE = "add_or_remove"
    """One record more or one fewer: a clipped sum moves by at most the clip norm."""
    REPLACE_ONE = "replace_one"
    """One record becomes another: a clipped sum moves by at most twice the clip norm."""
    ZERO_OUT = "zero_out"
    """One record's contribution becomes zero, the size stays: a clipped sum moves by at most the clip norm."""
