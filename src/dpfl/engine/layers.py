"""The stages of a network, each with its own forward and backward pass and, where it is trained, per-record norms.

Written by hand instead of taken from autograd: small models take a millisecond a batch, of which autograd would take
half. A stage works on one model and a batch of records that do not mix, and everything in it works under vmap.
Images have shape (n, channels, height, width), in single precision with the channels last in memory, where a CPU
convolves and pools best.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dpfl.engine.matrix_products import product

Parameters = tuple[Tensor, Tensor]
"""A tensor for the weight and one for the bias of a trained stage: parameters, gradients or sums of gradients."""


class Layer(Protocol):
    """A step of the forward pass without parameters."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Any]:
        """Return the output (n, ...), and what `backward` needs to know."""

    def backward(self, slopes: Tensor, kept: Any) -> Tensor:
        """Return the loss's slopes at the inputs from those at the output."""


class TrainedLayer(Protocol):
    """A step of the forward pass with weight and bias."""

    outputs: int
    """How many numbers it puts out for a record."""
    held: int
    """About how many numbers a record takes, beside the stage's output and its slopes."""
    forms_gradients: bool
    """Whether `squares` forms the records' gradients."""

    def see(self, inputs: Tensor) -> Any:
        """Return the inputs and what follows from them alone: all models share it where they read the batch itself."""

    def forward(self, seen: Any, parameters: Parameters) -> Tensor:
        """Return the output (n, ...); for weights and biases of several models in a row, outputs in a row."""

    def backward(self, slopes: Tensor, seen: Any, parameters: Parameters) -> Tensor:
        """Return the loss's slopes at the inputs from those at the output."""

    def squares(self, slopes: Tensor, seen: Any) -> tuple[Tensor, Parameters | None]:
        """Return the squared norm of each record's gradient (n,), and the gradients, for weight and bias each
        (n, numbers), where they were formed for it."""

    def sums(self, slopes: Tensor, seen: Any, factors: Tensor | None, gradients: Parameters | None) -> Parameters:
        """Return the sum of the records' gradients, each times its factor (n,) where there are factors; for slopes of
        several models in a row, sums in a row."""


class Dense:
    """nn.Linear on vectors: g = d a^T, so |g|^2 = |a|^2 |d|^2, and the bias is a weight whose input is 1.

    Source: goodfellow2015.
    """

    held = 0
    forms_gradients = False

    def __init__(self, layer: nn.Linear):
        self.outputs = layer.out_features

    def see(self, inputs: Tensor) -> Tensor:
        """The inputs."""
        return inputs

    def forward(self, seen: Tensor, parameters: Parameters) -> Tensor:
        """One matrix product."""
        weight, bias = parameters
        return product(seen, weight.T).add_(bias)

    def backward(self, slopes: Tensor, seen: Tensor, parameters: Parameters) -> Tensor:
        """One matrix product."""
        return product(slopes, parameters[0])

    def squares(self, slopes: Tensor, seen: Tensor) -> tuple[Tensor, None]:
        """(|a|^2 + 1) |d|^2."""
        return (seen.square().sum(1) + 1) * slopes.square().sum(1), None

    def sums(self, slopes: Tensor, seen: Tensor, factors: Tensor | None, gradients: None) -> Parameters:
        """One matrix product over the batch."""
        slopes = scaled(slopes, factors)
        return product(slopes.T, seen), slopes.sum(0)


class Flatten:
    """nn.Flatten: an image becomes a vector, channel by channel."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, torch.Size]:
        """Keep the shape."""
        return inputs.flatten(1), inputs.shape

    def backward(self, slopes: Tensor, kept: torch.Size) -> Tensor:
        """Back to images."""
        return channels_last(slopes.view(kept))


class ReLU:
    """nn.ReLU."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the output."""
        output = inputs.relu()
        return output, output

    def backward(self, slopes: Tensor, kept: Tensor) -> Tensor:
        """As torch has it: nothing passes at 0."""
        return torch.ops.aten.threshold_backward(slopes, kept, 0)


