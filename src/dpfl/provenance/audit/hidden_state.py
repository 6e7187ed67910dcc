"""Epsilon of a model whose earlier models stay secret (asoodeh2020, asoodeh2021), round by round.

A record opens the divergence h_t = theta(move of its own round) in the round that reads it; every later round
multiplies what is left of it by c_t = theta(how far apart two models may enter that round). A secret order puts the
record into each of T rounds with probability 1/T, so S_t = c_t S_(t-1) + h_t/T is that of the model after round t, and
a secret stop averages S over the rounds after which it may come. The numbers that runs state come from closed forms
and sums in logarithms; here the recursion itself is walked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpfl.provenance.audit.step_profiles import gaussian_log_delta

Array = NDArray[np.float64]
_LAPLACE_DEVIATION = math.sqrt(2.0)


@dataclass(frozen=True)
class Hidden:
    """A run whose released model hides the others. `noise_multiplier` is the deviation of the noise in a round's sum of
    `batch_size` gradients over `lipschitz`; `step` is the step size, None for 1/(strong_convexity t) in round t.

    `first_stop` is the first round after which the model may be taken, `rounds` for the last one. `permuted`: the order
    is secret. `relaxed`: steps beyond those that bring models nearer count too (asoodeh2021, after Theorem 2).
    Raises ValueError for a public order whose worst place is not known: stops from a later round on, or unequal steps.
    """

    noise_multiplier: float
    rounds: int
    batch_size: int
    step: float | None
    lipschitz: float
    radius: float
    smoothness: float
    strong_convexity: float
    first_stop: int
    permuted: bool = True
    laplace: bool = False
    relaxed: bool = True

    def __post_init__(self) -> None:
        if not self.permuted and self.first_stop < self.rounds and (self.first_stop > 1 or self.step is None):
            raise ValueError("permuted: a public order is followed for one stop or any stop, and for equal steps only")

    @property
    def own_move(self) -> float:
        """Move of the record's own round, in noise scales."""
        return 2.0 / self._scale

    @property
    def _scale(self) -> float:
        """The noise's scale parameter over lipschitz: a Laplace law's deviation is sqrt(2) of it."""
        return self.noise_multiplier / (_LAPLACE_DEVIATION if self.laplace else 1.0)

    @cached_property
    def moves(self) -> tuple[Array, NDArray[np.intp]]:
        """Return the noise scales by which two models may differ when they enter a round's noise: the numbers that
        occur, and which of them each round has, (rounds,)."""
        rounds = np.arange(1, self.rounds + 1)
        steps = 1 / (self.strong_convexity * rounds) if self.step is None else np.full(self.rounds, self.step)
        wide = np.array([self._diameter(eta) for eta in steps]) if self.step is None else self._diameter(self.step)
        return np.unique(wide * self.batch_size / (steps * self._scale * self.lipschitz), return_inverse=True)

    def _diameter(self, eta: float) -> float:
        """Return the diameter of the set that a step reaches from the ball: the least of the applicable bounds."""
        beta, rho = self.smoothness, self.strong_convexity
        known = []
        if self.relaxed:
            known.append(2 * (abs(1 - eta * rho) * self.radius + eta * self.lipschitz))
        if self.relaxed and eta * beta <= 2:
            known.append(2 * self.radius)
        if eta * (beta + rho) <= 2:
            known.append(2 * self.radius * math.sqrt(max(0.0, 1 - 2 * eta * beta * rho / (beta + rho))))
        return min(known)

    def log_delta(self, epsilon: float) -> float:
        """Return ln delta of the record with the least privacy."""
        moves, which = self.moves
        round_divergence, factors = self._theta(epsilon, np.asarray(self.own_move)), self._theta(epsilon, moves)[which]
        stops = self.first_stop < self.rounds
        if not (self.permuted or stops):
            return _log(float(round_divergence))  # the last record, whom no later step hides
        left = _walk(float(round_divergence) / self.rounds, factors, constant=len(moves) == 1)
        # In a public order the first record has the least privacy: the sum over stops of the divergence left of it.
        return _log(float(left[self.first_stop - 1 :].mean() if self.permuted else left[-1]))

    def _theta(self, epsilon: float, move: Array) -> Array:
        """Return the divergence of the noise from itself moved by `move`."""
        if self.laplace:
            return np.maximum(-np.expm1((epsilon - move) / 2), 0.0)
        return np.exp(gaussian_log_delta(np.asarray(epsilon), move))


def _walk(share: float, factors: Array, *, constant: bool) -> Array:
    """Return S_t = factor_t S_(t-1) + share after every round; where `factors` are `constant`, as sums of powers."""
    if constant:
        return share * np.cumsum(np.cumprod(np.concatenate([[1.0], factors[1:]])))
    return np.fromiter(accumulate(factors.tolist(), lambda left, factor: factor * left + share, initial=0.0), float)[1:]


@cache
def hidden_epsilon(run: Hidden, delta: float) -> float:
    """Return epsilon at `delta`, in (0, 1), of the released model: never above that of the record's own round.

    Source: asoodeh2020, Theorems 3 to 5, and asoodeh2021, Theorem 2, as recursions.
    """
    alone = _root(lambda epsilon: _log(float(run._theta(epsilon, np.asarray(run.own_move)))) - math.log(delta))
    return min(alone, _root(lambda epsilon: run.log_delta(epsilon) - math.log(delta), alone))


def _root(excess: Callable[[float], float], largest: float = 1.0) -> float:
    """Return where a falling function reaches 0; 0 where it starts below, `largest` doubled until it is beyond."""
    if excess(0.0) <= 0:
        return 0.0
    while excess(largest) > 0:
        largest *= 2
    return brentq(excess, 0.0, largest, xtol=1e-10)


def _log(value: float) -> float:
    """Return the logarithm of a probability that may have underflowed."""
    return math.log(max(value, 1e-300))
