"""Accountants of the samplers: bounds on epsilon of a run, and of a run in phases of different settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting import balls_in_bins, fixed_batches, gaussian_dp, shuffled_batches
from dpfl.accounting.composition import GridLaw, LossPart, LossSearch, epsilon_above, epsilon_below, regrid
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.poisson_gaussian import Order, Step, epsilon_interval, epsilon_upper
from dpfl.accounting.samplers import (
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    Sampler,
    ShuffledEpochs,
    WithReplacement,
)

# The upper and lower epsilon of one run of checked arguments, sampler by sampler.

NEVER_USED = "the record is used with a chance of at most delta"
UNAMPLIFIED = "Gaussian DP of every use of the record, no amplification"
_BY_RECORD = Poisson | BallsInBins
_LARGEST_LOSS = 650.0
_LEAST_NOISE = 0.1  # of the worst pair of shuffled epochs: below it losses are no floats
_LARGEST_MU = 1e100
SHARES = (0.02, 0.3, 0.7, 0.98)
"""Shares of delta that a removal may have where a replacement is a removal, then an addition."""


@dataclass(frozen=True)
class Run:
    """A run whose arguments are checked."""

    sampler: Sampler
    noise_multiplier: float
    steps: int
    delta: float
    neighbouring: Neighbouring


class EpsilonBound(NamedTuple):
    """An epsilon and the argument that proves it."""

    epsilon: float
    by: str


def unamplified_mu(run: Run) -> float:
    """Return the mu of Gaussian DP that holds whatever is drawn; inf where there is none.

    Guarantee: the run is mu-Gaussian-DP under its relation. Source: vandijk2023 section 4.3 (composition); the
    sensitivities are derived in `fixed_batches`, `shuffled_epochs`.
    """
    steps, reach = run.steps, 2.0 if run.neighbouring is Neighbouring.REPLACE_ONE else 1.0
    match run.sampler:
        case ShuffledEpochs(records=records, batch_size=batch_size):
            per_epoch = run.sampler.steps_per_epoch
            if run.neighbouring is Neighbouring.ADD_OR_REMOVE and (records - 1) % batch_size == 0:
                return math.inf if steps >= per_epoch else 2.0 / run.noise_multiplier
            return shuffled_batches.unamplified_mu(
                run.noise_multiplier, per_epoch, math.ceil(steps / per_epoch), run.neighbouring
            )
        case BallsInBins(steps_per_epoch=bins):
            steps = math.ceil(steps / bins)
        case FixedBatches():
            reach = 1.0 if run.neighbouring is Neighbouring.ZERO_OUT else 2.0
        case WithReplacement(batch_size=batch_size):
            reach = batch_size * (1.0 if run.neighbouring is Neighbouring.ZERO_OUT else 2.0)
    return reach * math.sqrt(steps) / run.noise_multiplier


def likely_noise(run: Run, mu: float) -> float:
    """Return about the noise multiplier whose run under an amplifying sampler is as private as `mu`-GDP.

    A start for a search, not a bound: mu^2 = steps rate^2 (e^(move^2/noise^2) - 1) is solved for the noise.
    Source: bu2020, central limit theorem.
    """
    move = 2.0 if run.neighbouring is Neighbouring.REPLACE_ONE or not isinstance(run.sampler, _BY_RECORD) else 1.0
    match run.sampler:
        case Poisson(sample_rate=rate):
            pass
        case BallsInBins(steps_per_epoch=bins):
            rate = 1 / bins
        case _:
            rate = run.sampler.batch_size / run.sampler.records
    return move / math.sqrt(math.log1p(max(mu**2 / run.steps / rate**2, 1e-300)))


def upper(run: Run, *, rough: bool = False) -> EpsilonBound:
    """Return an epsilon that the run guarantees at its delta; `rough`: not the least, if that takes long to compute.

    Sources: `poisson_gaussian`, `fixed_batches`, `shuffled_epochs`, `balls_in_bins`.
    """
    mu = unamplified_mu(run)
    if math.isinf(mu) and isinstance(run.sampler, ShuffledEpochs):
        return EpsilonBound(math.inf, "nothing is proven: the number of steps changes with the record")
    if chance_of_use(run) <= run.delta:
        return EpsilonBound(0.0, NEVER_USED)
    plain = unamplified(mu, run.delta)
    match run.sampler:
        case FullBatch() | ShuffledEpochs():
            return plain
        case Poisson():
            epsilon = epsilon_upper(**_setting(run, run.noise_multiplier, run.neighbouring))
            return EpsilonBound(epsilon, "pessimistic PLD of Poisson sampling")
        case FixedBatches() if run.neighbouring is Neighbouring.ADD_OR_REMOVE:
            epsilon = epsilon_upper(**_setting(run, run.noise_multiplier / 2, run.neighbouring))
            return EpsilonBound(epsilon, "pessimistic PLD of the Poisson pair at half the noise")
        case FixedBatches() | WithReplacement() if _batches_beyond_floats(run):
            return plain
        case FixedBatches() | WithReplacement():
            weights, beyond = uses(run)
            law = fixed_batches.law_above(run.noise_multiplier, weights, beyond, run.steps, run.delta)
            epsilon = epsilon_above([(law, run.steps)], run.delta)
            return min(
                EpsilonBound(epsilon, "pessimistic PLD of amplification by subsampling (Balle et al. 2018)"), plain
            )
        case BallsInBins():
            return min(_bins_upper(run, rough), plain) if run.noise_multiplier >= balls_in_bins.LEAST_NOISE else plain
        case unknown:
            assert_never(unknown)


def lower(run: Run) -> EpsilonBound:
    """Return an epsilon that the run exceeds at its delta for some data, against an observer of every step.

    Sources: `poisson_gaussian`, `fixed_batches`, `shuffled_epochs`, `balls_in_bins`.
    """
    match run.sampler:
        case FullBatch():
            mu = min(unamplified_mu(run), _LARGEST_MU)
            epsilon = float(gaussian_dp.epsilon(min(run.delta * (1 + 1e-10), 1.0), mu)) * (1 - 1e-15)
            return EpsilonBound(epsilon, "exact: Gaussian DP")
        case Poisson():
            return EpsilonBound(
                epsilon_interval(**_setting(run, run.noise_multiplier, run.neighbouring))[0],
                "optimistic PLD of Poisson sampling",
            )
        case FixedBatches() if run.neighbouring is not Neighbouring.ZERO_OUT:
            epsilon = epsilon_interval(**_setting(run, run.noise_multiplier / 2, Neighbouring.ADD_OR_REMOVE))[0]
            return EpsilonBound(epsilon, "optimistic PLD of the pair: others -C, the record +C or another -C")
        case FixedBatches() | WithReplacement():
            as_one = counted_once(run)
            once = EpsilonBound(
                epsilon_interval(**_setting(as_one, as_one.noise_multiplier, as_one.neighbouring))[0],
                "optimistic PLD of the best pair, several uses counted as one",
            )
            if _batches_beyond_floats(run):
                return once
            best = EpsilonBound(_best_pair(run), "optimistic PLD of the best pair: others -C or 0, the record +C")
            return max(best, once)
        case ShuffledEpochs():
            return _shuffled_lower(run)
        case BallsInBins(steps_per_epoch=bins):
            epochs = run.steps // bins
            if epochs == 0 or not balls_in_bins.in_range(run.noise_multiplier, bins):
                return EpsilonBound(
                    0.0, "nothing is known for so short a run, or so many bins, so little or much noise"
                )
            laws = balls_in_bins.laws_below(run.noise_multiplier, bins, epochs, run.delta)
            epsilon = max(epsilon_below([(law, epochs)], run.delta) for law in laws)
            return EpsilonBound(epsilon, "optimistic PLD of the pair mean N(e_t, sigma^2 I) against N(0, sigma^2 I)")
        case unknown:
            assert_never(unknown)


def unamplified(mu: float, delta: float) -> EpsilonBound:
    """Return the epsilon at `delta` of `mu`-GDP, rounded up; inf beyond the largest mu that has one.

    Source: vandijk2023 (6), by `gaussian_dp.epsilon`.
    """
    if mu > _LARGEST_MU:
        return EpsilonBound(math.inf, UNAMPLIFIED)
    return EpsilonBound(float(gaussian_dp.epsilon(delta * (1 - 1e-10), mu)) * (1 + 1e-15), UNAMPLIFIED)


def beyond_floats(move: float, count: int, delta: float) -> bool:
    """Return whether e^loss of a Gaussian step, or e^-loss, is no float64: then amplification is next to nothing.

    `move` is by how many deviations the record moves a step; the loss is one that matters at `delta` in `count` steps.
    Source: elementary, the tail of the normal law.
    """
    return move**2 / 2 + move * math.sqrt(2 * (math.log(count) - math.log(delta))) > _LARGEST_LOSS


def _batches_beyond_floats(run: Run) -> bool:
    """Return that of fixed batches, whose most uses move most."""
    return beyond_floats(2.0 * (uses(run)[0].size - 1) / run.noise_multiplier, run.steps, run.delta)


def _best_pair(run: Run) -> float:
    """Fixed batches, by the pairs of `fixed_batches`."""
    return fixed_batches.smallest_epsilon(run.noise_multiplier, *uses(run), run.steps, run.delta, run.neighbouring)


def counted_once(run: Run) -> Run:
    """Return the run as if all uses in a step were one: Poisson samples, which the run dominates in both orders.

    Poisson sampling has a sharper accountant where uses are rare. Its events are above a threshold, which more uses
    only make likelier, and as likely without the record: the pair of all uses dominates it.
    Source: derived here.
    """
    rate, noise = chance_of_use(replace(run, steps=1)), run.noise_multiplier
    if run.neighbouring is not Neighbouring.ZERO_OUT:
        noise /= 2
    return replace(run, sampler=Poisson(rate), noise_multiplier=noise, neighbouring=Neighbouring.ADD_OR_REMOVE)


def _setting(run: Run, noise_multiplier: float, neighbouring: Neighbouring) -> dict[str, Any]:
    """Return the arguments of Poisson sampling at the sampler's rate."""
    sampler = run.sampler
    rate = sampler.sample_rate if isinstance(sampler, Poisson) else sampler.batch_size / sampler.records
    settings = {"noise_multiplier": noise_multiplier, "sample_rate": rate, "neighbouring": neighbouring}
    return {**settings, "steps": run.steps, "delta": run.delta}


