"""Sums of clipped per-record gradients, for one model and for a stack of models.

A rule (`GradientRule`) knows one model; `StackedGradients` applies it to a stack within a budget of memory. The rule
here differentiates record by record and so serves any module; dpfl.engine.layers has the faster one for layers whose
norms have a closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpfl.engine.layout import Layout
from dpfl.errors import InputError
from dpfl.mechanisms.clipping import clip_factors

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps predictions (n, ...) and labels (n, ...) to one loss a record, (n,)."""


class GradientRule(Protocol):
    """How the gradients of one model on one batch are summed; every method works under vmap."""

    wide: bool
    """Whether a CPU, too, is faster with many models at once: only where no layer is a convolution."""

    def prepare(self, x: Tensor) -> Any:
        """Return what all models of a stack can share about the batch, as tensors; may be empty."""

    def clipped_sum(self, weights: Tensor, batch: Batch, shared: Any, clip_norm: Tensor) -> Tensor:
        """Return the sum over present records of gradients clipped to `clip_norm`, (parameters,)."""

    def plain_sum(self, weights: Tensor, batch: Batch) -> Tensor:
        """Return the sum over present records of gradients, (parameters,)."""

    def record_bytes(self, record: Tensor) -> int:
        """Return about how many bytes `clipped_sum` holds for each record of a batch."""


Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs (n, ...), labels (n, ...) and presence (n,): 1 for a record of the batch, 0 for padding."""


class PerRecordGradients:
    """Gradients of each record by vmap: for any module without buffers, at the cost of holding them all."""

    wide = False

    def __init__(self, module: nn.Module, loss: Loss):
        self.module, self.loss, self.layout = module, loss, Layout.of(module)

    def prepare(self, x: Tensor) -> tuple[()]:
        """Share nothing."""
        return ()

    def clipped_sum(self, weights: Tensor, batch: Batch, shared: Any, clip_norm: Tensor) -> Tensor:
        """Clip over the whole parameter vector, then sum."""
        x, y, present = batch
        gradients = vmap(grad(self._record_loss), (None, 0, 0))(self.layout.views(weights), x, y)
        squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients.values())
        factors = clip_factors(squares.sqrt(), clip_norm) * present
        return self.layout.flatten({name: torch.tensordot(factors, g, 1) for name, g in gradients.items()})

    def plain_sum(self, weights: Tensor, batch: Batch) -> Tensor:
        """Differentiate the summed loss at once."""
        x, y, present = batch

        def total(parameters: dict[str, Tensor]) -> Tensor:
            return (self.loss(functional_call(self.module, parameters, (x,)), y) * present).sum()

        return self.layout.flatten(grad(total)(self.layout.views(weights)))

    def record_bytes(self, record: Tensor) -> int:
        """Three copies of the gradient, and values and slopes of every activation."""
        return record.element_size() * (3 * self.layout.size + 6 * activations(self.module, record))

    def _record_loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """The loss of one record."""
        return self.loss(functional_call(self.module, parameters, (x[None],)), y[None])[0]


class StackedGradients:
    """Applies a rule to a stack of groups (each with its own batch) x variants (sharing the group's batch).

    On a CPU models follow one another, which is faster there than batching them and gives every model bit for bit what
    it gets alone. On other devices, and on a CPU where the rule is `wide`, as many models as the budget holds go
    together, by vmap. Where not even one model's batch fits, its records are split. Neither changes the sums beyond
    rounding.
    """

    def __init__(self, rule: GradientRule, record: Tensor, memory_bytes: float):
        """`record` is one input, without batch axis, on the device that will be used; raises InputError where the
        budget holds not even one record of one model."""
        self.rule = rule
        self.records_at_once = int(memory_bytes // rule.record_bytes(record))
        self.together = record.device.type != "cpu" or rule.wide
        if self.records_at_once < 1:
            needed = rule.record_bytes(record) / 2**30
            raise InputError(f"memory_gb: one record's gradient needs {needed:.3g} GB, the budget holds less; raise it")

    def __call__(self, sums: Tensor, weights: Tensor, batch: Batch, clip_norms: Tensor) -> None:
        """Overwrite `sums` with the gradient sums at `weights`; both have shape (groups, variants, parameters).

        `batch`: inputs (groups, n, ...), labels (groups, n, ...), presence (groups, n). `clip_norms` (variants,):
        infinite where a variant does not clip; those cost no per-record gradients.
        """
        sums.zero_()
        clips = torch.isfinite(clip_norms).tolist()
        clipped = [variant for variant, clip in enumerate(clips) if clip]
        plain = [variant for variant, clip in enumerate(clips) if not clip]
        length = batch[0].shape[1]
        for start in range(0, length, self.records_at_once):
            records = slice(start, start + self.records_at_once)
            add = self._add_together if self.together else self._add_in_turn
            add(sums, weights, tuple(part[:, records] for part in batch), clip_norms, clipped, plain)

    def _add_in_turn(
        self, sums: Tensor, weights: Tensor, batch: Batch, clip_norms: Tensor, clipped: list[int], plain: list[int]
    ) -> None:
        """Add the sums of a part of the records, model by model."""
        for group in range(len(weights)):
            x, y, present = (part[group] for part in batch)
            shared = self.rule.prepare(x) if clipped else None
            for variant in clipped:
                sums[group, variant] += self.rule.clipped_sum(
                    weights[group, variant], (x, y, present), shared, clip_norms[variant]
                )
            for variant in plain:
                sums[group, variant] += self.rule.plain_sum(weights[group, variant], (x, y, present))

    def _add_together(
        self, sums: Tensor, weights: Tensor, batch: Batch, clip_norms: Tensor, clipped: list[int], plain: list[int]
    ) -> None:
        """Add the sums of a part of the records, as many models at once as the budget holds."""
        models = max(1, self.records_at_once // batch[0].shape[1])
        for kind, rule in ((clipped, self._clipped), (plain, self._plain)):
            for first in range(0, len(kind), models):
                variants = kind[first : first + models]
                groups = max(1, models // len(variants))
                for group in range(0, len(weights), groups):
                    here, chosen = slice(group, group + groups), _span(variants)
                    part = tuple(each[here] for each in batch)
                    sums[here, chosen] += rule(weights[here, chosen], part, clip_norms[chosen])

    def _clipped(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """The rule's clipped sum over groups and variants."""
        shared = vmap(self.rule.prepare)(batch[0])
        over_variants = vmap(self.rule.clipped_sum, (0, None, None, 0))
        return vmap(over_variants, (0, 0, 0, None))(weights, batch, shared, clip_norms)

    def _plain(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """The rule's plain sum over groups and variants."""
        return vmap(vmap(self.rule.plain_sum, (0, None)))(weights, batch)


def _span(numbers: list[int]) -> slice | list[int]:
    """Return rising numbers as a slice where they have no gap: indexing by a slice copies nothing."""
    gapless = numbers[-1] - numbers[0] == len(numbers) - 1
    return slice(numbers[0], numbers[-1] + 1) if gapless else numbers


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
