"""Contraction of the distance between two models by one gradient step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import reals
from dpfl.accounting.contraction.stable_arithmetic import Array


def contraction_factor(eta: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Return M = sqrt(1 - 2 eta beta rho/(beta + rho)), the Lipschitz constant of y -> y - eta grad(y); broadcasts.

    eta > 0 the step size, beta = `smoothness` > 0, 0 <= rho = `strong_convexity` <= beta; M is in [0, 1].
    Raises ValueError naming the argument; eta > 2/(beta + rho) is refused, because M is not a Lipschitz constant there.
    Source: asoodeh2020 eq. (14).
    """
    eta, share, convex_share, scale = _step(eta, smoothness, strong_convexity)
    # M^2 as a sum of non-negative terms: 1 - ... would cancel where M is near 0
    slack = np.maximum(2.0 - eta * scale, 0.0)
    return np.sqrt((share - convex_share) ** 2 + 2.0 * share * convex_share * slack)


def log_contraction_factor(eta: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Logarithm of `contraction_factor`, accurate where M rounds to 1; -inf at M = 0. Arguments and errors as there.

    Source: asoodeh2020 eq. (14).
    """
    factor = contraction_factor(eta, smoothness, strong_convexity)
    loss = contraction_loss(eta, smoothness, strong_convexity)
    mild = loss < 0.5
    with np.errstate(divide="ignore"):
        return np.where(mild, 0.5 * np.log1p(-np.where(mild, loss, 0.0)), np.log(factor))


def contraction_loss(eta: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Loss 1 - M^2 = 2 eta beta rho/(beta + rho), in [0, 1]. Arguments and errors as `contraction_factor`.

    Source: asoodeh2020 eq. (14).
    """
    eta, share, _, _ = _step(eta, smoothness, strong_convexity)
    return np.minimum(2.0 * eta * share * reals("strong_convexity", strong_convexity), 1.0)


def _step(eta: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Checked eta, beta/(beta + rho), rho/(beta + rho) and beta + rho."""
    eta = reals("eta", eta, above=0.0)
    smoothness = reals("smoothness", smoothness, above=0.0)
    strong_convexity = reals("strong_convexity", strong_convexity, at_least=0.0)
    if np.any(strong_convexity > smoothness):
        raise ValueError("strong_convexity must be at most smoothness")
    scale = smoothness + strong_convexity
    with np.errstate(over="ignore"):
        limit = 2.0 / scale
    if np.any(eta > limit):
        raise ValueError(f"eta must be at most 2/(smoothness + strong_convexity) = {np.min(limit):g}")
    return eta, smoothness / scale, strong_convexity / scale, scale
