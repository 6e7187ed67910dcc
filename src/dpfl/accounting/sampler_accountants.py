"""Accountants of the samplers: the upper and the lower epsilon of a run of checked arguments, and its losses.

A sampler has a class of `samplers` and an accountant here, which `accounts_for` names its class: `guarantee`, phases,
the search for noise, claims and the command line then know it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from dpfl.accounting import balls_in_bins, fixed_batches, gaussian_dp, replaced_in_bins, shuffled_batches
from dpfl.accounting.composition import LossPart, epsilon_above, largest_below
from dpfl.accounting.loss_grids import GridLaw, regrid
from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.accounting.poisson_gaussian import Order, Step, epsilon_interval, epsilon_upper
from dpfl.accounting.samplers import (
    Accountable,
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    ShuffledEpochs,
    WithReplacement,
)

if TYPE_CHECKING:
    from dpfl.accounting.numerics import Array

NEVER_USED = "the record is used with a chance of at most delta"
UNAMPLIFIED = "Gaussian DP of every use of the record, no amplification"
_REPLACED: tuple[Order, Order] = ("replace", "replace")
_MOVED: tuple[Order, Order] = ("remove", "add")
_ROUGH_CELLS = 20_000  # of a law by which tilt and grid are chosen
_MANY_STEPS = 10_000  # from which on a search for noise begins with rough answers
_LARGEST_LOSS = 650.0
_LEAST_NOISE = 0.1  # of the worst pair of shuffled epochs: below it losses are no floats
_LARGEST_MU = 1e100
_LEAST_DELTA = 1e-300  # that is asked of an accountant
_HOPELESS = 1.3
"""Times the epsilon of two moves that a rough law of a replaced ball has, from which on a fine law is not less: where
little noise meets many bins, its grid is too coarse for the sum."""
_COARSE, _TOO_COARSE = 1.2, 2.6
"""Times the profile of two moves that the rough law of a replaced ball has, from which on it is not looked at: in a
search, and for an answer, where in about a hundred settings it then had 1.5 times the epsilon of two moves or more."""
SHARES = (0.02, 0.3, 0.7, 0.98)
"""Shares of delta that a removal may have where a replacement is a removal, then an addition."""

Kind = TypeVar("Kind", bound=Accountable)


@dataclass(frozen=True)
class Run:
    """A run whose arguments are checked."""

    sampler: Accountable
    noise_multiplier: float
    steps: int
    delta: float
    neighbouring: Neighbouring

    @property
    def replaced(self) -> bool:
        """True where neighbours replace a record."""
        return self.neighbouring is Neighbouring.REPLACE_ONE


class EpsilonBound(NamedTuple):
    """An epsilon and the argument that proves it."""

    epsilon: float
    by: str


class PhaseSource(NamedTuple):
    """`steps` equal losses: `part` returns them for the order 0 or 1, a delta, and the number of steps in all.

    `gaussian`: their shift and rate, where they are removals from and additions to Poisson samples.
    """

    part: Callable[[int, float, int], LossPart]
    steps: int
    gaussian: tuple[float, float] | None = None


@dataclass(frozen=True)
class SamplerAccountant(ABC, Generic[Kind]):
    """Proofs about a run whose batches `sampler`, the sampler of `run`, draws.

    A sampler without amplification states `expected_uses` and `lower`, and `unamplified_mu` where a record is not used
    in every step. One that amplifies also states `amplified`, and for phases `above` and `below`: losses that dominate
    the run, and that it dominates.
    """

    by_record: ClassVar[bool] = False
    """True where every record is drawn for itself, or all are used."""
    sampler: Kind
    run: Run

    @property
    @abstractmethod
    def expected_uses(self) -> float:
        """The number of times that a step uses a record, on average."""

    @property
    def steps_per_epoch(self) -> int:
        """The steps whose draws hang together: 1 where every step draws for itself."""
        return 1

    @property
    def amplifies(self) -> bool:
        """True where a proof of amplification is known for the run."""
        return False

    @property
    def amplifies_in_two_moves(self) -> bool:
        """True where the run amplifies a replacement only as a removal and an addition."""
        return False

    @property
    def is_exact(self) -> bool:
        """True where the pair that dominates the run occurs."""
        return False

    @property
    def has_rough_answers(self) -> bool:
        """True where `upper` takes long, and its `rough` answer does not."""
        return False

    def simplified(self) -> Run:
        """Return the run as one of a simpler sampler where it is one. Raises ValueError naming a setting of the
        sampler that the relation does not fit."""
        return self.run

    def unamplified_mu(self) -> float:
        """Return the mu of Gaussian DP that holds whatever is drawn; inf if there is none.

        Guarantee: the run is mu-Gaussian-DP under its relation. Source: vandijk2023 section 4.3 (composition); the
        sensitivities are derived in `fixed_batches`, `shuffled_batches`.
        """
        if not self.run.noise_multiplier:  # what tells the record apart is a part without noise
            return math.inf
        return self._reach * math.sqrt(self.run.steps) / self.run.noise_multiplier

    def unamplified_zcdp(self) -> tuple[float, float]:
        """Return xi and rho of the zero-concentrated DP that holds whatever is drawn.

        Source: bun2016, Proposition 1.6 (Gaussian noise).
        """
        return 0.0, self.unamplified_mu() ** 2 / 2 * (1 + 1e-12)

    @property
    def _reach(self) -> float:
        """By how many norm bounds the record moves the sum of a step."""
        return MOVES[self.run.neighbouring]

    def chance_of_use(self) -> float:
        """Return the chance that the record is used at all, or 1; every bound of delta is at most that.

        Source: elementary.
        """
        return 1.0

    def likely_noise(self, mu: float) -> float:
        """Return about the noise multiplier whose run under an amplifying sampler is as private as `mu`-GDP.

        A start for a search, not a bound: mu^2 = steps uses^2 (e^(move^2/noise^2) - 1) is solved for the noise.
        Source: bu2020, central limit theorem.
        """
        move = 2.0 if self.run.replaced or not self.by_record else 1.0
        return move / math.sqrt(math.log1p(max(mu**2 / self.run.steps / self.expected_uses**2, 1e-300)))

    def loss_is_beyond_floats(self) -> bool:
        """Return whether the losses of a part of the run are beyond e^-650 to e^650."""
        return beyond_floats(self._reach / self.run.noise_multiplier, self.run.steps, self.run.delta)

    def upper(self, *, rough: bool = False) -> EpsilonBound:
        """Return an epsilon that the run guarantees at its delta; `rough`: not the least, if it takes long to compute.

        Sources: `poisson_gaussian`, `fixed_batches`, `shuffled_batches`, `balls_in_bins`.
        """
        if self.chance_of_use() <= self.run.delta:
            return EpsilonBound(0.0, NEVER_USED)
        return self.amplified(unamplified(self.unamplified_mu(), self.run.delta), rough=rough)

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        """Return the epsilon that amplification leaves of `plain`, which counts every use of the record."""
        return plain

    @abstractmethod
    def lower(self) -> EpsilonBound:
        """Return an epsilon that the run exceeds at its delta for some data, against an observer of every step.

        Sources: `poisson_gaussian`, `fixed_batches`, `shuffled_batches`, `balls_in_bins`.
        """

    def above(self) -> PhaseSource:
        """Return losses that dominate the run, for which something is proven."""
        return _steps(self.unamplified_mu(), 1.0, 1)

    def below(self) -> PhaseSource | None:
        """Return losses that the run dominates, or None if nothing is known."""
        return self.above() if self.is_exact else None


Registered = TypeVar("Registered", bound=type[SamplerAccountant[Any]])
_ACCOUNTANTS: dict[type, type[SamplerAccountant[Any]]] = {}


def accounts_for(*kinds: type) -> Callable[[Registered], Registered]:
    """Decorate the accountant of the samplers of these classes. Source: the definition of the register, `accountant`.

    Raises ValueError where a class has an accountant already.
    """

    def registered(found: Registered) -> Registered:
        for kind in kinds:
            if kind in _ACCOUNTANTS:
                raise ValueError(f"kinds: {kind.__name__} has an accountant already, {_ACCOUNTANTS[kind].__name__}")
            _ACCOUNTANTS[kind] = found
        return found

    return registered


def accountant(run: Run) -> SamplerAccountant[Any]:
    """Return the accountant of the run's sampler. Source: `accounts_for`. Raises ValueError where it has none."""
    if type(run.sampler) not in _ACCOUNTANTS:
        raise ValueError(f"sampler must be one of this package's samplers or have `accounts_for`, got {run.sampler!r}")
    return _ACCOUNTANTS[type(run.sampler)](run.sampler, run)


