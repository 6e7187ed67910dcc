"""Sum clipped gradients of networks of known layers, by one forward and one backward pass for all records.

A record's gradient for a dense or convolutional layer is a product of the layer's input a and the loss's gradient d at
its output. One pass in each direction gives every a and d of the batch; each layer then knows its records' norms
(dpfl.engine.layers, dpfl.engine.convolutions), and their sum over layers gives the factors by which records are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from dpfl.engine.clip_bounds import accurate, sure_factors
from dpfl.engine.convolutions import Convolution, ScaledConvolution
from dpfl.engine.layers import (
    ChannelScale,
    Dense,
    Flatten,
    Layer,
    MaxPoolLayer,
    MeanPoolLayer,
    Parameters,
    ReLU,
    Tanh,
    TrainedLayer,
    channels_last,
    scaled,
)
from dpfl.engine.linear_gradients import LinearGradients, is_linear
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import Batch, GradientRule, Loss, PerRecordGradients, clipping
from dpfl.models.scale_shift import ScaleShift

MODELS_AT_ONCE = 2**20  # output numbers of first layers computed together
BACKWARD_PASSES = 6  # an activation's value and gradient, each with the copies that are made on the way


class BackwardPass(NamedTuple):
    """Results of one model's two passes: the loss's gradients at each trained layer's output, every layer's cache, the
    records' gradients where norms formed them, and the factor that scales each record (n,), if any does."""

    output_gradients: dict[int, Tensor]
    caches: list[Any]
    gradients: dict[int, Parameters | None]
    factors: Tensor | None


