"""Sum clipped gradients of linear models: one matrix product forward and one back for a whole stack.

A linear model reads the batch itself, so the weights of all models are rows of one matrix W, their logits are W x and
their gradient sums D x, with D the scaled gradients of the loss at the logits. The norm of one record's gradient is
|d| sqrt(|x|^2 + 1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import grad

from dpfl.engine.matrix_products import product
from dpfl.engine.per_record_gradients import Batch, Loss
from dpfl.mechanisms.clipping import clip_factors


class LinearGradients:
    """Compute gradients of a module that `is_linear`.

    The other models of a stack may change a model's sums in the last bits: the matrix library rounds a row according to
    its position and to the number of rows.
    """

    def __init__(self, module: nn.Module, loss: Loss):
        (layer,) = (each for each in module.modules() if type(each) is nn.Linear)
        self.loss, self.input_size, self.output_size = loss, layer.in_features, layer.out_features

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Take one product for all logits, one for all sums."""
        x, y, present = batch
        x, models = x.flatten(1), len(weights)
        matrix, bias = weights.split([self.output_size * self.input_size, self.output_size], dim=1)
        scores = product(matrix.reshape(-1, self.input_size), x.T)
        logits = scores.unflatten(0, (models, self.output_size)) + bias[:, :, None]
        gradients = self.logit_gradients(logits, y)
        norms = (gradients.square().sum(1) * (x.square().sum(1) + 1)).sqrt()
        scaled = gradients * (clip_factors(norms, clip_norms[:, None]) * present)[:, None, :]
        sums = product(scaled.flatten(0, 1), x).reshape(models, -1)
        return torch.cat([sums, scaled.sum(2)], dim=1)

    def record_bytes(self, record: Tensor) -> int:
        """Count the input and a few numbers an output."""
        return record.element_size() * (self.input_size + 6 * self.output_size)

    def logit_gradients(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record's loss at its logits (models, outputs, n)."""
        if hasattr(self.loss, "derivative"):
            return self.loss.derivative(logits, y)
        labels = y.expand(len(logits), *y.shape).flatten(0, 1)

        def total(logits: Tensor) -> Tensor:
            return self.loss(logits.transpose(1, 2).flatten(0, 1), labels).sum()

        return grad(total)(logits)


def is_linear(module: nn.Module) -> bool:
    """Return whether `module` is one nn.Linear with bias, or a sequence that adds only a flattening."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    kinds = [type(part) for part in parts]
    flattens = all(part.start_dim == 1 and part.end_dim == -1 for part in parts if type(part) is nn.Flatten)
    return (
        flattens
        and set(kinds) <= {nn.Linear, nn.Flatten, nn.Identity}
        and kinds.count(nn.Linear) == 1
        and all(part.bias is not None for part in parts if type(part) is nn.Linear)
    )