def sample_rate(sampler: Accountable) -> float:
    """Return the share of the records that a step uses on average, 0 to 1.

    Source: elementary, expected batch size over records.
    """
    return min(1.0, accountant(Run(sampler, 1.0, 1, 0.5, Neighbouring.ZERO_OUT)).expected_uses)


def unamplified(mu: float, delta: float) -> EpsilonBound:
    """Return the epsilon at `delta` of `mu`-GDP, rounded up; inf beyond the largest mu that has one.

    Source: vandijk2023 (6), by `gaussian_dp.epsilon`.
    """
    return EpsilonBound(gaussian_dp.epsilon_or_inf(delta * (1 - 1e-10), mu) * (1 + 1e-15), UNAMPLIFIED)


def beyond_floats(move: float, count: int, delta: float) -> bool:
    """Return whether e^loss of a Gaussian step, or e^-loss, overflows a float64: then amplification is next to nothing.

    `move` is by how many deviations the record moves a step; the loss is one that matters at `delta` in `count` steps.
    Source: elementary, the tail of the normal law.
    """
    return move * move / 2 + move * math.sqrt(2 * (math.log(count) - math.log(delta))) > _LARGEST_LOSS


def _as_poisson(run: Run, rate: float, noise_multiplier: float, neighbouring: Neighbouring) -> dict[str, Any]:
    """Return the arguments of Poisson samples in the run's steps."""
    settings = {"noise_multiplier": noise_multiplier, "sample_rate": rate, "neighbouring": neighbouring}
    return {**settings, "steps": run.steps, "delta": run.delta}