class LayerGradients:
    """Compute gradients of a sequence of layers; see `gradient_rule`.

    On a CPU models follow one another, so that one model's activations stay in the processor's cache; but a first layer
    that reads the batch itself and does not form gradients is one layer of many outputs for all models together, as far
    as those fit there: matrix libraries multiply few wide matrices faster than many narrow ones. With oneDNN
    (dpfl.engine.matrix_products) a model's sums have the same bits alone and in any stack; other libraries may change
    the last ones. On other devices models go together, by vmap.
    """

    def __init__(
        self,
        layers: list[Layer | TrainedLayer],
        loss: Loss,
        layout: ParameterVector,
        activations: int,
        precision: torch.dtype | None = None,
    ):
        self.layers, self.loss, self.layout, self.activations = layers, loss, layout, activations
        self.precision = precision
        self.trained = [number for number, layer in enumerate(layers) if _is_trained(layer)]
        # those of one layer, and of adding up what a layer's tensors and all layers give
        self.roundings = max(layers[number].roundings for number in self.trained) + len(self.trained) + 4

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Cache what all models share about the batch, then pass through one model after the other."""
        views = list(self.layout.views(weights).values())
        if weights.device.type != "cpu":
            batch, shared = self._shared_cache(batch)
            return vmap(self._clipped_sum, (0, 0, None, None))(views, clip_norms, batch, shared)
        bounds = [norm if clips else None for norm, clips in zip(clip_norms, clipping(clip_norms), strict=True)]
        # a loss that knows its derivative leaves autograd nothing to do; tracking takes a twentieth of the time
        with torch.inference_mode(hasattr(self.loss, "derivative")):
            batch, shared = self._shared_cache(batch)
            if shared is None or self.layers[0].forms_gradients or len(self.trained) == 1:
                each = zip(_by_model(views), bounds, strict=True)
                parts = [self._clipped_sum(*model, batch, shared)[None] for model in each]
            else:
                at_once = max(1, MODELS_AT_ONCE // max(1, len(batch[0]) * self.layers[0].output_size))
                slices = [slice(first, first + at_once) for first in range(0, len(weights), at_once)]
                parts = [
                    self._with_one_first_layer([view[part] for view in views], bounds[part], batch, shared)
                    for part in slices
                ]
        return torch.cat(parts)  # outside it: an ordinary tensor, which the caller may change

    def _shared_cache(self, batch: Batch) -> tuple[Batch, Any]:
        """Return the batch, and the cache of a first layer that reads it: all models share it."""
        batch = channels_last(batch[0].to(self.precision or batch[0].dtype)), *batch[1:]
        return batch, self.layers[0].cache_inputs(batch[0]) if self.trained[0] == 0 else None

    def record_bytes(self, record: Tensor) -> int:
        """Count values and gradients of activations, and the memory of trained layers."""
        trained = sum(self.layers[number].memory_per_record for number in self.trained)
        return record.element_size() * (trained + BACKWARD_PASSES * self.activations)

    def _clipped_sum(self, parameters: Sequence[Tensor], clip_norm: Tensor | None, batch: Batch, shared: Any) -> Tensor:
        """Return one model's sum. No clip norm: no norms."""
        own = self._by_layer(parameters)
        return self._sum(self._passes(own, clip_norm, batch, shared), own, self.trained)

    def _with_one_first_layer(
        self, views: list[Tensor], bounds: list[Tensor | None], batch: Batch, shared: Any
    ) -> Tensor:
        """Return the sums of models whose first layers go forward together, and are summed together at the end."""
        first = self.layers[0]
        outputs = first.forward_all(shared, views[: first.tensors])
        first_gradients, formed, others = [], [], []
        for parameters, bound, output in zip(_by_model(views), bounds, outputs.unbind(1), strict=True):
            own = self._by_layer(parameters)
            passed = self._passes(own, bound, batch, shared, output)
            first_gradients.append(scaled(passed.output_gradients[0], passed.factors))
            records = passed.gradients[0]
            formed.append(None if records is None else tuple(passed.factors @ each for each in records))
            others.append(self._sum(passed, own, self.trained[1:]))
        sums = first.sums_all(first_gradients, shared, views[: first.tensors], formed)
        return torch.cat([sums, torch.stack(others)], 1)

    def _passes(
        self, parameters: dict[int, Parameters], clip_norm: Tensor | None, batch: Batch, shared: Any,
        output: Tensor | None = None,
    ) -> BackwardPass:  # fmt: skip
        """Run forward and back through one model, and find its records' norms over all layers.

        `output`: that of the first layer, where it is known.
        """
        x, y, present = batch
        logits, caches = self._forward(x, parameters, shared, output)
        at_logits = _logit_gradients(self.loss, accurate(logits), y)
        if clip_norm is None:
            at_logits = scaled(at_logits, present)
        gradients = self._backward(at_logits.to(logits.dtype), parameters, caches)
        if clip_norm is None:
            return BackwardPass(gradients, caches, dict.fromkeys(self.trained), None)
        norms = {
            each: self.layers[each].squared_gradient_norms(gradients[each], caches[each], parameters[each])
            for each in self.trained
        }
        factors = sure_factors(sum(squares for squares, _ in norms.values()), clip_norm, self.roundings)
        factors = factors * present
        return BackwardPass(gradients, caches, {number: formed for number, (_, formed) in norms.items()}, factors)

    def _sum(self, passed: BackwardPass, parameters: dict[int, Parameters], trained: list[int]) -> Tensor:
        """Return one model's scaled gradients of some layers, summed over records, as one vector."""
        sums = [
            self.layers[each].weighted_gradient_sum(
                passed.output_gradients[each],
                passed.caches[each],
                parameters[each],
                passed.factors,
                passed.gradients[each],
            )
            for each in trained
        ]
        return accurate(torch.cat([part.flatten() for tensors in sums for part in tensors]))

    def _by_layer(self, parameters: Sequence[Tensor]) -> dict[int, Parameters]:
        """Return the parameters of each trained layer."""
        each = iter(parameters)
        return {number: tuple(islice(each, self.layers[number].tensors)) for number in self.trained}

    def _forward(
        self, x: Tensor, parameters: dict[int, Parameters], shared: Any, output: Tensor | None
    ) -> tuple[Tensor, list]:
        """Return the logits, and every layer's cache."""
        caches = []
        for number, layer in enumerate(self.layers):
            if number in parameters:
                caches.append(shared if number == 0 else layer.cache_inputs(x))
                known = number == 0 and output is not None
                x = output if known else layer.forward(caches[-1], parameters[number])
            else:
                x, cache = layer.forward(x)
                caches.append(cache)
        return x, caches

    def _backward(self, gradients: Tensor, parameters: dict[int, Parameters], caches: list) -> dict[int, Tensor]:
        """Return the loss's gradients at the output of every trained layer, from those at the logits."""
        output_gradients = {}
        for number in reversed(range(self.trained[0], len(self.layers))):
            layer = self.layers[number]
            if number not in parameters:
                gradients = layer.backward(gradients, caches[number])
                continue
            output_gradients[number] = gradients
            if number > self.trained[0]:
                gradients = layer.backward(gradients, caches[number], parameters[number])
        return output_gradients


