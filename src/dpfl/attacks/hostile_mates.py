"""Train a real network on records that are each other's hostile mates: one image, half with one label, half another.

The model cannot fit both labels, so at every iterate the records of one label or both have long gradients, which are
clipped. A step that draws exactly one record, and one of these, shows along its gradient how far a record moves it; a
step that draws none shows the noise alone, in every parameter. All other slots of the client stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from dpfl.attacks.noise_family import StepEvidence
from dpfl.engine.batches import BatchSampler
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise

if TYPE_CHECKING:
    from dpfl.accounting.samplers import Sampling

_CLIPPED = 0.999
"""Least norm of a gradient, over the clip norm, that counts as clipped."""


@dataclass(frozen=True)
class ClientRun:
    """Settings of the audited run: DP-SGD on one client, as in dpfl.images.fedavg."""

    batch_size: int
    sampling: Sampling
    epochs: int
    learning_rate: float
    momentum: float
    clip_norm: float
    noise_multipliers: tuple[float, ...]
    seed: int

    @property
    def variants(self) -> StackedHyperparameters:
        """The models that train together: one for each noise multiplier."""
        count = len(self.noise_multipliers)
        noise = torch.tensor(self.noise_multipliers, dtype=torch.float32)
        return StackedHyperparameters(torch.full((count,), self.clip_norm), noise)


def hostile_mates_evidence(
    run: ClientRun, module: nn.Module, image: Tensor, records: int, trainings: int
) -> list[StepEvidence]:
    """Train `module` from its weights `trainings` times; return what the steps show, by noise multiplier.

    `image`: one input, without batch axis; `records`: how many the client is known to hold, 2 or more. In expectation a
    step draws one. Trainings have batches and noise of their own. Gradients are computed anew, of one record at the
    iterate before the step, to find its direction and whether it is clipped: so neither depends on the step's noise.
    """
    layout = ParameterVector.of(module)
    sampler = BatchSampler(run.sampling, run.batch_size, records)
    held = min(records, max(2, sampler.steps_per_epoch))
    inputs, labels = image.expand(held, *image.shape), torch.arange(held) % 2
    rule = gradient_rule(module, cross_entropy, image)
    sgd = SGD(StackedGradients(rule, image, 2**30), run.variants, run.learning_rate, run.momentum)
    start = layout.flatten(dict(module.named_parameters())).detach()
    found: list[list[StepEvidence]] = [[] for _ in run.noise_multipliers]
    for client in range(1, trainings + 1):
        weights = start.repeat(1, len(found), 1)
        velocity = torch.zeros_like(weights)
        for epoch in range(1, run.epochs + 1):
            batches = sampler.epoch(epoch, seed=run.seed, client=client, records=held)
            for number, batch in enumerate(batches):
                alone = (image[None], labels[batch[:1]], torch.ones(1))
                directions = rule.clipped_sums(weights[0], alone, run.variants.clip_norms) if len(batch) == 1 else None
                before = velocity.clone()
                draws = base_noise(
                    layout.size, seed=run.seed, client=client, epoch=epoch, step=number, dtype=weights.dtype,
                    device=weights.device,
                )  # fmt: skip
                sgd.epoch(weights, velocity, (inputs, labels), [[batch]], [sampler.divisor], lambda *_, z=draws: z)
                if len(batch) <= 1:
                    sums = (velocity - run.momentum * before)[0].double() * (sampler.divisor / run.clip_norm)
                    for model, own in enumerate(sums):
                        found[model].append(_evidence(own, None if directions is None else directions[model], run))
    return [reduce(add, each, StepEvidence(1.0, 0, 0.0, 0, 0.0)) for each in found]


def _evidence(sums: Tensor, gradient: Tensor | None, run: ClientRun) -> StepEvidence:
    """Return what one noisy sum shows: of a record with that gradient, if it is clipped; without one, of the noise."""
    nothing = np.empty(0)
    if gradient is None:
        return StepEvidence.of(nothing, sums.numpy(), 1.0)
    norm = gradient.double().norm()
    if norm < _CLIPPED * run.clip_norm:
        return StepEvidence.of(nothing, nothing, 1.0)
    return StepEvidence.of(np.array([float(sums @ gradient.double() / norm)]), nothing, 1.0)
