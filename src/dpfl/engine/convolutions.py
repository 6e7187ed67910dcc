"""Per-record norms and clipped sums of convolutions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.engine.layers import Parameters, channels_last, scaled
from dpfl.engine.matrix_products import product

FEW_CHANNELS = 2**13  # numbers in a record's windows: so few that a batch of them stays in a CPU's cache
CHUNK_RECORDS = 2**19  # numbers in the windows that are cut at a time on a CPU, for the same reason


class ConvolutionCache(NamedTuple):
    """The inputs (n, channels, height, width), and U and U U^T + 1 where they are worth keeping."""

    inputs: Tensor
    windows: Tensor | None
    gram: Tensor | None


class Convolution:
    """nn.Conv2d with one group and zero padding.

    With U (positions, window) the windows of a record's input, one a position and as long as a filter, and D
    (positions, filters) the slopes at its output, the gradient is D^T U. Its norm comes from one of two routes:

    - products: form D^T U for each record, which costs positions * window * filters multiplications. The sums are then
      weighted sums of what is at hand. Best for small filters on many positions, as in the first layers.
    - Gram: |D^T U|^2 = <U U^T, D D^T> (bu2022) costs positions^2 * (window + filters), of which U U^T is
      shared by all models where the layer reads the batch. The sums then take one pass over the whole batch, of as many
      multiplications as the products, but nothing as large as the weights is held for each record, and writing and
      reading that takes about as long. Best for large filters on few positions, as in the last layers.

    So the cheaper norm decides; the Gram route needs a lead of a quarter because its products are small ones. Windows
    are kept for all passes where models share them or where they are few; elsewhere torch convolves without them.
    """

    def __init__(self, layer: nn.Conv2d, size: torch.Size, *, reads_batch: bool):
        """`size`: height and width of the inputs, which are the batch itself where the layer `reads_batch`."""
        self.kernel, self.shape, self.reads_batch = layer.kernel_size, layer.weight.shape, reads_batch
        self.place = layer.stride, layer.padding, layer.dilation
        spans = zip(size, self.kernel, *self.place, strict=True)
        self.size = tuple((n + 2 * pad - apart * (k - 1) - 1) // step + 1 for n, k, step, pad, apart in spans)
        positions = math.prod(self.size)
        filters, window = len(layer.weight), layer.weight[0].numel()
        gram = positions * (filters if reads_batch else window + filters)
        self.by_gram = gram < 0.75 * window * filters
        self.forms_gradients, self.outputs = not self.by_gram, positions * filters
        self.windows = positions * window
        self.held = self.windows + (2 * positions**2 if self.by_gram else window * filters)

    def see(self, inputs: Tensor) -> ConvolutionCache:
        """Cut the windows where they are kept, and multiply them where all models share the result."""
        if self.by_gram and self.reads_batch:
            return ConvolutionCache(inputs, None, self._gram(self._cut(inputs)))
        return ConvolutionCache(
            inputs, self._cut(inputs) if self.reads_batch or self.windows <= FEW_CHANNELS else None, None
        )

    def forward(self, seen: ConvolutionCache, parameters: Parameters) -> Tensor:
        """One product of windows and filters, or torch's convolution."""
        weight, bias = parameters
        if seen.windows is None:
            return functional.conv2d(seen.inputs, channels_last(weight), bias, *self.place)
        filters = weight.permute(0, 2, 3, 1).flatten(1)
        return product(seen.windows, filters.T).add_(bias).unflatten(1, self.size).permute(0, 3, 1, 2)

    def backward(self, slopes: Tensor, seen: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Convolve with the transposed filters."""
        return self._torch_backward(slopes, seen.inputs, channels_last(parameters[0]), (True, False, False))[0]

    def squares(self, slopes: Tensor, seen: ConvolutionCache) -> tuple[Tensor, Parameters | None]:
        """By products or Gram matrices; the bias is a weight whose window is 1 everywhere."""
        inputs, windows, gram = seen
        rows = _rows(slopes)
        if self.by_gram:
            if gram is None:
                gram = self._gram(self._cut(inputs) if windows is None else windows)
            return (gram * product(rows, rows.transpose(1, 2))).sum((1, 2)), None
        weight, bias = self._products(rows, seen).flatten(1), rows.sum(1)
        return torch.linalg.vector_norm(weight, dim=1).square() + bias.square().sum(1), (weight, bias)

    def sums(
        self, slopes: Tensor, seen: ConvolutionCache, factors: Tensor | None, gradients: Parameters | None
    ) -> Parameters:
        """Weigh the gradients that are at hand, or else the slopes."""
        inputs, windows, _ = seen
        if gradients is not None:
            return self._as_weight(factors @ gradients[0]), factors @ gradients[1]
        slopes = scaled(slopes, factors)
        bias = slopes.sum((0, 2, 3))
        if windows is not None:
            return self._as_weight(product(_rows(slopes).flatten(0, 1).T, windows.flatten(0, 1))), bias
        empty = channels_last(slopes.new_empty(slopes.shape[1], *self.shape[1:]))
        return self._torch_backward(slopes, inputs, empty, (False, True, False))[1], bias

    def _cut(self, inputs: Tensor) -> Tensor:
        """U of every record, (n, positions, window); a window lists its rows and columns, channels within."""
        stride, (height, width), (down, right) = self.place
        images = inputs.permute(0, 2, 3, 1)
        if height or width:
            images = functional.pad(images, (0, 0, width, width, height, height))
        reach = (self.kernel[0] - 1) * down + 1, (self.kernel[1] - 1) * right + 1
        windows = images.unfold(1, reach[0], stride[0]).unfold(2, reach[1], stride[1])[..., ::down, ::right]
        return windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)

    def _gram(self, windows: Tensor) -> Tensor:
        """U U^T + 1 of every record."""
        return product(windows, windows.transpose(1, 2)) + 1

    def _products(self, rows: Tensor, seen: ConvolutionCache) -> Tensor:
        """D^T U of every record, (n, filters, window)."""
        if seen.windows is not None:
            return product(rows.transpose(1, 2), seen.windows)
        at_once = max(1, CHUNK_RECORDS // self.windows) if rows.device.type == "cpu" else len(rows)
        parts = zip(rows.split(at_once), seen.inputs.split(at_once), strict=True)
        return torch.cat([product(d.transpose(1, 2), self._cut(a)) for d, a in parts])

    def _as_weight(self, gradient: Tensor) -> Tensor:
        """A gradient in the order of windows, in the order of the layer's weight."""
        return gradient.view(-1, *self.kernel, self.shape[1]).permute(0, 3, 1, 2)

    def _torch_backward(self, slopes: Tensor, inputs: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]):
        """torch's own backward pass, for inputs, weight, bias."""
        return torch.ops.aten.convolution_backward(slopes, inputs, weight, None, *self.place, False, (0, 0), 1, wanted)


def _rows(slopes: Tensor) -> Tensor:
    """D of every record, (n, positions, filters)."""
    return slopes.permute(0, 2, 3, 1).flatten(1, 2)