def _by_model(views: list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over each model's parameters, from views of all models' (models, ...)."""
    return zip(*map(torch.unbind, views), strict=True)


def _logit_gradients(loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of each record's loss at its logits."""
    if hasattr(loss, "derivative"):
        return loss.derivative(logits, y)
    if logits.device.type != "cpu":  # there it runs under vmap, which needs torch.func's grad
        return grad(lambda values: loss(values, y).sum())(logits)
    with torch.enable_grad():  # the same, in a third of the time
        values = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(values, y).sum(), values)[0]


def gradient_rule(module: nn.Module, loss: Loss, record: Tensor, precision: torch.dtype | None = None) -> GradientRule:
    """Return the fastest rule that is exact for `module`; `record` is one input of it, without batch axis.

    `precision`: what values and gradients are computed in, torch.bfloat16 or the record's own; norms and sums keep the
    precision of the weights.

    LinearGradients for a single nn.Linear, after a ScaleShift or not. LayerGradients for an nn.Sequential of nn.Linear
    on vectors, ungrouped and zero-padded nn.Conv2d (both with bias), ScaleShift, nn.MaxPool2d without padding,
    nn.AvgPool2d whose windows divide the image, nn.Flatten, nn.ReLU and nn.Tanh. PerRecordGradients for any other
    module. Raises InputError where the module has buffers.
    """
    layout = ParameterVector.of(module)
    if is_linear(module):
        return LinearGradients(module, loss, precision)
    layers, activations, x = [], 0, record[None]
    parts = _in_order(module)
    for part in parts:
        layer = _layer(part, x, reads_batch=not layers)
        if layer is None:
            return PerRecordGradients(module, loss, precision)
        with torch.no_grad():
            x = part(x)
        layers.append(layer)
        activations += x.numel()
    if [ChannelScale, Convolution] == [type(layer) for layer in layers[:2]]:
        layers[:2] = [ScaledConvolution(parts[1], record.shape[1:])]
    if sum(layer.tensors for layer in layers if _is_trained(layer)) != len(
        layout.names
    ):  # a layer that the pass meets twice
        return PerRecordGradients(module, loss, precision)
    return LayerGradients(layers, loss, layout, activations, precision)


def _in_order(module: nn.Module) -> list[nn.Module]:
    """Return the modules of a sequence, those of sequences inside it included, as the forward pass meets them."""
    if type(module) is not nn.Sequential:
        return [module]
    return [each for part in module for each in _in_order(part)]


def _layer(module: nn.Module, inputs: Tensor, *, reads_batch: bool) -> Layer | TrainedLayer | None:
    """Return the layer that does what `module` does to `inputs`, or None where there is none."""
    if type(module) is nn.Linear and module.bias is not None and inputs.ndim == 2:
        return Dense(module)
    if type(module) is nn.Conv2d and module.bias is not None and module.groups == 1 and inputs.ndim == 4:
        known = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return Convolution(module, inputs.shape[2:], reads_batch=reads_batch) if known else None
    if type(module) is ScaleShift:
        return ChannelScale(module, inputs[0].numel())
    if isinstance(module, nn.AvgPool2d) and MeanPoolLayer.does(module, inputs):
        return MeanPoolLayer(module)
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    if isinstance(module, nn.MaxPool2d) and MaxPoolLayer.does(module):
        return MaxPoolLayer(module)
    return {nn.ReLU: ReLU, nn.Tanh: Tanh}.get(type(module), lambda: None)()


def _is_trained(layer: Layer | TrainedLayer) -> bool:
    """Return whether a layer has parameters."""
    return hasattr(layer, "tensors")
