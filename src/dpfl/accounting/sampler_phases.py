"""Composition of runs with different settings: the laws of their losses, brought to one grid and added."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfl.accounting import balls_in_bins, fixed_batches, shuffled_epochs
from dpfl.accounting.composed_epsilon import Phases, epsilon_above, epsilon_below
from dpfl.accounting.loss_composition import GridLaw, optimistic, pessimistic
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.profile_laws import regrid
from dpfl.accounting.sampler_bounds import Bound, Run, unamplified_mu, uses
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement

Laws = tuple[tuple[GridLaw, GridLaw], int]
"""The laws of one part of a run in both orders, with the record against without and back; and how often it recurs."""


def phases_upper(runs: Sequence[Run]) -> Bound:
    """Return an epsilon that the runs, one after another, keep at their delta."""
    parts = [_above(run) for run in runs]
    if any(part is None for part in parts):
        return Bound(math.inf, "nothing is proven for one of the phases")
    found = max(epsilon_above(_one_grid(parts, order, pessimistic), runs[0].delta) for order in (0, 1))
    return Bound(found, "pessimistic PLDs of the phases, composed")


def phases_lower(runs: Sequence[Run]) -> Bound:
    """Return an epsilon that the runs exceed at their delta for some data, whoever sees every step."""
    parts = [part for part in map(_below, runs) if part is not None]
    if not parts:
        return Bound(0.0, "no phase has a complete epoch")
    found = max(epsilon_below(_one_grid(parts, order, optimistic), runs[0].delta) for order in (0, 1))
    return Bound(found, "optimistic PLDs of the phases' worst pairs, composed")


def _one_grid(parts: Sequence[Laws], order: int, rounding) -> Phases:
    """Bring one order of the parts to the multiples of the finest step among them."""
    finest = min(laws[order].step for laws, _ in parts)
    return [(rounding(regrid(laws[order], finest)), count) for laws, count in parts]


def _above(run: Run) -> Laws | None:
    """Return laws that dominate a part of the run, or None where nothing is proven."""
    mu, replaced = unamplified_mu(run), run.neighbouring is Neighbouring.REPLACE_ONE
    match run.sampler:
        case BallsInBins(steps_per_epoch=bins) if not replaced and run.noise_multiplier >= balls_in_bins.LEAST_NOISE:
            epochs, bins = math.ceil(run.steps / bins), min(bins, balls_in_bins.MOST_BINS)
            return balls_in_bins.laws_above(run.noise_multiplier, bins, epochs, run.delta), epochs
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
    if math.isinf(mu):
        return None
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
            return fixed_batches.pair_laws(1 / sigma, uses(run)[0], pair, steps, delta), steps
        case BallsInBins(steps_per_epoch=bins):
            epochs = steps // bins
            if epochs == 0 or bins > balls_in_bins.MOST_BINS or sigma < balls_in_bins.LEAST_NOISE:
                return None
            return balls_in_bins.laws_below(sigma, bins, epochs, delta), epochs
        case ShuffledEpochs(batch_size=size, records=records):
            epochs = steps // run.sampler.steps_per_epoch
            if epochs == 0 or run.sampler.steps_per_epoch == 1 or math.isinf(unamplified_mu(run)):
                return None
            return shuffled_epochs.epoch_laws(sigma, size, records, epochs, delta, relation), epochs
