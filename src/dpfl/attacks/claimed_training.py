"""The check of a private training against its claim: an attack with a stated rate of false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.accounting.numerics import integer, real
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import (
    Claims,
    Evidence,
    Statistic,
    StepLaw,
    Worlds,
    WorstPair,
    statistics,
    strongest_test,
    worst_pair,
)
from dpfl.engine.per_record_gradients import Batch, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise
from dpfl.mechanisms import clip_factors

if TYPE_CHECKING:
    from dpfl.accounting.neighbouring import Neighbouring
    from dpfl.engine.batches import BatchSampler

# Private training on gradients that an attacker chooses, through the step, clipping, noise and batches of the engine.
#
# Many trials train as one stack: model v has its gradients along coordinate v, where the noise of model v is
# independent of the others' (models share the vector of base noise), and the records in question are different ones,
# with coins of their own. So the trials of a stack are independent, up to which batch a permutation puts them in, which
# statistics that treat the steps of an epoch alike do not see. `repeated_batches` does not: if the record is missing,
# all trials of a stack miss the same place, so it is not used there.


class Trainer(Protocol):
    """A private training under attack."""

    def __call__(self, gradients: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return the noisy gradient of every step along each trial's direction, (trials, epochs, steps per epoch).

        `gradients` (trials, records): in trial v, record i has the gradient gradients[v, i] along a direction of the
        trial's own and 0 in all others. Equal seeds give equal draws. What is returned is what moves the model:
        clipped, summed, noised, divided by the trainer's divisor.
        """
        ...


class ChosenGradients:
    """A GradientRule whose inputs ARE gradients: input[v] is the record's gradient in model v, along coordinate v.

    Models and parameters are equally many. `iterates` collects what an observer sees: of the weights at each step, the
    diagonal.
    """

    def __init__(self) -> None:
        self.iterates: list[Tensor] = []

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the clipped sums, (models, models), 0 off the diagonal."""
        self.iterates.append(weights.diagonal().clone())
        gradients, _, present = batch
        return torch.diag(self.diagonal_sums(gradients.T, present, clip_norms[:, None]))

    def diagonal_sums(self, gradients: Tensor, present: Tensor, clip_norms: Tensor) -> Tensor:
        """Return the sum over present records of clipped gradients (models, n); shape (models,)."""
        return (gradients * clip_factors(gradients.abs(), clip_norms) * present).sum(1)

    def record_bytes(self, record: Tensor) -> int:
        """The gradients and their factors."""
        return 3 * record.element_size() * record.numel()


@dataclass(frozen=True)
class OracleTraining:
    """DP-SGD of one client on chosen gradients: the `Trainer` that this repository's engine is.

    `noise_multiplier` is the noise's standard deviation over clip_norm; a noisy sum is divided by the sampler's
    divisor, whatever the number of records. Without momentum, in float64. Every part that a trainer can get wrong is a
    method of its own.
    """

    sampler: BatchSampler
    epochs: int
    clip_norm: float
    noise_multiplier: float

    def __call__(self, gradients: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Train; see `Trainer`."""
        trials, records = gradients.shape
        inputs = torch.from_numpy(np.ascontiguousarray(gradients.T, dtype=np.float64))
        rule = self.rule(records)
        per_model = [
            torch.full((trials,), each, dtype=inputs.dtype) for each in (self.clip_norm, self.noise_multiplier)
        ]
        stacked = StackedGradients(rule, inputs[0], memory_bytes=2**50)
        sgd = SGD(stacked, StackedHyperparameters(*per_model), learning_rate=1.0, momentum=0.0)
        weights = torch.zeros(1, trials, trials, dtype=inputs.dtype)
        velocity = torch.zeros_like(weights)
        labels = torch.zeros(records, dtype=torch.int64)
        for epoch in range(1, self.epochs + 1):
            batches = self.batches(records, seed, epoch)

            def noise(group: int, step: int, epoch: int = epoch, steps: int = len(batches)) -> Tensor:
                return self.noise(trials, seed, epoch, step, steps)

            sgd.epoch(weights, velocity, (inputs, labels), [batches], [self.divisor(records)], noise)
        iterates = torch.stack([*rule.iterates, weights[0].diagonal()])
        return (iterates[:-1] - iterates[1:]).T.reshape(trials, self.epochs, -1).numpy()

    def rule(self, records: int) -> ChosenGradients:
        """Return what clips and sums, for a client of `records` records."""
        return ChosenGradients()

    def batches(self, records: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch (from 1)."""
        return self.sampler.epoch(epoch, seed=seed, client=0, records=records)

    def noise(self, size: int, seed: int, epoch: int, step: int, steps: int) -> Tensor:
        """Return the base noise of step `step` of `steps`, (size,)."""
        address = {"seed": seed, "client": 0, "epoch": epoch, "step": step}
        return base_noise(size, **address, dtype=torch.float64, device=torch.device("cpu"))

    def divisor(self, records: int) -> int:
        """Return what noisy sums are divided by."""
        return self.sampler.divisor


# A private training as claimed: the facts that an attacker needs, and the behaviour of a conforming one.

_SAMPLERS = (Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED)
MODELS_AT_ONCE = 256
"""Trials of a stack: about the fastest for one step of one trial."""


@dataclass(frozen=True)
class ClaimedTraining:
    """DP-SGD of one client, as a privacy statement describes it, and the epsilons that it claims.

    `sampler` draws POISSON, BALLS_IN_BINS or SHUFFLED batches; the client has all of its public records, and one less
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
        """Return the law of one step's observation of the record."""
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


CONFIDENCE = 1 - 1e-4
"""Of 100 conforming trainers, one or more is refuted with probability 1 % at most."""


def independent_statistics(claim: ClaimedTraining) -> dict[str, Statistic]:
    """Return the statistics of a trial that are independent between the trials of a stack."""
    known = statistics(claim.law)
    if claim.sampler.sampling is Sampling.SHUFFLED and claim.pair.canary[1] is None:
        del known["repeated_batches"]
    return known


def check(
    trainer: Trainer, claim: ClaimedTraining, *, trials: int = 2000, seed: int = 0, confidence: float = CONFIDENCE
) -> Evidence:
    """Attack `trainer` as if it were what `claim` says; an excess above 0 refutes one of the claimed epsilons.

    `trials` trainings in each world choose the statistic and its threshold, as many more are counted.
    Guarantee: a trainer that satisfies the claims, with independent trials, is refuted with probability
    1 - confidence at most. What is not refuted is not proven: the attack sees what its statistics see.
    """
    design, evaluation = (
        cast("Worlds", tuple(claim.seen(trainer, trials, world=world, seed=2 * seed + part) for world in (0, 1)))
        for part in (0, 1)
    )
    return strongest_test(design, evaluation, independent_statistics(claim), claim.claims, confidence)
