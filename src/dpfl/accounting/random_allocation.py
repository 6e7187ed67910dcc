"""Random allocation: each record is used in `uses` different steps of every epoch, drawn uniformly, for itself.

Above. Cut an epoch's t steps at random into k blocks of any fixed sizes, then draw one step of each block: by symmetry
the k steps are uniform among all choices of k out of t. Given the cut, which the observer may as well be told, the
blocks are balls in bins, independent of each other. Their steps take turns, and a step may depend on what other blocks
showed before. But the likelihood ratio is the product of the blocks', and what follows a step is convex in the sum of
its block, so that the induction over steps of `replaced_in_bins` holds across blocks. So an epoch is dominated by k
epochs of balls in bins with floor(t/k) bins each (feldman2026; fewer bins spend more: `balls_in_bins`).
Below. The sum of an epoch's steps moves by k deviations of 1/noise, out of sqrt(t): so much
Gaussian DP, mu = k/(sqrt(t) noise) an epoch, the run has at least. One step alone is a Poisson sample at rate k/t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpfl.accounting.numerics import integer
from dpfl.accounting.sampler_accountants import (
    EpsilonBound,
    PhaseSource,
    Run,
    SamplerAccountant,
    accountant,
    accounts_for,
)
from dpfl.accounting.samplers import BallsInBins, FullBatch, Poisson


@dataclass(frozen=True)
class RandomAllocation:
    """Each epoch every record in `uses` of its `steps_per_epoch` steps, drawn for itself. Raises ValueError naming it.

    1 <= uses <= steps_per_epoch.
    """

    uses: int
    steps_per_epoch: int

    def __post_init__(self) -> None:
        steps = integer("steps_per_epoch", self.steps_per_epoch, at_least=1)
        if integer("uses", self.uses, at_least=1) > steps:
            raise ValueError(f"uses must be at most steps_per_epoch = {steps}, got {self.uses}")


@accounts_for(RandomAllocation)
class _RandomAllocation(SamplerAccountant[Any]):
    """Epochs of balls in bins, one a use."""

    by_record = True

    @property
    def has_rough_answers(self) -> bool:
        return True

    @property
    def expected_uses(self) -> float:
        return self.sampler.uses / self.sampler.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.steps_per_epoch

    @property
    def amplifies(self) -> bool:
        return accountant(self._blocks()).amplifies

    @property
    def amplifies_in_two_moves(self) -> bool:
        return self.amplifies

    def simplified(self) -> Run:
        if self.sampler.uses == self.sampler.steps_per_epoch:
            return replace(self.run, sampler=FullBatch())
        return replace(self.run, sampler=BallsInBins(self.steps_per_epoch)) if self.sampler.uses == 1 else self.run

    def unamplified_mu(self) -> float:
        return self._reach * math.sqrt(self._epochs * self.sampler.uses) / self.run.noise_multiplier

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        if not self.amplifies:
            return plain
        blocks = accountant(self._blocks()).upper(rough=rough)
        return min(EpsilonBound(blocks.epsilon, f"balls in bins, one a use: {blocks.by}"), plain)

    def lower(self) -> EpsilonBound:
        found = [EpsilonBound(accountant(self._one_step()).lower().epsilon, "one step is a Poisson sample")]
        if whole := self.run.steps // self.steps_per_epoch:
            epsilon = accountant(self._sums(whole)).lower().epsilon
            found.append(EpsilonBound(epsilon, "the sum of an epoch's steps is Gaussian"))
        return max(found)

    def above(self) -> PhaseSource:
        return accountant(self._blocks()).above()

    def below(self) -> PhaseSource | None:
        whole = self.run.steps // self.steps_per_epoch
        return accountant(self._sums(whole)).above() if whole else None

    @property
    def _epochs(self) -> int:
        """The epochs of the run, one that is cut short as a whole one."""
        return -(-self.run.steps // self.steps_per_epoch)

    def _blocks(self) -> Run:
        """Balls in bins that dominate the run, in epochs of full batches where a block has one step."""
        bins = self.steps_per_epoch // self.sampler.uses
        run = replace(self.run, sampler=BallsInBins(bins), steps=self._epochs * self.sampler.uses * bins)
        return accountant(run).simplified()

    def _sums(self, epochs: int) -> Run:
        """The Gaussian of that many epochs' sums."""
        noise = self.run.noise_multiplier * math.sqrt(self.steps_per_epoch) / self.sampler.uses
        return replace(self.run, sampler=FullBatch(), noise_multiplier=noise, steps=epochs)

    def _one_step(self) -> Run:
        return replace(self.run, sampler=Poisson(self.expected_uses), steps=1)
