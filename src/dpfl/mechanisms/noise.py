"""Noise with lighter tails: a arsinh(N/a) instead of Gaussian noise N."""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.randomness import torch_seed


def arsinh_noise(gaussian: Tensor, scale: Tensor) -> Tensor:
    """Return scale * arsinh(gaussian / scale) element by element; where `scale` is infinite, `gaussian` itself.

    `gaussian`: draws of N(0, sigma^2), any shape; `scale` > 0 broadcasts to it. Near 0 the result is N, far out it
    grows as its logarithm. Source: vandijk2023, section 5.2; bun2018.

    Formal guarantee: for one number that a record moves by at most 1, dpfl.accounting.tradeoff.arsinh_guarantee; it
    spends more than Gaussian noise of the same deviation.
    """
    finite = torch.isfinite(scale)
    if not bool(finite.any()):
        return gaussian
    safe = torch.where(finite, scale, 1.0)
    return torch.where(finite, safe * torch.asinh(gaussian / safe), gaussian)


def base_noise(
    size: int, *, seed: int, client: int, epoch: int, step: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return `size` independent standard normal draws of one client's step, shape (size,).

    The draws depend on the address, dtype and kind of device alone. Variants of a run share them, each scaled by its
    own noise_multiplier * clip_norm: every variant has the law that it would have alone, and comparisons are paired.

    Formal guarantee: adding sigma * C times these draws to a sum of gradients clipped to C is the Gaussian mechanism
    with noise multiplier sigma, against anyone who sees one variant. Publishing several variants of a run together is
    not covered: their noise is the same. The generator is not cryptographic (neither is Opacus's by default).
    """
    generator = torch.Generator(device).manual_seed(torch_seed(seed, "noise", client, epoch, step))
    return torch.randn(size, generator=generator, dtype=dtype, device=device)
