"""Clipped gradient sums of linear models: every model of a stack in one matrix product there and one back.

A linear model reads the batch itself, so the weights of all models are rows of one matrix W, their logits are W x and
their gradient sums D x, with D the scaled slopes of the loss. The norm of one record's gradient is |d| sqrt(|x|^2 + 1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import grad

from dpfl.engine.matrix_products import product
from dpfl.engine.per_record_gradients import Batch, Loss
from dpfl.mechanisms.clipping import clip_factors


class LinearGradients:
    """Gradients of a module that `is_linear`.

    What else is in the stack may change a model's sums in the last bits: the matrix library rounds a row according to
    its place and to the number of rows.
    """

    def __init__(self, module: nn.Module, loss: Loss):
        (layer,) = (each for each in module.modules() if type(each) is nn.Linear)
        self.loss, self.inputs, self.outputs = loss, layer.in_features, layer.out_features

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """One product for all logits, one for all sums."""
        x, y, present = batch
        x, models = x.flatten(1), len(weights)
        matrix, bias = weights.split([self.outputs * self.inputs, self.outputs], dim=1)
        logits = product(matrix.reshape(-1, self.inputs), x.T).unflatten(0, (models, self.outputs)) + bias[:, :, None]
        slopes = self.slopes(logits, y)
        norms = (slopes.square().sum(1) * (x.square().sum(1) + 1)).sqrt()
        scaled = slopes * (clip_factors(norms, clip_norms[:, None]) * present)[:, None, :]
        sums = product(scaled.flatten(0, 1), x).reshape(models, -1)
        return torch.cat([sums, scaled.sum(2)], dim=1)

    def record_bytes(self, record: Tensor) -> int:
        """The input and a few numbers an output."""
        return record.element_size() * (self.inputs + 6 * self.outputs)

    def slopes(self, logits: Tensor, y: Tensor) -> Tensor:
        """The slope of each record's loss at its logits (models, outputs, n)."""
        if hasattr(self.loss, "slope"):
            return self.loss.slope(logits, y)
        labels = y.expand(len(logits), *y.shape).flatten(0, 1)

        def total(logits: Tensor) -> Tensor:
            return self.loss(logits.transpose(1, 2).flatten(0, 1), labels).sum()

        return grad(total)(logits)


def is_linear(module: nn.Module) -> bool:
    """Return whether `module` is one nn.Linear with bias, or a sequence that only flattens beside it."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    kinds = [type(part) for part in parts]
    flattens = all(part.start_dim == 1 and part.end_dim == -1 for part in parts if type(part) is nn.Flatten)
    return (
        flattens
        and set(kinds) <= {nn.Linear, nn.Flatten, nn.Identity}
        and kinds.count(nn.Linear) == 1
        and all(part.bias is not None for part in parts if type(part) is nn.Linear)
    )
