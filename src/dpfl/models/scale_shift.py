"""Define the trained half of a normalisation: a scale and a shift for each channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScaleShift(nn.Module):
    """Multiply each channel of x (n, channels, ...) by a learnt scale, and add a learnt shift.

    nn.GroupNorm(groups, channels) is functional.group_norm(x, groups), which nothing trains, then this: so the first
    half may be applied to a dataset once, before training. `weight` (channels,) begins at 1, `bias` (channels,) at 0.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.channels = channels
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (n, channels, ...) to the same shape."""
        axes = (self.channels, *[1] * (x.ndim - 2))
        return x * self.weight.view(axes) + self.bias.view(axes)