def _steps(shift: float, rate: float, steps: int, orders: tuple[Order, Order] = _MOVED) -> PhaseSource:
    """Return Gaussian steps on Poisson samples."""

    def part(order: int, delta: float, together: int) -> LossPart:
        return Step(shift, rate, orders[order]).part(steps, delta, together)

    return PhaseSource(part, steps, (shift, rate) if orders == _MOVED and rate < 1 else None)


def law_source(laws: tuple[GridLaw, GridLaw], steps: int) -> PhaseSource:
    """Return steps whose laws are known in both orders. Source: the definition of a phase's losses."""

    def part(order: int, delta: float, together: int) -> LossPart:
        law = laws[order]
        width = law.step * law.masses.size
        rough = regrid(law, max(law.step, width / _ROUGH_CELLS))
        masses = rough.masses()
        support = np.flatnonzero(masses > 0)
        losses = rough.origin + support.astype(np.float64) * rough.step
        return LossPart(partial(regrid, law), losses, np.log(masses[support]), steps, law.step)

    return PhaseSource(part, steps)


@accounts_for(FullBatch)
class _FullBatch(SamplerAccountant[FullBatch]):
    """Gaussian DP, exactly."""

    by_record = True

    @property
    def expected_uses(self) -> float:
        return 1.0

    @property
    def is_exact(self) -> bool:
        return True

    def loss_is_beyond_floats(self) -> bool:
        return beyond_floats(self.unamplified_mu(), 1, self.run.delta)

    def lower(self) -> EpsilonBound:
        mu = min(self.unamplified_mu(), _LARGEST_MU)
        epsilon = float(gaussian_dp.epsilon(min(self.run.delta * (1 + 1e-10), 1.0), mu)) * (1 - 1e-15)
        return EpsilonBound(epsilon, "exact: Gaussian DP")


