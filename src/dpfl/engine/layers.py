"""Define the layers of a network, each with a forward and a backward pass and, if trained, per-record norms.

Written by hand instead of taken from autograd: small models take a millisecond per batch, of which autograd would take
half. A layer works on one model and a batch of records that do not mix, and everything in it works under vmap.
Images have shape (n, channels, height, width), in single precision with the channels last in memory, where a CPU
convolves and pools best.

Values and gradients may be bfloat16 while parameters, norms and sums are single precision. Nothing is rounded to
bfloat16 once its norm is taken, so that the norm is that of what is summed (dpfl.engine.clip_bounds).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.engine.clip_bounds import accurate, norm_roundings, squared_norms
from dpfl.engine.matrix_products import product
from dpfl.models.scale_shift import ScaleShift

Parameters = tuple[Tensor, ...]
"""A tensor for the weight and one for the bias of a trained layer: parameters, gradients or sums of gradients. A layer
that scales and shifts its inputs first has four: scale, shift, weight, bias."""


class Layer(Protocol):
    """A step of the forward pass without parameters."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Any]:
        """Return the output (n, ...), and a cache for `backward`."""

    def backward(self, output_gradients: Tensor, cache: Any) -> Tensor:
        """Return the loss's gradients at the inputs from those at the output."""


class TrainedLayer(Protocol):
    """A step of the forward pass with weight and bias."""

    tensors: int
    """Tensors of its `Parameters`."""
    output_size: int
    """Output size per record."""
    roundings: int
    """Roundings of the squared norms, as dpfl.engine.clip_bounds.sure_factors takes them."""
    memory_per_record: int
    """Approximate numbers stored per record, on top of the layer's output and the gradients there."""
    forms_gradients: bool
    """True if `squared_gradient_norms` forms the records' gradients."""

    def cache_inputs(self, inputs: Tensor) -> Any:
        """Return the inputs and what follows from them alone: all models share it where they read the batch itself."""

    def forward(self, cache: Any, parameters: Parameters) -> Tensor:
        """Return the output (n, ...)."""

    def backward(self, output_gradients: Tensor, cache: Any, parameters: Parameters) -> Tensor:
        """Return the loss's gradients at the inputs from those at the output."""

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: Any, parameters: Parameters
    ) -> tuple[Tensor, Parameters | None]:
        """Return a bound on the squared norm of what each record adds to a sum at factor 1 (n,), as
        dpfl.engine.clip_bounds.sure_factors takes it; and the gradients, for weight and bias each (n, numbers), where
        they were formed for it. Both in the precision of the parameters."""

    def weighted_gradient_sum(
        self,
        output_gradients: Tensor,
        cache: Any,
        parameters: Parameters,
        factors: Tensor | None,
        gradients: Parameters | None,
    ) -> Parameters:
        """Return the sum of the records' gradients, each times its factor (n,), in the precision of the factors. No
        factors: the plain sum, in the precision of the passes."""


class ReadsBatch(TrainedLayer, Protocol):
    """A trained layer that can go through the passes for several models at once, where all read the same inputs.

    Their weights are rows of one matrix, and so are their gradients.
    """

    def forward_all(self, cache: Any, parameters: Parameters) -> Tensor:
        """Return all models' outputs (n, models, ...) from their parameters (models, ...)."""
        weight, bias = parameters
        return self.forward(cache, (weight.flatten(0, 1), bias.flatten())).unflatten(1, (len(weight), -1))

    def sums_all(
        self,
        output_gradients: list[Tensor],
        cache: Any,
        parameters: Parameters,
        formed: list[Parameters | None],
    ) -> Tensor:
        """Return the models' sums of gradients (models, numbers) from the scaled gradients at each model's output.

        `formed`: for each model the sums of the gradients that were formed for its norms. A bias is summed for each
        model alone: how torch adds depends on how many there are.
        """
        output_gradients = [accurate(each) for each in output_gradients]
        weight, _ = self.weighted_gradient_sum(torch.cat(output_gradients, 1), cache, (), None, None)
        biases = [each.sum((0, *range(2, each.ndim))) for each in output_gradients]
        return torch.cat([weight.reshape(len(biases), -1), torch.stack(biases)], 1)


