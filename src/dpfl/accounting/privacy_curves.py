"""The whole privacy of a run: delta at every epsilon, and what tests of a record may reach, each between two ends.

A test decides from all steps of a run whether a record was in the data (or which of two it was). Its type I error, or
false positive rate, is alpha; its type II error is beta; its true positive rate is 1 - beta. With d the profile of an
ordered pair (P, Q), d(e) = sup over events of P - e^e Q, and d' that of (Q, P), a test of Q against P has at least

    beta(alpha) = max(0, sup_{e >= 0} 1 - d(e) - e^e alpha, sup_{e >= 0} e^-e (1 - alpha - d'(e)))

and the best test has just that (dong2022, Proposition 2.13, each order for its own line). An upper bound of d in it is
proven. A lower bound of d gives an error that the best test attains, if it is known at every kink of a profile that is
linear in e^e in between: only there, or at 0, is the least of d + e^e alpha. `composition` has losses on a grid, whose
profiles are that. Where a record is removed or added, the two orders have curves of their own; the lesser is the
answer, convex where the orders are alike, as under replace_one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import gaussian_dp
from dpfl.accounting.loss_grids import UNIT
from dpfl.accounting.numerics import Array, real, reals
from dpfl.accounting.phases import are_by_record, as_move, chance_of_any_use, joined_parts, loss_search
from dpfl.accounting.sampler_accountants import PhaseSource, Run, SamplerAccountant, accountant
from dpfl.accounting.samplers import FullBatch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpfl.accounting.composition import LossSearch, Profile

_ORDERS = (0, 1)
_SPLITS = (0.35, 0.45, 0.5, 0.55, 0.65)
"""Shares of epsilon that a removal may have where delta of a replacement is asked for."""
_LARGEST_EXPONENT = 700.0
_CLOSED_FORM_ERROR = 1e-13


class Interval(NamedTuple):
    """The two ends of a quantity: numbers, or arrays of one shape."""

    lower: float | NDArray[np.float64]
    upper: float | NDArray[np.float64]


@dataclass(frozen=True)
class PrivacyCurve:
    """The privacy of `runs`, one after another on the same records, against an observer of every step.

    `privacy_curve` makes it of phases; without runs nothing is spent. The delta of the runs only sets how far their
    grids reach. Every answer is an interval; which of its ends is proven for all data, and which is reached for some,
    is said with it.
    """

    runs: tuple[Run, ...]

    def delta(self, epsilon: float) -> Interval:
        """Return bounds of delta at `epsilon` >= 0.

        Guarantee: the run is (`epsilon`, upper)-DP, and not (`epsilon`, d)-DP for any d < lower. The upper end is at
        least some 1e-24 where losses reach further than the grid.
        Source: zhu2022 (composition of dominating pairs). Raises ValueError naming epsilon.
        """
        at = real("epsilon", epsilon, at_least=0)
        upper = self.proven_delta(at)
        return Interval(min(self._exceeded_delta(at), upper), upper)

    def advantage(self) -> Interval:
        """Return bounds of the largest advantage of a test, its true less its false positive rate: delta at 0.

        It is the total variation of the two laws of all that is seen. Guarantee: no test has an advantage above upper;
        for some data one has lower. Source: `delta`.
        """
        return self.delta(0.0)

    def type_ii_error(self, type_i_error: ArrayLike) -> Interval:
        """Return bounds of the least type II error of a test with that type I error, in [0, 1], of any shape.

        Guarantee: no test errs less than lower, the trade-off function that is proven; for some data one errs no more
        than upper. Rounding widens both by some 1e-11. Source: dong2022, Proposition 2.13; see the module.
        Raises ValueError naming type_i_error.
        """
        alpha = reals("type_i_error", type_i_error, at_least=0, at_most=1)
        lower = self.proven_error(alpha)
        return Interval(lower, np.maximum(self._attained_error(alpha), lower)[()])

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> Interval:
        """Return bounds of the largest true positive rate of a test with that false positive rate, in [0, 1].

        Guarantee: no test has more than upper; for some data one has lower. Source: 1 - `type_ii_error`.
        Raises ValueError naming false_positive_rate.
        """
        errors = self.type_ii_error(reals("false_positive_rate", false_positive_rate, at_least=0, at_most=1))
        return Interval(1 - errors.upper, 1 - errors.lower)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the trade-off curve's two ends, the errors between them filled, on `axes` or new ones; return these.

        Needs matplotlib. Source: `type_ii_error`.
        """
        if axes is None:
            from matplotlib.pyplot import subplots

            axes = subplots()[1]
        alpha = np.linspace(0, 1, 101) ** 2  # closer where the curve is steep
        ends = self.type_ii_error(alpha)
        axes.fill_between(alpha, ends.lower, ends.upper, alpha=0.3, linewidth=0)
        axes.plot(alpha, ends.lower, label="no test errs less: proven")
        axes.plot(alpha, ends.upper, "--", label="a test errs no more, for some data")
        axes.plot([0, 1], [1, 0], color="0.6", linewidth=0.8, label="no information")
        axes.set(xlabel="type I error (FPR)", ylabel="type II error (1 - TPR)", xlim=(0, 1), ylim=(0, 1))
        axes.legend()
        return axes

    def proven_delta(self, epsilon: float) -> float:
        """Return the upper end of `delta` alone. Source: as there."""
        found = min(self._chance, 1.0)
        if not math.isinf(self._mu):
            found = min(found, float(gaussian_dp.delta(epsilon, self._mu)) * (1 + 1e-10))
        if self._above:
            ends = [_delta_above(search, epsilon) for search in self._above]
            # A total variation is the same in both orders.
            found = min(found, max(ends) if epsilon else min(ends))
        if self._moves:
            remove, add = self._moves
            for first in (share * epsilon for share in (_SPLITS if epsilon else (0.0,))):
                if first > _LARGEST_EXPONENT:
                    continue
                spent = _delta_above(remove, first) + math.exp(first) * _delta_above(add, epsilon - first)
                found = min(found, spent)
        return found

    def proven_error(self, type_i_error: ArrayLike) -> NDArray[np.float64]:
        """Return the lower end of `type_ii_error` alone. Source: as there."""
        alpha = np.asarray(type_i_error, dtype=np.float64)
        found = np.maximum(1 - alpha - self._chance, 0.0)
        if not math.isinf(self._mu):
            found = np.maximum(found, gaussian_dp.tradeoff(alpha, self._mu) * (1 - _CLOSED_FORM_ERROR))
        if self._above:
            both = [_least_errors(self._profiles_above, order, alpha) - 8 * UNIT for order in _ORDERS]
            found = np.maximum(found, np.minimum(*both))
        if self._moves:  # of the record that is there against none, then of none against the other one
            missed = _least_errors(self._profiles_of_moves, 1, alpha) - 8 * UNIT
            found = np.maximum(found, _least_errors(self._profiles_of_moves, 0, 1 - missed) - 8 * UNIT)
        return np.clip(found, 0.0, 1 - alpha)[()]

    def _exceeded_delta(self, epsilon: float) -> float:
        """Return a delta that the runs exceed for some data."""
        if self._told_apart:
            return 1.0
        ends = [float(gaussian_dp.delta(epsilon, mu)) * (1 - 1e-10) for mu in self._full_mus]
        ends += [math.exp(search.sum_below(epsilon).log_delta_below(epsilon)) for search in self._below]
        return max(ends, default=0.0)

    def _attained_error(self, alpha: Array) -> Array:
        """Return a type II error that a test attains for some data."""
        if self._told_apart:
            return np.zeros(alpha.shape)
        found = 1 - alpha
        for mu in self._full_mus:
            found = np.minimum(found, gaussian_dp.tradeoff(alpha, mu) * (1 + _CLOSED_FORM_ERROR))
        if self._below:
            both = [_least_errors(self._profiles_below, order, alpha) + 8 * UNIT for order in _ORDERS]
            found = np.minimum(found, np.minimum(*both))
        return found

    @cached_property
    def _parts(self) -> list[SamplerAccountant[Any]]:
        """The runs, those of one setting counted together."""
        return joined_parts(self.runs)

    @cached_property
    def _mu(self) -> float:
        """The mu of Gaussian DP of all uses of the record."""
        return math.hypot(*(accountant(run).unamplified_mu() for run in self.runs))

    @cached_property
    def _chance(self) -> float:
        """The chance that the record is used at all, which bounds every delta."""
        return chance_of_any_use(self._parts) * (1 + 1e-10)

    @cached_property
    def _told_apart(self) -> bool:
        """True where the number of steps tells that the record is there."""
        return math.isinf(self._mu) and any(math.isinf(accountant(run).lower().epsilon) for run in self.runs)

    @cached_property
    def _full_mus(self) -> list[float]:
        """The mu of all steps that use every record: an exact curve, to which other steps only add."""
        full = (part for part in joined_parts(self.runs, complete=True) if isinstance(part.run.sampler, FullBatch))
        return [part.unamplified_mu() for part in full]

    @property
    def _amplified(self) -> bool:
        """True where amplification is known, and of use: not where losses are beyond floats."""
        gaussian = all(isinstance(part.run.sampler, FullBatch) for part in self._parts)
        unknown = any(math.isinf(part.unamplified_mu()) and not part.amplifies for part in self._parts)
        return not (unknown or gaussian or any(part.loss_is_beyond_floats() for part in self._parts))

    @cached_property
    def _above(self) -> tuple[LossSearch, ...]:
        """Losses that dominate the runs, in both orders; none where only the Gaussian DP of all uses is known."""
        return self._searches([part.above() for part in self._parts]) if self._amplified else ()

    @cached_property
    def _moves(self) -> tuple[LossSearch, ...]:
        """Those of a removal and of an addition, if a replacement is amplified only as these two."""
        parts = self._parts
        replaced = any(part.run.replaced and part.amplifies_in_two_moves for part in parts)
        if not (replaced and are_by_record(parts) and self._amplified):
            return ()
        return self._searches([as_move(part).above() for part in parts])

    @cached_property
    def _below(self) -> tuple[LossSearch, ...]:
        """Losses that the runs dominate, in both orders; none if nothing is known."""
        parts = [_in_range(part) for part in joined_parts(self.runs, complete=True)]
        sources = [source for part in parts if (source := part.below()) is not None]
        only_full = all(isinstance(part.run.sampler, FullBatch) for part in parts)
        return self._searches(sources) if sources and not only_full else ()

    def _searches(self, sources: Sequence[PhaseSource]) -> tuple[LossSearch, ...]:
        """Return the sums of losses in both orders."""
        return tuple(loss_search(sources, order, self.runs[0].delta) for order in _ORDERS)

    @cached_property
    def _profiles_above(self) -> list[_Kinks]:
        return [_above(search.sum_above(0.0).profile()) for search in self._above]

    @cached_property
    def _profiles_of_moves(self) -> list[_Kinks]:
        return [_above(search.sum_above(0.0).profile()) for search in self._moves]

    @cached_property
    def _profiles_below(self) -> list[_Kinks]:
        return [_below(search.sum_below(0.0).profile()) for search in self._below]


