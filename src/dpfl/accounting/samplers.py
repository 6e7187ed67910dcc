"""Design.md's samplers: poisson(...), fixedbatches(...) take the enum's place (issue 11)."""

from __future__ import annotations

from enum import StrEnum


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
    BALLS_IN_BINS = "balls_in_bins"
    """Each epoch every record falls into one of its batches, each record by its own draw."""
    FULL = "full_batch"
    """All records in every step."""
