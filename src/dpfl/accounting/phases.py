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

from dpfl.accounting import gaussian_dp
from dpfl.accounting.composition import LossSearch
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

_LOOSE = 2e-3  # share of epsilon from which on the parts are looked at one by one
_SPLITS = (0.35, 0.45, 0.5, 0.55, 0.65)
"""Shares of epsilon that a removal may have where delta of a replacement is asked for."""
_COMPOSED_ABOVE, _COMPOSED_BELOW = (
    "pessimistic PLDs of the phases, composed",
    "optimistic PLDs of the phases' worst pairs, composed",
)


def phases_interval(runs: Sequence[Run], *, both: bool = True) -> tuple[EpsilonBound, EpsilonBound]:
    """Return epsilons that the runs, one after another, exceed and guarantee at their delta; the first 0 unless `both`.

    The first one is for some data, against an observer of every step: at least that of any one part, to which the rest
    only adds. The second is the Gaussian DP of all uses of the record where some loss is too large for float64:
    amplification is then next to nothing. Runs of one setting are one run of all their steps.
    Source: zhu2022 (composition of dominating pairs); the pairs are those of one run, above.
    """
    delta, mu = runs[0].delta, math.hypot(*(accountant(run).unamplified_mu() for run in runs))
    plain, nothing = unamplified(mu, delta), EpsilonBound(0.0, "not asked for")
    if math.isinf(plain.epsilon):
        above = EpsilonBound(math.inf, "nothing is proven for one of the phases")
        return _below(runs) if both else nothing, above
    joined = _joined(runs)
    if len(joined) == 1:
        above = min(joined[0].upper(), plain)
    elif math.prod(1 - part.chance_of_use() for part in joined) >= 1 - delta:
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


def phases_delta(runs: Sequence[Run], epsilon: float) -> tuple[float, float]:
    """Return (lower, upper) ends of delta at `epsilon` >= 0 of the runs, one after another.

    The delta of each run only sets how far its grid reaches; a small one is best. Guarantee: the runs are (`epsilon`,
    upper)-DP, and not (`epsilon`, d)-DP for any d < lower, against an observer of every step.
    Source: zhu2022 (composition of dominating pairs); the pairs are those of one run, above.
    """
    joined, both_orders = _joined(runs), (0, 1)
    mu = math.hypot(*(accountant(run).unamplified_mu() for run in runs))
    upper_end = 1.0 if math.isinf(mu) else min(float(gaussian_dp.delta(epsilon, mu)) * (1 + 1e-10), 1.0)
    upper_end = min(upper_end, 1 - math.prod(1 - part.chance_of_use() for part in joined))
    if math.isinf(mu) or any(part.loss_is_beyond_floats() for part in joined):
        return 0.0, upper_end
    above = [part.above() for part in joined]
    found = [_search(above, order, runs[0].delta).delta_interval(epsilon) for order in both_orders]
    upper_end = min(upper_end, max(high for _, high in found))
    if joined[0].run.replaced and any(part.amplifies_in_two_moves for part in joined) and _are_by_record(joined):
        moved = [_moved(part).above() for part in joined]
        for first in (share * epsilon for share in (_SPLITS if epsilon else (0.0,))):
            removed = _search(moved, 0, runs[0].delta).delta_interval(first)[1]
            added = _search(moved, 1, runs[0].delta).delta_interval(epsilon - first)[1]
            upper_end = min(upper_end, removed + math.exp(min(first, 700.0)) * added)
    if all(accountant(run).is_exact for run in runs):
        return min(max(low for low, _ in found), upper_end), upper_end
    below = [source for part in _joined(runs, complete=True) if (source := part.below()) is not None]
    if not below:
        return 0.0, upper_end
    lower_end = max(_search(below, order, runs[0].delta).delta_interval(epsilon)[0] for order in both_orders)
    return min(lower_end, upper_end), upper_end


def _below(runs: Sequence[Run]) -> EpsilonBound:
    """Return what the runs exceed."""
    joined = _joined(runs, complete=True)
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
    if not _are_by_record(joined):
        return EpsilonBound(math.inf, by)
    sources = [_moved(part).above() for part in joined]

    def end(order: int, delta: float) -> float:
        return _search(sources, order, delta).interval(0.0, both=False)[1]

    return EpsilonBound(in_two_moves(partial(end, 0), partial(end, 1), joined[0].run.delta), by)


def _are_by_record(joined: Sequence[SamplerAccountant[Any]]) -> bool:
    """Return whether every record is drawn for itself, or all are used, in all parts."""
    return all(part.by_record for part in joined)


def _moved(part: SamplerAccountant[Any]) -> SamplerAccountant[Any]:
    """Return the part where a record is removed or added instead of replaced."""
    return accountant(replace(part.run, neighbouring=Neighbouring.ADD_OR_REMOVE))


def _joined(runs: Sequence[Run], *, complete: bool = False) -> list[SamplerAccountant[Any]]:
    """Return the runs with those of one setting counted together, and all uses without amplification as one Gaussian.

    An epoch that is cut short counts as complete. If `complete` ones count alone, it stands for itself, and so do
    shuffled epochs, of which a floor is known.
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
        low, high = _search(sources, order, run.delta).interval(highest, both=both)
        lowest, highest = max(lowest, low), max(highest, high)
    return lowest, highest


def _search(sources: Sequence[PhaseSource], order: int, delta: float) -> LossSearch:
    """Return the search for epsilon of all sources."""
    together = sum(source.steps for source in sources)
    return LossSearch([source.part(order, delta, together) for source in sources], delta)