def chance_of_use(run: Run) -> float:
    """Return the chance that the record is used at all, or 1; every bound of delta is at most that.

    Source: elementary.
    """
    match run.sampler:
        case Poisson(sample_rate=rate):
            missed = math.log1p(-rate)
        case FixedBatches(batch_size=size, records=records):
            missed = math.log1p(-size / records)
        case WithReplacement(batch_size=size, records=records) if records > 1:
            missed = size * math.log1p(-1 / records)
        case _:
            return 1.0
    return -math.expm1(run.steps * missed)


def uses(run: Run) -> tuple[NDArray[np.float64], float]:
    """Return the chances of 0, 1, 2, ... uses of a record in a batch, and that of more.

    Source: elementary, as `fixed_batches` has it.
    """
    sampler, tail = run.sampler, 1e-6 * run.delta / run.steps
    return fixed_batches.uses(
        sampler.batch_size, sampler.records, isinstance(sampler, WithReplacement), max(tail, 1e-300)
    )


def _shuffled_lower(run: Run) -> EpsilonBound:
    """The worst pair of shuffled epochs, those that are complete; of the first one if none is."""
    sampler, epochs = run.sampler, run.steps // run.sampler.steps_per_epoch
    if math.isinf(unamplified_mu(run)):
        return EpsilonBound(math.inf, "the number of steps tells the data sets apart")
    if sampler.steps_per_epoch == 1:
        return lower(Run(FullBatch(), run.noise_multiplier, run.steps, run.delta, run.neighbouring))
    epsilon = shuffled_batches.worst_pair_epsilon(
        noise_multiplier=max(run.noise_multiplier, _LEAST_NOISE),  # more noise spends less
        batch_size=sampler.batch_size,
        records=sampler.records,
        epochs=max(epochs, 1),
        delta=run.delta,
        neighbouring=run.neighbouring,
        seen=None if epochs else run.steps,
    )
    seen = "an epoch" if epochs else "the begun epoch"
    return EpsilonBound(epsilon, f"worst pair of Chua et al. 2024, largest step of {seen}, optimistic PLD")


