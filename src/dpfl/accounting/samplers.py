"""Samplers: how the records of one step are drawn, as frozen objects; `Sampling` has their names in configurations."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Poisson:
    """Each record joins each step with probability `sample_rate`."""

    sample_rate: float


@dataclass(frozen=True)
class FixedBatches:
    """Each step takes `batch_size` of `records` records, no record twice."""

    batch_size: int
    records: int


@dataclass(frozen=True)
class WithReplacement:
    """Each step takes `batch_size` records, each drawn from all `records`."""

    batch_size: int
    records: int


@dataclass(frozen=True)
class ShuffledEpochs:
    """Each epoch a fresh permutation of `records` records, cut into batches of `batch_size`."""

    batch_size: int
    records: int


@dataclass(frozen=True)
class BallsInBins:
    """Each epoch every record falls into one of `steps_per_epoch` batches."""

    steps_per_epoch: int


@dataclass(frozen=True)
class FullBatch:
    """All records in every step."""
