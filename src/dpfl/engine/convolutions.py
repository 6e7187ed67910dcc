"""Compute per-record norms and clipped sums of convolutions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.engine.layers import Parameters, channels_last, scaled
from dpfl.engine.matrix_products import product

WINDOW_NUMBERS_CACHED = 2**13  # of a record's windows: few enough for a batch of them to stay in a CPU's cache
WINDOW_NUMBERS_AT_ONCE = 2**19  # of the windows that are unfolded at a time on a CPU, for the same reason


class ConvolutionCache(NamedTuple):
    """The inputs (n, channels, height, width); U and U U^T + 1 where keeping them is worth it."""

    inputs: Tensor
    windows: Tensor | None
    gram: Tensor | None


class Convolution:
    """nn.Conv2d with one group and zero padding.

    With U (positions, window) the windows of a record's input, one a position and as long as a filter, and D
    (positions, filters) the gradients at its output, the weight's gradient is D^T U. Its norm takes one of two routes:

    - products: form D^T U for each record, which costs positions * window * filters multiplications. The sums are then
      weighted sums of these. Best for small filters on many positions, as in the first layers.
    - Gram: |D^T U|^2 = <U U^T, D D^T> (Bu et al. 2022, bu2022) costs positions^2 * (window + filters), of which U U^T
      is shared by all models where the layer reads the batch. The sums then take one pass over the full batch, of
      as many multiplications as the products; but no record stores as many numbers as there are weights, and writing
      and reading those takes about as long. Best for large filters on few positions, as in the last layers.

    The cheaper norm decides; the Gram route needs a lead of a quarter because its products are small. Windows are
    stored for all passes where models share them or where they are few; elsewhere torch convolves without them.
    """

    def __init__(self, layer: nn.Conv2d, size: torch.Size, *, reads_batch: bool):
        """`size`: height and width of the inputs, which are the batch itself where the layer `reads_batch`."""
        self.kernel, self.shape, self.reads_batch = layer.kernel_size, layer.weight.shape, reads_batch
        self.geometry = layer.stride, layer.padding, layer.dilation
        spans = zip(size, self.kernel, *self.geometry, strict=True)
        self.size = tuple((n + 2 * pad - apart * (k - 1) - 1) // step + 1 for n, k, step, pad, apart in spans)
        positions = math.prod(self.size)
        filters, window = len(layer.weight), layer.weight[0].numel()
        gram = positions * (filters if reads_batch else window + filters)
        self.by_gram = gram < 0.75 * window * filters
        self.forms_gradients, self.output_size = not self.by_gram, positions * filters
        self.windows = positions * window
        self.memory_per_record = self.windows + (2 * positions**2 if self.by_gram else window * filters)

    def cache_inputs(self, inputs: Tensor) -> ConvolutionCache:
        """Unfold the windows where they are stored, and multiply them where all models share the result."""
        if self.by_gram and self.reads_batch:
            return ConvolutionCache(inputs, None, self._gram(self._unfold(inputs)))
        return ConvolutionCache(
            inputs, self._unfold(inputs) if self.reads_batch or self.windows <= WINDOW_NUMBERS_CACHED else None, None
        )

    def forward(self, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Multiply windows and filters, or convolve by torch."""
        weight, bias = parameters
        if cache.windows is None:
            return functional.conv2d(cache.inputs, channels_last(weight), bias, *self.geometry)
        filters = weight.permute(0, 2, 3, 1).flatten(1)
        return product(cache.windows, filters.T).add_(bias).unflatten(1, self.size).permute(0, 3, 1, 2)

    def backward(self, output_gradients: Tensor, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Convolve with the transposed filters."""
        weight = channels_last(parameters[0])
        return self._torch_backward(output_gradients, cache.inputs, weight, (True, False, False))[0]

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: ConvolutionCache
    ) -> tuple[Tensor, Parameters | None]:
        """Return norms by products or Gram matrices; the bias is a weight whose window is 1 everywhere."""
        inputs, windows, gram = cache
        rows = _rows(output_gradients)
        if self.by_gram:
            if gram is None:
                gram = self._gram(self._unfold(inputs) if windows is None else windows)
            return (gram * product(rows, rows.transpose(1, 2))).sum((1, 2)), None
        weight, bias = self._products(rows, cache).flatten(1), rows.sum(1)
        return torch.linalg.vector_norm(weight, dim=1).square() + bias.square().sum(1), (weight, bias)

    def weighted_gradient_sum(
        self, output_gradients: Tensor, cache: ConvolutionCache, factors: Tensor | None, gradients: Parameters | None
    ) -> Parameters:
        """Weigh the records' gradients where they were formed, else those at the output."""
        inputs, windows, _ = cache
        if gradients is not None:
            return self._as_weight(factors @ gradients[0]), factors @ gradients[1]
        output_gradients = scaled(output_gradients, factors)
        bias = output_gradients.sum((0, 2, 3))
        if windows is not None:
            return self._as_weight(product(_rows(output_gradients).flatten(0, 1).T, windows.flatten(0, 1))), bias
        empty = channels_last(output_gradients.new_empty(output_gradients.shape[1], *self.shape[1:]))
        return self._torch_backward(output_gradients, inputs, empty, (False, True, False))[1], bias

    def _unfold(self, inputs: Tensor) -> Tensor:
        """Return U of every record, (n, positions, window); a window lists its rows, columns, then channels."""
        stride, (height, width), (down, right) = self.geometry
        images = inputs.permute(0, 2, 3, 1)
        if height or width:
            images = functional.pad(images, (0, 0, width, width, height, height))
        reach = (self.kernel[0] - 1) * down + 1, (self.kernel[1] - 1) * right + 1
        windows = images.unfold(1, reach[0], stride[0]).unfold(2, reach[1], stride[1])[..., ::down, ::right]
        return windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)

    def _gram(self, windows: Tensor) -> Tensor:
        """Return U U^T + 1 of every record."""
        return product(windows, windows.transpose(1, 2)) + 1

    def _products(self, rows: Tensor, cache: ConvolutionCache) -> Tensor:
        """Return D^T U of every record, (n, filters, window)."""
        if cache.windows is not None:
            return product(rows.transpose(1, 2), cache.windows)
        at_once = max(1, WINDOW_NUMBERS_AT_ONCE // self.windows) if rows.device.type == "cpu" else len(rows)
        parts = zip(rows.split(at_once), cache.inputs.split(at_once), strict=True)
        return torch.cat([product(d.transpose(1, 2), self._unfold(a)) for d, a in parts])

    def _as_weight(self, gradient: Tensor) -> Tensor:
        """Return a gradient in the order of windows, reordered as the layer's weight."""
        return gradient.view(-1, *self.kernel, self.shape[1]).permute(0, 3, 1, 2)

    def _torch_backward(self, gradients: Tensor, inputs: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]):
        """Return torch's own backward pass, for inputs, weight, bias."""
        arguments = gradients, inputs, weight, None, *self.geometry, False, (0, 0), 1, wanted
        return torch.ops.aten.convolution_backward(*arguments)


def _rows(gradients: Tensor) -> Tensor:
    """Return D of every record, (n, positions, filters)."""
    return gradients.permute(0, 2, 3, 1).flatten(1, 2)