def _bins_upper(run: Run, rough: bool) -> EpsilonBound:
    """Balls in bins; a replacement is a removal and an addition, one after the other (hockey-stick triangle)."""
    epochs = math.ceil(run.steps / run.sampler.steps_per_epoch)
    bins = min(run.sampler.steps_per_epoch, balls_in_bins.MOST_BINS)
    noise = min(run.noise_multiplier, balls_in_bins.MOST_NOISE)
    laws = balls_in_bins.laws_above(noise, bins, epochs, run.delta, rough=rough)
    remove, add = ([(law, epochs)] for law in laws)
    by = "pessimistic PLD of the pair mean N(e_t, sigma^2 I) against N(0, sigma^2 I)"
    if run.neighbouring is not Neighbouring.REPLACE_ONE:
        return EpsilonBound(max(epsilon_above(remove, run.delta), epsilon_above(add, run.delta)), by)
    epsilon = math.inf
    for share in SHARES:
        first = epsilon_above(remove, share * run.delta)
        if first < 600:
            epsilon = min(epsilon, first + epsilon_above(add, max((1 - share) * run.delta * math.exp(-first), 1e-300)))
    return EpsilonBound(epsilon, f"a removal, then an addition: {by}")


_ROUGH_CELLS, _LOOSE = 20_000, 2e-3
# Composition of runs with different settings: the laws of their losses, cut on one grid and added.
#
# The order of the parts changes nothing, so those of one sampler and one noise multiplier are counted together,
# wherever they stand; uses of the record without amplification are one Gaussian.

