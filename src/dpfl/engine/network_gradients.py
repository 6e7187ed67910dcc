"""Clipped gradient sums of networks of known layers, by one forward and one backward pass for all records.

A record's gradient for a dense or convolutional layer is a product of what went in (a) and of the loss's slope at what
came out (d). One pass in each direction gives every a and d of the batch; each layer then knows its records' norms
(dpfl.engine.layers, dpfl.engine.convolutions), and their sum over layers gives the factors by which records are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from dpfl.engine.convolutions import Convolution
from dpfl.engine.layers import (
    Activation,
    Dense,
    Flatten,
    Layer,
    MaxPoolLayer,
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
from dpfl.mechanisms.clipping import clip_factors

MODELS_AT_ONCE = 2**20  # numbers that first stages put out together
BACKWARD_PASSES = 6  # an activation's value and slope, each with the copies that are made on the way


class BackwardPass(NamedTuple):
    """What one model's two passes leave for its sums: the loss's slopes at each trained stage's output, what every
    stage saw, the records' gradients where norms formed them, and by what each record is scaled (n,)."""

    slopes: dict[int, Tensor]
    seen: list[Any]
    gradients: dict[int, Parameters | None]
    factors: Tensor


class LayerGradients:
    """Gradients of a sequence of stages; see `gradient_rule`.

    On a CPU models follow one another, so that one model's activations stay in its cache; but a first stage that reads
    the batch itself and does not form gradients is one stage of many outputs for all models together, as far as those
    fit there: matrix libraries multiply few wide matrices faster than many narrow ones. What else is in the stack may
    then change a model's sums in the last bits. Elsewhere models go together, by vmap.
    """

    def __init__(self, stages: list[Layer | TrainedLayer], loss: Loss, layout: ParameterVector, activations: int):
        self.stages, self.loss, self.layout, self.activations = stages, loss, layout, activations
        self.trained = [number for number, stage in enumerate(stages) if _is_trained(stage)]

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Find out what all models share about the batch, then pass through one model after the other."""
        views = list(self.layout.views(weights).values())
        if weights.device.type != "cpu":
            batch, shared = self._seen(batch)
            return vmap(self._clipped_sum, (0, 0, None, None))(views, clip_norms, batch, shared)
        bounds = [norm if clips else None for norm, clips in zip(clip_norms, clipping(clip_norms), strict=True)]
        # a loss that knows its slope leaves autograd nothing to do; being ready for it takes a twentieth of the time
        with torch.inference_mode(hasattr(self.loss, "slope")):
            batch, shared = self._seen(batch)
            if shared is None or self.stages[0].forms_gradients or len(self.trained) == 1:
                each = zip(_by_model(views), bounds, strict=True)
                parts = [self._clipped_sum(*model, batch, shared)[None] for model in each]
            else:
                at_once = max(1, MODELS_AT_ONCE // max(1, len(batch[0]) * self.stages[0].outputs))
                slices = [slice(first, first + at_once) for first in range(0, len(weights), at_once)]
                parts = [
                    self._with_one_first_stage([view[part] for view in views], bounds[part], batch, shared)
                    for part in slices
                ]
        return torch.cat(parts)  # outside it: an ordinary tensor, which the caller may change

    def _seen(self, batch: Batch) -> tuple[Batch, Any]:
        """The batch, and what a first stage that reads it sees: all models share it."""
        batch = channels_last(batch[0]), *batch[1:]
        return batch, self.stages[0].see(batch[0]) if self.trained[0] == 0 else None

    def record_bytes(self, record: Tensor) -> int:
        """Values and slopes of activations, and what trained stages hold."""
        held = sum(self.stages[number].held for number in self.trained)
        return record.element_size() * (held + BACKWARD_PASSES * self.activations)

    def _clipped_sum(self, parameters: Sequence[Tensor], clip_norm: Tensor | None, batch: Batch, shared: Any) -> Tensor:
        """One model's sum. No clip norm: no norms."""
        return self._sum(self._passes(self._in_pairs(parameters), clip_norm, batch, shared), self.trained)

    def _with_one_first_stage(
        self, views: list[Tensor], bounds: list[Tensor | None], batch: Batch, shared: Any
    ) -> Tensor:
        """The sums of models whose first stages go forward together, and are summed together after all passes."""
        first, models = self.stages[0], len(bounds)
        outputs = first.forward(shared, (views[0].flatten(0, 1), views[1].flatten())).unflatten(1, (models, -1))
        slopes, others = [], []
        for parameters, bound, output in zip(_by_model(views), bounds, outputs.unbind(1), strict=True):
            passed = self._passes(self._in_pairs(parameters), bound, batch, shared, output)
            slopes.append(scaled(passed.slopes[0], passed.factors))
            others.append(self._sum(passed, self.trained[1:]))
        sums = first.sums(torch.cat(slopes, 1), shared, None, None)
        return torch.cat([*(part.reshape(models, -1) for part in sums), torch.stack(others)], 1)

    def _passes(
        self, parameters: dict[int, Parameters], clip_norm: Tensor | None, batch: Batch, shared: Any,
        output: Tensor | None = None,
    ) -> BackwardPass:  # fmt: skip
        """Forward and back through one model, and its records' norms over all stages. `output`: of its first stage."""
        x, y, present = batch
        logits, seen = self._forward(x, parameters, shared, output)
        slopes = self._backward(_loss_slopes(self.loss, logits, y), parameters, seen)
        if clip_norm is None:
            return BackwardPass(slopes, seen, dict.fromkeys(self.trained), present)
        norms = {number: self.stages[number].squares(slopes[number], seen[number]) for number in self.trained}
        factors = clip_factors(sum(squares for squares, _ in norms.values()).sqrt(), clip_norm) * present
        return BackwardPass(slopes, seen, {number: formed for number, (_, formed) in norms.items()}, factors)

    def _sum(self, passed: BackwardPass, trained: list[int]) -> Tensor:
        """One model's scaled gradients of some stages, summed over records, as one vector."""
        slopes, seen, gradients, factors = passed
        sums = [self.stages[each].sums(slopes[each], seen[each], factors, gradients[each]) for each in trained]
        return torch.cat([part.flatten() for weight_and_bias in sums for part in weight_and_bias])

    def _in_pairs(self, parameters: Sequence[Tensor]) -> dict[int, Parameters]:
        """Weight and bias of each trained stage."""
        each = iter(parameters)
        return dict(zip(self.trained, zip(each, each, strict=True), strict=True))

    def _forward(
        self, x: Tensor, parameters: dict[int, Parameters], shared: Any, output: Tensor | None
    ) -> tuple[Tensor, list]:
        """Return the logits, and what every stage saw."""
        seen = []
        for number, stage in enumerate(self.stages):
            if number in parameters:
                seen.append(shared if number == 0 else stage.see(x))
                known = number == 0 and output is not None
                x = output if known else stage.forward(seen[-1], parameters[number])
            else:
                x, kept = stage.forward(x)
                seen.append(kept)
        return x, seen

    def _backward(self, slopes: Tensor, parameters: dict[int, Parameters], seen: list) -> dict[int, Tensor]:
        """Return the loss's slope at the output of every trained stage, from that at the logits."""
        found = {}
        for number in reversed(range(self.trained[0], len(self.stages))):
            stage = self.stages[number]
            if number not in parameters:
                slopes = stage.backward(slopes, seen[number])
                continue
            found[number] = slopes
            if number > self.trained[0]:
                slopes = stage.backward(slopes, seen[number], parameters[number])
        return found