class Dense(ReadsBatch):
    """nn.Linear on vectors: g = d a^T, so |g|^2 = |a|^2 |d|^2, and the bias is a weight whose input is 1.

    Source: goodfellow2015.
    """

    tensors = 2
    memory_per_record = 0
    forms_gradients = False

    def __init__(self, layer: nn.Linear):
        self.output_size = layer.out_features
        self.roundings = norm_roundings(layer.in_features) + norm_roundings(layer.out_features)

    def cache_inputs(self, inputs: Tensor) -> Tensor:
        """Return the inputs."""
        return inputs

    def forward(self, cache: Tensor, parameters: Parameters) -> Tensor:
        """Multiply by the weight."""
        weight, bias = (each.to(cache.dtype) for each in parameters)
        return product(cache, weight.T).add_(bias)

    def backward(self, output_gradients: Tensor, cache: Tensor, parameters: Parameters) -> Tensor:
        """Multiply by the transposed weight."""
        return product(output_gradients, parameters[0].to(cache.dtype))

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: Tensor, parameters: Parameters
    ) -> tuple[Tensor, None]:
        """Return (|a|^2 + 1) |d|^2."""
        return (squared_norms(accurate(cache)) + 1) * squared_norms(accurate(output_gradients)), None

    def weighted_gradient_sum(
        self, output_gradients: Tensor, cache: Tensor, parameters: Parameters, factors: Tensor | None, gradients: None
    ) -> Parameters:
        """Multiply once over the batch."""
        output_gradients = scaled(output_gradients, factors)
        return product(output_gradients.T, cache.to(output_gradients.dtype)), output_gradients.sum(0)


class ChannelScale:
    """ScaleShift (dpfl.models.scale_shift): a record's gradient is (sum of d * x, sum of d) for each channel."""

    tensors = 2
    forms_gradients = True

    def __init__(self, layer: ScaleShift, output_size: int):
        self.output_size, self.memory_per_record = output_size, 2 * layer.channels
        self.roundings = norm_roundings(layer.channels)

    def cache_inputs(self, inputs: Tensor) -> Tensor:
        """Return the inputs."""
        return inputs

    def forward(self, cache: Tensor, parameters: Parameters) -> Tensor:
        """Scale and shift."""
        weight, bias = (_over_positions(each.to(cache.dtype), cache.ndim) for each in parameters)
        return torch.addcmul(bias, cache, weight)

    def backward(self, output_gradients: Tensor, cache: Tensor, parameters: Parameters) -> Tensor:
        """Scale."""
        return output_gradients * _over_positions(parameters[0].to(cache.dtype), cache.ndim)

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: Tensor, parameters: Parameters
    ) -> tuple[Tensor, Parameters]:
        """Form the gradients, which are no larger than the inputs."""
        positions = tuple(range(2, cache.ndim))
        output_gradients = accurate(output_gradients)
        products = output_gradients * cache
        weight, bias = (each.sum(positions) if positions else each for each in (products, output_gradients))
        return squared_norms(weight) + squared_norms(bias), (weight, bias)

    def weighted_gradient_sum(
        self,
        output_gradients: Tensor,
        cache: Tensor,
        parameters: Parameters,
        factors: Tensor | None,
        gradients: Parameters | None,
    ) -> Parameters:
        """Weigh the records' gradients where they were formed, else those at the output."""
        if gradients is not None:
            return factors @ gradients[0], factors @ gradients[1]
        output_gradients = scaled(output_gradients, factors)
        others = (0, *range(2, cache.ndim))
        return (output_gradients * cache).sum(others), output_gradients.sum(others)


def _over_positions(channels: Tensor, axes: int) -> Tensor:
    """Return a number a channel so that it broadcasts to (n, channels, ...) of so many axes."""
    return channels.view(-1, *[1] * (axes - 2))


class Flatten:
    """nn.Flatten: an image becomes a vector, channel by channel."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, torch.Size]:
        """Keep the shape."""
        return inputs.flatten(1), inputs.shape

    def backward(self, output_gradients: Tensor, cache: torch.Size) -> Tensor:
        """Reshape to images."""
        return channels_last(output_gradients.view(cache))


class ReLU:
    """nn.ReLU."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the output."""
        output = inputs.relu()
        return output, output

    def backward(self, output_gradients: Tensor, cache: Tensor) -> Tensor:
        """Pass gradients where the output is above 0, as torch does."""
        return torch.ops.aten.threshold_backward(output_gradients, cache, 0)