_SPLITS = (0.35, 0.45, 0.5, 0.55, 0.65)
"""Shares of epsilon that a removal may have where delta of a replacement is asked for."""
_BY_EPOCH = BallsInBins | ShuffledEpochs
_REPLACED: tuple[Order, Order] = ("replace", "replace")
_MOVED: tuple[Order, Order] = ("remove", "add")
_COMPOSED_ABOVE, _COMPOSED_BELOW = (
    "pessimistic PLDs of the phases, composed",
    "optimistic PLDs of the phases' worst pairs, composed",
)


class PhaseSource(NamedTuple):
    """`steps` equal losses: `part` returns them for the order 0 or 1, a delta, and the number of steps in all."""

    part: Callable[[int, float, int], LossPart]
    steps: int


def phases_interval(runs: Sequence[Run], *, both: bool = True) -> tuple[EpsilonBound, EpsilonBound]:
    """Return epsilons that the runs, one after another, exceed and guarantee at their delta; the first 0 unless `both`.

    The first one is for some data, against an observer of every step: at least that of any one part, to which the rest
    only adds. The second is the Gaussian DP of all uses of the record where some loss is too large for float64:
    amplification is then next to nothing. Runs of one setting are `lower` and `upper` of all their steps.
    Source: zhu2022 (composition of dominating pairs); the pairs are those of one run, above.
    """
    delta, plain = runs[0].delta, unamplified(math.hypot(*map(unamplified_mu, runs)), runs[0].delta)
    nothing = EpsilonBound(0.0, "not asked for")
    if math.isinf(plain.epsilon):
        above = EpsilonBound(math.inf, "nothing is proven for one of the phases")
        return _below(runs) if both else nothing, above
    joined = _joined(runs)
    if len(joined) == 1:
        above = min(upper(joined[0]), plain)
    elif math.prod(1 - chance_of_use(run) for run in joined) >= 1 - delta:
        above = EpsilonBound(0.0, NEVER_USED)
    elif any(map(_beyond_floats, joined)):
        above = plain
    elif both and all(map(_is_exact, runs)):
        ends = _interval([_above(run) for run in joined], joined[0], both=True)
        below = EpsilonBound(ends[0], _COMPOSED_BELOW)
        if ends[0] < ends[1] * (1 - _LOOSE):  # any one of them spends no more than all
            below = max(below, *map(lower, joined))
        return below, min(EpsilonBound(ends[1], _COMPOSED_ABOVE), plain)
    else:
        end = _interval([_above(run) for run in joined], joined[0], both=False)[1]
        above = min(EpsilonBound(end, _COMPOSED_ABOVE), plain)
        if joined[0].neighbouring is Neighbouring.REPLACE_ONE and any(map(_by_two, joined)):
            above = min(above, _removal_and_addition(joined))
    return _below(runs) if both else nothing, above