@accounts_for(Poisson)
class _Poisson(SamplerAccountant[Poisson]):
    """The pairs of `poisson_gaussian`."""

    by_record = True

    @property
    def amplifies(self) -> bool:
        return True

    @property
    def is_exact(self) -> bool:
        return True

    @property
    def has_rough_answers(self) -> bool:
        return self.run.steps >= _MANY_STEPS

    @property
    def expected_uses(self) -> float:
        return self.sampler.sample_rate

    def simplified(self) -> Run:
        return replace(self.run, sampler=FullBatch()) if self.sampler.sample_rate == 1 else self.run

    def chance_of_use(self) -> float:
        return -math.expm1(self.run.steps * math.log1p(-self.sampler.sample_rate))

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        return EpsilonBound(epsilon_upper(**self._setting(), rough=rough), "pessimistic PLD of Poisson sampling")

    def lower(self) -> EpsilonBound:
        return EpsilonBound(epsilon_interval(**self._setting())[0], "optimistic PLD of Poisson sampling")

    def _setting(self) -> dict[str, Any]:
        run = self.run
        return _as_poisson(run, self.sampler.sample_rate, run.noise_multiplier, run.neighbouring)

    def above(self) -> PhaseSource:
        orders = _REPLACED if self.run.replaced else _MOVED
        return _steps(1 / self.run.noise_multiplier, self.sampler.sample_rate, self.run.steps, orders)


class _Batches(SamplerAccountant[FixedBatches | WithReplacement]):
    """Batches of a fixed size, drawn independently in every step: the pairs and profiles of `fixed_batches`."""

    @property
    def amplifies(self) -> bool:
        return True

    @property
    def has_rough_answers(self) -> bool:
        return self.run.steps >= _MANY_STEPS

    @property
    def expected_uses(self) -> float:
        return self.sampler.batch_size / self.sampler.records

    def uses(self) -> tuple[Array, float]:
        """Return the chances of 0, 1, 2, ... uses of a record in a batch, and that of more.

        Source: elementary, as `fixed_batches` has it.
        """
        sampler, tail = self.sampler, 1e-6 * self.run.delta / self.run.steps
        replacement = isinstance(sampler, WithReplacement)
        return fixed_batches.uses(sampler.batch_size, sampler.records, replacement, max(tail, 1e-300))

    def loss_is_beyond_floats(self) -> bool:
        """Return whether the losses of a batch that uses the record most often are beyond e^-650 to e^650."""
        most = self.uses()[0].size - 1
        return beyond_floats(2.0 * most / self.run.noise_multiplier, self.run.steps, self.run.delta)

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        if self.loss_is_beyond_floats():
            return plain
        laws = self._laws_above(rough=rough)
        epsilon = max(epsilon_above([(law, self.run.steps)], self.run.delta) for law in laws[: 1 + self._has_pair])
        by = "of the pair: others -C, the record +C or another -C"
        by = by if self._has_pair else "of amplification by subsampling (Balle et al. 2018)"
        return min(EpsilonBound(epsilon, f"pessimistic PLD {by}"), plain)

    def lower(self) -> EpsilonBound:
        once = accountant(self.counted_once())
        as_one = EpsilonBound(once.lower().epsilon, "optimistic PLD of the best pair, several uses counted as one")
        if self.loss_is_beyond_floats():
            return as_one
        run = self.run
        epsilon = fixed_batches.smallest_epsilon(
            run.noise_multiplier, *self.uses(), run.steps, run.delta, run.neighbouring
        )
        return max(EpsilonBound(epsilon, "optimistic PLD of the best pair: others -C or 0, the record +C"), as_one)

    def counted_once(self) -> Run:
        """Return the run as if all uses in a step were one: Poisson samples, which the run dominates in both orders.

        Poisson sampling has a sharper accountant where uses are rare. Its events are above a threshold, which more uses
        only make likelier, and as likely without the record: the pair of all uses dominates it.
        Source: derived here.
        """
        rate, noise = accountant(replace(self.run, steps=1)).chance_of_use(), self.run.noise_multiplier
        if self.run.neighbouring is not Neighbouring.ZERO_OUT:
            noise /= 2
        relation = Neighbouring.ADD_OR_REMOVE
        return replace(self.run, sampler=Poisson(rate), noise_multiplier=noise, neighbouring=relation)

    def above(self) -> PhaseSource:
        return law_source(self._laws_above(), self.run.steps)

    def below(self) -> PhaseSource | None:
        run, (weights, beyond) = self.run, self.uses()
        best, laws = 0.0, None
        for pair in fixed_batches.pairs(weights, run.neighbouring):
            found = fixed_batches.pair_laws(1 / run.noise_multiplier, weights, pair, run.steps, run.delta, beyond)
            epsilon = largest_below(found, run.steps, run.delta)
            if epsilon > best:
                best, laws = epsilon, found
        if laws is None or self.lower().epsilon > best:
            once = accountant(self.counted_once())
            return _steps(1 / once.run.noise_multiplier, once.expected_uses, run.steps)
        return law_source(laws, run.steps)

    @property
    def _has_pair(self) -> bool:
        """Whether a pair that occurs dominates each step: else one law holds for both orders."""
        return self.run.neighbouring is Neighbouring.ADD_OR_REMOVE

    def _laws_above(self, *, rough: bool = False) -> tuple[GridLaw, GridLaw]:
        question = self.run.noise_multiplier, *self.uses(), self.run.steps, self.run.delta
        if self._has_pair:
            return fixed_batches.pair_laws_above(*question, rough=rough)
        law = fixed_batches.law_above(*question, rough=rough)
        return law, law


