"""Convex problems whose best model is known: linear models of clients, alike or different, drawn by address.

A record's features are x_j = +-sqrt(h_j) with independent signs, so |x|^2 = sum h_j for every record and bounds hold
exactly. The signs are fair, so that E x x^T = diag(h) and the population risk of least squares is known, but for linear
losses, whose whole signal is in the signs. Nothing is stored; a draw depends on (seed, client) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from dpfl.convex import problems
from dpfl.convex.problems import Absolute, Array, Linear, Logistic, Loss, Square
from dpfl.randomness import generator

_RECORDS_STEP = 1
"""A client's law is drawn at step 0 of the address at whose step 1 its records are."""
_NEWTON_STEPS = 100
_TOLERANCE = 1e-13


class Kind(StrEnum):
    """Laws of targets given features, each with its loss."""

    LEAST_SQUARES = "least_squares"
    """y = x . w_i + uniform noise in [-target_noise, target_noise]; Square."""
    LOGISTIC = "logistic"
    """y = 1 with probability sigmoid(sharpness x . w_i), else -1, sharpness 1 / target_noise; Logistic."""
    ABSOLUTE = "absolute"
    """y = x . w_i without noise, so that the clients' common w is best on any records; Absolute."""
    LINEAR = "linear"
    """y = 1 and E x_j = sqrt(h_j) (signal + spread sqrt(d) u_ij), u_i a unit vector a client less their mean; Linear.
    With mu > 0 the loss is mu/2 |w - x/mu|^2 but for a constant. lowy2021's Theorem 3.1 asks for such losses: one that
    is beta-smooth for every beta, another that is mu-smooth and mu-strongly convex."""


LOSSES = cast("dict[Kind, Loss]", {Kind.LEAST_SQUARES: Square(), Kind.LOGISTIC: Logistic(), Kind.ABSOLUTE: Absolute()})
LOSSES |= cast("dict[Kind, Loss]", {Kind.LINEAR: Linear()})