def phases_delta(runs: Sequence[Run], epsilon: float) -> tuple[float, float]:
    """Return (lower, upper) ends of delta at `epsilon` >= 0 of the runs, one after another.

    The delta of each run only sets how far its grid reaches; a small one is best. Guarantee: the runs are (`epsilon`,
    upper)-DP, and not (`epsilon`, d)-DP for any d < lower, against an observer of every step.
    Source: zhu2022 (composition of dominating pairs); the pairs are those of one run, above.
    """
    joined, both_orders = _joined(runs), (0, 1)
    mu = math.hypot(*map(unamplified_mu, runs))
    upper_end = 1.0 if math.isinf(mu) else min(float(gaussian_dp.delta(epsilon, mu)) * (1 + 1e-10), 1.0)
    upper_end = min(upper_end, 1 - math.prod(1 - chance_of_use(run) for run in joined))
    if math.isinf(mu) or any(map(_beyond_floats, joined)):
        return 0.0, upper_end
    above = [_above(run) for run in joined]
    found = [_search(above, order, runs[0].delta).delta_interval(epsilon) for order in both_orders]
    upper_end = min(upper_end, max(high for _, high in found))
    replaced = joined[0].neighbouring is Neighbouring.REPLACE_ONE
    if replaced and any(map(_by_two, joined)) and all(map(_is_by_record, joined)):
        moved = [_above(replace(run, neighbouring=Neighbouring.ADD_OR_REMOVE)) for run in joined]
        for first in (share * epsilon for share in (_SPLITS if epsilon else (0.0,))):
            removed = _search(moved, 0, runs[0].delta).delta_interval(first)[1]
            added = _search(moved, 1, runs[0].delta).delta_interval(epsilon - first)[1]
            upper_end = min(upper_end, removed + math.exp(min(first, 700.0)) * added)
    if all(map(_is_exact, runs)):
        return min(max(low for low, _ in found), upper_end), upper_end
    below = [source for run in _joined(runs, complete=True) if (source := _source_below(run)) is not None]
    if not below:
        return 0.0, upper_end
    lower_end = max(_search(below, order, runs[0].delta).delta_interval(epsilon)[0] for order in both_orders)
    return min(lower_end, upper_end), upper_end


def _below(runs: Sequence[Run]) -> EpsilonBound:
    """Return what the runs exceed."""
    runs = _joined(runs, complete=True)
    alone = max(map(lower, runs))
    sources = [source for run in runs if not _beyond_floats(run) and (source := _source_below(run)) is not None]
    if len(runs) == 1 or not sources:
        return alone
    end = _interval(sources, runs[0], both=True, orders=(0, 1))[0]
    return max(EpsilonBound(end, _COMPOSED_BELOW), alone)


