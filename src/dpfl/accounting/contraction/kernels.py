"""Contraction of one noisy update: factors, kernels on intervals, Gaussian and Laplace divergences.

Sums of powers of a contraction factor, stable from a factor of 0 to one that rounds to 1. Every function takes the
factor x twice, as log x and as gap = 1 - x, because float64 keeps neither from the other. `terms` may be fractional
(the closed form of asoodeh2021 Theorem 2 is drawn at T = 10/3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.numerics import Array, ratio, real, reals

# Contraction of the distance between two models by one gradient step.


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


# Sums of powers of a contraction factor, stable from a factor of 0 to one that rounds to 1.

_FEW = 1e-2  # below this terms * gap the direct double sum cancels and its series takes over
_SERIES_TERMS = 7


def geometric(log_factor: ArrayLike, gap: ArrayLike, terms: ArrayLike) -> Array:
    """Sum 1 + x + ... + x^(terms - 1) = (1 - x^terms)/(1 - x); `terms` itself at x = 1. Shapes broadcast.

    Source: elementary; the sum over rounds of asoodeh2021 Theorem 2.
    """
    log_factor, gap, terms = (np.asarray(value, dtype=np.float64) for value in (log_factor, gap, terms))
    limit = np.array(np.broadcast_to(terms, np.broadcast(log_factor, gap, terms).shape))
    with np.errstate(invalid="ignore", over="ignore"):
        vanished = -np.expm1(terms * log_factor)
    return np.divide(vanished, gap, out=limit, where=(gap > 0.0) & (terms > 0.0))


def double_geometric(log_factor: Array, gap: Array, terms: Array) -> Array:
    """Sum over k = 1..terms of `geometric`(k): terms (terms + 1)/2 at x = 1.

    For terms * gap small, the binomial series C(N+1, 2) - C(N+1, 3) gap + C(N+1, 4) gap^2 - ... is used. Shapes
    broadcast. Source: elementary; the double sum of asoodeh2021 Corollary 3.
    """
    few = terms * gap < _FEW
    safe_gap = np.where(few, 1.0, gap)
    direct = (terms - np.exp(log_factor) * geometric(log_factor, gap, terms)) / safe_gap
    small_gap = np.where(few, gap, 0.0)
    binomial = (terms + 1.0) * terms / 2.0
    series = np.zeros(np.broadcast(log_factor, gap, terms).shape)
    for order in range(2, 2 + _SERIES_TERMS):
        series = series + binomial
        binomial = -binomial * small_gap * (terms + 1.0 - order) / (order + 1.0)
    return np.where(few, series, direct)


# Projected noisy updates on an interval, discretised: transition kernels for exact one-dimensional runs.


class NoiseLaw(Protocol):
    """A law on the line, such as scipy.stats.norm(scale=2)."""

    def cdf(self, x: Array) -> Array: ...

    def sf(self, x: Array) -> Array: ...


@dataclass(frozen=True)
class DiscretisedInterval:
    """The set that the algorithm projects on, cut into equal cells."""

    low: float
    high: float
    cells: int = 400

    @property
    def edges(self) -> Array:
        """Borders of the cells, shape (cells + 1,)."""
        return np.linspace(self.low, self.high, self.cells + 1)

    @property
    def points(self) -> Array:
        """Return the positions of the masses: low, the middles of the cells, high; shape (cells + 2,)."""
        edges = self.edges
        return np.concatenate([[self.low], (edges[1:] + edges[:-1]) / 2, [self.high]])

    def projected(self, centres: Array, noise: NoiseLaw) -> Array:
        """Return the masses of projected (centre + noise), one row per centre; shape (centres, cells + 2)."""
        away = self.edges - np.asarray(centres, dtype=np.float64)[..., None]
        below = noise.cdf(away)
        return np.concatenate([below[..., :1], np.diff(below, axis=-1), noise.sf(away[..., -1:])], axis=-1)


# Contraction of Markov kernels with finitely many outputs: the two-point characterisation of asoodeh2020.

_ROUNDING = 1e-9  # how far a row may miss a total of 1


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return E_{e^epsilon}(p || q) = sum of [p - e^epsilon q]_+ over the last axis of two mass functions.

    p, q: masses, shape (..., outcomes), broadcasting; epsilon >= 0 broadcasts with their leading axes. At epsilon = 0
    this is total variation. Raises ValueError naming the argument. Source: asoodeh2020 eq. (6), asoodeh2021 eq. (2).
    """
    p, q = reals("p", p, at_least=0.0), reals("q", q, at_least=0.0)
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    # as p (1 - e^eps q/p), with the ratio in logarithms: e^eps itself may overflow
    with np.errstate(divide="ignore"):
        log_ratio = np.log(q) - np.log(np.where(p > 0.0, p, 1.0)) + epsilon[..., None]
    return (p * -np.expm1(np.minimum(log_ratio, 0.0))).sum(axis=-1)


def contraction_coefficient(kernel: ArrayLike, epsilon: ArrayLike) -> float:
    """Return the contraction coefficient of a row-stochastic matrix under E_{e^epsilon}.

    kernel: shape (inputs, outputs), rows sum to 1; epsilon: one number >= 0. The supremum over two inputs of the
    divergence of their rows; at epsilon = 0 Dobrushin's coefficient. Raises ValueError naming the argument.
    Source: asoodeh2020 Theorem 2, eq. (8); asoodeh2021 Theorem 1, eq. (5).
    """
    kernel = reals("kernel", kernel, at_least=0.0)
    if kernel.ndim != 2 or not kernel.size or np.any(np.abs(kernel.sum(axis=1) - 1.0) > _ROUNDING):
        raise ValueError("kernel must be a matrix whose rows sum to 1")
    epsilon = real("epsilon", epsilon, at_least=0.0)
    return float(max(hockey_stick(row, kernel, epsilon).max() for row in kernel))


# Hockey-stick divergence between two Laplace distributions of equal scale.


def laplace_divergence(epsilon: ArrayLike, m1: ArrayLike, m2: ArrayLike, scale: ArrayLike) -> Array:
    """Return E_{e^epsilon} between Laplace(m1, scale) and Laplace(m2, scale), by broadcasting.

    epsilon >= 0; `scale` > 0 in the unit of the means m1 and m2 (variance 2 scale^2). The result is 0 once epsilon >=
    |m1 - m2|/scale. Formal guarantee: a number with that noise is (epsilon, this)-DP where a neighbour moves it from m1
    to m2. Raises ValueError naming the argument. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    with np.errstate(over="ignore"):
        distance = np.abs(reals("m1", m1) - reals("m2", m2))
    return divergence(epsilon, ratio(distance, reals("scale", scale, above=0.0)))


def divergence(epsilon: Array, distance: Array) -> Array:
    """Value [1 - e^((epsilon - distance)/2)]_+ for a distance in units of the scale; +inf is allowed.

    Arguments are not checked. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    return -np.expm1(0.5 * np.minimum(epsilon - distance, 0.0))


def log_divergence(epsilon: Array, distance: Array) -> Array:
    """Logarithm of `divergence`, accurate where that rounds to 1; -inf where it is 0.

    Arguments are not checked. Source: asoodeh2020 Lemma 1, eq. (9).
    """
    exponent = 0.5 * np.minimum(epsilon - distance, 0.0)
    shallow = exponent > -np.log(2.0)
    with np.errstate(divide="ignore"):
        return np.where(
            shallow,
            np.log(-np.expm1(np.where(shallow, exponent, 0.0))),
            np.log1p(-np.exp(np.where(shallow, -1.0, exponent))),
        )
