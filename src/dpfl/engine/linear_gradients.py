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

from dpfl.engine.clip_bounds import norm_roundings, rounding, squared_norms, sure_factors
from dpfl.engine.matrix_products import product
from dpfl.engine.per_record_gradients import Batch, Loss, clipping
from dpfl.models.scale_shift import ScaleShift


class LinearGradients:
    """Compute gradients of a module that `is_linear`.

    With oneDNN (dpfl.engine.matrix_products) a model's sums have the same bits alone and in any stack; other libraries
    round a row according to its position and to the number of rows.
    """

    def __init__(self, module: nn.Module, loss: Loss, precision: torch.dtype | None = None):
        parts = _parts(module)
        layer, self.scales = parts[-1], type(parts[0]) is ScaleShift
        self.loss, self.input_size, self.output_size = loss, layer.in_features, layer.out_features
        self.precision = precision
        self.roundings = norm_roundings(self.input_size) + self.output_size + 16
        numbers = self.output_size * self.input_size, self.output_size
        self.numbers = (self.input_size, self.input_size, *numbers) if self.scales else numbers

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Take one product for all logits, one for all sums."""
        x, y, present = batch
        x = x.flatten(1)
        *scaling, matrix, bias = weights.split(self.numbers, dim=1)
        matrix = matrix.unflatten(1, (self.output_size, self.input_size))
        seen = matrix * scaling[0][:, None, :] if scaling else matrix  # by x itself
        low = self.precision or x.dtype
        scores = product(seen.reshape(-1, self.input_size).to(low), x.to(low).T, stacked=True).to(x.dtype)
        if scaling:
            bias = bias + torch.linalg.vecdot(matrix, scaling[1][:, None, :])
        logits = scores.unflatten(0, (len(weights), self.output_size)) + bias[:, :, None]
        gradients = self.logit_gradients(logits, y)
        squares = self._squares(gradients, matrix, scaling, x, clip_norms)
        scaled = gradients * (sure_factors(squares, clip_norms[:, None], self.roundings) * present)[:, None, :]
        sums = product(scaled.flatten(0, 1), x, stacked=True).view_as(matrix)
        totals = scaled.sum(2)
        if not scaling:
            return torch.cat([sums.flatten(1), totals], dim=1)
        shift = (totals[:, :, None] * matrix).sum(1)
        scale = (sums * matrix).sum(1)
        sums = torch.addcmul(totals[:, :, None] * scaling[1][:, None, :], sums, scaling[0][:, None, :])
        return torch.cat([scale, shift, sums.flatten(1), totals], dim=1)

    def _squares(
        self, gradients: Tensor, matrix: Tensor, scaling: list[Tensor], x: Tensor, clip_norms: Tensor
    ) -> Tensor:
        """Return bounds on the squared norms of what records add (models, n), as `sure_factors` takes them; 0 where
        nothing is clipped."""
        if not scaling:
            return gradients.square().sum(1) * (squared_norms(x) + 1)
        squares = x.square()
        lengths = (squares + 1).sqrt()
        if x.device.type != "cpu":
            return self._scaled_squares(gradients, matrix, *scaling, x, squares) + (
                (gradients.transpose(1, 2) @ matrix) * lengths
            ).square().sum(2)
        found = gradients.new_zeros(len(gradients), len(x))
        clipped = [model for model, clips in enumerate(clipping(clip_norms)) if clips]
        if clipped:
            own = (each[clipped] for each in (gradients, matrix, *scaling))
            found[clipped] = self._scaled_squares(*own, x, squares)
        for model in clipped:
            found[model] += squared_norms(product(gradients[model].T, matrix[model], stacked=True).mul_(lengths))
        return found

    def _scaled_squares(
        self, gradients: Tensor, matrix: Tensor, scale: Tensor, shift: Tensor, x: Tensor, squares: Tensor
    ) -> Tensor:
        """Return |d|^2 (|s x + t|^2 + 1), and what rounding may take from it and from the squares of s e x and t e.

        |error| <= gamma of the magnitudes, which are the squares of s x and t, and |d|^2 |W|^2 (|x|^2 + 1).
        """
        exact, scale, shift = x.double(), scale.double(), shift.double()
        seen, moved = _rows(scale.square(), exact.square()), shift.square().sum(1, keepdim=True)
        crossed = 2 * _rows(scale * shift, exact)
        read = seen + crossed + moved + rounding(2 * self.input_size + 8, torch.float64) * (seen + moved)
        sizes = matrix.square().sum(1)
        through = product(torch.cat([sizes, sizes[:1]]), squares.T, stacked=True)[:-1]  # why two: see _rows
        lost = rounding(3 * (self.output_size + 8), x.dtype) * (through + sizes.sum(1, keepdim=True))
        return gradients.square().sum(1) * (read.to(x.dtype) + 1 + lost)

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


def _rows(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right^T, each row as it is alone: a product of one row would be left to another routine."""
    return torch.stack([torch.mv(right, row) for row in left])


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