def _removal_and_addition(runs: Sequence[Run]) -> EpsilonBound:
    """A replacement as a removal and an addition, one after the other (hockey-stick triangle).

    Only where every record is drawn for itself: elsewhere one record fewer changes how the others are drawn.
    """
    by = "a removal, then an addition: pessimistic PLDs of the phases, composed"
    if not all(map(_is_by_record, runs)):
        return EpsilonBound(math.inf, by)
    sources = [_above(replace(run, neighbouring=Neighbouring.ADD_OR_REMOVE)) for run in runs]
    epsilon, delta = math.inf, runs[0].delta
    for share in SHARES:
        first = _search(sources, 0, share * delta).interval(0.0, both=False)[1]
        if first < 600:
            rest = max((1 - share) * delta * math.exp(-first), 1e-300)
            epsilon = min(epsilon, first + _search(sources, 1, rest).interval(0.0, both=False)[1])
    return EpsilonBound(epsilon, by)


def _joined(runs: Sequence[Run], *, complete: bool = False) -> list[Run]:
    """Return the runs with those of one setting counted together, and all uses without amplification as one Gaussian.

    An epoch that is cut short counts as complete. If `complete` ones count alone, it stands for itself, and so do
    shuffled epochs, of which a floor is known.
    """
    counts: dict[Run, int] = {}
    mus: list[float] = []
    cut: list[Run] = []
    for run in runs:
        steps = run.steps
        if isinstance(run.sampler, FullBatch) or not (complete or _amplifies(run)):
            mus.append(unamplified_mu(run))
            continue
        if isinstance(run.sampler, _BY_EPOCH):
            bins = run.sampler.steps_per_epoch
            steps = steps // bins * bins if complete else -(-steps // bins) * bins
            if steps < run.steps:
                cut.append(replace(run, steps=run.steps - steps))
        if steps:
            one = replace(run, steps=1)
            counts[one] = counts.get(one, 0) + steps
    joined = [replace(run, steps=steps) for run, steps in counts.items()] + cut
    if mus:
        reach = 2.0 if runs[0].neighbouring is Neighbouring.REPLACE_ONE else 1.0
        joined.append(replace(runs[0], sampler=FullBatch(), noise_multiplier=reach / math.hypot(*mus), steps=1))
    return joined


def _amplifies(run: Run) -> bool:
    """Return whether a proof of amplification is known for the run."""
    return _by_two(run) or not isinstance(run.sampler, BallsInBins | FullBatch | ShuffledEpochs)


def _by_two(run: Run) -> bool:
    """Return whether the run amplifies, a replacement in two moves only."""
    return isinstance(run.sampler, BallsInBins) and run.noise_multiplier >= balls_in_bins.LEAST_NOISE


def _is_by_record(run: Run) -> bool:
    """Return whether every record is drawn for itself, or all are used."""
    return isinstance(run.sampler, Poisson | BallsInBins | FullBatch)


def _is_exact(run: Run) -> bool:
    """Return whether the pair that dominates the run occurs."""
    fixed = isinstance(run.sampler, FixedBatches) and run.neighbouring is Neighbouring.ADD_OR_REMOVE
    return fixed or isinstance(run.sampler, FullBatch | Poisson)


def _beyond_floats(run: Run) -> bool:
    """Return whether the losses of a part of the run are beyond e^-650 to e^650."""
    match run.sampler:
        case FullBatch() | ShuffledEpochs():
            move, count = unamplified_mu(run), 1
        case FixedBatches() | WithReplacement():
            move, count = 2 * (uses(run)[0].size - 1) / run.noise_multiplier, run.steps
        case _:
            move, count = (2 if run.neighbouring is Neighbouring.REPLACE_ONE else 1) / run.noise_multiplier, run.steps
    return beyond_floats(move, count, run.delta)


def _interval(
    sources: Sequence[PhaseSource], run: Run, *, both: bool, orders: Sequence[int] | None = None
) -> tuple[float, float]:
    """Return the ends of epsilon at the run's delta; a replacement spends the same in both orders, if not said."""
    lowest = highest = 0.0
    for order in orders or ((0,) if run.neighbouring is Neighbouring.REPLACE_ONE else (0, 1)):
        low, high = _search(sources, order, run.delta).interval(highest, both=both)
        lowest, highest = max(lowest, low), max(highest, high)
    return lowest, highest


