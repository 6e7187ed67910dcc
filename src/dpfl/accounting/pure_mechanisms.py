"""Laplace noise and randomised response on all records: parts of a run, by the exact laws of their losses.

Both are pure: no outcome loses more than some s. They stand where a sampler stands, and their `noise_multiplier` is 1/s
at a move of 1. For Laplace noise that is its scale over the norm bound, in the sum of absolute values, of one record's
contribution; a record that is replaced moves by twice that.

Laplace. In units of the scale, P = Lap(0) and Q = Lap(s) in one coordinate: the loss is s with mass 1/2, -s with mass
e^-s/2, and has the density e^((L - s)/2)/4 in between. Moves s_1, s_2, ... of several coordinates that are s together
are dominated by it: moved one after the other, the trade-off curve is at least that of the moves chained as in a group
(dong2022, group privacy), f_2(1 - f_1(alpha)); for noise of log-concave density the best tests are thresholds, so that
the chain is the curve of the move s_1 + s_2 itself.
Randomised response with k buckets reports the true one with probability e^s/(e^s + k - 1), each other one alike. Its
neighbours replace a record: the loss is s, -s or 0 as the one, the other or neither is reported (kairouz2015).

Gaussian DP of a pure mechanism: mu = 2 Phi^-1(e^s/(1 + e^s)) (dong2022), which is concave in s, so at most
sqrt(pi/2) s.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpfl.accounting.composition import LossPart, LossSearch
from dpfl.accounting.loss_grids import UNIT, Cells
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import Array, binned, integer, real
from dpfl.accounting.sampler_accountants import EpsilonBound, PhaseSource, Run, SamplerAccountant, accounts_for

_LARGEST_LOSS = 650.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
_ROUGH = 4000


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise on a sum over all records, in every step."""


@dataclass(frozen=True)
class RandomizedResponse:
    """Each record's own report of one of `buckets` >= 2, in every step. Raises ValueError naming buckets."""

    buckets: int

    def __post_init__(self) -> None:
        integer("buckets", self.buckets, at_least=2)

    def noise_multiplier(self, noise_parameter: float) -> float:
        """Return the noise multiplier if a report is drawn from all buckets with chance `noise_parameter`, in (0, 1).

        Source: elementary, 1 / ln(1 + buckets (1 - p) / p). Raises ValueError naming noise_parameter.
        """
        p = real("noise_parameter", noise_parameter, above=0, below=1)
        return 1 / math.log1p(self.buckets * (1 - p) / p)


class _Pure(SamplerAccountant[Any]):
    """A mechanism of which no outcome loses more than `largest`, by a law that is the same in both orders."""

    by_record = True

    @property
    def largest(self) -> float:
        """The largest loss of a step."""
        return self._reach / self.run.noise_multiplier

    @property
    def expected_uses(self) -> float:
        return 1.0

    @property
    def amplifies(self) -> bool:
        return True

    @property
    def is_exact(self) -> bool:
        return True

    def unamplified_mu(self) -> float:
        return math.sqrt(math.pi / 2 * self.run.steps) * self.largest * (1 + 1e-12)

    def likely_noise(self, mu: float) -> float:
        return self._reach * math.sqrt(self.run.steps) / mu

    def loss_is_beyond_floats(self) -> bool:
        return self.largest > _LARGEST_LOSS

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        pure = EpsilonBound(self.run.steps * self.largest * (1 + 1e-15), "no outcome loses more")
        if self.run.steps == 1:
            once = self._once(self.run.delta * (1 - 1e-10)) * (1 + 1e-13)
            return min(EpsilonBound(max(once, 0.0), "exact for one step"), pure)
        if self.loss_is_beyond_floats():
            return min(plain, pure)
        return min(EpsilonBound(self._interval(both=False)[1], "pessimistic PLD of the mechanism"), plain, pure)

    def lower(self) -> EpsilonBound:
        once = self._once(min(self.run.delta * (1 + 1e-10), 1.0))
        one = EpsilonBound(max(once * (1 - 1e-13), 0.0), "exact for one step, which spends no more than many")
        if self.run.steps == 1 or self.loss_is_beyond_floats():
            return one
        return max(EpsilonBound(self._interval(both=True)[0], "optimistic PLD of the mechanism"), one)

    def above(self) -> PhaseSource:
        return PhaseSource(lambda order, delta, together: self._part(), self.run.steps)

    def _interval(self, *, both: bool) -> tuple[float, float]:
        return LossSearch([self._part()], self.run.delta).interval(0.0, both=both)

    def _part(self) -> LossPart:
        losses, masses = self._law(np.linspace(-self.largest, self.largest, _ROUGH))
        order = np.argsort(losses)
        return LossPart(partial(_cells, self._law, self.largest), losses[order], np.log(masses[order]), self.run.steps)

    @abstractmethod
    def _once(self, delta: float) -> float:
        """Return epsilon at delta of one step; below 0 if nothing is spent."""

    @abstractmethod
    def _law(self, edges: Array) -> tuple[Array, Array]:
        """Return losses and their masses (k,): atoms, and nodes of the density between neighbours of `edges`."""


