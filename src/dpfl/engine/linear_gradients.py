"""Sum clipped gradients of linear models: one matrix product forward and one back for a whole stack.

A linear model reads the batch itself, so the weights of all models are rows of one matrix W, their logits are W x and
their gradient sums D x, with D the scaled gradients of the loss at the logits. The norm of one record's gradient is
|d| sqrt(|x|^2 + 1).

A model may scale and shift its inputs first (dpfl.models.scale_shift), by s and t. Its logits are (W s) x + W t + b, so
the products stay as wide; with e = W^T d, the gradient of W is d (s x + t)^T, of s e x, of t e. Their sums follow from
D x: s and t of one model are the same for all its records.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import grad

from dpfl.engine.matrix_products import product
from dpfl.engine.per_record_gradients import Batch, Loss, clipping
from dpfl.mechanisms.clipping import clip_factors
from dpfl.models.scale_shift import ScaleShift


class LinearGradients:
    """Compute gradients of a module that `is_linear`.

    The other models of a stack may change a model's sums in the last bits: the matrix library rounds a row according to
    its position and to the number of rows.
    """

    def __init__(self, module: nn.Module, loss: Loss):
        parts = _parts(module)
        layer, self.scales = parts[-1], type(parts[0]) is ScaleShift
        self.loss, self.input_size, self.output_size = loss, layer.in_features, layer.out_features
        numbers = self.output_size * self.input_size, self.output_size
        self.numbers = (self.input_size, self.input_size, *numbers) if self.scales else numbers

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Take one product for all logits, one for all sums."""
        x, y, present = batch
        x = x.flatten(1)
        *scaling, matrix, bias = weights.split(self.numbers, dim=1)
        matrix = matrix.unflatten(1, (self.output_size, self.input_size))
        seen = matrix * scaling[0][:, None, :] if scaling else matrix  # by x itself
        scores = product(seen.reshape(-1, self.input_size), x.T)
        if scaling:
            bias = bias + (matrix @ scaling[1][:, :, None])[..., 0]
        logits = scores.unflatten(0, (len(weights), self.output_size)) + bias[:, :, None]
        gradients = self.logit_gradients(logits, y)
        squares = self._squares(gradients, matrix, scaling, x, clip_norms)
        scaled = gradients * (clip_factors(squares.sqrt(), clip_norms[:, None]) * present)[:, None, :]
        sums = product(scaled.flatten(0, 1), x).view_as(matrix)
        totals = scaled.sum(2)
        if not scaling:
            return torch.cat([sums.flatten(1), totals], dim=1)
        shift = (totals[:, None, :] @ matrix)[:, 0]
        scale = (sums * matrix).sum(1)
        sums = torch.addcmul(totals[:, :, None] * scaling[1][:, None, :], sums, scaling[0][:, None, :])
        return torch.cat([scale, shift, sums.flatten(1), totals], dim=1)

    def _squares(
        self, gradients: Tensor, matrix: Tensor, scaling: list[Tensor], x: Tensor, clip_norms: Tensor
    ) -> Tensor:
        """Return the squared norms of the records' gradients (models, n); anything where nothing is clipped."""
        squares, at_logits = x.square(), gradients.square().sum(1)
        if not scaling:
            return at_logits * (squares.sum(1) + 1)
        scale, shift = scaling
        read = scale.square() @ squares.T + 2 * (scale * shift) @ x.T + shift.square().sum(1, keepdim=True)
        found = at_logits * (read + 1)
        if x.device.type != "cpu":
            return found + ((gradients.transpose(1, 2) @ matrix).square() * (squares + 1)).sum(2)
        lengths = (squares + 1).sqrt()
        for model, clips in enumerate(clipping(clip_norms)):
            if clips:
                found[model] += product(gradients[model].T, matrix[model]).mul_(lengths).square_().sum(1)
        return found

    def record_bytes(self, record: Tensor) -> int:
        """Count the input, its square and a gradient there, and a few numbers an output."""
        return record.element_size() * ((4 if self.scales else 1) * self.input_size + 6 * self.output_size)

    def logit_gradients(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record's loss at its logits (models, outputs, n)."""
        if hasattr(self.loss, "derivative"):
            return self.loss.derivative(logits, y)
        labels = y.expand(len(logits), *y.shape).flatten(0, 1)

        def total(logits: Tensor) -> Tensor:
            return self.loss(logits.transpose(1, 2).flatten(0, 1), labels).sum()

        return grad(total)(logits)


def is_linear(module: nn.Module) -> bool:
    """Return whether `module` is one nn.Linear with bias, or a sequence that adds only a flattening and a ScaleShift
    of the flattened inputs."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    flattens = all(part.start_dim == 1 and part.end_dim == -1 for part in parts if type(part) is nn.Flatten)
    kinds = [type(part) for part in _parts(module)]
    if not flattens or kinds not in ([nn.Linear], [ScaleShift, nn.Linear]):
        return False
    *scaling, layer = _parts(module)
    return layer.bias is not None and all(part.channels == layer.in_features for part in scaling)


def _parts(module: nn.Module) -> list[nn.Module]:
    """Return the modules that compute something."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    return [part for part in parts if type(part) not in (nn.Flatten, nn.Identity)]
