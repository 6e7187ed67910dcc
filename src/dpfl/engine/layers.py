"""Clipped gradient sums of dense and convolutional models without holding every record's gradient.

A record's gradient for such a layer is a product of what went in (a) and of the loss's slope at what came out (d).
One forward and one backward pass give every a and d of the batch; norms and clipped sums follow from them:
dense: |g|^2 = |a|^2 |d|^2 (Goodfellow 2015); convolution: with the windows U of a, g = d U^T, whose norm comes from
the product itself or, where that is cheaper, from the Gram matrices <U^T U, d^T d> (Bu et al. 2022).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from dpfl.engine.gradients import Batch, GradientRule, Loss, PerRecordGradients, activations
from dpfl.engine.layout import Layout
from dpfl.mechanisms.clipping import clip_factors

Facts = tuple[Tensor, ...]
"""What a layer needs to know about its input; shared by all models where the input is the batch itself."""


class LayerRule(Protocol):
    """The gradients of one layer with weight and bias; `slopes` is the loss's slope at its output."""

    def facts(self, inputs: Tensor) -> Facts:
        """Return what follows from the layer's input (n, ...) alone."""

    def squares(self, facts: Facts, slopes: Tensor) -> tuple[Tensor, Any]:
        """Return each record's squared gradient norm (n,), and what `sums` can use of the work."""

    def sums(self, facts: Facts, slopes: Tensor, factors: Tensor, work: Any) -> tuple[Tensor, Tensor]:
        """Return the sums of weight and bias gradients, each record's scaled by its factor (n,)."""


class Dense:
    """nn.Linear on vectors."""

    def __init__(self, layer: nn.Linear, outputs: torch.Size):
        self.extra = layer.in_features + layer.out_features

    def facts(self, inputs: Tensor) -> Facts:
        """The input and 1 + its squared norm: the bias is a weight whose input is 1."""
        return inputs, inputs.square().sum(1) + 1

    def squares(self, facts: Facts, slopes: Tensor) -> tuple[Tensor, None]:
        """|g|^2 = (|a|^2 + 1) |d|^2."""
        return facts[1] * slopes.square().sum(1), None

    def sums(self, facts: Facts, slopes: Tensor, factors: Tensor, work: None) -> tuple[Tensor, Tensor]:
        """One matrix product over the batch."""
        scaled = slopes * factors[:, None]
        return scaled.T @ facts[0], scaled.sum(0)


