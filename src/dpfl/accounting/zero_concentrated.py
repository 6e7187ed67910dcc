"""Zero-concentrated mechanisms (zCDP): parts of a run of which only a Renyi curve xi + rho * order is known.

A mechanism is (xi, rho)-zCDP under a relation if no pair of neighbours has a Renyi divergence above xi + rho a at any
order a > 1 (bun2016, Definition 8.1). Runs add xi and rho, also adaptive ones. A run that is mu-Gaussian-DP by Gaussian
noise is (0, mu^2/2)-zCDP.

Epsilon. At every order (a - 1) (xi + rho a - e) + a ln(1 - 1/a) - ln(a - 1) is a bound of ln delta at e (canonne2020,
Proposition 12). Its least over the orders falls in e; it is where xi + rho (2 a - 1) + ln(1 - 1/a) = e, which rises in
a. Any order is valid, so that none has to be exact. delta is at most the total variation, which is at most
sqrt(D/2) and sqrt(1 - e^-D) for D = xi + rho, the divergence of order 1 (Pinsker; Bretagnolle and Huber).

In a run with other parts the mechanism stands as a pair with that profile, which dominates it (zhu2022, Theorem 10; the
profile is convex in e^epsilon, so that the convex hull of what bounds it does too). A Gaussian mechanism that is only
known by its zCDP spends about a tenth more than one that is known as what it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.accounting.loss_grids import GridLaw, LossGrid, from_points
from dpfl.accounting.numerics import real
from dpfl.accounting.sampler_accountants import (
    EpsilonBound,
    PhaseSource,
    SamplerAccountant,
    accounts_for,
    law_source,
)

if TYPE_CHECKING:
    from dpfl.accounting.numerics import Array

_LEFT_OUT = 1e-4  # share of delta that losses beyond the grid may have
_PLACES = 8_000
_LEAST, _MOST = -40.0, 650.0  # of ln(order - 1)
_HALVINGS = 70
_LEAST_RHO = 1e-300
_LARGEST = 1e150
_ROUNDED = 1e-12


@dataclass(frozen=True)
class ZeroConcentrated:
    """A mechanism that is (xi, rho)-zCDP under the relation of the run; rho is 1/(2 noise_multiplier^2).

    `xi` >= 0. Raises ValueError naming it.
    """

    xi: float = 0.0

    def __post_init__(self) -> None:
        real("xi", self.xi, at_least=0)

    def noise_multiplier(self, rho: float) -> float:
        """Return the noise multiplier of the Gaussian mechanism that has this `rho` >= 0.

        Source: bun2016, Proposition 1.6. Raises ValueError naming rho.
        """
        return math.sqrt(0.5) / math.sqrt(max(real("rho", rho, at_least=0), _LEAST_RHO))


def profile(epsilon: Array, xi: float, rho: float) -> Array:
    """Return an upper bound of delta at `epsilon` >= 0, of any shape, of an (xi, rho)-zCDP mechanism.

    Guarantee: the mechanism is (epsilon, this)-DP. Source: canonne2020, Proposition 12; see the module. Arguments are
    not checked.
    """
    with np.errstate(over="ignore", under="ignore"):
        logs = _log_delta(epsilon, xi, rho, _order_less_one(epsilon, xi, rho))
        return np.minimum(np.exp(np.minimum(logs, 0.0)) * (1 + _ROUNDED), _total_variation(xi, rho))


def zcdp_epsilon(xi: float, rho: float, delta: float) -> float:
    """Return the epsilon at `delta` in (0, 1) of an (xi, rho)-zCDP mechanism; xi, rho >= 0, not checked.

    inf beyond losses that float64 can square. Guarantee: the mechanism is (this, delta)-DP. Source: canonne2020,
    Proposition 12; see the module.
    """
    if xi + rho > _LARGEST:
        return math.inf
    if _total_variation(xi, rho) <= delta:
        return 0.0
    low, high, log_delta = 0.0, 1.0, math.log(delta)
    while _log_least(high, xi, rho) > log_delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if _log_least(middle, xi, rho) <= log_delta else (middle, high)
    return high * (1 + _ROUNDED)


def _log_least(epsilon: float, xi: float, rho: float) -> float:
    """Return ln of the least delta over the orders."""
    at = np.array(epsilon)
    return float(_log_delta(at, xi, rho, _order_less_one(at, xi, rho)))


def _order_less_one(epsilon: Array, xi: float, rho: float) -> Array:
    """Return the best order less 1, about, for each epsilon."""
    low, high = np.full(np.shape(epsilon), _LEAST), np.full(np.shape(epsilon), _MOST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        less = np.exp(middle)
        above = xi + rho * (2 * less + 1) - np.log1p(1 / less) > epsilon
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp(low)


def _log_delta(epsilon: Array, xi: float, rho: float, less: Array) -> Array:
    """Return ln of delta by the order `less` + 1."""
    order = less + 1
    rounded = 4e-16 * (less * (xi + rho * order + epsilon) + order + np.abs(np.log(less)) + 1)
    return less * (xi + rho * order - epsilon) - order * np.log1p(1 / less) - np.log(less) + rounded


def _total_variation(xi: float, rho: float) -> float:
    """Return an upper bound of the total variation."""
    divergence = xi + rho
    return min(math.sqrt(divergence / 2), math.sqrt(-math.expm1(-divergence))) * (1 + _ROUNDED)


def law_above(xi: float, rho: float, delta: float) -> tuple[GridLaw, GridLaw]:
    """Return laws of the loss, in both orders, of a pair that dominates every (xi, rho)-zCDP mechanism.

    `delta` sets how far the grid reaches: losses beyond it have less than that, by far. Source: zhu2022, Theorem 10.
    """
    largest = zcdp_epsilon(xi, rho, _LEFT_OUT * delta) or 1e-9
    grid = LossGrid(-_PLACES, _PLACES, largest / _PLACES)
    upper = profile(grid.losses[_PLACES:], xi, rho)
    puts = np.exp(grid.losses[:_PLACES]) * upper[:0:-1]  # the mirrored pair has the same bound
    return from_points(grid, np.append(puts, upper))


def zcdp_bound(xi: float, rho: float, delta: float) -> EpsilonBound:
    """Return `zcdp_epsilon` and the argument that proves it. Source: `zcdp_epsilon`."""
    return EpsilonBound(zcdp_epsilon(xi, rho, delta), "zero-concentrated: the best Renyi order (Canonne et al. 2020)")


@accounts_for(ZeroConcentrated)
class _ZeroConcentrated(SamplerAccountant[Any]):
    """A Renyi curve that is a line, and nothing below: the mechanism may spend less than it."""

    @property
    def expected_uses(self) -> float:
        return 1.0

    @property
    def amplifies(self) -> bool:
        return True

    def unamplified_mu(self) -> float:
        return math.inf  # no Gaussian DP is known

    def unamplified_zcdp(self) -> tuple[float, float]:
        inverse = 1 / self.run.noise_multiplier
        return self.run.steps * self.sampler.xi, self.run.steps / 2 * inverse * inverse * (1 + _ROUNDED)

    def loss_is_beyond_floats(self) -> bool:
        xi, rho = self.unamplified_zcdp()
        return zcdp_epsilon(xi, rho, _LEFT_OUT * self.run.delta) > 650

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        return zcdp_bound(*self.unamplified_zcdp(), self.run.delta)

    def lower(self) -> EpsilonBound:
        return EpsilonBound(0.0, "nothing: zCDP says only what a mechanism spends at most")

    def above(self) -> PhaseSource:
        return law_source(law_above(*self.unamplified_zcdp(), self.run.delta), 1)
