"""Settings of asynchronous DP-SGD: schedules of rounds, scenarios, and normalisation of the inputs before training.

A cell is run by the settings of the paper, an entry, a scenario and the cell together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from torch import Tensor

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import real
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.tradeoff.curves import Segment
from dpfl.asynchronous.async_sgd import AdaptiveClip
from dpfl.errors import InputError
from dpfl.features.pca import noisy_second_moments, principal_components
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several, among
from dpfl.mechanisms import clip_vectors
from dpfl.randomness import generator

# Schedules of batches, clipping, noise and step sizes in a run: by segments, fixed before it starts.


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


# Normalisation of the inputs before training, from statistics that all clients reveal once.

CLIPPED_SHARE = 0.5
"""Statistics clip records to this share of the largest norm that entries in [0, 1] can have: few images exceed it."""
LEAST_DEVIATION = 0.1
"""Features that vary less, in a scale where they lie in [0, 1], are not blown up further."""


@dataclass(frozen=True)
class Moments:
    """First and second moment of each feature, both of shape (features,)."""

    first: Tensor
    second: Tensor

    def normalise(self, inputs: Tensor, least_deviation: float) -> Tensor:
        """Return inputs (n, features) minus the mean, over the deviation or `least_deviation` where that is more."""
        deviation = (self.second - self.first.square()).clamp(min=least_deviation**2).sqrt()
        return (inputs - self.first) / deviation


def noisy_moments(inputs: Tensor, *, bound: float, noise_multiplier: float, noise: Tensor) -> Moments:
    """Return the moments of `inputs` (n, features), n >= 1, from a sum of clipped (x, x^2) with Gaussian noise.

    `bound` > 0 is the norm to which each record's vector (x, x^2) of length 2 * features is clipped; `noise` are
    standard normal draws of that length; `noise_multiplier` >= 0 is the noise in units of the sensitivity 2 * bound of
    the sum to the replacement of a record. Raises ValueError naming bound or noise_multiplier.
    Source: vandijk2023, section 2.7.

    Formal guarantee: one release of a Gaussian mechanism, G_{1/noise_multiplier}-DP for one record replaced. Training
    on inputs normalised by the result composes with it; normalising by exact moments (noise_multiplier 0) is covered by
    no guarantee. `len(inputs)` is taken as public.
    """
    bound = real("bound", bound, above=0)
    noise_multiplier = real("noise_multiplier", noise_multiplier, at_least=0)
    vectors = torch.cat([inputs, inputs.square()], dim=1)
    clipped = clip_vectors(vectors, bound)
    first, second = ((clipped.sum(0) + 2 * bound * noise_multiplier * noise) / len(inputs)).chunk(2)
    return Moments(first, second)


class InputNormalisation(StrEnum):
    """Normalisations of inputs; exact statistics leak, and so do a batch's. A record's own cost nothing."""

    NONE = "none"
    NORMALISED = "normalised"
    NORMALISED_EXACTLY = "normalised_exactly"
    DP_PCA = "dp_pca"
    EXACT_PCA = "exact_pca"
    LAYER = "layer_normalised"
    """Each record by the mean and deviation of its own features."""
    BATCH = "batch_normalised"
    """In training by the means and deviations of the record's batch, in tests by those of all training records."""

    @property
    def is_private(self) -> bool:
        """True where noisy statistics are released."""
        return self in (InputNormalisation.NORMALISED, InputNormalisation.DP_PCA)

    @property
    def is_exact(self) -> bool:
        """True where exact statistics are used."""
        return self in (InputNormalisation.NORMALISED_EXACTLY, InputNormalisation.EXACT_PCA)

    @property
    def release(self) -> str:
        """Name of the release."""
        return "a Gaussian release of " + ("moments" if self is InputNormalisation.NORMALISED else "second moments")