class Convolution:
    """nn.Conv2d with one group; holds every record's gradient, which is small for small kernels."""

    def __init__(self, layer: nn.Conv2d, outputs: torch.Size):
        self.layer, self.shape = layer, layer.weight.shape
        self.window = self.shape[1] * self.shape[2] * self.shape[3]
        self.extra = self.window * (outputs[-1] * outputs[-2] + self.shape[0])

    def facts(self, inputs: Tensor) -> Facts:
        """The windows, (n, channels * kernel, positions)."""
        conv = self.layer
        return (functional.unfold(inputs, conv.kernel_size, conv.dilation, conv.padding, conv.stride),)

    def squares(self, facts: Facts, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of d U^T and of the bias's sum over positions."""
        flat = slopes.flatten(2)
        gradients = (flat @ facts[0].transpose(1, 2)).flatten(1)
        return gradients.square().sum(1) + flat.sum(2).square().sum(1), gradients

    def sums(self, facts: Facts, slopes: Tensor, factors: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh the gradients that are at hand."""
        return (factors @ work).view(self.shape), factors @ slopes.flatten(2).sum(2)


class GramConvolution(Convolution):
    """nn.Conv2d with one group; norms from Gram matrices, sums from one product: for large kernels on few positions."""

    def __init__(self, layer: nn.Conv2d, outputs: torch.Size):
        super().__init__(layer, outputs)
        positions = outputs[-1] * outputs[-2]
        self.extra = positions * (self.window + 2 * positions)

    def facts(self, inputs: Tensor) -> Facts:
        """The windows as rows, (n, positions, channels * kernel), and the inner products of any two of a record's."""
        (windows,) = super().facts(inputs)
        rows = windows.transpose(1, 2).contiguous()
        return rows, rows @ windows

    def squares(self, facts: Facts, slopes: Tensor) -> tuple[Tensor, None]:
        """<U^T U + 1, d^T d>: the bias is a weight whose window is 1 everywhere."""
        flat = slopes.flatten(2)
        return ((facts[1] + 1) * (flat.transpose(1, 2) @ flat)).sum((1, 2)), None

    def sums(self, facts: Facts, slopes: Tensor, factors: Tensor, work: None) -> tuple[Tensor, Tensor]:
        """One matrix product over batch and positions."""
        scaled = slopes.flatten(2) * factors[:, None, None]
        weight = scaled.transpose(0, 1).flatten(1) @ facts[0].flatten(0, 1)
        return weight.view(self.shape), scaled.sum((0, 2))


@dataclass(frozen=True)
class _Traced:
    """A layer as one forward pass met it."""

    name: str
    rule: LayerRule
    inputs: torch.Size
    outputs: torch.Size
    reads_batch: bool


class LayerGradients:
    """Gradients of a module all of whose parameters lie in layers that have a `LayerRule`; see `gradient_rule`."""

    def __init__(self, module: nn.Module, loss: Loss, traced: list[_Traced], forward_numbers: int):
        self.module, self.loss, self.layout = copy.deepcopy(module), loss, Layout.of(module)
        self.traced, self.forward_numbers = traced, forward_numbers
        self.wide = all(isinstance(layer.rule, Dense) for layer in traced)
        self.plain = PerRecordGradients(module, loss)
        self._offsets: dict[str, Tensor] = {}
        self._inputs: dict[str, Tensor] = {}
        for layer in traced:
            self.module.get_submodule(layer.name).register_forward_hook(self._hook(layer.name))

    def prepare(self, x: Tensor) -> dict[str, Facts]:
        """Facts of the layers that read the batch itself."""
        return {
            layer.name: layer.rule.facts(x.reshape(len(x), *layer.inputs)) for layer in self.traced if layer.reads_batch
        }

    def clipped_sum(self, weights: Tensor, batch: Batch, shared: dict[str, Facts], clip_norm: Tensor) -> Tensor:
        """Norms over all layers first, then every layer's sum."""
        x, y, present = batch
        slopes, inputs = self._backward(self.layout.views(weights), x, y)
        facts = {layer.name: shared.get(layer.name) or layer.rule.facts(inputs[layer.name]) for layer in self.traced}
        norms = {layer.name: layer.rule.squares(facts[layer.name], slopes[layer.name]) for layer in self.traced}
        factors = clip_factors(sum(squares for squares, _ in norms.values()).sqrt(), clip_norm) * present
        sums = {}
        for layer in self.traced:
            name = layer.name
            sums[f"{name}.weight"], sums[f"{name}.bias"] = layer.rule.sums(
                facts[name], slopes[name], factors, norms[name][1]
            )
        return self.layout.flatten(sums)

    def plain_sum(self, weights: Tensor, batch: Batch) -> Tensor:
        """As for any module."""
        return self.plain.plain_sum(weights, batch)

    def record_bytes(self, record: Tensor) -> int:
        """Values and slopes of activations, and what the layers' rules hold."""
        held = sum(layer.rule.extra for layer in self.traced)
        return record.element_size() * (2 * held + 6 * self.forward_numbers)

    def _backward(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[dict, dict]:
        """Return the loss's slope at every layer's output and every layer's input; records do not mix."""

        def total(offsets: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            self._offsets, self._inputs = offsets, {}
            loss = self.loss(functional_call(self.module, parameters, (x,)), y).sum()
            return loss, self._inputs

        offsets = {layer.name: x.new_zeros(len(x), *layer.outputs) for layer in self.traced}
        try:
            return grad(total, has_aux=True)(offsets)
        finally:
            self._offsets, self._inputs = {}, {}

    def _hook(self, name: str):
        """Return the hook that notes a layer's input and adds the offset by which its output is differentiated."""

        def note(_module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
            self._inputs[name] = inputs[0]
            return output + self._offsets[name]

        return note


def gradient_rule(module: nn.Module, loss: Loss, record: Tensor) -> GradientRule:
    """Return the fastest rule that is exact for `module`; `record` is one input of it, without batch axis.

    LayerGradients where every parameter is the weight or bias of an nn.Linear on vectors or an ungrouped,
    zero-padded nn.Conv2d that the forward pass meets exactly once; PerRecordGradients for any other module.
    Raises InputError where the module has buffers.
    """
    layout = Layout.of(module)
    calls: list[tuple[str, Tensor, Tensor]] = []
    candidates = {name: each for name, each in module.named_modules() if type(each) in (nn.Linear, nn.Conv2d)}
    handles = [
        each.register_forward_hook(lambda _module, inputs, output, name=name: calls.append((name, inputs[0], output)))
        for name, each in candidates.items()
    ]
    try:
        with torch.no_grad():
            module(record[None])
    finally:
        for handle in handles:
            handle.remove()
    covered = {f"{name}.{part}" for name, _, _ in calls for part in ("weight", "bias")}
    at_batch = [inputs.data_ptr() == record.data_ptr() for _, inputs, _ in calls]
    rules = [
        _layer_rule(candidates[name], inputs, output, reads_batch)
        for (name, inputs, output), reads_batch in zip(calls, at_batch, strict=True)
    ]
    if covered != set(layout.names) or len(calls) != len(candidates) or None in rules:
        return PerRecordGradients(module, loss)
    traced = [
        _Traced(name, rule, inputs.shape[1:], output.shape[1:], reads_batch)
        for (name, inputs, output), rule, reads_batch in zip(calls, rules, at_batch, strict=True)
    ]
    return LayerGradients(module, loss, traced, activations(module, record))


def _layer_rule(layer: nn.Module, inputs: Tensor, output: Tensor, reads_batch: bool) -> LayerRule | None:
    """Return the rule of one layer, or None where it has none."""
    if isinstance(layer, nn.Linear):
        return Dense(layer, output.shape) if inputs.ndim == 2 else None
    if layer.groups > 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    positions, filters, window = output.shape[-1] * output.shape[-2], len(layer.weight), layer.weight[0].numel()
    # multiplications a record, over the number of positions; models share the Gram matrices of the batch itself
    gram = positions * (filters if reads_batch else window + filters)
    return (GramConvolution if gram < window * filters else Convolution)(layer, output.shape)
