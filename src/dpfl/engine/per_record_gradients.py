"""Sum clipped per-record gradients, for one model and for a stack of models.

A rule (`GradientRule`) knows one model; `StackedGradients` applies it to a stack within a budget of memory. The rule
here differentiates record by record and so serves any module; dpfl.engine.network_gradients has the faster one for
layers whose norms have a closed form.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpfl.engine.clip_bounds import accurate, norm_roundings, squared_norms, sure_factors
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.errors import InputError

_log = logging.getLogger(__name__)

HEAP_BYTES = 2**25 - 2**16  # just under the largest that glibc learns from

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps predictions (n, ...) and labels (n, ...) to one loss per record, (n,). Its method `derivative`, if any, replaces
autograd (dpfl.engine.cross_entropy)."""


class GradientRule(Protocol):
    """Sum the gradients of models that share a batch."""

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return, for each model of `weights` (variants, parameters), the sum over present records of its gradients,
        each scaled to a norm of at most the model's clip norm; shape (variants, parameters).

        `clip_norms` (variants,): infinite where nothing is clipped; those are plain sums. On other devices
        than a CPU it is called under vmap over groups of models, `weights` and `batch` mapped and `clip_norms` not:
        there it may not write in place.
        """

    def record_bytes(self, record: Tensor) -> int:
        """Return about how many bytes `clipped_sums` holds for each record of a batch and each model."""


Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs (n, ...), labels (n, ...) and presence (n,): 1 for a record of the batch, 0 for padding."""


