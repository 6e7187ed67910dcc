"""Gaussian noise on clipped sums, drawn by address."""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.engine.randomness import torch_seed


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