@accounts_for(LaplaceNoise)
class _Laplace(_Pure):
    """Two atoms, and a density in between."""

    def _once(self, delta: float) -> float:
        return self.largest + 2 * math.log1p(-delta) if delta < 1 else -math.inf

    def _law(self, edges: Array) -> tuple[Array, Array]:
        s = self.largest
        half = np.diff(edges)[:, None] / 2
        losses = edges[:-1, None] + half * (1 + _NODES)
        masses = half * _WEIGHTS * np.exp((losses - s) / 2) / 4
        return np.append(losses, [-s, s]), np.append(masses, [math.exp(-s) / 2, 0.5])


@accounts_for(RandomizedResponse)
class _RandomizedResponse(_Pure):
    """Three atoms."""

    @property
    def _reach(self) -> float:
        return 1.0

    def simplified(self) -> Run:
        if self.run.neighbouring is not Neighbouring.REPLACE_ONE:
            raise ValueError("neighbouring must be replace_one for randomised response, which reports every record")
        return self.run

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        true, _ = self._chances
        if -self.run.steps * true * math.expm1(-self.largest) * (1 + 1e-12) <= self.run.delta:
            return EpsilonBound(0.0, "the reports of two values hardly ever differ")
        return super().amplified(plain, rough=rough)

    def _once(self, delta: float) -> float:
        true, _ = self._chances
        return self.largest + math.log1p(-delta / true) if delta < true else -math.inf

    @property
    def _chances(self) -> tuple[float, float]:
        """The chances of the true report and of one other."""
        true = 1 / (1 + (self.sampler.buckets - 1) * math.exp(-self.largest))
        return true, true * math.exp(-self.largest)

    def _law(self, edges: Array) -> tuple[Array, Array]:
        s, buckets, (true, other) = self.largest, self.sampler.buckets, self._chances
        losses, masses = np.array([-s, 0.0, s]), np.array([other, (buckets - 2) * other, true])
        return losses[masses > 0], masses[masses > 0]


def _cells(law: Callable[[Array], tuple[Array, Array]], largest: float, step: float) -> Cells:
    """Return the law of a loss cut into cells of the multiples of `step`; a loss that is next to one is there."""
    last = math.ceil(largest / step)
    grid = np.arange(-last, last + 1, dtype=np.float64) * step
    losses, masses = law(np.clip(grid, -largest, largest))
    places = losses / step
    nearest = np.rint(places)
    places = np.where(np.abs(places - nearest) <= 8 * UNIT * np.abs(losses) / step, nearest, places)
    index = np.clip(np.floor(places).astype(np.intp), -last, last - 1)
    share = np.clip(np.expm1((index - places) * step) / math.expm1(-step), 0.0, 1.0)
    below, above = (binned(index + last, part, 2 * last) for part in (masses * (1 - share), masses * share))
    return Cells(-last * step, step, below, above, 0.0)