class PerRecordGradients:
    """Compute each record's gradient by vmap: for any module without buffers, at the cost of storing them all.

    `precision`: what the module and its gradients are computed in, if not the weights' own.
    """

    def __init__(self, module: nn.Module, loss: Loss, precision: torch.dtype | None = None):
        self.module, self.loss, self.layout = module, loss, ParameterVector.of(module)
        self.precision = precision

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Clip over the full parameter vector, then sum; the models follow one another."""
        return torch.stack(
            [
                self._clipped_sum(model, batch, clip_norm) if clips else self._plain_sum(model, batch)
                for model, clip_norm, clips in zip(weights, clip_norms, clipping(clip_norms), strict=True)
            ]
        )

    def _clipped_sum(self, weights: Tensor, batch: Batch, clip_norm: Tensor) -> Tensor:
        """Return the sum of one model that clips."""
        weights, x, y, present = self._cast(weights, batch)
        formed = vmap(grad(self._record_loss), (None, 0, 0))(self.layout.views(weights), x, y)
        gradients = {name: accurate(gradient) for name, gradient in formed.items()}
        squares = sum(squared_norms(gradient[..., None].flatten(1)) for gradient in gradients.values())
        roundings = norm_roundings(self.layout.size) + len(gradients)
        factors = sure_factors(squares, clip_norm, roundings) * present
        return self.layout.flatten({name: torch.tensordot(factors, g, 1) for name, g in gradients.items()})

    def _plain_sum(self, weights: Tensor, batch: Batch) -> Tensor:
        """Return the sum of one model that does not clip: the gradient of the summed loss."""
        weights, x, y, present = self._cast(weights, batch)

        def total(parameters: dict[str, Tensor]) -> Tensor:
            return (self.loss(accurate(functional_call(self.module, parameters, (x,))), y) * present).sum()

        return accurate(self.layout.flatten(grad(total)(self.layout.views(weights))))

    def _cast(self, weights: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Return weights, inputs, labels and presence, the first two in the precision of the passes."""
        x, y, present = batch
        return weights.to(self.precision or weights.dtype), x.to(self.precision or x.dtype), y, present

    def record_bytes(self, record: Tensor) -> int:
        """Count three copies of the gradient, and values and gradients of every activation."""
        return record.element_size() * (3 * self.layout.size + 6 * activations(self.module, record))

    def _record_loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one record."""
        return self.loss(accurate(functional_call(self.module, parameters, (x[None],))), y[None])[0]


class StackedGradients:
    """Apply a rule to a stack of groups (each with its own batch) x variants (sharing the group's batch).

    All variants of a group go together as far as the memory budget allows, else fewer; where not even one model's
    batch fits, its records are split. Groups follow one another on a CPU and go together, by vmap, elsewhere. None of
    this changes the sums beyond rounding.
    """

    def __init__(self, rule: GradientRule, record: Tensor, memory_bytes: float):
        """`record` is one input, without batch axis, on the device that will be used; raises InputError where the
        budget holds not even one record of one model."""
        self.rule = rule
        # glibc returns memory after every step and fetches it page by page for the next, which takes as long as the
        # step, until a block of this size has been freed: then it keeps twice as much
        torch.empty(HEAP_BYTES, dtype=torch.uint8)
        self.records_at_once = int(memory_bytes // rule.record_bytes(record))
        if self.records_at_once < 1:
            needed = rule.record_bytes(record) / 2**30
            raise InputError(f"memory_gb: one record's gradient needs {needed:.3g} GB, the budget holds less; raise it")

    def __call__(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the gradient sums at `weights`, both of shape (groups, variants, parameters); the caller may change
        them, and must not use them after the next call.

        `batch`: inputs (groups, n, ...), labels (groups, n, ...), presence (groups, n). `clip_norms` (variants,):
        infinite where a variant does not clip. A record that cannot be clipped is left out (`without_overflow`). Where
        memory runs out, fewer models go together from then on, and the log says so; raises InputError where one record
        of one model is too much.
        """
        while True:
            try:
                return without_overflow(self.rule, self._sums(weights, batch, clip_norms), weights, batch, clip_norms)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._shrink(weights.shape[0] * weights.shape[1] * batch[0].shape[1])
            if weights.device.type == "cuda":
                torch.cuda.empty_cache()

    def _sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums, with as many models and records at once as fit."""
        groups, variants, length = *weights.shape[:2], batch[0].shape[1]
        if groups * variants * length <= self.records_at_once:
            return self._part(weights, batch, clip_norms)
        models = max(1, self.records_at_once // length)
        wide, deep = min(models, variants), max(1, models // variants)
        sums = torch.zeros_like(weights)
        for first_record in range(0, length, self.records_at_once):
            records = slice(first_record, first_record + self.records_at_once)
            for first_group in range(0, groups, deep):
                here = slice(first_group, first_group + deep)
                part = tuple(each[here, records] for each in batch)
                for first in range(0, variants, wide):
                    chosen = slice(first, first + wide)
                    sums[here, chosen] += self._part(weights[here, chosen], part, clip_norms[chosen])
        return sums

    def _part(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the rule's sums of some groups, variants and records."""
        if len(weights) > 1 and weights.device.type != "cpu":
            return vmap(self.rule.clipped_sums, (0, 0, None))(weights, batch, clip_norms)
        groups = zip(weights, *batch, strict=True)
        sums = [self.rule.clipped_sums(models, tuple(part), clip_norms) for models, *part in groups]
        return sums[0][None] if len(sums) == 1 else torch.stack(sums)

    def _shrink(self, tried: int) -> None:
        """Halve the records that go together, after `tried` of them were too many."""
        self.records_at_once = min(self.records_at_once, tried) // 2
        if self.records_at_once < 1:
            raise InputError("memory: one record's gradient of one model does not fit; use a machine with more")
        _log.warning("out of memory: from here on %d records of one model go together", self.records_at_once)


def without_overflow(rule: GradientRule, sums: Tensor, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
    """Return a rule's `sums` (groups, variants, parameters), in place without the records that no scaling can clip.

    A record whose gradient's norm is infinite or nan makes every entry of its sum nan (dpfl.mechanisms.clipping). Where
    that happens to a model that clips, its sum becomes that of the records whose own clipped gradients are finite; 0
    where the model's weights are not finite. Sums that are not clipped stay as they are: divergence remains visible.
    Formal guarantee: so the clipped sums' sensitivity holds for all weights and inputs.
    """
    overflowed = torch.isfinite(clip_norms) & ~torch.isfinite(sums[..., -1])
    if not bool(overflowed.any()):
        return sums
    for group, variant in overflowed.nonzero().tolist():
        model, total = weights[group, variant, None], torch.zeros_like(sums[group, variant])
        for record in range(batch[0].shape[1] if bool(torch.isfinite(model).all()) else 0):
            alone = tuple(part[group, record, None] for part in batch)
            (gradient,) = rule.clipped_sums(model, alone, clip_norms[variant, None])
            total += gradient.where(torch.isfinite(gradient).all(), 0.0)
        sums[group, variant] = total
    return sums


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out: Python's, torch's on a device, or torch's on a CPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "not enough memory" in str(error)


def clipping(clip_norms: Tensor) -> list[bool]:
    """Return which variants clip, from their clip norms (variants,)."""
    return torch.isfinite(clip_norms).tolist()


def activations(module: nn.Module, record: Tensor) -> int:
    """Return how many numbers one record's forward pass produces, over all innermost modules."""
    counts: list[int] = []
    handles = [
        each.register_forward_hook(lambda _module, _inputs, output: counts.append(output.numel()))
        for each in module.modules()
        if not list(each.children())
    ]
    try:
        with torch.no_grad():
            module(record[None])
    finally:
        for handle in handles:
            handle.remove()
    return sum(counts)
