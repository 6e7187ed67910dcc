"""Generalised linear models, many at once: losses, gradients, and sums of clipped per-record gradients.

One record's loss is phi(x . w, y), so its gradient phi'(x . w, y) x is along the record: its signed length |x| phi'
is all that clipping has to look at.

Shapes: weights (..., features, models), x (..., records, features), y (..., records); the leading axes are stacked.
A model's numbers do not depend, bit for bit, on the other models of its stack, as long as it has two or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpfl.mechanisms.clipping import clip_lengths

Array = NDArray[np.float64]


class Loss(Protocol):
    """phi of one record, by its score s = x . w and its target y (arrays that broadcast)."""

    lipschitz: float
    """sup |phi'| by the score: times the largest |x|, the loss's Lipschitz constant; inf where there is none."""
    smoothness: float
    """sup phi'' by the score: times the largest |x|^2, the loss's smoothness; inf where it is not smooth."""

    def value(self, scores: Array, targets: Array) -> Array:
        """Return phi."""

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of phi by the score; one of its subgradients where there is none."""


@dataclass(frozen=True)
class Square:
    """(s - y)^2 / 2: linear regression, in the target's unit squared."""

    lipschitz: float = math.inf
    smoothness: float = 1.0

    def value(self, scores: Array, targets: Array) -> Array:
        """Return (s - y)^2 / 2."""
        return np.square(scores - targets) / 2.0

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return s - y."""
        return scores - targets


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y s)), targets -1 or 1: logistic regression."""

    lipschitz: float = 1.0
    smoothness: float = 0.25

    def value(self, scores: Array, targets: Array) -> Array:
        """Return log(1 + exp(-y s)), without overflow."""
        return np.logaddexp(0.0, -targets * scores)

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return -y / (1 + exp(y s))."""
        return -targets * expit(-targets * scores)


@dataclass(frozen=True)
class Absolute:
    """|s - y|: median regression; convex, not smooth."""

    lipschitz: float = 1.0
    smoothness: float = math.inf

    def value(self, scores: Array, targets: Array) -> Array:
        """Return |s - y|."""
        return np.abs(scores - targets)

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return the sign of s - y, 0 at 0."""
        return np.sign(scores - targets)


@dataclass(frozen=True)
class Linear:
    """-y s, targets 1: its mean loss is the scalar product with minus the mean record, so that it estimates a mean."""

    lipschitz: float = 1.0
    smoothness: float = 0.0

    def value(self, scores: Array, targets: Array) -> Array:
        """Return -y s."""
        return -targets * scores

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return -y."""
        return np.broadcast_to(-targets, np.broadcast_shapes(np.shape(scores), np.shape(targets)))


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y s), targets -1 or 1: support vectors; convex, not smooth."""

    lipschitz: float = 1.0
    smoothness: float = math.inf

    def value(self, scores: Array, targets: Array) -> Array:
        """Return max(0, 1 - y s)."""
        return np.maximum(0.0, 1.0 - targets * scores)

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return -y inside the margin, 0 on it and beyond."""
        return np.where(targets * scores < 1.0, -targets, 0.0)


def scores(weights: Array, x: Array) -> Array:
    """Return x . w of every record and model, shape (..., records, models)."""
    return np.einsum("...nd,...dm->...nm", x, weights)


def losses(loss: Loss, weights: Array, x: Array, y: Array) -> Array:
    """Return the mean loss over the records of every model, shape (..., models)."""
    return loss.value(scores(weights, x), y[..., None]).mean(axis=-2)


def gradients(loss: Loss, weights: Array, x: Array, y: Array) -> Array:
    """Return the gradient of the mean loss, shape (..., features, models)."""
    return np.einsum("...nd,...nm->...dm", x, loss.derivative(scores(weights, x), y[..., None])) / x.shape[-2]


def least_squares(x: Array, y: Array) -> Array:
    """Return the weights of least mean squared residual, shape (features,), for x (records, features); the shortest
    if many are."""
    return np.linalg.lstsq(x, y, rcond=None)[0]


@dataclass(frozen=True)
class FactoredRecords:
    """Records as clipping wants them: x = norms * direction, with |direction| = 1 (0 for x = 0).

    direction has shape (..., records, features), norms and targets (..., records). `of` builds them.
    """

    direction: Array
    norms: Array
    targets: Array

    @classmethod
    def of(cls, x: Array, y: Array) -> FactoredRecords:
        """Return the records of x (..., records, features) and y (..., records)."""
        norms = np.linalg.norm(x, axis=-1)
        return cls(x / np.where(norms > 0.0, norms, 1.0)[..., None], norms, np.asarray(y, dtype=np.float64))

    def __getitem__(self, place: tuple) -> FactoredRecords:
        """Return the records at `place`, an index into the axes before the features."""
        return FactoredRecords(self.direction[place], self.norms[place], self.targets[place])


def clipped_gradient_sums(
    loss: Loss, weights: Array, records: FactoredRecords, clip_norm: Array, lengths: Array, out: Array
) -> Array:
    """Write into `out`, and return, the sum over the records of each record's gradient clipped to `clip_norm`.

    clip_norm (models,) bounds the Euclidean norm of every single record's gradient; inf clips nothing. `lengths`
    (..., records, models) and `out` (..., features, models) are overwritten: the caller keeps them between steps.
    Formal guarantee: replacing one record of the sum by another, both finite, moves it by at most 2 clip_norm, whatever
    the weights: a gradient whose length is not a number counts as 0 where it is clipped.
    """
    norms = records.norms[..., None]
    np.einsum("...nd,...dm->...nm", records.direction, weights, out=lengths)
    np.multiply(lengths, norms, out=lengths)
    np.multiply(loss.derivative(lengths, records.targets[..., None]), norms, out=lengths)
    clip_lengths(lengths, clip_norm, out=lengths)
    return np.einsum("...nd,...nm->...dm", records.direction, lengths, out=out)
