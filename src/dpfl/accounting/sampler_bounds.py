"""The upper and lower epsilon of one run of checked arguments, sampler by sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting import balls_in_bins, fixed_batches, gaussian_dp, shuffled_epochs
from dpfl.accounting.composed_epsilon import epsilon_above, epsilon_below
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.poisson_gaussian import epsilon_interval, epsilon_upper
from dpfl.accounting.samplers import (
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    Sampler,
    ShuffledEpochs,
    WithReplacement,
)

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
            return shuffled_epochs.unamplified_mu(
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
        case FixedBatches() | WithReplacement() if _beyond_floats(run):
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
            if _beyond_floats(run):
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


def _beyond_floats(run: Run) -> bool:
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
    epsilon = shuffled_epochs.worst_pair_epsilon(
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
