"""Regularised optimum of a smooth generalised linear model in a ball, with a certificate of its accuracy."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, minimize

from dpfl.models.glm import Array, Loss, gradients, losses

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
    found = _unconstrained(loss, x, y, regularisation + brentq(outside, 0.0, largest, xtol=1e-13, rtol=1e-13))
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