def _search(sources: Sequence[PhaseSource], order: int, delta: float) -> LossSearch:
    """Return the search for epsilon of all sources."""
    together = sum(source.steps for source in sources)
    return LossSearch([source.part(order, delta, together) for source in sources], delta)


def _steps(shift: float, rate: float, steps: int, orders: tuple[Order, Order] = _MOVED) -> PhaseSource:
    """Return Gaussian steps on Poisson samples."""
    return PhaseSource(
        lambda order, delta, together: Step(shift, rate, orders[order]).part(steps, delta, together), steps
    )


def _laws(laws: tuple[GridLaw, GridLaw], steps: int) -> PhaseSource:
    """Return steps whose laws are known in both orders."""

    def part(order: int, delta: float, together: int) -> LossPart:
        law = laws[order]
        width = law.step * law.masses.size
        rough = regrid(law, max(law.step, width / _ROUGH_CELLS))
        masses = rough.masses()
        support = np.flatnonzero(masses > 0)
        losses = rough.origin + support * rough.step
        return LossPart(partial(regrid, law), losses, np.log(masses[support]), steps, law.step)

    return PhaseSource(part, steps)


def _above(run: Run) -> PhaseSource:
    """Return losses that dominate a part of the run, for which something is proven."""
    mu, replaced = unamplified_mu(run), run.neighbouring is Neighbouring.REPLACE_ONE
    noise, steps = run.noise_multiplier, run.steps
    match run.sampler:
        case BallsInBins(steps_per_epoch=bins) if not replaced:
            epochs, bins = math.ceil(steps / bins), min(bins, balls_in_bins.MOST_BINS)
            return _laws(
                balls_in_bins.laws_above(min(noise, balls_in_bins.MOST_NOISE), bins, epochs, run.delta), epochs
            )
        case Poisson(sample_rate=rate):
            return _steps(1 / noise, rate, steps, _REPLACED if replaced else _MOVED)
        case FixedBatches(batch_size=size, records=records) if run.neighbouring is Neighbouring.ADD_OR_REMOVE:
            return _steps(2 / noise, size / records, steps)
        case FixedBatches() | WithReplacement():
            law = fixed_batches.law_above(noise, *uses(run), steps, run.delta)
            return _laws((law, law), steps)
    return _steps(mu, 1.0, 1)


def _source_below(run: Run) -> PhaseSource | None:
    """Return losses that a part of the run dominates, or None where nothing is known."""
    sigma, steps, delta, relation = run.noise_multiplier, run.steps, run.delta, run.neighbouring
    match run.sampler:
        case FullBatch() | Poisson():
            return _above(run)
        case FixedBatches(batch_size=size, records=records) if relation is not Neighbouring.ZERO_OUT:
            return _steps(2 / sigma, size / records, steps)
        case FixedBatches() | WithReplacement():
            weights, beyond = uses(run)
            best, laws = 0.0, None
            for pair in fixed_batches.pairs(weights, relation):
                found = fixed_batches.pair_laws(1 / sigma, weights, pair, steps, delta, beyond)
                epsilon = max(epsilon_below([(law, steps)], delta) for law in found)
                if epsilon > best:
                    best, laws = epsilon, found
            once = counted_once(run)
            if laws is None or lower(run).epsilon > best:
                return _steps(1 / once.noise_multiplier, once.sampler.sample_rate, steps)
            return _laws(laws, steps)
        case BallsInBins(steps_per_epoch=bins):
            epochs = steps // bins
            if epochs == 0 or not balls_in_bins.in_range(sigma, bins):
                return None
            return _laws(balls_in_bins.laws_below(sigma, bins, epochs, delta), epochs)
        case ShuffledEpochs(batch_size=size, records=records):
            epochs = steps // run.sampler.steps_per_epoch
            if epochs == 0 or run.sampler.steps_per_epoch == 1 or math.isinf(unamplified_mu(run)):
                return None
            return _laws(shuffled_batches.epoch_laws(sigma, size, records, epochs, delta, relation), epochs)
