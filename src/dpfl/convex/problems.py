"""Convex problems: generalised linear models, their optimum, and smoothed losses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit

from dpfl.mechanisms import clip_lengths

# Generalised linear models, many at once: losses, gradients, and sums of clipped per-record gradients.
#
# One record's loss is phi(x . w, y), so its gradient phi'(x . w, y) x is along the record: its signed length |x| phi'
# is all that clipping has to look at.
#
# Shapes: weights (..., features, models), x (..., records, features), y (..., records); the leading axes are stacked.
# A model's numbers do not depend, bit for bit, on the other models of its stack, as long as it has two or more.

Array = NDArray[np.float64]


class Loss(Protocol):
    """phi of one record, by its score s = x . w and its target y (arrays that broadcast)."""

    lipschitz: float
    """sup |phi'| by the score: times the largest |x|, the loss's Lipschitz constant; inf where there is none."""
    smoothness: float
    """sup phi'' by the score: times the largest |x|^2, the loss's smoothness; inf where it is not smooth."""

    def value(self, scores: Array, targets: Array) -> Array:
        """Return phi."""
        ...

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of phi by the score; one of its subgradients if it has no derivative."""
        ...


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
    return cast("Array", np.linalg.lstsq(x, y, rcond=None)[0])


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
    loss: Loss, weights: Array, records: FactoredRecords, clip_norm: Array | float, lengths: Array, out: Array
) -> Array:
    """Write into `out`, and return, the sum over the records of each record's gradient clipped to `clip_norm`.

    clip_norm, (models,) or one number, bounds the norm of every single record's gradient; inf clips nothing. `lengths`
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


# Regularised optimum of a smooth generalised linear model in a ball, with a certificate of its accuracy.

TOLERANCE = 1e-10
"""Largest excess of the risk over its minimum."""
_MAX_STEPS = 20_000


def risk(loss: Loss, weights: Array, x: Array, y: Array, regularisation: Array | float) -> Array:
    """Return mean loss + regularisation/2 |w|^2 of every model, weights (features, models), shape (models,)."""
    return losses(loss, weights, x, y) + np.asarray(regularisation) / 2.0 * np.square(weights).sum(axis=-2)


def minimum(loss: Loss, x: Array, y: Array, *, regularisation: float, radius: float) -> Array:
    """Return the weights (features,) of least `risk` in the ball of `radius`, for a smooth convex loss.

    x (records, features), y (records,), regularisation > 0. The risk is within TOLERANCE of its least: by strong
    convexity it exceeds that by at most |gradient|^2/(2 regularisation), which is checked. On the boundary, a stronger
    regulariser is sought whose optimum has norm `radius` (the multiplier of the ball). Deterministic (L-BFGS).
    Raises ValueError naming the argument, or where the solver does not get there.
    """
    if not (regularisation > 0 and radius > 0):
        raise ValueError(f"regularisation and radius must be above 0, got {regularisation} and {radius}")
    free = _unconstrained(loss, x, y, regularisation)
    if np.linalg.norm(free) <= radius:
        return free

    def outside(multiplier: float) -> float:
        return float(np.linalg.norm(_unconstrained(loss, x, y, regularisation + multiplier)) - radius)

    largest = 1.0
    while outside(largest) > 0:
        largest *= 2.0
    found = _unconstrained(
        loss, x, y, regularisation + cast("Any", brentq)(outside, 0.0, largest, xtol=1e-13, rtol=1e-13)
    )
    return found * (radius / np.linalg.norm(found))


def _unconstrained(loss: Loss, x: Array, y: Array, regularisation: float) -> Array:
    """Return the minimiser without a ball."""

    def value_and_gradient(w: Array) -> tuple[float, Array]:
        column = w[:, None]
        gradient = gradients(loss, column, x, y)[:, 0] + regularisation * w
        return float(risk(loss, column, x, y, regularisation)[0]), gradient

    options = {"gtol": 1e-12, "ftol": 0.0, "maxcor": 30, "maxiter": _MAX_STEPS, "maxfun": _MAX_STEPS}
    found = minimize(value_and_gradient, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    excess = np.sum(value_and_gradient(found)[1] ** 2) / (2.0 * regularisation)
    if not excess <= TOLERANCE:
        raise ValueError(f"regularisation {regularisation}: the optimum was found to {excess:.1e} only")
    return found


# Nesterov's smoothing of losses with a kink, by their Moreau envelope; lowy2021 runs its algorithms on it.


@dataclass(frozen=True)
class Smoothed:
    """phi_b(s) = min_t phi(t, y) + b/2 (s - t)^2 of a loss with a kink, b = `sharpness` > 0, in derivative per score.

    Guarantee: phi - 1/(2b) <= phi_b <= phi, phi_b is convex, its derivative is bounded as phi's is, and its second
    derivative by b.
    For records with |x| = 1 it is the f_beta of lowy2021's Theorems 2.1 and 2.3 with beta = b and v free: minimised
    over all weights v, v - w is a multiple of x. With |x| < 1 it is smoother than that by |x|^2.
    Raises ValueError for a sharpness that is not above 0, and for a loss other than Absolute and Hinge.
    """

    loss: Absolute | Hinge
    sharpness: float
    lipschitz: float = field(init=False, default=1.0)
    smoothness: float = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Absolute | Hinge):
            raise ValueError(f"loss must be Absolute or Hinge, the ones with a kink, got {self.loss!r}")
        if not 0 < self.sharpness < np.inf:
            raise ValueError(f"sharpness is {self.sharpness}; it must be above 0 and finite")
        object.__setattr__(self, "smoothness", float(self.sharpness))

    def value(self, scores: Array, targets: Array) -> Array:
        """Return phi_b: a parabola within 1/b of the kink, phi less a constant beyond."""
        distance, slope, _ = self._around_kink(scores, targets)
        return slope * distance - np.square(slope) / (2.0 * self.sharpness)

    def derivative(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of phi_b by the score, b times the way from the score to the minimising t."""
        _, slope, direction = self._around_kink(scores, targets)
        return slope * direction

    def uniform_error(self) -> float:
        """Return sup phi - phi_b = 1/(2b), reached wherever |phi'| = 1 farther than 1/b from the kink."""
        return self.lipschitz**2 / (2.0 * self.sharpness)

    def _around_kink(self, scores: Array, targets: Array) -> tuple[Array, Array, Array | float]:
        """Return the signed distance to the kink, phi_b's slope by it, and the distance's derivative by the score."""
        if isinstance(self.loss, Absolute):
            distance = scores - targets
            return distance, np.clip(self.sharpness * distance, -1.0, 1.0), 1.0
        distance = 1.0 - targets * scores
        return distance, np.clip(self.sharpness * distance, 0.0, 1.0), -np.asarray(targets)


def sharpness_for(excess: float, lipschitz: float = 1.0) -> float:
    """Return the b whose uniform error is `excess` > 0: smoothing then costs no more than that.

    Source: lowy2021, proof of Theorem 2.1 by Nesterov's smoothing. Raises ValueError for an excess not above 0.
    """
    if not excess > 0:
        raise ValueError(f"excess is {excess}; it must be above 0")
    return lipschitz**2 / (2.0 * excess)
