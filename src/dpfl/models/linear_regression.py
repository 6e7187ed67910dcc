"""Linear regression in closed form, for many models at once: residuals, losses and per-record gradients.

The loss of a model w on n records is ||X w - y||^2 / (2 n), so one record's gradient is (x . w - y) x: it lies along
the record. Its signed length |x| (x . w - y) is all that clipping has to look at.

Shapes: weights (..., features, models), x (..., records, features), y (..., records); the leading axes are stacked.
A model's numbers do not depend, bit for bit, on the other models of its stack, as long as it holds two or more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def residuals(weights: Array, x: Array, y: Array) -> Array:
    """Return x . w - y for every record and model, shape (..., records, models), in the target's unit."""
    return np.einsum("...nd,...dm->...nm", x, weights) - y[..., None]


def losses(weights: Array, x: Array, y: Array) -> Array:
    """Return the loss ||X w - y||^2 / (2 n) of every model, shape (..., models), in the target's unit squared."""
    return np.square(residuals(weights, x, y)).mean(axis=-2) / 2.0


def record_gradients(weights: Array, x: Array, y: Array) -> Array:
    """Return every record's own gradient (x . w - y) x, shape (..., records, features, models)."""
    return x[..., :, :, None] * residuals(weights, x, y)[..., :, None, :]


def gradients(weights: Array, x: Array, y: Array) -> Array:
    """Return the gradient of the loss, the mean over the records, shape (..., features, models)."""
    return np.einsum("...nd,...nm->...dm", x, residuals(weights, x, y)) / x.shape[-2]


def least_squares(x: Array, y: Array) -> Array:
    """Return the weights of least loss, shape (features,), for x (records, features); the shortest if many are."""
    return np.linalg.lstsq(x, y, rcond=None)[0]


@dataclass(frozen=True)
class Records:
    """Records as clipping wants them: a gradient is `direction` times its signed length `scaled_x . w - scaled_y`.

    direction and scaled_x have shape (..., records, features), scaled_y (..., records). `of` builds them.
    """

    direction: Array
    scaled_x: Array
    scaled_y: Array

    @classmethod
    def of(cls, x: Array, y: Array) -> Records:
        """Return the records of x (..., records, features) and y (..., records)."""
        norms = np.linalg.norm(x, axis=-1)
        lengths = np.where(norms > 0.0, norms, 1.0)
        return cls(x / lengths[..., None], x * norms[..., None], y * norms)

    def __getitem__(self, place: tuple) -> Records:
        """Return the records at `place`, an index into the axes before the features."""
        return Records(self.direction[place], self.scaled_x[place], self.scaled_y[place])


def clipped_gradient_sums(weights: Array, records: Records, clip_norm: Array, lengths: Array, out: Array) -> Array:
    """Write into `out`, and return, the sum over the records of each record's gradient clipped to `clip_norm`.

    clip_norm (models,) bounds the Euclidean norm of every single record's gradient; inf clips nothing. `lengths`
    (..., records, models) and `out` (..., features, models) are overwritten: the caller keeps them between steps.
    Formal guarantee: replacing one record of the sum moves it by at most 2 clip_norm, whatever the weights, infinite
    ones apart (there the record's gradient is NaN).
    """
    np.einsum("...nd,...dm->...nm", records.scaled_x, weights, out=lengths)
    np.subtract(lengths, records.scaled_y[..., None], out=lengths)
    np.clip(lengths, -clip_norm, clip_norm, out=lengths)
    return np.einsum("...nd,...nm->...dm", records.direction, lengths, out=out)