@dataclass(frozen=True)
class Problem:
    """A federation's law. `scale` = |x|; `condition` >= 1, the ratio of the largest to the smallest h_j, in geometric
    steps; `signal` = |w|, along (1, ..., 1), and for linear losses |E x| / |x|; `spread` = |w_i - w| of each client,
    whose h is then turned by as many places as its number (of linear losses: see Kind; nothing is turned);
    `strong_convexity` mu >= 0, to which lambda/2 |w|^2 lifts least squares (the others have lambda = mu); `radius` D of
    the ball of models. Raises ValueError naming the field out of range.
    """

    kind: Kind
    clients: int
    records: int
    features: int
    radius: float
    scale: float = 1.0
    condition: float = 1.0
    signal: float = 0.5
    target_noise: float = 0.25
    spread: float = 0.0
    strong_convexity: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Kind(self.kind))
        for name in ("clients", "records", "features", "radius", "scale", "target_noise"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0 and finite")
        if not self.condition >= 1:
            raise ValueError(f"condition is {self.condition!r}; it must be at least 1")
        if self.kind is Kind.LINEAR:
            self._check_linear()
        elif not 0 <= self.signal <= self.radius:
            raise ValueError(f"signal is {self.signal!r}; the best model must lie in the ball of radius {self.radius}")
        if self.spread < 0 or (self.spread and self.kind not in (Kind.LEAST_SQUARES, Kind.LINEAR)):
            raise ValueError(f"spread is {self.spread!r}; it must be 0, or above with kind 'least_squares' or 'linear'")
        if self.strong_convexity < 0 or self.regularisation < 0:
            raise ValueError(f"strong_convexity is {self.strong_convexity!r}; it must be 0, or at least the data's own")

    def _check_linear(self) -> None:
        """Raise ValueError where signs have no such mean, or the best model of mu > 0 is not inside the ball."""
        if not 0 < self.signal + 2.0 * self.spread * math.sqrt(self.features) <= 1:  # |u_i - mean u| <= 2
            raise ValueError(f"signal is {self.signal!r}; it must be above 0, with 2 spread sqrt(features) at most 1")
        if self.strong_convexity and self.signal * self.scale > self.strong_convexity * self.radius:
            raise ValueError(f"signal is {self.signal!r}; the best model must lie in the ball of radius {self.radius}")

    @property
    def loss(self) -> Loss:
        """The loss of one record."""
        return LOSSES[self.kind]

    @property
    def spectrum(self) -> Array:
        """h, shape (features,), largest first, sum scale^2."""
        shape = np.geomspace(1.0, 1.0 / self.condition, self.features)
        return self.scale**2 * shape / shape.sum()

    @property
    def regularisation(self) -> float:
        """lambda: what mu asks for beyond the least squares' own curvature, which different clients share."""
        if self.strong_convexity == 0 or self.kind is not Kind.LEAST_SQUARES:
            return self.strong_convexity
        return self.strong_convexity - float(self.spectra().mean(axis=0).min())

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of E x x^T over all clients: times sup phi'', plus lambda, the smoothness of F."""
        return float(self.spectra().mean(axis=0).max())

    @property
    def lipschitz(self) -> float:
        """L: the largest norm of a record's gradient in the ball, without lambda; clipping to it changes nothing."""
        if self.kind is not Kind.LEAST_SQUARES:
            return self.scale * self.loss.lipschitz
        return self.scale * (self.scale * (self.radius + self.signal + self.spread) + self.target_noise)

    def spectra(self) -> Array:
        """Return every client's h, shape (clients, features)."""
        turns = range(self.clients) if self.spread and self.kind is not Kind.LINEAR else [0] * self.clients
        return np.stack([np.roll(self.spectrum, turn) for turn in turns])

    def models(self, seed: int) -> Array:
        """Return every client's w_i, shape (clients, features)."""
        shared = np.full(self.features, self.signal / math.sqrt(self.features))
        return shared + self.spread * self._directions(seed)

    def means(self, seed: int) -> Array:
        """Return every client's E x of linear losses, shape (clients, features); their mean has norm signal |x|."""
        away = self._directions(seed)
        away = away - away.mean(axis=0)
        return np.sqrt(self.spectrum) * (self.signal + self.spread * math.sqrt(self.features) * away)

    def _directions(self, seed: int) -> Array:
        """Return a unit vector of each client, zeros where the clients are alike; shape (clients, features)."""
        if not self.spread:
            return np.zeros((self.clients, self.features))
        away = np.stack([generator(seed, "partition", c).standard_normal(self.features) for c in range(self.clients)])
        return away / np.linalg.norm(away, axis=1, keepdims=True)


@dataclass(frozen=True)
class Drawn:
    """One seed's records, x (clients * records, features) and y, the clients one after the other."""

    x: Array
    y: Array


def draw(problem: Problem, seed: int) -> Drawn:
    """Return the records of every client, each by the address (seed, "partition", client)."""
    linear = problem.kind is Kind.LINEAR
    models, spectra = problem.means(seed) if linear else problem.models(seed), problem.spectra()
    parts = [
        _client(problem, weights, spectrum, generator(seed, "partition", client, step=_RECORDS_STEP))
        for client, (weights, spectrum) in enumerate(zip(models, spectra, strict=True))
    ]
    x, y = zip(*parts, strict=True)
    return Drawn(np.concatenate(x), np.concatenate(y))


def population_optimum(problem: Problem, seed: int) -> tuple[Array, Array]:
    """Return w*, and the diagonal of the Hessian of F, each (features,), of least squares and linear losses.

    Where mu is above 0, and for least squares without, w* is free of the ball: it has no larger norm than the clients'
    largest. For linear losses without mu it is on the sphere. Raises ValueError for another kind, and where w* is not
    in the ball.
    """
    if problem.kind is Kind.LINEAR:
        mean, mu = problem.means(seed).mean(axis=0), problem.strong_convexity
        best = mean / mu if mu else problem.radius * mean / np.linalg.norm(mean)
        return best, np.full(problem.features, mu)
    if problem.kind is not Kind.LEAST_SQUARES:
        raise ValueError(
            f"kind is {problem.kind.value!r}; the population risk is known for 'least_squares' and 'linear' alone"
        )
    models, spectra = problem.models(seed), problem.spectra()
    hessian = spectra.mean(axis=0) + problem.regularisation
    best = (spectra * models).mean(axis=0) / hessian
    if np.linalg.norm(best) > problem.radius:
        raise ValueError(
            f"radius is {problem.radius}; the best model, of norm {np.linalg.norm(best):.3g}, is outside it"
        )
    return best, hessian


def population_excess(problem: Problem, seed: int, weights: Array) -> Array:
    """Return F(w) - F(w*) >= 0, shape (..., models), for weights (..., features, models) in the ball.

    It is sum_j hessian_j (w_j - w*_j)^2 / 2, and for linear losses without mu, whose w* is on the sphere, the scalar
    product of the mean record with w* - w. Raises ValueError as `population_optimum` does.
    """
    best, hessian = population_optimum(problem, seed)
    away = weights - best[:, None]
    if problem.kind is Kind.LINEAR and problem.strong_convexity == 0:
        return -np.einsum("d,...dm->...m", problem.means(seed).mean(axis=0), away)
    return np.einsum("d,...dm->...m", hessian, np.square(away)) / 2.0


def heterogeneity(problem: Problem, seed: int) -> float:
    """Return v*^2 = mean over the clients of |grad F_i(w*)|^2, as `population_optimum` knows w*; lowy2021's measure."""
    best, _ = population_optimum(problem, seed)
    if problem.kind is Kind.LINEAR:
        pulls = problem.strong_convexity * best - problem.means(seed)
    else:
        pulls = problem.spectra() * (best - problem.models(seed)) + problem.regularisation * best
    return float(np.mean(np.sum(pulls**2, axis=1)))


def empirical_optimum(problem: Problem, drawn: Drawn) -> Array:
    """Return the model of least mean loss over all records, lambda included, within the ball; shape (features,).

    Least squares and logistic: Newton's method until the step is below 1e-13, outside the ball with the multiplier nu
    of nu/2 |w|^2 that brings it back. Absolute: the common model, whose loss is 0. Raises ValueError where Newton's
    method does not end.
    """
    if problem.kind is Kind.ABSOLUTE:
        return problem.models(0)[0]
    if problem.kind is Kind.LINEAR:
        raise ValueError("kind is 'linear'; its risk is the population's")
    free = _newton(problem, drawn, problem.regularisation)
    if np.linalg.norm(free) <= problem.radius:
        return free

    def beyond(multiplier: float) -> float:
        return float(np.linalg.norm(_newton(problem, drawn, problem.regularisation + multiplier))) - problem.radius

    largest = problem.lipschitz / problem.radius  # there |w| <= |grad(0)| / nu <= D
    return _newton(
        problem, drawn, problem.regularisation + cast("Any", brentq)(beyond, 0.0, largest, xtol=1e-14, rtol=1e-13)
    )


def objective(problem: Problem, weights: Array, x: Array, y: Array) -> Array:
    """Return the mean loss over the records plus lambda/2 |w|^2, shape (..., models), by the problem's own loss."""
    penalty = problem.regularisation / 2.0 * np.sum(np.square(weights), axis=-2)
    return problems.losses(problem.loss, weights, x, y) + penalty


def _client(problem: Problem, weights: Array, spectrum: Array, source: np.random.Generator) -> tuple[Array, Array]:
    """One client's records; `weights` is its model, or its mean record where the loss is linear."""
    if problem.kind is Kind.LINEAR:
        root = np.sqrt(spectrum)
        positive = source.random((problem.records, problem.features)) < (1.0 + weights / root) / 2.0
        return cast("Array", np.where(positive, root, -root)), np.ones(problem.records)
    signs = source.integers(0, 2, size=(problem.records, problem.features)) * 2.0 - 1.0
    chance = source.random(problem.records)
    x = cast("Array", signs * np.sqrt(spectrum))
    score = x @ weights
    if problem.kind is Kind.LEAST_SQUARES:
        return x, score + problem.target_noise * (2.0 * chance - 1.0)
    if problem.kind is Kind.LOGISTIC:
        return x, np.where(chance < expit(score / problem.target_noise), 1.0, -1.0)
    return x, score


def _newton(problem: Problem, drawn: Drawn, regularisation: float) -> NDArray[np.float64]:
    """The minimiser with that lambda, without the ball; steps are halved while the objective would rise."""
    x, y, loss = drawn.x, drawn.y, problem.loss
    weights = np.zeros(problem.features)

    def value(at: Array) -> float:
        return float(problems.losses(loss, at[:, None], x, y)[0]) + regularisation / 2.0 * float(at @ at)

    for _ in range(_NEWTON_STEPS):
        scores = x @ weights
        gradient = x.T @ loss.derivative(scores, y) / len(y) + regularisation * weights
        share = expit(scores)
        bend = np.ones(len(y)) if problem.kind is Kind.LEAST_SQUARES else share * (1.0 - share)
        hessian = (x * bend[:, None]).T @ x / len(y) + regularisation * np.eye(problem.features)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        if np.linalg.norm(step) <= _TOLERANCE * max(1.0, float(np.linalg.norm(weights))):
            return weights - step
        length, here = 1.0, value(weights)
        while value(weights - length * step) > here + 1e-15 * abs(here) and length > 1e-6:
            length /= 2.0
        weights = weights - length * step
    raise ValueError(f"Newton's method did not end in {_NEWTON_STEPS} steps: no finite model is best; raise the lambda")
