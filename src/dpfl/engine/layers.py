"""Per-record norms and clipped sums of layers: linear, norms and convolutions; what rounding adds to them."""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.mechanisms import clip_factors

if TYPE_CHECKING:
    from dpfl.engine.networks import ScaleShift

# Bound what rounding can add to a clipped record, and divide it out.
#
# docs/clipping_precision.md has the lemma. In short: what one record adds to a sum is, in real numbers, a product of
# numbers that the computer holds: its factor times a gradient that was formed, or its scaled gradients at a layer's
# output times the layer's inputs. Every layer returns an upper bound on the squared norm of just that, but for a
# relative error of a known number of roundings, which `sure_factors` divides out of all records alike.


class Precision(StrEnum):
    """Arithmetic of a model's values and gradients; norms, sums, noise and weights are single precision."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def passes(self) -> torch.dtype:
        """The type of values and gradients."""
        return getattr(torch, self)


BLOCK = 64  # numbers whose squares are summed at once


def unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to nearest: 2^-53, 2^-24, 2^-8 for bfloat16."""
    return torch.finfo(dtype).eps / 2


def rounding(terms: int, dtype: torch.dtype) -> float:
    """Return gamma_n = n u / (1 - n u): a product of n factors (1 + e), each |e| <= u, or their inverses, differs from
    1 by at most that, and so does a sum of n products from the exact one, relative to the sum of their magnitudes, in
    whatever order it is formed. Source: higham2002, Lemma 3.1 and section 3.1."""
    errors = terms * unit(dtype)
    return errors / (1 - errors)


def accurate(values: Tensor) -> Tensor:
    """Return values in the precision of norms and sums: single where they are bfloat16, else their own."""
    return values.float() if values.dtype is torch.bfloat16 else values


def squared_norms(vectors: Tensor) -> Tensor:
    """Return |g|^2 of each of `vectors` (n, numbers), in their precision, with an error of `norm_roundings(numbers)`
    roundings: squares are summed in blocks, then over blocks, so that the error does not grow with their number."""
    numbers = vectors.shape[1]
    whole = numbers - numbers % BLOCK if numbers > BLOCK else 0
    rest = vectors[:, whole:].square().sum(1)
    if not whole:
        return rest
    blocks = torch.linalg.vector_norm(vectors[:, :whole].unflatten(1, (-1, BLOCK)), dim=2).square()
    return _sum(blocks) + rest


def _sum(numbers: Tensor) -> Tensor:
    """Return the sums over the second axis of (n, numbers), in blocks as `squared_norms`."""
    while numbers.shape[1] > BLOCK:
        whole = numbers.shape[1] - numbers.shape[1] % BLOCK
        blocks = numbers[:, :whole].unflatten(1, (-1, BLOCK)).sum(2)
        numbers = torch.cat([blocks, numbers[:, whole:].sum(1, keepdim=True)], 1)
    return numbers.sum(1)


def norm_roundings(numbers: int) -> int:
    """Return how many roundings a squared norm of so many numbers may have gone through (`squared_norms`): a square, a
    root and a square again, and the sums of each level of blocks."""
    roundings = 4
    while numbers > BLOCK:
        roundings, numbers = roundings + BLOCK, numbers // BLOCK + 1
    return roundings + numbers


def sure_factors(squares: Tensor, clip_norm: Tensor, roundings: int) -> Tensor:
    """Return factors, in (0, 1], for records whose squared norms are at most `squares` (1 + gamma), gamma that of so
    many roundings; the clip norm C broadcasts to them, infinity means no clipping.

    Formal guarantee: a factor times the norm is at most C, for the real numbers that the factor and the norm stand for,
    also after each product of the factor and a number has been rounded once.
    """
    excess = (1 + rounding(roundings, squares.dtype)) ** 0.5 * (1 + rounding(8, squares.dtype))
    return clip_factors(squares.sqrt() * excess, clip_norm)


# Multiply large matrices in single precision by the library with the wider vectors on a CPU.

