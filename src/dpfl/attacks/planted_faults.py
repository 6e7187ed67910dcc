"""Ten wrong trainers, each different from the right one in one thing, and the claim that exposes each.

They prove that dpfl.attacks.claimed_training finds what it should; a conformance kit can plant them anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import ChosenGradients, ClaimedTraining, OracleTraining, Trainer
from dpfl.engine.batches import BatchSampler
from dpfl.mechanisms import clip_factors

DELTAS = (1e-5, 1e-3, 1e-2, 0.05, 0.1, 0.2)
"""A claim is tried at each: small ones say most, large ones are refuted by the fewest trainings."""


def poisson_claim(
    *,
    neighbouring: Neighbouring = Neighbouring.ZERO_OUT,
    records: int = 256,
    batch_size: int = 16,
    epochs: int = 3,
    noise_multiplier: float = 1.0,
) -> ClaimedTraining:
    """Return the claim of a training on Poisson batches that conforms: the epsilons at `DELTAS` by PLD accounting."""
    sampler = BatchSampler(Sampling.POISSON, batch_size, records)
    setting = {"sample_rate": sampler.sample_rate, "steps": epochs * sampler.steps_per_epoch}
    epsilons = dpsgd.epsilon(
        noise_multiplier=noise_multiplier, delta=np.array(DELTAS), neighbouring=neighbouring, **setting
    )
    claims = tuple(zip(np.asarray(epsilons).tolist(), DELTAS, strict=True))
    return ClaimedTraining(sampler, neighbouring, epochs, 1.0, noise_multiplier, claims)


class NoiseHalved(OracleTraining):
    """Adds half the noise."""

    def noise(self, size: int, seed: int, epoch: int, step: int, steps: int) -> Tensor:
        """Half of it."""
        return super().noise(size, seed, epoch, step, steps) / 2


class _MeanClipped(ChosenGradients):
    """Clips the sum over the batch, as if it were one record's."""

    def diagonal_sums(self, gradients: Tensor, present: Tensor, clip_norms: Tensor) -> Tensor:
        """The clipped mean, times the batch's size."""
        count = present.sum().clamp(min=1)
        mean = (gradients * present).sum(1) / count
        return mean * clip_factors(mean.abs(), clip_norms[:, 0]) * count


class ClipAfterAveraging(OracleTraining):
    """Clips the mean gradient of a batch, not each record's."""

    def rule(self, records: int) -> ChosenGradients:
        """Return the rule that clips the mean."""
        return _MeanClipped()


class NoiseOncePerRound(OracleTraining):
    """Adds the noise of an epoch, a round, at its last step only."""

    def noise(self, size: int, seed: int, epoch: int, step: int, steps: int) -> Tensor:
        """Nothing before the last step."""
        drawn = super().noise(size, seed, epoch, step, steps)
        return drawn if step == steps - 1 else torch.zeros_like(drawn)


class ForgottenSensitivity(NoiseHalved):
    """Scales the noise to the clip norm, though a record replaced by another moves a sum by twice that."""


class BatchRepeated(OracleTraining):
    """Takes every step of an epoch on the epoch's first batch."""

    def batches(self, records: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """The first one, as often as there are steps."""
        drawn = super().batches(records, seed, epoch)
        return [drawn[0]] * len(drawn)


class SeedReused(OracleTraining):
    """Seeds the noise of every epoch alike."""

    def noise(self, size: int, seed: int, epoch: int, step: int, steps: int) -> Tensor:
        """The first epoch's."""
        return super().noise(size, seed, 1, step, steps)


class SamplingRateWrong(OracleTraining):
    """Draws batches that are twice as large as accounted for, by joining two."""

    def batches(self, records: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """The union of each batch with one of another training."""
        other = super().batches(records, seed + 2**40, epoch)
        return [np.union1d(*pair) for pair in zip(super().batches(records, seed, epoch), other, strict=True)]


class DivisorLeaksN(OracleTraining):
    """Divides by the expected batch size that follows from the number of records."""

    def divisor(self, records: int) -> int:
        """floor(n / steps)."""
        return records // self.sampler.steps_per_epoch


class NoiseOnOneLayer(OracleTraining):
    """Adds noise to the first half of the parameters only."""

    def noise(self, size: int, seed: int, epoch: int, step: int, steps: int) -> Tensor:
        """Nothing on the second half."""
        drawn = super().noise(size, seed, epoch, step, steps)
        drawn[size // 2 :] = 0
        return drawn


class _LastUnclipped(ChosenGradients):
    """Clips but for every `steps`-th batch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def diagonal_sums(self, gradients: Tensor, present: Tensor, clip_norms: Tensor) -> Tensor:
        """Sums, without clipping where an epoch's last batch comes."""
        last = len(self.iterates) % self.steps == 0
        return super().diagonal_sums(gradients, present, torch.inf * clip_norms if last else clip_norms)


class LastBatchUnclipped(OracleTraining):
    """Forgets to clip the last batch of an epoch."""

    def rule(self, records: int) -> ChosenGradients:
        """Return the rule that leaves an epoch's last batch as it is."""
        return _LastUnclipped(self.sampler.steps_per_epoch)


@dataclass(frozen=True)
class PlantedFault:
    """A wrong trainer, made from the settings of the right one, and a claim that it breaks."""

    kind: type[OracleTraining]
    claim: ClaimedTraining

    @property
    def trainer(self) -> Trainer:
        """The wrong trainer."""
        return self.kind(**vars(self.claim.conforming))


def planted_faults() -> tuple[PlantedFault, ...]:
    """Return the ten faults, each with a claim of a right trainer."""
    zero_out = poisson_claim()
    replaced = poisson_claim(neighbouring=Neighbouring.REPLACE_ONE, noise_multiplier=1.5)
    # 32 records in 16 steps: without one the expected batch size falls from 2 to 1.
    removed = poisson_claim(neighbouring=Neighbouring.ADD_OR_REMOVE, records=32, batch_size=2, epochs=1)
    by_claim = {
        zero_out: (
            NoiseHalved, ClipAfterAveraging, NoiseOncePerRound, BatchRepeated, SeedReused, SamplingRateWrong,
            NoiseOnOneLayer, LastBatchUnclipped,
        ),
        replaced: (ForgottenSensitivity,),
        removed: (DivisorLeaksN,),
    }  # fmt: skip
    return tuple(PlantedFault(kind, claim) for claim, kinds in by_claim.items() for kind in kinds)
