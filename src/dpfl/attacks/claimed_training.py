"""A private training as it is claimed to be: what an attacker needs to know of it, and what a conforming one does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.distinguishers import StepLaw
from dpfl.attacks.gradient_oracle import OracleTraining, Trainer
from dpfl.attacks.lower_bounds import Claims
from dpfl.attacks.worst_pair import WorstPair, worst_pair
from dpfl.engine.batches import BatchSampler

_SAMPLERS = (Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED)
MODELS_AT_ONCE = 256
"""Trials of a stack: about the fastest for one step of one trial."""


@dataclass(frozen=True)
class ClaimedTraining:
    """DP-SGD of one client, as a privacy statement describes it, and the epsilons that it claims.

    `sampler` draws POISSON, BALLS_IN_BINS or SHUFFLED batches; the client holds all of its public records, and one less
    where a record is removed, whose slot stays empty. The noise on a clipped sum has standard deviation
    noise_multiplier * clip_norm, whatever the neighbouring relation; the noisy sum is divided by the sampler's divisor.
    `claims`: points (epsilon, delta), each claimed for an observer of every step under `neighbouring`. Raises
    ValueError naming the field out of range.
    """

    sampler: BatchSampler
    neighbouring: Neighbouring
    epochs: int
    clip_norm: float
    noise_multiplier: float
    claims: Claims

    def __post_init__(self) -> None:
        integer("epochs", self.epochs, at_least=1)
        real("clip_norm", self.clip_norm, above=0)
        real("noise_multiplier", self.noise_multiplier, at_least=0)
        if self.sampler.sampling not in _SAMPLERS:
            raise ValueError(f"sampler: {self.sampler.sampling} should be one of {', '.join(_SAMPLERS)}")

    @property
    def pair(self) -> WorstPair:
        """The worst pair of neighbouring data sets that is known for the sampler."""
        return worst_pair(self.sampler.sampling, self.neighbouring)

    @property
    def law(self) -> StepLaw:
        """What a step sees of the record in question."""
        return StepLaw.of(
            self.sampler.sampling, 1 / self.sampler.steps_per_epoch, self.pair.shifts, self.noise_multiplier
        )

    @property
    def conforming(self) -> OracleTraining:
        """The trainer of this repository's engine with these settings."""
        return OracleTraining(self.sampler, self.epochs, self.clip_norm, self.noise_multiplier)

    def seen(self, trainer: Trainer, trials: int, *, world: int, seed: int) -> NDArray[np.float64]:
        """Return what an observer of every step sees of `trials` trainings in world P (0) or Q (1).

        Shape (trials, epochs, steps), in clip norms, relative to what a batch of mates sums to. Every stack of trials
        has its own seed.
        """
        records = self.sampler.public_records
        at_once = min(MODELS_AT_ONCE, records, trials)
        gradients = self.pair.gradients(records, at_once, world=world, clip_norm=self.clip_norm)
        stacks = -(-trials // at_once)
        first = 2 * stacks * seed + world * stacks
        messages = np.concatenate([trainer(gradients, first + stack) for stack in range(stacks)])[:trials]
        size = self.sampler.batch_size
        sizes = np.minimum(size, records - size * np.arange(self.sampler.steps_per_epoch))
        return messages * (self.sampler.divisor / self.clip_norm) - self.pair.mates * sizes