LARGE = 2**21  # multiplications; oneDNN takes 20 us to begin


def product(left: Tensor, right: Tensor, *, stacked: bool = False) -> Tensor:
    """Return left @ right; `stacked`: it is of several models, and each shall get the bits that it gets alone.

    oneDNN adds the products of an entry one after the other, so that no entry depends on how many there are: MKL's do.

    torch leaves products of single precision to MKL, which keeps AVX-512 to Intel's processors; oneDNN has it on all.
    torch turns to oneDNN under a setting that permits rounding of the factors to bfloat16. oneDNN does that on
    processors that multiply bfloat16 matrices in one instruction, where MKL would continue; elsewhere all stays in
    single precision. For one thread at a time: the setting is the process's.
    """
    single = left.device.type == "cpu" and left.dtype is torch.float32
    if not single or not (stacked or left.numel() * right.shape[-1] >= LARGE) or not _keeps_precision():
        return left @ right
    setting = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]: torch makes it when imported
    before, setting.fp32_precision = setting.fp32_precision, "bf16"
    try:
        return left @ right
    finally:
        setting.fp32_precision = before


def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device has instructions for it; a GPU of torch's, or this processor. Without them it is slow."""
    if device != "cpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    has = getattr(torch.cpu, "get_capabilities", dict)()
    return any(has.get(each, False) for each in ("avx512_bf16", "amx_bf16", "bf16"))


@cache
def _keeps_precision() -> bool:
    """Return whether torch knows this processor to have nothing that oneDNN could round for."""
    has = getattr(torch.cpu, "get_capabilities", dict)()
    return has.get("avx512_f", False) and not any(has.get(each, True) for each in ("amx_tile", "amx_bf16", "avx10_2"))


# Define the layers of a network, each with a forward and a backward pass and, if trained, per-record norms.
#
# Written by hand instead of taken from autograd: small models take a millisecond per batch, of which autograd would
# take half. A layer works on one model and a batch of records that do not mix, and everything in it works under vmap.
# Images have shape (n, channels, height, width), in single precision with the channels last in memory, where a CPU
# convolves and pools best.
#
# Values and gradients may be bfloat16 while parameters, norms and sums are single precision. Nothing is rounded to
# bfloat16 once its norm is taken, so that the norm is that of what is summed (`sure_factors`).

Parameters = tuple[Tensor, ...]
"""A tensor for the weight and one for the bias of a trained layer: parameters, gradients or sums of gradients. A layer
that scales and shifts its inputs first has four: scale, shift, weight, bias."""


class Layer(Protocol):
    """A step of the forward pass without parameters."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Any]:
        """Return the output (n, ...), and a cache for `backward`."""
        ...

    def backward(self, output_gradients: Tensor, cache: Any) -> Tensor:
        """Return the loss's gradients at the inputs from those at the output."""
        ...


class TrainedLayer(Protocol):
    """A step of the forward pass with weight and bias."""

    tensors: int
    """Tensors of its `Parameters`."""
    output_size: int
    """Output size per record."""
    roundings: int
    """Roundings of the squared norms, as `sure_factors` takes them."""
    memory_per_record: int
    """Approximate numbers stored per record, on top of the layer's output and the gradients there."""
    forms_gradients: bool
    """True if `squared_gradient_norms` forms the records' gradients."""

    def cache_inputs(self, inputs: Tensor) -> Any:
        """Return the inputs and what follows from them alone: all models share it where they read the batch itself."""
        ...

    def forward(self, cache: Any, parameters: Parameters) -> Tensor:
        """Return the output (n, ...)."""
        ...

    def backward(self, output_gradients: Tensor, cache: Any, parameters: Parameters) -> Tensor:
        """Return the loss's gradients at the inputs from those at the output."""
        ...

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: Any, parameters: Parameters
    ) -> tuple[Tensor, Parameters | None]:
        """Return a bound on the squared norm of what each record adds to a sum at factor 1 (n,), as
        `sure_factors` takes it; and the gradients, for weight and bias each (n, numbers), where
        they were formed for it. Both in the precision of the parameters."""
        ...

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
        ...


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

    def __init__(self, layer: nn.Linear) -> None:
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
    """ScaleShift (dpfl.engine.networks): a record's gradient is (sum of d * x, sum of d) for each channel."""

    tensors = 2
    forms_gradients = True

    def __init__(self, layer: ScaleShift, output_size: int) -> None:
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
            assert factors is not None
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

    def __init__(self, layer: nn.MaxPool2d) -> None:
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

    def __init__(self, layer: nn.AvgPool2d) -> None:
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

    def __init__(self, axis: int, size: int, stride: int) -> None:
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