@accounts_for(WithReplacement)
class _WithReplacement(_Batches):
    """Several slots of a batch may have the record."""

    @property
    def _reach(self) -> float:
        return self.sampler.batch_size * (1.0 if self.run.neighbouring is Neighbouring.ZERO_OUT else 2.0)

    def simplified(self) -> Run:
        run = self.run
        if self.sampler.records > 1:
            return run
        if run.neighbouring is Neighbouring.ADD_OR_REMOVE:
            raise ValueError("records must be at least 2 under add_or_remove: one record fewer leaves none to draw")
        # every slot is the record's
        return replace(run, sampler=FullBatch(), noise_multiplier=run.noise_multiplier / self.sampler.batch_size)

    def chance_of_use(self) -> float:
        if self.sampler.records == 1:
            return 1.0
        return -math.expm1(self.run.steps * (self.sampler.batch_size * math.log1p(-1 / self.sampler.records)))


@accounts_for(FixedBatches)
class _FixedBatches(_Batches):
    """A batch has the record or has it not: under add_or_remove the pair of Poisson samples at half the noise."""

    @property
    def _reach(self) -> float:
        return 1.0 if self.run.neighbouring is Neighbouring.ZERO_OUT else 2.0

    @property
    def is_exact(self) -> bool:
        return self.run.neighbouring is Neighbouring.ADD_OR_REMOVE

    def simplified(self) -> Run:
        if self.sampler.batch_size < self.sampler.records:
            return self.run
        if self.is_exact:
            raise ValueError(
                f"batch_size must be below records = {self.sampler.records} under add_or_remove, got "
                f"{self.sampler.batch_size}: with one record fewer there is no batch"
            )
        return replace(self.run, sampler=FullBatch())

    def chance_of_use(self) -> float:
        return -math.expm1(self.run.steps * math.log1p(-self.expected_uses))

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        if not self.is_exact:
            return super().amplified(plain, rough=rough)
        by = "pessimistic PLD of the Poisson pair at half the noise"
        return EpsilonBound(epsilon_upper(**self._halved(), rough=rough), by)

    def lower(self) -> EpsilonBound:
        if self.run.neighbouring is Neighbouring.ZERO_OUT:
            return super().lower()
        by = "optimistic PLD of the pair: others -C, the record +C or another -C"
        return EpsilonBound(epsilon_interval(**self._halved())[0], by)

    def above(self) -> PhaseSource:
        return self._halved_steps() if self.is_exact else super().above()

    def below(self) -> PhaseSource | None:
        return super().below() if self.run.neighbouring is Neighbouring.ZERO_OUT else self._halved_steps()

    def _halved(self) -> dict[str, Any]:
        half = self.run.noise_multiplier / 2
        return _as_poisson(self.run, self.expected_uses, half, Neighbouring.ADD_OR_REMOVE)

    def _halved_steps(self) -> PhaseSource:
        return _steps(2 / self.run.noise_multiplier, self.expected_uses, self.run.steps)


