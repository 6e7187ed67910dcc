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
from dpfl.engine.network_gradients import gradient_rule
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import Batch, GradientRule, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.mechanisms.noise import base_noise


class CanaryGradients:
    """The gradients of a model, where a record with a label from `classes` on is a canary.

    The weights are the model's, then one for each canary, which the model does not read: the gradient of canary c is
    clip_norm along weight c of these, where every other record's gradient is 0. Canaries that are `out` add nothing.
    This is `zero_out` neighbouring, which has the dominating pair of add_or_remove.
    """

    def __init__(self, inner: GradientRule, classes: int, included: Tensor) -> None:
        self.inner, self.classes, self.included = inner, classes, included

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums of the records, then those of the canaries; shape (variants, parameters + canaries)."""
        x, y, present = batch
        canary = y >= self.classes
        labels = torch.where(canary, 0, y)
        model = weights[:, : -len(self.included)].contiguous()
        sums = self.inner.clipped_sums(model, (x, labels, present * ~canary), clip_norms)
        drawn = torch.where(canary, y - self.classes, 0)
        pulls = torch.zeros(len(self.included), dtype=x.dtype, device=x.device)
        pulls.index_add_(0, drawn, self.included[drawn] * canary * present)
        return torch.cat([sums, clip_norms[:, None] * pulls], 1)

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


def image_scores(
    run: ClientRun, module: nn.Module, inputs: Tensor, labels: Tensor, classes: int, included: NDArray
) -> NDArray:
    """Train `module` from its weights on one client's records and the canaries; return scores, (noises, canaries).

    inputs (records, ...) float32, labels (records,). The client has records + canaries records; every noise
    multiplier of the run trains its own model, on the same batches and base noise. A score is the movement of the
    canary's weight over all steps, which adds up what an observer of every step sees.
    """
    records, canaries = len(labels), len(included)
    padded = torch.cat([inputs, inputs.new_zeros(canaries, *inputs.shape[1:])])
    extended_labels = torch.cat([labels, classes + torch.arange(canaries)])
    bits = torch.as_tensor(included, dtype=inputs.dtype)
    rule = CanaryGradients(gradient_rule(module, cross_entropy, padded[0]), classes, bits)
    count = len(run.noise_multipliers)
    variants = StackedHyperparameters(
        torch.full((count,), run.clip_norm), torch.tensor(run.noise_multipliers, dtype=torch.float32)
    )
    sgd = SGD(StackedGradients(rule, padded[0], 2**30), variants, run.learning_rate, run.momentum)
    start = ParameterVector.of(module).flatten(dict(module.named_parameters())).detach()
    weights = torch.cat([start, start.new_zeros(canaries)]).repeat(1, count, 1)
    velocity = torch.zeros_like(weights)
    sampler = BatchSampler(run.sampling, run.batch_size, records + canaries)
    for epoch in range(1, run.epochs + 1):
        batches = sampler.epoch(epoch, seed=run.seed, client=0)

        def noise(group: int, step: int, epoch: int = epoch) -> Tensor:
            address = {"seed": run.seed, "client": 0, "epoch": epoch, "step": step}
            return base_noise(weights.shape[-1], **address, dtype=weights.dtype, device=weights.device)

        sgd.epoch(weights, velocity, (padded, extended_labels), [batches], [sampler.divisor], noise)
    return -weights[0, :, len(start) :].numpy().astype(np.float64)
