"""Between whom, and over which draw of records, a privacy statement is made."""

from __future__ import annotations

from enum import StrEnum


class Neighbouring(StrEnum):
    """Which two data sets must look alike."""

    ADD_OR_REMOVE = "add_or_remove"
    """One record more or one fewer: a clipped sum moves by at most the clip norm."""
    REPLACE_ONE = "replace_one"
    """One record becomes another: a clipped sum moves by at most twice the clip norm."""
    ZERO_OUT = "zero_out"
    """One record's contribution becomes zero, the size stays: a clipped sum moves by at most the clip norm."""


class Sampling(StrEnum):
    """How the records of one step are drawn."""

    POISSON = "poisson"
    """Each record by its own coin."""
    FIXED = "fixed_without_replacement"
    """A batch of fixed size, no record twice."""
    WITH_REPLACEMENT = "with_replacement"
    """A batch of fixed size, each slot drawn from all records."""
    SHUFFLED = "shuffled_epochs"
    """Each epoch a fresh permutation, cut into batches: every record once an epoch."""
    FULL = "full_batch"
    """All records in every step."""
