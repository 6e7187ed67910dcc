"""Composition of runs with different settings: the laws of their losses, brought to one grid and added."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfl.accounting import balls_in_bins, fixed_batches, shuffled_epochs
from dpfl.accounting.composed_epsilon import Phases, epsilon_above, epsilon_below
from dpfl.accounting.loss_composition import GridLaw, optimistic, pessimistic
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.profile_laws import regrid, step_of_sum
from dpfl.accounting.sampler_bounds import EpsilonBound, Run, beyond_floats, lower, unamplified, unamplified_mu, uses
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement

_PLACES, _MOST_CELLS = 1 << 15, 1 << 19
_UNAMPLIFIED = FullBatch | ShuffledEpochs
Laws = tuple[tuple[GridLaw, GridLaw], int]
"""The laws of one part of a run in both orders, with the record against without and back; and how often it recurs."""


def phases_upper(runs: Sequence[Run]) -> EpsilonBound:
    """Return an epsilon that the runs, one after another, guarantee at their delta.

    The Gaussian DP of all uses of the record where some loss is too large for float64: amplification is then next to
    nothing. Source: zhu2022 (composition of dominating pairs); the pairs are those of `sampler_bounds`.
    """
    delta, plain = runs[0].delta, unamplified(math.hypot(*map(unamplified_mu, runs)), runs[0].delta)
    if math.isinf(plain.epsilon):
        return EpsilonBound(math.inf, "nothing is proven for one of the phases")
    if all(isinstance(run.sampler, _UNAMPLIFIED) for run in runs) or any(map(_beyond_floats, runs)):
        return plain
    parts = [_above(run) for run in runs]
    epsilon = max(epsilon_above(_one_grid(parts, order, pessimistic), delta) for order in (0, 1))
    return min(EpsilonBound(epsilon, "pessimistic PLDs of the phases, composed"), plain)


def phases_lower(runs: Sequence[Run]) -> EpsilonBound:
    """Return an epsilon that the runs exceed at their delta for some data, against an observer of every step.

    At least that of any one phase, to which the rest only adds. Phases whose losses are too large for float64 count by
    themselves. Source: derived here, by composing the worst pairs of `sampler_bounds`.
    """
    alone = max(map(lower, runs))
    parts = [part for part in map(_below, (run for run in runs if not _beyond_floats(run))) if part is not None]
    if not parts:
        return alone
    epsilon = max(epsilon_below(_one_grid(parts, order, optimistic), runs[0].delta) for order in (0, 1))
    return max(EpsilonBound(epsilon, "optimistic PLDs of the phases' worst pairs, composed"), alone)


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


def _one_grid(parts: Sequence[Laws], order: int, rounding) -> Phases:
    """Bring one order of the parts to the multiples of one step: the finest among them, or what their sum needs.

    The sum's deviation has no more than _PLACES places there, unless so many steps need more, and no law more than
    _MOST_CELLS.
    """
    steps = sum(count for _, count in parts)
    variance = sum(count * float(laws[order].masses @ laws[order].losses ** 2) for laws, count in parts) / steps
    enough = min(step_of_sum(variance, steps), math.sqrt(steps * variance) / _PLACES)
    width = max(laws[order].step * laws[order].masses.size for laws, _ in parts)
    step = max(min(laws[order].step for laws, _ in parts), enough, width / _MOST_CELLS)
    return [(rounding(regrid(laws[order], step)), count) for laws, count in parts]


def _above(run: Run) -> Laws:
    """Return laws that dominate a part of the run, for which something is proven."""
    mu, replaced = unamplified_mu(run), run.neighbouring is Neighbouring.REPLACE_ONE
    match run.sampler:
        case BallsInBins(steps_per_epoch=bins) if not replaced and run.noise_multiplier >= balls_in_bins.LEAST_NOISE:
            epochs, bins = math.ceil(run.steps / bins), min(bins, balls_in_bins.MOST_BINS)
            noise = min(run.noise_multiplier, balls_in_bins.MOST_NOISE)
            return balls_in_bins.laws_above(noise, bins, epochs, run.delta), epochs
        case Poisson(sample_rate=rate) if not replaced:
            return fixed_batches.poisson_laws_above(run.noise_multiplier, rate, run.steps, run.delta), run.steps
        case Poisson(sample_rate=rate):  # C_q of a move by 2, in both orders, dominates one by -1 and one by 1
            law = fixed_batches.law_above(run.noise_multiplier, np.array([1 - rate, rate]), 0.0, run.steps, run.delta)
            return (law, law), run.steps
        case FixedBatches(batch_size=size, records=records) if run.neighbouring is Neighbouring.ADD_OR_REMOVE:
            laws = fixed_batches.poisson_laws_above(run.noise_multiplier / 2, size / records, run.steps, run.delta)
            return laws, run.steps
        case FixedBatches() | WithReplacement():
            law = fixed_batches.law_above(run.noise_multiplier, *uses(run), run.steps, run.delta)
            return (law, law), run.steps
    law = fixed_batches.law_above(2 / mu, np.array([0.0, 1.0]), 0.0, 1, run.delta)
    return (law, law), 1


def _below(run: Run) -> Laws | None:
    """Return laws that a part of the run dominates, or None where no epoch is complete."""
    sigma, steps, delta, relation = run.noise_multiplier, run.steps, run.delta, run.neighbouring
    match run.sampler:
        case FullBatch():
            laws = fixed_batches.pair_laws(unamplified_mu(run), np.array([0.0, 1.0]), (1, 0), 1, delta)
            return laws, 1
        case Poisson(sample_rate=rate):  # a replaced record may become a zero
            return fixed_batches.pair_laws(1 / sigma, np.array([1 - rate, rate]), (1, 0), steps, delta), steps
        case FixedBatches() | WithReplacement():
            pair = (2, 1) if relation is Neighbouring.ZERO_OUT else (2, 0)
            weights, beyond = uses(run)
            return fixed_batches.pair_laws(1 / sigma, weights, pair, steps, delta, beyond), steps
        case BallsInBins(steps_per_epoch=bins):
            epochs = steps // bins
            if epochs == 0 or not balls_in_bins.in_range(sigma, bins):
                return None
            return balls_in_bins.laws_below(sigma, bins, epochs, delta), epochs
        case ShuffledEpochs(batch_size=size, records=records):
            epochs = steps // run.sampler.steps_per_epoch
            if epochs == 0 or run.sampler.steps_per_epoch == 1 or math.isinf(unamplified_mu(run)):
                return None
            return shuffled_epochs.epoch_laws(sigma, size, records, epochs, delta, relation), epochs
