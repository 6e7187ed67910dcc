"""The parameters of a module as one flat vector, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpfl.errors import InputError

ALIGNMENT_BYTES = 64  # of torch's own memory, and the longest vector of a CPU


@dataclass(frozen=True)
class ParameterVector:
    """Names and shapes of a module's parameters, in the order in which they lie in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> ParameterVector:
        """Return the layout of `module`; raises InputError where it cannot be trained so: it has buffers or parameters
        that are not to be trained, draws at random, or mixes the records of a batch."""
        if faults := _faults(module):
            raise InputError(f"model: {faults[0]}; stacked private training needs a model without such parts")
        named = list(module.named_parameters())
        return cls(tuple(name for name, _ in named), tuple(parameter.shape for _, parameter in named))

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return `flat` (..., size) as one view (..., *shape) a parameter; writing to a view writes to `flat`."""
        parts = flat.split([math.prod(shape) for shape in self.shapes], dim=-1)
        return {
            name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def flatten(self, tensors: Mapping[str, Tensor], leading: int = 0) -> Tensor:
        """Return one vector (..., size) of tensors that share their first `leading` axes."""
        lead = next(iter(tensors.values())).shape[:leading]
        return torch.cat([tensors[name].reshape(*lead, -1) for name in self.names], dim=-1)


def _faults(module: nn.Module) -> list[str]:
    """Return what keeps a module from being trained record by record in a stack."""
    layers = list(module.named_modules())
    mixing = nn.modules.batchnorm._BatchNorm
    return [
        *(f"{name or 'it'} mixes the records of a batch" for name, each in layers if isinstance(each, mixing)),
        *(f"has the buffer {name}, which training would have to keep" for name, _ in module.named_buffers()),
        *(f"{name} is not to be trained" for name, each in module.named_parameters() if not each.requires_grad),
        *(
            f"{name or 'it'} draws at random, unaddressed"
            for name, each in layers
            if each.training and _draws_at_random(each)
        ),
    ]


def _draws_at_random(layer: nn.Module) -> bool:
    """Return whether a layer, while it trains, reads torch's own generator: its draws would have no address."""
    if isinstance(layer, nn.RReLU | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return True
    probability = layer.p if isinstance(layer, nn.modules.dropout._DropoutNd) else getattr(layer, "dropout", 0.0)
    return isinstance(probability, float | int) and probability > 0


def aligned(flat: Tensor) -> Tensor:
    """Return a copy of `flat` (..., size) in which every vector starts at a multiple of 64 bytes.

    Matrix libraries round according to where an operand starts: so laid out, layers that multiply for one model alone
    give it the same bits wherever it stands in a stack.
    """
    size, step = flat.shape[-1], ALIGNMENT_BYTES // flat.element_size()
    padded = flat.new_empty(*flat.shape[:-1], -(-size // step) * step)[..., :size]
    padded.copy_(flat)
    return padded