class Tanh:
    """nn.Tanh; in single precision as 2 sigmoid(2x) - 1, which takes a quarter of the time on a CPU.

    It differs by rounding of numbers near 1. In bfloat16 torch's own is as fast.
    """

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the output."""
        single = inputs.dtype is torch.float32
        output = (2 * inputs).sigmoid_().mul_(2).sub_(1) if single else inputs.tanh()
        return output, output

    def backward(self, output_gradients: Tensor, cache: Tensor) -> Tensor:
        """Multiply by 1 - tanh^2."""
        return torch.ops.aten.tanh_backward(output_gradients, cache)


class MaxPoolLayer:
    """nn.MaxPool2d without padding: maxima over columns, then over rows, each of shifted views.

    This takes a fraction of the time of torch's own kernel, and stores no indices.
    """

    def __init__(self, layer: nn.MaxPool2d):
        size, stride = _pair(layer.kernel_size), _pair(layer.stride)
        self.rows, self.columns = _Maxima(2, size[0], stride[0]), _Maxima(3, size[1], stride[1])

    @staticmethod
    def does(layer: nn.MaxPool2d) -> bool:
        """Return whether the layer has no padding, dilation, ceiling or indices."""
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)
        return plain and not layer.ceil_mode and not layer.return_indices

    def forward(self, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Keep inputs and outputs of both maxima."""
        within = self.columns.forward(inputs)
        output = self.rows.forward(within)
        return output, (inputs, within, output)

    def backward(self, output_gradients: Tensor, cache: tuple[Tensor, ...]) -> Tensor:
        """Pass gradients to the first maximum of each window, row by row, as torch does."""
        inputs, within, output = cache
        return self.columns.backward(self.rows.backward(output_gradients, within, output), inputs, within)


class MeanPoolLayer:
    """nn.AvgPool2d whose windows divide the image: means of windows that do not overlap."""

    def __init__(self, layer: nn.AvgPool2d):
        self.size = _pair(layer.kernel_size)

    @staticmethod
    def does(layer: nn.AvgPool2d, inputs: Tensor) -> bool:
        """Return whether the layer's windows divide inputs (n, channels, height, width) and are divided by their
        size."""
        size = _pair(layer.kernel_size)
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.stride) == size and layer.divisor_override is None
        return plain and all(length % each == 0 for length, each in zip(inputs.shape[2:], size, strict=True))

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:
        """Keep nothing: the gradient depends on no value."""
        return functional.avg_pool2d(inputs, self.size), None

    def backward(self, output_gradients: Tensor, cache: None) -> Tensor:
        """Give each number of a window its part of the mean."""
        share = output_gradients / math.prod(self.size)
        n, channels, height, width = share.shape
        rows = share.permute(0, 2, 3, 1)[:, :, None, :, None]
        spread = rows.expand(n, height, self.size[0], width, self.size[1], channels)
        return spread.reshape(n, height * self.size[0], width * self.size[1], channels).permute(0, 3, 1, 2)


_JUST_BELOW = -torch.finfo(torch.float32).smallest_normal


class _Maxima:
    """Take maxima of windows along one axis."""

    def __init__(self, axis: int, size: int, stride: int):
        self.axis, self.size, self.stride = axis, size, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the largest of the views."""
        views = self._views(inputs)
        output = views[0]
        for view in views[1:]:
            output = torch.maximum(output, view)
        return output

    def backward(self, output_gradients: Tensor, inputs: Tensor, output: Tensor) -> Tensor:
        """Pass each gradient to the first view that equals the maximum, and to the last if none took it."""
        found = torch.zeros_like(inputs)
        *others, last = zip(self._views(inputs), self._views(found), strict=True)
        for view, to in others:
            # nothing passes where the view is below the maximum: as for ReLU, in one pass where comparing takes two
            taken = torch.ops.aten.threshold_backward(output_gradients, view - output, _JUST_BELOW)
            to.add_(taken)
            output_gradients = output_gradients - taken
        last[1].add_(output_gradients)
        return found

    def _views(self, images: Tensor) -> list[Tensor]:
        """Return the first, second, ... element of all windows."""
        reach = images.shape[self.axis] - self.size + 1
        before = (slice(None),) * self.axis
        return [images[(*before, slice(first, first + reach, self.stride))] for first in range(self.size)]


def scaled(gradients: Tensor, factors: Tensor | None) -> Tensor:
    """Return gradients (n, ...), each record's times its factor (n,), if there are factors, in their precision."""
    return gradients if factors is None else gradients * factors.view(-1, *[1] * (gradients.ndim - 1))


def channels_last(images: Tensor) -> Tensor:
    """Return (n, channels, height, width) with the channels last in memory.

    Vectors (n, d) are returned as they are, and so are images in double precision, which torch convolves by other
    routines: they would gain nothing, and now round as torch's own training does.
    """
    if images.ndim != 4 or images.dtype is torch.float64:
        return images
    rows = images.permute(0, 2, 3, 1)
    # not `contiguous`, which leaves the strides of a single channel as they are, and torch then takes it for first
    return rows.flatten().view(rows.shape).permute(0, 3, 1, 2)


def _pair(number: int | tuple[int, int]) -> tuple[int, int]:
    """Return the numbers for both axes."""
    return number if isinstance(number, tuple) else (number, number)