def prepare(
    preparation: InputNormalisation,
    train: Tensor,
    test: Tensor,
    shares: list[NDArray[np.int64]],
    *,
    sigma: float,
    components: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return train and test inputs (n, features), entries in [0, 1], prepared with the mean of the clients' statistics.

    Each client clips its records to CLIPPED_SHARE of the largest norm and adds noise sigma (over the sensitivity; 0
    takes exact statistics), addressed by (seed, "preparation", client). BATCH leaves the training inputs to
    `normalised`, batch by batch.
    Formal guarantee: that of one client's release, see dpfl.mechanisms and dpfl.features.pca;
    LAYER releases nothing and keeps every guarantee, for a record's input depends on that record alone; none for BATCH.
    """
    if preparation is InputNormalisation.NONE:
        return train, test
    if preparation is InputNormalisation.LAYER:
        return normalised(train, 1), normalised(test, 1)
    if preparation is InputNormalisation.BATCH:
        return train, normalised(test, 0, by=train)
    features = train.shape[1]
    normalises = preparation in (InputNormalisation.NORMALISED, InputNormalisation.NORMALISED_EXACTLY)
    statistics = []
    for client, share in enumerate(shares):
        inputs, draw = train[torch.from_numpy(share)], generator(seed, "preparation", client)
        if normalises:
            noise = torch.from_numpy(draw.standard_normal(2 * features)).to(train.dtype)
            bound = CLIPPED_SHARE * math.sqrt(2 * features)
            moments = noisy_moments(inputs, bound=bound, noise_multiplier=sigma, noise=noise)
            statistics.append(torch.stack([moments.first, moments.second]))
        else:
            noise = torch.from_numpy(draw.standard_normal((features, features))).to(train.dtype)
            bound = CLIPPED_SHARE * math.sqrt(features)
            statistics.append(noisy_second_moments(inputs, bound=bound, noise_multiplier=sigma, noise=noise))
    mean = torch.stack(statistics).mean(0)
    if normalises:
        moments = Moments(*mean)
        return moments.normalise(train, LEAST_DEVIATION), moments.normalise(test, LEAST_DEVIATION)
    directions = principal_components(mean, components)
    return train @ directions, test @ directions


def normalised(inputs: Tensor, axis: int, *, by: Tensor | None = None) -> Tensor:
    """Return inputs (n, features) less the mean over an axis of `by` (themselves, if None), over its deviation there.

    Deviations below LEAST_DEVIATION count as that. Source: vandijk2023, section 2.7: over records (axis 0) batch
    normalisation, over a record's features (axis 1) layer normalisation.
    """
    source = inputs if by is None else by
    deviation = source.std(axis, correction=0, keepdim=True).clamp(min=LEAST_DEVIATION)
    return (inputs - source.mean(axis, keepdim=True)) / deviation


class Scaling(StrEnum):
    """Quantity that stays when batches grow by batch_factor."""

    EPOCHS = "epochs"
    STEP_SIZE = "step_size"
    """Epochs, with step sizes that grow with the batch."""
    ROUNDS = "rounds"


class Mixing(StrEnum):
    """Weights that the server gives the clients."""

    UNIFORM = "uniform"
    JUDGED = "judged"
    """By what they sent: dpfl.asynchronous.async_sgd.judged_weights."""


class ScenarioSettings(Settings):
    """The scenario of a cell, and by name the fields of the network that each scenario sets."""

    scenario: str
    scenarios: dict[str, dict[str, Any]]


class AsyncSettings(Settings):
    """Settings of a cell with its scenario's.

    sigma takes the place of epsilon, and grows with the batch by batch_factor. `strategy` names one of `strategies`.
    delta may be "1/N" or "1/(10 N)", N the number of a client's records, as section 3.2 has it. mislabelled: the share
    of the clients whose training labels are replaced by uniform draws; mixing: how the server weighs the clients.
    The bounds of speed_spread to max_distance are those of `dpfl.asynchronous.events.Network`.
    """

    clients: Count
    batch_size: Count
    epochs: Count
    batch_factor: Count
    scaling: Choice[Scaling]
    sampling: Annotated[Choice[Sampling], among(Sampling.FIXED, Sampling.POISSON)]
    neighbouring: Choice[Neighbouring]
    clip_norm: Positive
    delta: Probability | Literal["1/N", "1/(10 N)"]
    epsilon: Epsilon
    sigma: Positive | None
    learning_rate: Positive
    step_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    strategy: str
    strategies: dict[str, Strategy]
    preparation: Choice[InputNormalisation]
    preparation_share: Probability
    components: Count
    speed_spread: float
    delay: float
    jitter: float
    update_loss: float
    broadcast_loss: float
    window: float
    participation: float
    max_staleness: Count | None
    max_distance: float | None
    mixing: Choice[Mixing]
    mislabelled: Annotated[float, Field(ge=0, lt=1)]