def _by_model(views: list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Each model's own parameters, from views of all models' (models, ...)."""
    return zip(*map(torch.unbind, views), strict=True)


def _loss_slopes(loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
    """Return the slope of each record's loss at its logits."""
    if hasattr(loss, "slope"):
        return loss.slope(logits, y)
    if logits.device.type != "cpu":  # there it runs under vmap, which needs torch.func's grad
        return grad(lambda values: loss(values, y).sum())(logits)
    with torch.enable_grad():  # the same, in a third of the time
        values = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(values, y).sum(), values)[0]


def gradient_rule(module: nn.Module, loss: Loss, record: Tensor) -> GradientRule:
    """Return the fastest rule that is exact for `module`; `record` is one input of it, without batch axis.

    LinearGradients for a single nn.Linear. LayerGradients for an nn.Sequential of nn.Linear on vectors, ungrouped and
    zero-padded nn.Conv2d (both with bias), nn.MaxPool2d without padding, nn.Flatten, nn.ReLU, nn.Tanh and modules that
    know their own slope (dpfl.engine.layers.Activation). PerRecordGradients for any other module. Raises InputError
    where the module has buffers.
    """
    layout = ParameterVector.of(module)
    if is_linear(module):
        return LinearGradients(module, loss)
    stages, activations, x = [], 0, record[None]
    for layer in _in_order(module):
        stage = _stage(layer, x, reads_batch=not stages)
        if stage is None:
            return PerRecordGradients(module, loss)
        with torch.no_grad():
            x = layer(x)
        stages.append(stage)
        activations += x.numel()
    if 2 * sum(map(_is_trained, stages)) != len(layout.names):  # a layer that the pass meets twice
        return PerRecordGradients(module, loss)
    return LayerGradients(stages, loss, layout, activations)


def _in_order(module: nn.Module) -> list[nn.Module]:
    """Return the layers of a sequence, those of sequences inside it included, as the forward pass meets them."""
    if type(module) is not nn.Sequential:
        return [module]
    return [layer for part in module for layer in _in_order(part)]


def _stage(layer: nn.Module, inputs: Tensor, *, reads_batch: bool) -> Layer | TrainedLayer | None:
    """Return the stage that does what `layer` does to `inputs`, or None where there is none."""
    if type(layer) is nn.Linear and layer.bias is not None and inputs.ndim == 2:
        return Dense(layer)
    if type(layer) is nn.Conv2d and layer.bias is not None and layer.groups == 1 and inputs.ndim == 4:
        known = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return Convolution(layer, inputs.shape[2:], reads_batch=reads_batch) if known else None
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return Flatten()
    if isinstance(layer, nn.MaxPool2d) and MaxPoolLayer.does(layer):
        return MaxPoolLayer(layer)
    if hasattr(layer, "slope") and not list(layer.parameters()):
        return Activation(layer)
    return {nn.ReLU: ReLU, nn.Tanh: Tanh}.get(type(layer), lambda: None)()


def _is_trained(stage: Layer | TrainedLayer) -> bool:
    """Whether a stage has parameters."""
    return isinstance(stage, (Dense, Convolution))
