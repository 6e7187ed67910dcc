"""The ways in which the records of a step are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args

from dpfl.accounting.numerics import integer, real
from dpfl.accounting.sampling_keys import Sampling


@dataclass(frozen=True)
class Poisson:
    """Each record by its own coin, of chance `sample_rate` in (0, 1], in every step. Raises ValueError naming it."""

    sampling: ClassVar[Sampling] = Sampling.POISSON
    sample_rate: float

    def __post_init__(self) -> None:
        real("sample_rate", self.sample_rate, above=0, at_most=1)


@dataclass(frozen=True)
class FixedBatches:
    """`batch_size` distinct records of `records`, drawn independently by step. Raises ValueError naming the field."""

    sampling: ClassVar[Sampling] = Sampling.FIXED
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        _check_batch(self.batch_size, self.records)


@dataclass(frozen=True)
class WithReplacement:
    """`batch_size` slots in every step, each filled from all `records`. Raises ValueError naming the field."""

    sampling: ClassVar[Sampling] = Sampling.WITH_REPLACEMENT
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

    sampling: ClassVar[Sampling] = Sampling.SHUFFLED
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

    sampling: ClassVar[Sampling] = Sampling.BALLS_IN_BINS
    steps_per_epoch: int

    def __post_init__(self) -> None:
        integer("steps_per_epoch", self.steps_per_epoch, at_least=1)


@dataclass(frozen=True)
class FullBatch:
    """All records in every step."""

    sampling: ClassVar[Sampling] = Sampling.FULL


Sampler = Poisson | FixedBatches | WithReplacement | ShuffledEpochs | BallsInBins | FullBatch


class Accountable(Protocol):
    """What `guarantee` takes: a dataclass with an accountant (`sampler_accountants.accounts_for`).

    Each of `Sampler` is one, and so are RandomAllocation, LaplaceNoise, RandomizedResponse and a class of your own.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


SAMPLERS: dict[Sampling, type[Sampler]] = {kind.sampling: kind for kind in get_args(Sampler)}
"""The class of every key."""


def _check_batch(batch_size: int, records: int) -> None:
    """Raise ValueError naming the field where a batch cannot be drawn from the records."""
    if integer("batch_size", batch_size, at_least=1) > integer("records", records, at_least=1):
        raise ValueError(f"batch_size must be at most records = {records}, got {batch_size}")