class _Epochs(SamplerAccountant[Kind]):
    """Every record is used once in every epoch."""

    @property
    def expected_uses(self) -> float:
        return 1 / self.steps_per_epoch

    @property
    def begun_epochs(self) -> int:
        """The epochs of the run, one that is cut short as a whole one."""
        return math.ceil(self.run.steps / self.steps_per_epoch)

    @property
    def whole_epochs(self) -> int:
        """The epochs of the run that are complete."""
        return self.run.steps // self.steps_per_epoch


@accounts_for(ShuffledEpochs)
class _ShuffledEpochs(_Epochs[ShuffledEpochs]):
    """No amplification is proven; below, the worst pair of `shuffled_batches`."""

    @property
    def expected_uses(self) -> float:
        return self.sampler.batch_size / self.sampler.records

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.steps_per_epoch

    def simplified(self) -> Run:
        size, records = self.sampler.batch_size, self.sampler.records
        first_batch = self.run.steps == 1 and size < records
        return replace(self.run, sampler=FixedBatches(size, records)) if first_batch else self.run

    def unamplified_mu(self) -> float:
        run, (size, records) = self.run, (self.sampler.batch_size, self.sampler.records)
        if run.neighbouring is Neighbouring.ADD_OR_REMOVE and (records - 1) % size == 0:
            return math.inf if self.whole_epochs else 2.0 / run.noise_multiplier
        return shuffled_batches.unamplified_mu(
            run.noise_multiplier, self.steps_per_epoch, self.begun_epochs, run.neighbouring
        )

    def loss_is_beyond_floats(self) -> bool:
        return beyond_floats(self.unamplified_mu(), 1, self.run.delta)

    def upper(self, *, rough: bool = False) -> EpsilonBound:
        """Return the Gaussian DP of all uses of the record; inf where the number of steps tells that it is there."""
        if math.isinf(self.unamplified_mu()):
            return EpsilonBound(math.inf, "nothing is proven: the number of steps changes with the record")
        return super().upper(rough=rough)

    def lower(self) -> EpsilonBound:
        """Return the epsilon of the worst pair in the epochs that are complete, in the first one if none is."""
        run, epochs = self.run, self.whole_epochs
        if math.isinf(self.unamplified_mu()):
            return EpsilonBound(math.inf, "the number of steps tells the data sets apart")
        if self.steps_per_epoch == 1:
            return accountant(replace(run, sampler=FullBatch())).lower()
        epsilon = shuffled_batches.worst_pair_epsilon(
            noise_multiplier=max(run.noise_multiplier, _LEAST_NOISE),  # more noise spends less
            batch_size=self.sampler.batch_size,
            records=self.sampler.records,
            epochs=max(epochs, 1),
            delta=run.delta,
            neighbouring=run.neighbouring,
            seen=None if epochs else run.steps,
        )
        seen = "an epoch" if epochs else "the begun epoch"
        return EpsilonBound(epsilon, f"worst pair of Chua et al. 2024, largest step of {seen}, optimistic PLD")

    def below(self) -> PhaseSource | None:
        run, epochs = self.run, self.whole_epochs
        if epochs == 0 or self.steps_per_epoch == 1 or math.isinf(self.unamplified_mu()):
            return None
        size, records = self.sampler.batch_size, self.sampler.records
        laws = shuffled_batches.epoch_laws(run.noise_multiplier, size, records, epochs, run.delta, run.neighbouring)
        return law_source(laws, epochs)


