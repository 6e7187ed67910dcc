"""Schedules of batches, clipping, noise and step sizes in a run: by segments, fixed before it starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from dpfl.accounting.tradeoff.segments import Segment
from dpfl.algorithms.async_sgd import AdaptiveClip
from dpfl.errors import InputError
from dpfl.experiments.shared.settings import Positive, Settings, Several


@dataclass(frozen=True)
class BatchSchedule:
    """The rounds of a run: the batch size of each, and the epoch that it belongs to, counted from 0."""

    batch_sizes: tuple[int, ...]
    epochs: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return len(self.batch_sizes)


COUNT_SHARE = 0.1
"""Share of a round's 1/sigma^2 that an adaptive clip norm's count spends: the sum has 1/sqrt(0.9) times the noise."""
ADAPTIVE_RATE = 0.2
"""Rate of adaptive clip norms; that and the share of 0.1 or less follow andrew2021, section 3."""

Factors = Annotated[Several[Positive], Field(min_length=1)]


class Strategy(Settings):
    """One way of spending a budget; factors multiply the run's clip norm and sigma in segments of equal length.

    batch_factors multiply the batch size, in segments of whole epochs: an epoch then has more or fewer rounds.
    last_epoch: sigma / sqrt(E + 1) in the last of E epochs, times what the segments say. arsinh_scale: a over sigma of
    the noise a arsinh(N/a), infinite for Gaussian noise. kept_share: what compression keeps of an update's entries.
    batch_clip: clip the mean gradient of a batch in place of each record's. adaptive_quantile: the clip norm follows
    this quantile of the records' gradient norms, by a count that spends COUNT_SHARE of each round's 1/sigma^2 (the sum
    has the rest); None leaves it alone.
    budget_of: the strategy whose sigma is taken over, for a run that may spend more; None meets the budget itself.
    The guarantee is known before the run, whatever data and models do (vandijk2023, section 5.2).
    """

    model_config = ConfigDict(extra="forbid")

    batch_factors: Factors = (1.0,)
    clip_factors: Factors = (1.0,)
    noise_factors: Factors = (1.0,)
    last_epoch: bool = False
    arsinh_scale: Annotated[float, Field(gt=0)] = math.inf
    kept_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    batch_clip: bool = False
    adaptive_quantile: Annotated[float, Field(ge=0, le=1)] | None = None
    budget_of: str | None = None

    def course(self, *, records: int, batch_size: int, epochs: int) -> BatchSchedule:
        """Return the rounds of `epochs` epochs of `records`, batches being what the segments make of `batch_size`.

        What is left of an epoch after its whole batches is not used. Raises InputError where a batch holds no record,
        or more than there are.
        """
        sizes = np.rint(batch_size * _by_segment(self.batch_factors, epochs)).astype(int).tolist()
        for size in sizes:
            if not 1 <= size <= records:
                raise InputError(f"batch_size: is {size} in a segment, must be from 1 to a client's {records} records")
        rounds = [(size, epoch) for epoch, size in enumerate(sizes) for _ in range(records // size)]
        return BatchSchedule(*(tuple(part) for part in zip(*rounds, strict=True)))

    def clip(self, course: BatchSchedule) -> NDArray[np.float64]:
        """Return each round's clip norm over the run's."""
        return _by_segment(self.clip_factors, course.rounds)

    def noise(self, course: BatchSchedule) -> NDArray[np.float64]:
        """Return each round's sigma over the run's."""
        factors = _by_segment(self.noise_factors, course.rounds)
        if self.last_epoch:
            last = course.epochs[-1]
            factors[np.equal(course.epochs, last)] /= math.sqrt(last + 2)
        return factors

    @property
    def sum_noise(self) -> float:
        """Noise of a round's sum over what the round's sigma says, the rest being spent on a count."""
        return 1.0 if self.adaptive_quantile is None else 1 / math.sqrt(1 - COUNT_SHARE)

    def adaptive_clip(self, sigma: float) -> AdaptiveClip | None:
        """Return how the clip norm follows the gradients in a run with this sigma, over the sensitivity."""
        if self.adaptive_quantile is None:
            return None
        return AdaptiveClip(self.adaptive_quantile, ADAPTIVE_RATE, sigma / math.sqrt(COUNT_SHARE))

    def segments(self, course: BatchSchedule, *, sigma: float, records: int) -> list[Segment]:
        """Return what an accountant has to compose: runs of rounds with one sigma and one share of the records."""
        rounds = Counter(zip(self.noise(course).tolist(), course.batch_sizes, strict=True))
        return [
            Segment(count, sigma * factor, size / records, self.arsinh_scale)
            for (factor, size), count in sorted(rounds.items())
        ]


def step_sizes(learning_rate: float, decay: float, course: BatchSchedule) -> NDArray[np.float64]:
    """Return the step size of each round, learning_rate / (1 + decay * epochs completed); constant within an epoch.

    learning_rate > 0, decay >= 0; raises InputError naming the one that is not. vandijk2023, Algorithm 1, line 4.
    """
    if not learning_rate > 0:
        raise InputError(f"learning_rate: is {learning_rate}, must be above 0")
    if not decay >= 0:
        raise InputError(f"step_decay: is {decay}, must be at least 0: step sizes diminish")
    return learning_rate / (1 + decay * np.array(course.epochs))


def _by_segment(factors: Sequence[float], count: int) -> NDArray[np.float64]:
    """Return the factor of each round or epoch: cut into as many segments as there are factors, as equal as can be."""
    parts = np.array_split(np.empty(count), len(factors))
    return np.concatenate([np.full(len(part), factor) for part, factor in zip(parts, factors, strict=True)])
