"""Initial weights of modules, drawn from an address instead of torch's global generator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from dpfl.models.scale_shift import ScaleShift
from dpfl.randomness import generator


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that `build` makes, its weights drawn by the address (seed, "initial_model").

    Dense and convolutional layers, in order: weight and bias uniform on (-1/sqrt(f), 1/sqrt(f)) with f the inputs of
    an output, torch's default law. Scales begin at 1 and shifts at 0. torch's global generator is neither read nor
    changed. Raises ValueError for a module with other parameters. Source: torch's documentation of Linear and Conv2d.
    """
    with torch.device("meta"):
        module = build()
    module = module.to_empty(device="cpu")
    draw = generator(seed, "initial_model")
    for layer in module.modules():
        own = dict(layer.named_parameters(recurse=False))
        if isinstance(layer, ScaleShift):
            with torch.no_grad():
                layer.weight.fill_(1), layer.bias.zero_()
            continue
        if own and not isinstance(layer, nn.Linear | nn.Conv2d):
            raise ValueError(f"build: {type(layer).__name__} has parameters; only Linear and Conv2d are drawn here")
        for parameter in own.values():
            bound = 1 / math.sqrt(layer.weight[0].numel())
            drawn = draw.uniform(-bound, bound, size=tuple(parameter.shape))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(drawn))
    return module