@accounts_for(BallsInBins)
class _BallsInBins(_Epochs[BallsInBins]):
    """The laws of an epoch by `balls_in_bins`."""

    by_record = True

    @property
    def has_rough_answers(self) -> bool:
        return True

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.steps_per_epoch

    @property
    def amplifies(self) -> bool:
        return self.run.noise_multiplier >= balls_in_bins.LEAST_NOISE

    @property
    def amplifies_in_two_moves(self) -> bool:
        return self.amplifies

    def simplified(self) -> Run:
        return replace(self.run, sampler=FullBatch()) if self.steps_per_epoch == 1 else self.run

    def unamplified_mu(self) -> float:
        return self._reach * math.sqrt(self.begun_epochs) / self.run.noise_multiplier

    def amplified(self, plain: EpsilonBound, *, rough: bool) -> EpsilonBound:
        """Return the epsilon of one pair; of a replacement also as a removal, then an addition, if that is less."""
        if not self.amplifies:
            return plain
        delta, laws = self.run.delta, self._laws_above(rough=rough)
        remove, add = ([(law, self.begun_epochs)] for law in laws)
        by = "pessimistic PLD of the pair mean N(e_t, sigma^2 I) against N(0, sigma^2 I)"
        if not self.run.replaced:
            return min(EpsilonBound(max(epsilon_above(remove, delta), epsilon_above(add, delta)), by), plain)
        epsilon = in_two_moves(partial(epsilon_above, remove), partial(epsilon_above, add), delta)
        moved = EpsilonBound(epsilon, f"a removal, then an addition: {by}")
        times = replaced_in_bins.times_two_moves(*self._in_range(), self.begun_epochs, delta, laws, epsilon)
        if times > (_COARSE if rough else _TOO_COARSE):
            return min(moved, plain)
        replaced = epsilon_above([(self._replaced_law(rough=True), self.begun_epochs)], delta)
        if not rough and replaced < _HOPELESS * moved.epsilon:
            replaced = epsilon_above([(self._replaced_law(), self.begun_epochs)], delta)
        by = "pessimistic PLD of the pair mean N(e_t, sigma^2 I) against mean N(-e_t, sigma^2 I)"
        return min(EpsilonBound(replaced, by), moved, plain)

    def lower(self) -> EpsilonBound:
        run, epochs = self.run, self.whole_epochs
        if epochs == 0 or not balls_in_bins.in_range(run.noise_multiplier, self.steps_per_epoch):
            return EpsilonBound(0.0, "nothing is known for so short a run, or so many bins, so little or much noise")
        epsilon = largest_below(self._laws_below(), epochs, run.delta)
        return EpsilonBound(epsilon, "optimistic PLD of the pair mean N(e_t, sigma^2 I) against N(0, sigma^2 I)")

    def above(self) -> PhaseSource:
        if not self.run.replaced:
            return law_source(self._laws_above(), self.begun_epochs)
        law = self._replaced_law()
        return law_source((law, law), self.begun_epochs)

    def below(self) -> PhaseSource | None:
        if self.whole_epochs == 0 or not balls_in_bins.in_range(self.run.noise_multiplier, self.steps_per_epoch):
            return None
        return law_source(self._laws_below(), self.whole_epochs)

    def _laws_above(self, *, rough: bool = False) -> tuple[GridLaw, GridLaw]:
        return balls_in_bins.laws_above(*self._in_range(), self.begun_epochs, self.run.delta, rough=rough)

    def _replaced_law(self, *, rough: bool = False) -> GridLaw:
        return replaced_in_bins.law_above(*self._in_range(), self.begun_epochs, self.run.delta, rough=rough)

    def _in_range(self) -> tuple[float, int]:
        """Noise and bins that the run spends at most as much as, in the range of the accountants."""
        noise = min(self.run.noise_multiplier, balls_in_bins.MOST_NOISE)
        return noise, min(self.steps_per_epoch, balls_in_bins.MOST_BINS)

    def _laws_below(self) -> tuple[GridLaw, GridLaw]:
        run = self.run
        return balls_in_bins.laws_below(run.noise_multiplier, self.steps_per_epoch, self.whole_epochs, run.delta)


def in_two_moves(remove: Callable[[float], float], add: Callable[[float], float], delta: float) -> float:
    """Return the epsilon at `delta` of a removal, then an addition: the least over some shares of it.

    `remove` and `add` answer epsilon at a delta. Their sum falls, then rises in the share, so only one of the outer
    shares is looked at. Source: derived, the triangle of the hockey-stick divergence.
    """

    def spent(share: float) -> float:
        first = remove(share * delta)
        left = (1 - share) * delta * math.exp(-first)
        return first + add(left) if left >= _LEAST_DELTA else math.inf

    least, less, more, most = SHARES
    inner = spent(less), spent(more)
    return min(*inner, spent(least if inner[0] < inner[1] else most))
