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
from dpfl.engine.batches import steps_per_epoch

MODELS_AT_ONCE = 256
"""Trials of a stack: about the fastest for one step of one trial."""


@dataclass(frozen=True)
class ClaimedTraining:
    """DP-SGD of one client, as a privacy statement describes it, and the epsilons that it claims.

    An epoch has ceil(records / batch_size) steps; POISSON takes each record with probability 1/steps. The noise on a
    clipped sum has standard deviation noise_multiplier * clip_norm, whatever the neighbouring relation; the noisy sum
    is divided by `divisor`. `claims`: points (epsilon, delta), each claimed for an observer of every step under
    `neighbouring`. Raises ValueError naming the field out of range.
    """

    sampling: Sampling
    neighbouring: Neighbouring
    records: int
    batch_size: int
    epochs: int
    clip_norm: float
    noise_multiplier: float
    divisor: int
    claims: Claims

    def __post_init__(self) -> None:
        for name in ("records", "batch_size", "epochs", "divisor"):
            integer(name, getattr(self, name), at_least=1)
        real("clip_norm", self.clip_norm, above=0)
        real("noise_multiplier", self.noise_multiplier, at_least=0)
        if self.sampling not in (Sampling.POISSON, Sampling.SHUFFLED):
            raise ValueError(f"sampling: {self.sampling} is no sampler of epochs, should be poisson or shuffled_epochs")

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return steps_per_epoch(self.records, self.batch_size)

    @property
    def pair(self) -> WorstPair:
        """The worst pair of neighbouring data sets that is known for the sampler."""
        return worst_pair(self.sampling, self.neighbouring)

    @property
    def law(self) -> StepLaw:
        """What a step sees of the record in question; where an epoch is one step, it lacks a removed record's mate."""
        here, there = self.pair.shifts
        shifts = here, there - self.pair.mates if self._shortens_last_step and self.steps == 1 else there
        return StepLaw.of(self.sampling, 1 / self.steps, shifts, self.noise_multiplier)

    @property
    def conforming(self) -> OracleTraining:
        """The trainer of this repository's engine with these settings."""
        return OracleTraining(
            self.sampling, self.batch_size, self.epochs, self.clip_norm, self.noise_multiplier, self.divisor
        )

    @property
    def _shortens_last_step(self) -> bool:
        """Whether a missing record shortens the last batch, which the pair's shifts leave out."""
        return self.sampling is Sampling.SHUFFLED and self.neighbouring is Neighbouring.ADD_OR_REMOVE

    def seen(self, trainer: Trainer, trials: int, *, world: int, seed: int) -> NDArray[np.float64]:
        """Return what an observer of every step sees of `trials` trainings in world P (0) or Q (1).

        Shape (trials, epochs, steps), in clip norms, relative to what a batch of mates sums to. Where a removed record
        shortens the last of many batches of an epoch, that step is left out. Every stack of trials has its own seed.
        """
        at_once = min(MODELS_AT_ONCE, self.records, trials)
        gradients = self.pair.gradients(self.records, at_once, world=world, clip_norm=self.clip_norm)
        stacks = -(-trials // at_once)
        first = 2 * stacks * seed + world * stacks
        messages = np.concatenate([trainer(gradients, first + stack) for stack in range(stacks)])[:trials]
        sizes = np.minimum(self.batch_size, self.records - self.batch_size * np.arange(self.steps))
        relative = messages * (self.divisor / self.clip_norm) - self.pair.mates * sizes
        return relative[..., :-1] if self._shortens_last_step and self.steps > 1 else relative
