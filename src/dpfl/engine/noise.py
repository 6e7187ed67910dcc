"""Noise of the Gaussian mechanism, and the same with lighter tails: a arsinh(N/a) instead of N."""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.randomness import address_key, standard_normal

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
