"""Draw which records each step uses, by constants that no record decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.numerics import integer
from dpfl.accounting.samplers import BallsInBins, FixedBatches, Poisson, Sampler, Sampling, ShuffledEpochs
from dpfl.randomness import generator

_BY_EPOCH = (Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED, Sampling.FIXED)


@dataclass(frozen=True)
class BatchSampler:
    """Sampler of one client's batches; everything in it is public, and so is all that follows from it.

    sampling, epoch by epoch, each record's draws independent of other epochs:
    - POISSON: every step takes each record by its own coin of sample_rate, so a batch has any size, zero included.
    - BALLS_IN_BINS: each record falls into one of the epoch's steps, uniformly and by itself: used once an epoch.
    - SHUFFLED: a permutation cut into batches of batch_size, the last one maybe shorter: each record once an epoch.
      With `fixed_order` every epoch has the same batches, cut from the order in which the client holds its records.
    - FIXED: every step takes min(batch_size, public_records) records, uniform without replacement.

    public_records: the number n of records that the client is known to hold. It is a constant of the setting, not a
    count of the data: neighbours differ in one record's content (zero out, or replace one), or hold n and n - 1
    records with the same public_records, the missing one's slot staying empty. Steps, sample_rate and divisor are the
    same for both. Raises ValueError for another sampling, and numbers below 1.

    Formal guarantee: the noise of SGD over the clipped sum of a batch is the Gaussian mechanism on the named sampler,
    to the removal (zero out) of a record. What it spends: dpfl.accounting. A fixed order is for training without noise.
    """

    sampling: Sampling
    batch_size: int
    public_records: int
    fixed_order: bool = False

    def __post_init__(self) -> None:
        integer("batch_size", self.batch_size, at_least=1)
        integer("public_records", self.public_records, at_least=1)
        if self.sampling not in _BY_EPOCH:
            raise ValueError(f"sampling is {self.sampling}; it must be one of {', '.join(_BY_EPOCH)}")
        if self.fixed_order and self.sampling is not Sampling.SHUFFLED:
            raise ValueError(f"fixed_order: only {Sampling.SHUFFLED} have an order, not {self.sampling}")

    @property
    def steps_per_epoch(self) -> int:
        """The steps of an epoch, ceil(n / batch_size); the bins of BALLS_IN_BINS."""
        return -(-self.public_records // self.batch_size)

    @property
    def divisor(self) -> int:
        """The number that a noisy sum is divided by: the whole part of the expected batch, n * sample_rate.

        It never depends on the size of a batch that was drawn. Source: Opacus's expected_batch_size.
        """
        if self.sampling is Sampling.FIXED:
            return min(self.batch_size, self.public_records)
        return self.public_records // self.steps_per_epoch

    @property
    def sample_rate(self) -> float:
        """The probability that a step uses a given record: 1 / steps_per_epoch, for FIXED divisor / n.

        So every record is used once an epoch, in expectation, as Opacus's Poisson loader has it. For SHUFFLED it is the
        mean over the epoch's steps, of which the last may be shorter.
        """
        if self.sampling is Sampling.FIXED:
            return self.divisor / self.public_records
        return 1 / self.steps_per_epoch

    def epoch(self, epoch: int, *, seed: int, client: int, records: int | None = None) -> list[NDArray[np.int64]]:
        """Return the batches of one epoch: for each step, indices into the client's records, none twice in a step.

        `records`: number of the client's records, at most public_records (None: as many); indices beyond them are
        dropped, so the batches of the others do not change. The draw is addressed by (seed, "batches", client, epoch).
        Raises ValueError where records exceed public_records.
        """
        batches = self._slots(generator(seed, "batches", client, epoch))
        if records is None or records == self.public_records:
            return batches
        if records > self.public_records:
            raise ValueError(f"records: {records} are more than the {self.public_records} that are public")
        return [batch[batch < records] for batch in batches]

    def _slots(self, draw: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return each step's batch among all public_records slots."""
        slots, steps = self.public_records, self.steps_per_epoch
        if self.sampling is Sampling.POISSON:
            return [np.flatnonzero(draw.random(slots) < self.sample_rate) for _ in range(steps)]
        if self.sampling is Sampling.FIXED:
            return [draw.choice(slots, self.divisor, replace=False) for _ in range(steps)]
        if self.sampling is Sampling.SHUFFLED:
            order = np.arange(slots) if self.fixed_order else draw.permutation(slots)
            return np.split(order, range(self.batch_size, slots, self.batch_size))
        bins = draw.integers(steps, size=slots)
        return np.split(np.argsort(bins, kind="stable"), np.cumsum(np.bincount(bins, minlength=steps))[:-1])


def accounted_sampler(batches: BatchSampler) -> Sampler:
    """Return the sampler by which the accountants (dpfl.accounting) know a client's batches.

    Raises ValueError for a sampling that has none here: a new one gets its line when it is added.
    """
    slots = min(batches.batch_size, batches.public_records), batches.public_records
    match batches.sampling:
        case Sampling.POISSON:
            return Poisson(batches.sample_rate)
        case Sampling.BALLS_IN_BINS:
            return BallsInBins(batches.steps_per_epoch)
        case Sampling.SHUFFLED:
            return ShuffledEpochs(*slots)
        case Sampling.FIXED:
            return FixedBatches(*slots)
    raise ValueError(f"sampling: {batches.sampling} batches have no accountant in accounted_sampler")


def batch_and_noise(
    seed: int, client: int, round: int, step: int, records: int, batch_size: int, features: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return one step's batch, `batch_size` of a client's `records`, and its standard normal noise (features,)."""
    rows = generator(seed, "batches", client, round, step).choice(records, batch_size, replace=False)
    return rows, generator(seed, "noise", client, round, step).standard_normal(features)
