"""Noise with lighter tails: a arsinh(N/a) instead of Gaussian noise N."""

from __future__ import annotations

import torch
from torch import Tensor


def arsinh_noise(gaussian: Tensor, scale: Tensor) -> Tensor:
    """Return scale * arsinh(gaussian / scale) element by element; where `scale` is infinite, `gaussian` itself.

    `gaussian`: draws of N(0, sigma^2), any shape; `scale` > 0 broadcasts to it. Near 0 the result is N, far out it
    grows as its logarithm. Source: vandijk2023, section 5.2; Bun et al. 2018.

    Formal guarantee: for one number that a record moves by at most 1, dpfl.accounting.tradeoff.arsinh_guarantee; it
    spends more than Gaussian noise of the same deviation.
    """
    finite = torch.isfinite(scale)
    if not bool(finite.any()):
        return gaussian
    safe = torch.where(finite, scale, 1.0)
    return torch.where(finite, safe * torch.asinh(gaussian / safe), gaussian)
