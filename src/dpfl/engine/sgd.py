"""Stacked private SGD: the noise, the step, the accuracy of the models, and the distances between them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from dpfl.engine.per_record_gradients import Batch, ParameterVector, StackedGradients, aligned, is_out_of_memory
from dpfl.randomness import address_key, standard_normal

# Noise of the Gaussian mechanism, and the same with lighter tails: a arsinh(N/a) instead of N.

_HALF = 2**64
_OFFSETS = 2**60
"""Offsets into a CUDA stream are multiples of 4 below 4 * 2^60: a draw from one cannot run past 2^64."""


def base_noise(
    size: int, *, seed: int, client: int, epoch: int, step: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return `size` independent standard normal draws of one client's step, shape (size,).

    The draws depend on the address, size, dtype and kind of device alone. On a CPU: Philox4x64 with the address's
    128-bit key (dpfl.randomness). On CUDA: torch's Philox4x32, which has room for 124 bits of that key, 64 as its seed
    and 60 as its offset; the draws are others than a CPU's. Variants of a run share them, each scaled by its
    own noise_multiplier * clip_norm: every variant has the law that it would have alone, and comparisons are paired.

    Formal guarantee: adding noise_multiplier * C times these draws to a sum of gradients clipped to C is the Gaussian
    mechanism with that noise multiplier, against anyone who sees one variant. Publishing several variants of a run,
    or several runs of one seed, together is not covered: their noise is the same. The generator is not cryptographic
    (neither is Opacus's by default), and rounding of the draws is not accounted for.
    """
    if device.type == "cpu":
        draws = torch.empty(size, dtype=dtype)
        standard_normal(draws.numpy(), seed, "noise", client, epoch, step)
        return draws
    philox_seed, offset = cuda_stream(address_key(seed, "noise", client, epoch, step))
    generator = torch.Generator(device).manual_seed(philox_seed)
    generator.set_offset(offset)
    return torch.randn(size, generator=generator, dtype=dtype, device=device)


def cuda_stream(key: int) -> tuple[int, int]:
    """Return the seed, in [0, 2^64), and the offset, a multiple of 4 in [0, 2^62), that a torch.Generator on CUDA takes
    for a 128-bit key: all of it but 4 bits. Keys that agree in 124 bits share a stream."""
    return key % _HALF, 4 * (key // _HALF % _OFFSETS)


def arsinh_noise(gaussian: Tensor, scale: Tensor) -> Tensor:
    """Return scale * arsinh(gaussian / scale) element by element; where `scale` is infinite, `gaussian` itself.

    `gaussian`: draws of N(0, noise_std^2), any shape; `scale` > 0 broadcasts to it. Near 0 the result is N, far out it
    grows as its logarithm. Source: vandijk2023, section 5.2; bun2018.

    Formal guarantee: for one number that a record moves by at most 1, dpfl.accounting.tradeoff.arsinh_guarantee;
    it spends more than Gaussian noise of the same deviation.
    """
    finite = torch.isfinite(scale)
    if not bool(finite.any()):
        return gaussian
    safe = torch.where(finite, scale, 1.0)
    return torch.where(finite, safe * torch.asinh(gaussian / safe), gaussian)


# Train a stack of models for an epoch by SGD with momentum, private or not.


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


# Measure the accuracy of trained models on test data.

_log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 1000


@torch.no_grad()
def accuracy_pct(module: nn.Module, weights: Tensor, inputs: Tensor, labels: Tensor) -> list[float]:
    """Return the share of correct predictions, in percent, of each model of `weights` (models, parameters).

    `inputs` (n, ...) and `labels` (n,), n >= 1; raises ValueError where their lengths differ. A model whose outputs are
    not numbers is measured like any other. Where memory runs out, fewer records go together, and the log says so.
    """
    if len(inputs) != len(labels):
        raise ValueError(f"labels: {len(labels)} for {len(inputs)} inputs")
    layout, at_once = ParameterVector.of(module), RECORDS_AT_ONCE
    results: list[float] = []
    for flat in aligned(weights):
        parameters, correct, done = layout.views(flat), 0, 0
        while done < len(labels):
            here = slice(done, done + at_once)
            try:
                predicted = functional_call(module, parameters, (inputs[here],)).argmax(1)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or at_once == 1:
                    raise
                at_once //= 2
                _log.warning("out of memory: %d records are evaluated together", at_once)
                if weights.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            correct += int((predicted == labels[here]).sum())
            done += at_once
        results.append(100 * correct / len(labels))
    return results


UNCLIPPED_NOISELESS, NOISELESS = "plain", "noiseless"


# Measure distances between models with and without noise when a round ends.


def references(variants: StackedHyperparameters, local_epochs: tuple[tuple[int, ...], ...]) -> list[dict[str, int]]:
    """Return, for each variant, the variants with its schedule that a distance is measured to.

    "plain": neither clips nor adds noise, the SGD that bhaskar2025, Appendix A, compares with. "noiseless": clips as
    the private ones do and adds no noise, so that a distance to it is the work of noise alone. Variants share batches
    and initial models, as the bound there supposes. A kind that is not in the stack is left out.
    """
    silent = (variants.noise_std == 0).reshape(-1, len(local_epochs)).all(0).tolist()
    found: list[dict[str, int]] = []
    for schedule in local_epochs:
        kinds = {}
        for variant, clips in enumerate(variants.clipped.tolist()):
            if silent[variant] and local_epochs[variant] == schedule:
                kinds.setdefault(NOISELESS if clips else UNCLIPPED_NOISELESS, variant)
        found.append(kinds)
    return found


def distances(trained: Tensor, variants: list[int], kinds: list[dict[str, int]]) -> list[dict[str, float]]:
    """Return the Euclidean distances of some variants' parameters, at the end of a round of theirs.

    `trained` (clients, len(variants), parameters): what clients send; `variants`: their numbers; `kinds`: `references`
    of all variants. For each variant and kind: distance_to_<kind>, between the averages over clients, and
    local_distance_to_<kind>, the mean over clients of the distance between their own models.
    """
    found = []
    for index, variant in enumerate(variants):
        measured = {}
        for kind, reference in kinds[variant].items():
            difference = trained[:, index] - trained[:, variants.index(reference)]
            measured[f"distance_to_{kind}"] = _norms(difference.mean(0)).item()
            measured[f"local_distance_to_{kind}"] = _norms(difference).mean().item()
        found.append(measured)
    return found


def _norms(vectors: Tensor) -> Tensor:
    """Return Euclidean norms over the last axis, summed in float64."""
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
