"""Train a stack of models for an epoch by SGD with momentum, private or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.engine.per_record_gradients import Batch, StackedGradients


@dataclass(frozen=True)
class StackedHyperparameters:
    """Clip norms and noise of the models that share a batch, on the models' device.

    `clip_norms` (variants,) and `noise_multipliers`, (variants,) or (groups, variants) where each group has its own;
    both >= 0. An infinite clip norm means plain SGD: no clipping, no noise.
    """

    clip_norms: Tensor
    noise_multipliers: Tensor

    @property
    def clipped(self) -> Tensor:
        """Mask of the variants that clip, (variants,)."""
        return torch.isfinite(self.clip_norms)

    @property
    def noise_std(self) -> Tensor:
        """Standard deviation of the noise on the summed gradient, in the shape of `noise_multipliers`."""
        return torch.where(self.clipped, self.noise_multipliers * self.clip_norms, 0.0)


@dataclass(frozen=True)
class SGD:
    """Stacked DP-SGD: noise on the clipped sum, then a division by a constant.

    Update of every parameter w with momentum m: m <- momentum * m + g, w <- w - learning_rate * m, with
    g = (sum of clipped gradients + noise_multiplier * C * z) / divisor for variants that clip, z standard normal, and
    the mean gradient of the batch for plain ones (0 for an empty batch). Source: abadi2016,
    Algorithm 1, with momentum.

    Formal guarantee: for variants that clip, one step is a Gaussian mechanism with that noise multiplier on the batch
    (dpfl.mechanisms), an empty batch included, which moves the weights by noise alone, provided that the divisor is a
    constant of the setting (dpfl.engine.batches.BatchSampler.divisor). What the steps compose to depends on the sampler
    (dpfl.accounting).
    """

    gradients: StackedGradients
    variants: StackedHyperparameters
    learning_rate: float
    momentum: float

    def epoch(
        self,
        weights: Tensor,
        velocity: Tensor,
        data: tuple[Tensor, Tensor],
        batches: list[list[NDArray[np.int64]]],
        divisors: list[int],
        noise: Callable[[int, int], Tensor],
    ) -> None:
        """Train `weights` and `velocity`, (groups, variants, parameters), in place through one epoch.

        `data`: inputs (records, ...) and labels (records,). `batches[group][step]`: indices into them, the same number
        of steps in every group. `divisors`: a constant a group. `noise(group, step)`: standard normal
        draws (parameters,), called only where a variant needs them.
        """
        denominators = torch.tensor(divisors, dtype=weights.dtype, device=weights.device)[:, None]
        noise_std = self.variants.noise_std.to(weights.dtype)[..., None]
        noisy = bool((noise_std > 0).any())
        for step in range(len(batches[0])):
            batch, counts = _gather(data, [group[step] for group in batches])
            gradient = self.gradients(weights, batch, self.variants.clip_norms)
            if noisy:
                draws = torch.stack([noise(group, step) for group in range(len(weights))])
                gradient.addcmul_(draws[:, None, :], noise_std)
            sizes = torch.where(self.variants.clipped, denominators, counts[:, None].clamp(min=1))
            velocity.mul_(self.momentum).addcdiv_(gradient, sizes[:, :, None])
            weights.sub_(velocity, alpha=self.learning_rate)


def _gather(data: tuple[Tensor, Tensor], chosen: list[NDArray[np.int64]]) -> tuple[Batch, Tensor]:
    """Return the groups' batches, padded to the longest, and their true sizes (groups,)."""
    inputs, labels = data
    longest = max(len(indices) for indices in chosen)
    rows = np.zeros((len(chosen), longest), dtype=np.int64)
    present = np.zeros((len(chosen), longest), dtype=bool)
    for group, indices in enumerate(chosen):
        rows[group, : len(indices)] = indices
        present[group, : len(indices)] = True
    index = torch.from_numpy(rows).to(inputs.device)
    flags = torch.from_numpy(present).to(inputs.device, inputs.dtype)
    x, y = (part.index_select(0, index.flatten()).unflatten(0, index.shape) for part in (inputs, labels))
    return (x, y, flags), flags.sum(1)