# Compute per-record norms and clipped sums of convolutions.

WINDOW_NUMBERS_CACHED = 2**13  # of a record's windows: few enough for a batch of them to stay in a CPU's cache
WINDOW_NUMBERS_SHARED = 2**15  # where all models read them
WINDOW_NUMBERS_AT_ONCE = 2**19  # of the windows that are unfolded at a time on a CPU, for the same reason


class ConvolutionCache(NamedTuple):
    """The inputs (n, channels, height, width); U and U U^T + 1 where keeping them is worth it."""

    inputs: Tensor
    windows: Tensor | None
    gram: Tensor | None


class Convolution(ReadsBatch):
    """nn.Conv2d with one group and zero padding.

    With U (positions, window) the windows of a record's input, one a position and as long as a filter, and D
    (positions, filters) the gradients at its output, the weight's gradient is D^T U. Its norm takes one of two routes:

    - products: form D^T U for each record, which costs positions * window * filters multiplications. The sums are then
      weighted sums of these. Best for small filters on many positions, as in the first layers.
    - Gram: |D^T U|^2 = <U U^T, D D^T> (Bu et al. 2022, bu2022) costs positions^2 * (window + filters), of which U U^T
      is shared by all models where the layer reads the batch. Windows overlap, so U U^T costs less: with X (pixels,
      channels) the padded input, its entry for two positions is the sum, over the offsets within a window, of the
      entries of X X^T for the two pixels there. The sums then take one pass over the full batch, of
      as many multiplications as the products; but no record stores as many numbers as there are weights, and writing
      and reading those takes about as long. Best for large filters on few positions, as in the last layers.

    The cheaper norm decides; the Gram route needs a lead of a quarter because its products are small. Windows are
    stored for all passes where models share them or where they are few; elsewhere torch convolves without them.
    """

    tensors = 2

    def __init__(self, layer: nn.Conv2d, size: torch.Size, *, reads_batch: bool) -> None:
        """`size`: height and width of the inputs, which are the batch itself where the layer `reads_batch`."""
        self.kernel, self.shape, self.reads_batch = layer.kernel_size, layer.weight.shape, reads_batch
        self.geometry = layer.stride, cast("tuple[int, ...]", layer.padding), layer.dilation
        spans = zip(size, self.kernel, *self.geometry, strict=True)
        self.size = tuple((n + 2 * pad - apart * (k - 1) - 1) // step + 1 for n, k, step, pad, apart in spans)
        positions = math.prod(self.size)
        filters, window = len(layer.weight), layer.weight[0].numel()
        pixels = math.prod(n + 2 * pad for n, pad in zip(size, cast("tuple[int, ...]", layer.padding), strict=True))
        self.by_pixels = pixels**2 * layer.in_channels < positions**2 * window
        gram = min(pixels**2 * layer.in_channels, positions**2 * window) / positions
        self.by_gram = (0 if reads_batch else gram) + positions * filters < 0.75 * window * filters
        numbers = layer.in_channels + sum(self.kernel) if self.by_pixels else window
        self.gram_roundings = numbers + filters + 2 * positions + 16
        self.roundings = norm_roundings(window * filters)
        self.forms_gradients, self.output_size = not self.by_gram, positions * filters
        self.windows = positions * window
        self.memory_per_record = self.windows + (2 * positions**2 if self.by_gram else window * filters)

    def cache_inputs(self, inputs: Tensor) -> ConvolutionCache:
        """Unfold the windows where they are stored, and multiply them where all models share the result."""
        few = self.windows <= (WINDOW_NUMBERS_SHARED if self.reads_batch else WINDOW_NUMBERS_CACHED)
        windows = self._unfold(inputs) if few else None
        return ConvolutionCache(
            inputs, windows, self._gram(inputs, windows) if self.by_gram and self.reads_batch else None
        )

    def forward(self, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Multiply windows and filters, or convolve by torch."""
        weight, bias = (each.to(cache.inputs.dtype) for each in parameters)
        if cache.windows is None:
            return functional.conv2d(cache.inputs, channels_last(weight), bias, *self.geometry)
        filters = weight.permute(0, 2, 3, 1).flatten(1)
        output = product(cache.windows, filters.T, stacked=self.reads_batch).add_(bias)
        return output.unflatten(1, self.size).permute(0, 3, 1, 2)

    def backward(self, output_gradients: Tensor, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Convolve with the transposed filters."""
        weight = channels_last(parameters[0].to(output_gradients.dtype))
        return self._torch_backward(output_gradients, cache.inputs, weight, (True, False, False))[0]

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: ConvolutionCache, parameters: Parameters
    ) -> tuple[Tensor, Parameters | None]:
        """Return norms by products or Gram matrices; the bias is a weight whose window is 1 everywhere."""
        inputs, windows, gram = cache
        rows = _rows(output_gradients)
        if self.by_gram:
            rows, gram = accurate(rows), self._gram(inputs, windows) if gram is None else gram
            between = product(rows, rows.transpose(1, 2))
            norms = (gram * between).sum(2).sum(1)
            # |error| <= gamma (sum over positions of |u||d|)^2, and scaling d adds its rounding, relative to the same
            reach = (gram.diagonal(dim1=1, dim2=2) * between.diagonal(dim1=1, dim2=2)).sqrt().sum(1).square()
            return norms + rounding(self.gram_roundings, rows.dtype) * reach, None
        weight, bias = accurate(self._products(rows, cache).flatten(1)), accurate(rows).sum(1)
        return squared_norms(weight) + squared_norms(bias), (weight, bias)

    def weighted_gradient_sum(
        self,
        output_gradients: Tensor,
        cache: ConvolutionCache,
        parameters: Parameters,
        factors: Tensor | None,
        gradients: Parameters | None,
    ) -> Parameters:
        """Weigh the records' gradients where they were formed, else those at the output."""
        inputs, windows, _ = cache
        if gradients is not None:
            assert factors is not None
            return self._as_weight(factors @ gradients[0]), factors @ gradients[1]
        output_gradients = scaled(output_gradients, factors)
        bias = output_gradients.sum((0, 2, 3))
        if windows is not None:
            windows = windows.flatten(0, 1).to(output_gradients.dtype)
            rows = _rows(output_gradients).flatten(0, 1)
            return self._as_weight(product(rows.T, windows, stacked=self.reads_batch)), bias
        inputs = inputs.to(output_gradients.dtype)
        empty = channels_last(output_gradients.new_empty(output_gradients.shape[1], *self.shape[1:]))
        return self._torch_backward(output_gradients, inputs, empty, (False, True, False))[1], bias

    def _unfold(self, inputs: Tensor) -> Tensor:
        """Return U of every record, (n, positions, window); a window lists its rows, columns, then channels."""
        stride, _, (down, right) = self.geometry
        images = self._padded(inputs)
        reach = (self.kernel[0] - 1) * down + 1, (self.kernel[1] - 1) * right + 1
        windows = images.unfold(1, reach[0], stride[0]).unfold(2, reach[1], stride[1])[..., ::down, ::right]
        return windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)

    def _gram(self, inputs: Tensor, windows: Tensor | None) -> Tensor:
        """Return U U^T + 1 of every record, (n, positions, positions)."""
        if not self.by_pixels:
            windows = accurate(self._unfold(inputs) if windows is None else windows)
            return product(windows, windows.transpose(1, 2)) + 1
        images = self._padded(accurate(inputs))
        size, pixels = images.shape[1:3], images.flatten(1, 2)
        products = product(pixels, pixels.transpose(1, 2)).view(-1, *size, *size)
        for axis in (0, 1):  # first over the rows of a window, then over its columns
            products = self._over_offsets(products, axis)
        return products.flatten(3, 4).flatten(1, 2) + 1

    def _over_offsets(self, products: Tensor, axis: int) -> Tensor:
        """Sum products of pixels (n, rows, columns, rows, columns) over the offsets of a window along one axis."""
        stride, _, dilation = (each[axis] for each in self.geometry)
        total: Any
        total, reach = 0, stride * (self.size[axis] - 1) + 1
        for offset in range(self.kernel[axis]):
            here = slice(offset * dilation, offset * dilation + reach, stride)
            index = [slice(None)] * 5
            index[1 + axis], index[3 + axis] = here, here
            total = total + products[tuple(index)]
        return total

    def _padded(self, inputs: Tensor) -> Tensor:
        """Return the images with their padding, (n, height, width, channels)."""
        height, width = self.geometry[1]
        images = inputs.permute(0, 2, 3, 1)
        return functional.pad(images, (0, 0, width, width, height, height)) if height or width else images

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

    def _torch_backward(
        self, gradients: Tensor, inputs: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return torch's own backward pass, for inputs, weight, bias."""
        arguments = gradients, inputs, weight, None, *self.geometry, False, (0, 0), 1, wanted
        return torch.ops.aten.convolution_backward(*arguments)


class ScaledConvolution(ReadsBatch):
    """ScaleShift (dpfl.engine.networks), then nn.Conv2d, on the batch itself: scale and shift fold into the filters.

    With filters W, scale s and shift t it is the convolution of the batch and a channel of ones by the filters
    (s_c W_c for each channel c, sum_c t_c W_c), so that all models read one input; padding is 0 in the channel of ones
    too. The gradient of W follows from that of these filters, and sums over records as it does; its norm needs the Gram
    matrix of the scaled input. Those of s and t are small: they are formed for each record from the gradient at the
    scaled input, and follow from the filters' where nothing is clipped.
    """

    tensors = 4
    forms_gradients = False

    def __init__(self, layer: nn.Conv2d, size: torch.Size) -> None:
        """`size`: height and width of the inputs."""
        options: Any = layer.stride, layer.padding, layer.dilation
        seen = nn.Conv2d(
            layer.in_channels + 1, layer.out_channels, cast("Any", layer.kernel_size), *options, device="meta"
        )
        self.joint = Convolution(seen, size, reads_batch=True)
        self.joint.by_gram = False
        self.own = Convolution(layer, size, reads_batch=False)
        self.own.by_gram = True
        pixels = math.prod(size) * layer.in_channels
        self.output_size, self.roundings = self.joint.output_size, norm_roundings(layer.in_channels)
        self.memory_per_record = self.joint.windows + self.own.windows + 2 * math.prod(self.own.size) ** 2 + 2 * pixels

    def cache_inputs(self, inputs: Tensor) -> ConvolutionCache:
        """Add the channel of ones."""
        ones = torch.ones_like(inputs[:, :1])
        return self.joint.cache_inputs(channels_last(torch.cat([inputs, ones], 1)))

    def forward(self, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Convolve by the folded filters."""
        return self.forward_all(cache, tuple(each[None] for each in parameters))[:, 0]

    def forward_all(self, cache: ConvolutionCache, parameters: Parameters) -> Tensor:
        """Convolve by the folded filters of all models."""
        scale, shift, weight, bias = parameters
        scale, shift = (_over_filters(each) for each in (scale, shift))
        folded = torch.cat([weight * scale, (weight * shift).sum(2, keepdim=True)], 2)
        return self.joint.forward_all(cache, (folded, bias))

    def squared_gradient_norms(
        self, output_gradients: Tensor, cache: ConvolutionCache, parameters: Parameters
    ) -> tuple[Tensor, Parameters]:
        """Add the norms for the filters, by Gram matrices, and those for scale and shift."""
        scale, shift, weight, bias = parameters
        inputs, d = accurate(cache.inputs[:, :-1]), accurate(output_gradients)
        read = ConvolutionCache(torch.addcmul(shift[:, None, None], inputs, scale[:, None, None]), None, None)
        filters, _ = self.own.squared_gradient_norms(d, read, (weight, bias))
        back = self.own.backward(d, ConvolutionCache(inputs, None, None), (weight, bias))
        of_scale, of_shift = (back * inputs).sum((2, 3)), back.sum((2, 3))
        # scaling and shifting has rounded what `own` reads: by at most gamma |d| |a|, by Cauchy and Schwarz
        pixels, offsets = inputs[0, 0].numel(), math.prod(self.own.kernel)
        sizes = 2 * (inputs.square().sum((2, 3)) @ scale.square() + pixels * shift.square().sum())
        reach = (squared_norms(d.flatten(1)) * offsets * sizes).sqrt()
        filters = (filters.sqrt() + rounding(4, d.dtype) * reach).square()
        return squared_norms(of_scale) + squared_norms(of_shift) + filters, (of_scale, of_shift)

    def weighted_gradient_sum(
        self,
        output_gradients: Tensor,
        cache: ConvolutionCache,
        parameters: Parameters,
        factors: Tensor | None,
        gradients: Parameters | None,
    ) -> Parameters:
        """Sum the gradients of the folded filters, and the gradients of scale and shift if they were formed."""
        sums = self.joint.weighted_gradient_sum(output_gradients, cache, (), factors, None)
        sums = [each[0] for each in self._unfolded(*(each[None] for each in (*sums, *parameters)))]
        if gradients is not None:
            assert factors is not None
            sums[:2] = (factors @ each for each in gradients)
        return tuple(sums)

    def sums_all(
        self,
        output_gradients: list[Tensor],
        cache: ConvolutionCache,
        parameters: Parameters,
        formed: list[Parameters | None],
    ) -> Tensor:
        """Sum the gradients of the folded filters of all models; for scale and shift, take the sums that are known."""
        models, (_, _, weight, bias) = len(formed), parameters
        folded = self.joint.sums_all(output_gradients, cache, (), formed)
        folded, sums = folded.split([folded.shape[1] - bias.shape[1], bias.shape[1]], 1)
        folded = folded.reshape(models, weight.shape[1], -1, *weight.shape[3:])
        parts = self._unfolded(folded, sums, *parameters)
        for model, known in enumerate(formed):
            if known is not None:
                parts[0][model], parts[1][model] = known
        return torch.cat([part.flatten(1) for part in parts], 1)

    @staticmethod
    def _unfolded(folded: Tensor, sums: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, _: Tensor) -> Parameters:
        """Return the gradients of scale, shift, weight and bias (models, ...) from those of folded filters."""
        seen, ones = folded[:, :, :-1], folded[:, :, -1:]
        gradients = torch.addcmul(ones * _over_filters(shift), seen, _over_filters(scale))
        return (weight * seen).sum((1, 3, 4)), (weight * ones).sum((1, 3, 4)), gradients, sums


def _over_filters(channels: Tensor) -> Tensor:
    """Return a number a channel (models, channels) so that it broadcasts to filters (models, filters, channels, height,
    width)."""
    return channels[:, None, :, None, None]


def _rows(gradients: Tensor) -> Tensor:
    """Return D of every record, (n, positions, filters)."""
    return gradients.permute(0, 2, 3, 1).flatten(1, 2)