class Tanh:
    """nn.Tanh; in single precision as 2 sigmoid(2x) - 1, which takes a quarter of the time on a CPU.

    It differs by rounding of numbers near 1.
    """

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the output."""
        single = inputs.dtype is torch.float32
        output = (2 * inputs).sigmoid_().mul_(2).sub_(1) if single else inputs.tanh()
        return output, output

    def backward(self, slopes: Tensor, kept: Tensor) -> Tensor:
        """tanh' = 1 - tanh^2."""
        return torch.ops.aten.tanh_backward(slopes, kept)


class Activation:
    """Any module without parameters that works element by element and has a method `slope(output)`: its derivative."""

    def __init__(self, layer: nn.Module):
        self.layer = layer

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the output."""
        output = self.layer(inputs)
        return output, output

    def backward(self, slopes: Tensor, kept: Tensor) -> Tensor:
        """By the chain rule."""
        return slopes * self.layer.slope(kept)


class MaxPoolLayer:
    """nn.MaxPool2d without padding: maxima over columns, then over rows, each of shifted views.

    Element by element it takes a fraction of the time that torch's own kernel takes, and no indices are kept.
    """

    def __init__(self, layer: nn.MaxPool2d):
        size, stride = _pair(layer.kernel_size), _pair(layer.stride)
        self.rows, self.columns = _Maxima(2, size[0], stride[0]), _Maxima(3, size[1], stride[1])

    @staticmethod
    def does(layer: nn.MaxPool2d) -> bool:
        """Whether the layer's windows are plain ones."""
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)
        return plain and not layer.ceil_mode and not layer.return_indices

    def forward(self, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Keep what went into each maximum and what came out."""
        within = self.columns.forward(inputs)
        output = self.rows.forward(within)
        return output, (inputs, within, output)

    def backward(self, slopes: Tensor, kept: tuple[Tensor, ...]) -> Tensor:
        """To the first maximum of each window, row by row, as torch has it."""
        inputs, within, output = kept
        return self.columns.backward(self.rows.backward(slopes, within, output), inputs, within)


_JUST_BELOW = -torch.finfo(torch.float32).smallest_normal


class _Maxima:
    """Maxima of windows along one axis."""

    def __init__(self, axis: int, size: int, stride: int):
        self.axis, self.size, self.stride = axis, size, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """The largest of the views."""
        views = self._views(inputs)
        output = views[0]
        for view in views[1:]:
            output = torch.maximum(output, view)
        return output

    def backward(self, slopes: Tensor, inputs: Tensor, output: Tensor) -> Tensor:
        """Each slope goes to the first view that equals the maximum, and what none has taken to the last."""
        found = torch.zeros_like(inputs)
        *others, last = zip(self._views(inputs), self._views(found), strict=True)
        for view, to in others:
            # nothing passes where the view is below the maximum: as ReLU's slope, in one pass where comparing takes two
            taken = torch.ops.aten.threshold_backward(slopes, view - output, _JUST_BELOW)
            to.add_(taken)
            slopes = slopes - taken
        last[1].add_(slopes)
        return found

    def _views(self, images: Tensor) -> list[Tensor]:
        """The first, second, ... element of all windows."""
        reach = images.shape[self.axis] - self.size + 1
        before = (slice(None),) * self.axis
        return [images[(*before, slice(first, first + reach, self.stride))] for first in range(self.size)]


def scaled(slopes: Tensor, factors: Tensor | None) -> Tensor:
    """Return slopes (n, ...), each record's times its factor (n,), if there are factors."""
    return slopes if factors is None else slopes * factors.view(-1, *[1] * (slopes.ndim - 1))


def channels_last(images: Tensor) -> Tensor:
    """Return (n, channels, height, width) with the channels last in memory.

    Vectors (n, d) are returned as they are, and so are images in double precision, which torch convolves by other
    routines: they gain nothing and then round as torch's own training does.
    """
    if images.ndim != 4 or images.dtype is torch.float64:
        return images
    rows = images.permute(0, 2, 3, 1)
    # not `contiguous`, which leaves the strides of a single channel as they are, and torch then takes it for first
    return rows.flatten().view(rows.shape).permute(0, 3, 1, 2)


def _pair(number: int | tuple[int, int]) -> tuple[int, int]:
    """A number stands for both axes."""
    return number if isinstance(number, tuple) else (number, number)
