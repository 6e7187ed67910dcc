"""The ways in which the records of a step are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpfl.accounting.arguments import integer, real


class Sampling(StrEnum):
    """The name of a sampler in configurations, tables and privacy statements."""

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
    """Each record by its own coin, of chance `sample_rate` in (0, 1], in every step. Raises ValueError naming it."""

    sample_rate: float

    def __post_init__(self) -> None:
        real("sample_rate", self.sample_rate, above=0, at_most=1)


@dataclass(frozen=True)
class FixedBatches:
    """`batch_size` different records of `records` in every step, drawn anew. Raises ValueError naming the field."""

    batch_size: int
    records: int

    def __post_init__(self) -> None:
        _check_batch(self.batch_size, self.records)


@dataclass(frozen=True)
class WithReplacement:
    """`batch_size` slots in every step, each filled from all `records`. Raises ValueError naming the field."""

    batch_size: int
    records: int

    def __post_init__(self) -> None:
        integer("batch_size", self.batch_size, at_least=1)
        integer("records", self.records, at_least=1)


@dataclass(frozen=True)
class ShuffledEpochs:
    """Each epoch a fresh permutation of `records`, cut into batches of `batch_size`, the last one maybe shorter.

    Under add_or_remove the data set has `records` or one record fewer. Raises ValueError naming the field.
    """

    batch_size: int
    records: int

    def __post_init__(self) -> None:
        _check_batch(self.batch_size, self.records)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return -(-int(self.records) // int(self.batch_size))


@dataclass(frozen=True)
class BallsInBins:
    """Each epoch every record in one of its `steps_per_epoch` >= 1 steps, drawn for itself. Raises ValueError."""

    steps_per_epoch: int

    def __post_init__(self) -> None:
        integer("steps_per_epoch", self.steps_per_epoch, at_least=1)


@dataclass(frozen=True)
class FullBatch:
    """All records in every step."""


Sampler = Poisson | FixedBatches | WithReplacement | ShuffledEpochs | BallsInBins | FullBatch


def _check_batch(batch_size: int, records: int) -> None:
    """Raise ValueError naming the field where a batch cannot be drawn from the records."""
    if integer("batch_size", batch_size, at_least=1) > integer("records", records, at_least=1):
        raise ValueError(f"batch_size must be at most records = {records}, got {batch_size}")