class _Kinks(NamedTuple):
    """One bound of a profile: `deltas` at `growths` e^epsilon, ascending from 1, shape (k,)."""

    growths: Array
    deltas: Array


def _above(profile: Profile) -> _Kinks:
    return _Kinks(profile.growths, profile.above)


def _below(profile: Profile) -> _Kinks:
    return _Kinks(profile.growths, profile.below)


def _in_range(part: SamplerAccountant[Any]) -> SamplerAccountant[Any]:
    """Return the part, or with so much more noise, which only hides, that its losses are floats."""
    while part.loss_is_beyond_floats():
        part = accountant(replace(part.run, noise_multiplier=2 * part.run.noise_multiplier))
    return part


def _delta_above(search: LossSearch, epsilon: float) -> float:
    """Return an upper bound of delta at epsilon, at most 1."""
    return math.exp(min(search.sum_above(epsilon).log_delta_above(epsilon), 0.0))


def _least_errors(profiles: Sequence[_Kinks], order: int, alpha: Array) -> Array:
    """Return the type II errors of the module's formula, for the pair in that order, without its 0; shape of alpha."""
    own, other = profiles[order], profiles[1 - order]
    shares, left = 1 / other.growths, (1 - other.deltas) / other.growths
    gains = 1 - own.deltas
    errors = [max(float(np.max(gains - own.growths * a)), float(np.max(left - shares * a))) for a in np.ravel(alpha)]
    return np.array(errors).reshape(np.shape(alpha))
