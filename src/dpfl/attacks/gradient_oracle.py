"""Private training on gradients that an attacker chooses, through the step, clipping, noise and batches of the engine.

Many trials train as one stack: model v has its gradients along coordinate v, where the noise of model v is independent
of the others' (models share the vector of base noise), and the records in question are different ones, with coins of
their own. So the trials of a stack are independent, up to which batch a permutation puts them in, which statistics that
treat the steps of an epoch alike do not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.engine.batches import BatchSampler
from dpfl.engine.per_record_gradients import Batch, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.mechanisms.clipping import clip_factors
from dpfl.mechanisms.noise import base_noise


class Trainer(Protocol):
    """A private training under attack."""

    def __call__(self, gradients: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return the noisy gradient of every step along each trial's direction, (trials, epochs, steps per epoch).

        `gradients` (trials, records): in trial v, record i has the gradient gradients[v, i] along a direction of the
        trial's own and 0 in all others. Equal seeds give equal draws. What is returned is what moves the model:
        clipped, summed, noised, divided by the trainer's divisor.
        """


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
