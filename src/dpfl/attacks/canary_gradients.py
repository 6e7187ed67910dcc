"""Canaries in private training: records that the worst adversary would choose, in with probability 1/2 each.

Every canary has a direction of its own in which no other record's gradient points, and there it pulls as far as
clipping lets a record pull. What training adds up along that direction is its score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting.samplers import Sampling
from dpfl.engine.batches import BatchSampler
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.linear_gradients import LinearGradients
from dpfl.engine.per_record_gradients import Batch, GradientRule, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.mechanisms.noise import base_noise


class CanaryGradients:
    """The gradients of a linear model, where a record with a label from `classes` on is a canary.

    Canary c (label classes + c) has the gradient clip_norm along the weight of output 0 and input first_input + c,
    where all other records' inputs are 0; canaries that are `out` add nothing. This is `zero_out` neighbouring, which
    has the dominating pair of add_or_remove.
    """

    def __init__(self, inner: GradientRule, classes: int, first_input: int, included: Tensor) -> None:
        self.inner, self.classes, self.first_input, self.included = inner, classes, first_input, included

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums with the canaries' own; shape (variants, parameters)."""
        x, y, present = batch
        canary = y >= self.classes
        labels = torch.where(canary, 0, y)
        sums = self.inner.clipped_sums(weights, (x, labels, present * ~canary), clip_norms)
        drawn = torch.where(canary, y - self.classes, 0)
        pulls = torch.zeros(len(self.included), dtype=x.dtype, device=x.device)
        pulls.index_add_(0, drawn, self.included[drawn] * canary * present)
        canary_inputs = slice(self.first_input, self.first_input + len(self.included))
        sums[:, canary_inputs] += clip_norms[:, None] * pulls
        return sums

    def record_bytes(self, record: Tensor) -> int:
        """As without canaries."""
        return self.inner.record_bytes(record)


@dataclass(frozen=True)
class ClientRun:
    """Settings of the audited run: DP-SGD on one client, as in dpfl.algorithms.fedavg."""

    batch_size: int
    sampling: Sampling
    epochs: int
    learning_rate: float
    momentum: float
    clip_norm: float
    noise_multipliers: tuple[float, ...]
    seed: int


def image_scores(run: ClientRun, inputs: Tensor, labels: Tensor, classes: int, included: NDArray) -> NDArray:
    """Train a linear model on one client's records and the canaries; return the scores, (noises, canaries).

    inputs (records, features) float32, labels (records,). The client has records + canaries records; every noise
    multiplier of the run trains its own model, on the same batches and base noise. A score is the movement of the
    canary's weight over all steps, which adds up what an observer of every step sees.
    """
    records, canaries = len(labels), len(included)
    features = inputs.shape[1]
    padded = torch.zeros(records + canaries, features + canaries, dtype=inputs.dtype)
    padded[:records, :features] = inputs
    extended_labels = torch.cat([labels, classes + torch.arange(canaries)])
    module = nn.Linear(features + canaries, classes)
    bits = torch.as_tensor(included, dtype=inputs.dtype)
    rule = CanaryGradients(LinearGradients(module, cross_entropy), classes, features, bits)
    count = len(run.noise_multipliers)
    variants = StackedHyperparameters(
        torch.full((count,), run.clip_norm), torch.tensor(run.noise_multipliers, dtype=torch.float32)
    )
    sgd = SGD(StackedGradients(rule, padded[0], 2**30), variants, run.learning_rate, run.momentum)
    size = (features + canaries + 1) * classes
    weights, velocity = torch.zeros(1, count, size), torch.zeros(1, count, size)
    sampler = BatchSampler(run.sampling, run.batch_size, records + canaries)
    for epoch in range(1, run.epochs + 1):
        batches = sampler.epoch(epoch, seed=run.seed, client=0)

        def noise(group: int, step: int, epoch: int = epoch) -> Tensor:
            address = {"seed": run.seed, "client": 0, "epoch": epoch, "step": step}
            return base_noise(size, **address, dtype=weights.dtype, device=weights.device)

        sgd.epoch(weights, velocity, (padded, extended_labels), [batches], [sampler.divisor], noise)
    return -weights[0, :, features : features + canaries].numpy().astype(np.float64)
