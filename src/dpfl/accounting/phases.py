"""Composition of runs with different settings: the laws of their losses, cut on one grid and added.

The order of the parts changes nothing, so those of one sampler and one noise multiplier are counted together,
wherever they stand; uses of the record without amplification are one Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dpfl.accounting import composition, schedules
from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.accounting.sampler_accountants import (
    NEVER_USED,
    EpsilonBound,
    PhaseSource,
    Run,
    SamplerAccountant,
    accountant,
    in_two_moves,
    unamplified,
)
from dpfl.accounting.samplers import FullBatch
from dpfl.accounting.zero_concentrated import ZeroConcentrated, zcdp_bound

_LOOSE = 2e-3  # share of epsilon from which on the parts are looked at one by one
_COMPOSED_ABOVE, _COMPOSED_BELOW = (
    "pessimistic PLDs of the phases, composed",
    "optimistic PLDs of the phases' worst pairs, composed",
)


def phases_interval(runs: Sequence[Run], *, both: bool = True) -> tuple[EpsilonBound, EpsilonBound]:
    """Return epsilons that the runs, one after another, exceed and guarantee at their delta; the first 0 unless `both`.

    The first one is for some data, against an observer of every step: at least that of any one part, to which the rest
    only adds. The second is the Gaussian DP of all uses of the record where some loss is too large for float64:
    amplification is then next to nothing. With zero-concentrated parts it is at most the zCDP of all. Runs of one
    setting are one run of all their steps.
    Source: zhu2022 (composition of dominating pairs); the pairs are those of one run, above.
    """
    delta, mu = runs[0].delta, math.hypot(*(accountant(run).unamplified_mu() for run in runs))
    plain, nothing = unamplified(mu, delta), EpsilonBound(0.0, "not asked for")
    if any(isinstance(run.sampler, ZeroConcentrated) for run in runs):
        xi, rho = (sum(each) for each in zip(*(accountant(run).unamplified_zcdp() for run in runs), strict=True))
        plain = zcdp_bound(xi, rho, delta) if math.isfinite(rho) else plain
    if math.isinf(plain.epsilon):
        above = EpsilonBound(math.inf, "nothing is proven for one of the phases")
        return _below(runs) if both else nothing, above
    joined = joined_parts(runs)
    if len(joined) == 1:
        above = min(joined[0].upper(), plain)
    elif chance_of_any_use(joined) <= delta:
        above = EpsilonBound(0.0, NEVER_USED)
    elif any(part.loss_is_beyond_floats() for part in joined):
        above = plain
    elif both and all(accountant(run).is_exact for run in runs):
        ends = _interval([part.above() for part in joined], joined[0].run, both=True)
        below = EpsilonBound(ends[0], _COMPOSED_BELOW)
        if ends[0] < ends[1] * (1 - _LOOSE):  # any one of them spends no more than all
            below = max(below, *(part.lower() for part in joined))
        return below, min(EpsilonBound(ends[1], _COMPOSED_ABOVE), plain)
    else:
        end = _interval([part.above() for part in joined], joined[0].run, both=False)[1]
        above = min(EpsilonBound(end, _COMPOSED_ABOVE), plain)
        if joined[0].run.replaced and any(part.amplifies_in_two_moves for part in joined):
            above = min(above, _removal_and_addition(joined))
    return _below(runs) if both else nothing, above


def _below(runs: Sequence[Run]) -> EpsilonBound:
    """Return what the runs exceed."""
    joined = joined_parts(runs, complete=True)
    alone = max(part.lower() for part in joined)
    parts = (part for part in joined if not part.loss_is_beyond_floats())
    sources = [source for part in parts if (source := part.below()) is not None]
    if len(joined) == 1 or not sources:
        return alone
    end = _interval(sources, joined[0].run, both=True, orders=(0, 1))[0]
    return max(EpsilonBound(end, _COMPOSED_BELOW), alone)


def _removal_and_addition(joined: Sequence[SamplerAccountant[Any]]) -> EpsilonBound:
    """Return the epsilon of a replacement as a removal and an addition, inf where it is none of the two.

    Only where every record is drawn for itself: elsewhere one record fewer changes how the others are drawn.
    """
    by = "a removal, then an addition: pessimistic PLDs of the phases, composed"
    if not are_by_record(joined):
        return EpsilonBound(math.inf, by)
    sources = [as_move(part).above() for part in joined]

    def end(order: int, delta: float) -> float:
        return loss_search(sources, order, delta).interval(0.0, both=False)[1]

    return EpsilonBound(in_two_moves(partial(end, 0), partial(end, 1), joined[0].run.delta), by)


def chance_of_any_use(joined: Sequence[SamplerAccountant[Any]]) -> float:
    """Return the chance that the record is used in any of the parts, also where it is below float64's spacing at 1.

    Source: elementary.
    """
    chances = [part.chance_of_use() for part in joined]
    if max(chances, default=0.0) >= 1:
        return 1.0
    return abs(math.expm1(math.fsum(math.log1p(-chance) for chance in chances)))


def are_by_record(joined: Sequence[SamplerAccountant[Any]]) -> bool:
    """Return whether every record is drawn for itself, or all are used, in all parts. Source: elementary."""
    return all(part.by_record for part in joined)


def as_move(part: SamplerAccountant[Any]) -> SamplerAccountant[Any]:
    """Return the part where a record is removed or added instead of replaced. Source: the definition."""
    return accountant(replace(part.run, neighbouring=Neighbouring.ADD_OR_REMOVE))


def joined_parts(runs: Sequence[Run], *, complete: bool = False) -> list[SamplerAccountant[Any]]:
    """Return the runs, counted together if they have one setting, and all uses without amplification as one Gaussian.

    An epoch that is cut short counts as complete. If `complete` ones count alone, it stands for itself, and so do
    shuffled epochs, of which a floor is known.
    Source: elementary, the order of losses that are added changes nothing; squares of mu add (vandijk2023 section 4.3).
    """
    counts: dict[Run, int] = {}
    mus: list[float] = []
    cut: list[Run] = []
    for run in runs:
        steps, known = run.steps, accountant(run)
        if isinstance(run.sampler, FullBatch) or not (complete or known.amplifies):
            mus.append(known.unamplified_mu())
            continue
        bins = known.steps_per_epoch
        steps = steps // bins * bins if complete else -(-steps // bins) * bins
        if steps < run.steps:
            cut.append(replace(run, steps=run.steps - steps))
        if steps:
            one = replace(run, steps=1)
            counts[one] = counts.get(one, 0) + steps
    joined = [replace(run, steps=steps) for run, steps in counts.items()] + cut
    if mus:
        noise = MOVES[runs[0].neighbouring] / math.hypot(*mus)
        joined.append(replace(runs[0], sampler=FullBatch(), noise_multiplier=noise, steps=1))
    return [accountant(run) for run in joined]


def _interval(
    sources: Sequence[PhaseSource], run: Run, *, both: bool, orders: Sequence[int] | None = None
) -> tuple[float, float]:
    """Return the ends of epsilon at the run's delta; a replacement spends the same in both orders, if not said."""
    lowest = highest = 0.0
    for order in orders or ((0,) if run.replaced else (0, 1)):
        low, high = loss_search(sources, order, run.delta).interval(highest, both=both)
        lowest, highest = max(lowest, low), max(highest, high)
    return lowest, highest


def loss_search(sources: Sequence[PhaseSource], order: int, delta: float) -> composition.LossSearch:
    """Return the search for epsilon of all sources, in that order of their pairs. Source: zhu2022 (composition)."""
    together = sum(source.steps for source in sources)
    plain, steps = schedules.in_schedules(sources)
    parts = [source.part(order, delta, together) for source in plain]
    tolerance = composition.TOLERANCE if plain else schedules.TOLERANCE
    between = schedules.between_nodes(steps, ("remove", "add")[order], delta, together)
    return composition.LossSearch(parts, delta, between, tolerance)
