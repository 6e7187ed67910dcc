"""Phases of different samplers against an exact sum of losses, an integral over one phase of the other's profile."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.sampler_bounds import Run, unamplified_mu
from dpfl.accounting.sampler_phases import phases_lower, phases_upper
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement

DELTA, RATE, NOISE, MU = 1e-4, 0.1, 0.9, 0.8
ZERO, REPLACE, ADD = Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def phase(sampler, noise, steps, relation=ADD):
    return Run(sampler, noise, steps, DELTA, relation)


def gaussian(epsilon, mu):
    """The hockey stick of N(mu, 1) against N(0, 1) at any epsilon, also below 0."""
    return norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


def exact_epsilon(p_law, q_law, mu):
    """Epsilon at DELTA of a step with mixtures ((weight, mean), ...) and of mu-GDP, both seen."""
    x = np.linspace(-15, 25, 4001)
    p, q = (sum(weight * norm.pdf(x, mean) for weight, mean in law) for law in (p_law, q_law))
    loss = np.log(p) - np.log(q)
    spent = lambda epsilon: (p * gaussian(epsilon - loss, mu)).sum() * (x[1] - x[0])  # noqa: E731
    return brentq(lambda epsilon: math.log(max(spent(epsilon), 1e-300) / DELTA), 1e-3, 40)


NONE, ONCE, TWICE = ((1, 0),), ((1 - RATE, 0), (RATE, 1 / NOISE)), ((1 - RATE, 0), (RATE, 2 / NOISE))
BACK = ((1 - RATE, 0), (RATE, -1 / NOISE))


@pytest.mark.parametrize(
    ("sampler", "relation", "pair", "low"),
    [
        (Poisson(RATE), ADD, (ONCE, NONE), None),
        *slow(
            (FixedBatches(3, 30), ADD, (TWICE, NONE), None),
            (FixedBatches(3, 30), REPLACE, (TWICE, NONE), None),
            (WithReplacement(1, 10), REPLACE, (TWICE, NONE), None),
            (Poisson(RATE), REPLACE, (ONCE, BACK), (ONCE, NONE)),  # by pairs that dominate, and are dominated
        ),
    ],
)
def test_a_sampled_step_and_a_full_batch_lie_about_the_exact_sum(sampler, relation, pair, low):
    """Both orders of each pair; the larger one is what is spent."""
    reach = 2 if relation is REPLACE else 1
    phases = [phase(sampler, NOISE, 1, relation), phase(FullBatch(), reach / MU, 1, relation)]
    exact = max(exact_epsilon(*pair, MU), exact_epsilon(*pair[::-1], MU))
    above, below = phases_upper(phases).epsilon, phases_lower(phases).epsilon
    assert below <= exact * (1 + 1e-9) and exact <= above * (1 + 1e-9)
    if low is None:
        assert above == pytest.approx(exact, rel=2e-3) and below == pytest.approx(exact, rel=2e-3)
    else:
        assert below == pytest.approx(max(exact_epsilon(*low, MU), exact_epsilon(*low[::-1], MU)), rel=2e-3)


def test_phases_without_amplification_are_one_gaussian():
    """Squares add: 3/4 of full batches and 2/25 of two epochs, of which the second is begun."""
    phases = [phase(FullBatch(), 2.0, 3, ZERO), phase(ShuffledEpochs(10, 40), 5.0, 7, ZERO)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(3 / 4 + 2 / 25)))
    assert phases_upper(phases).epsilon == pytest.approx(exact, rel=1e-9)


def test_a_single_bin_is_a_full_batch():
    phases = [phase(BallsInBins(1), 1.5, 2), phase(FullBatch(), 2.0, 1)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(2 / 2.25 + 1 / 4)))
    above, below = phases_upper(phases).epsilon, phases_lower(phases).epsilon
    assert below <= exact <= above
    assert above == pytest.approx(exact, rel=2e-3) and below == pytest.approx(exact, rel=1e-2)


def test_a_phase_of_which_nothing_is_proven_leaves_nothing():
    phases = [phase(ShuffledEpochs(10, 31), 5.0, 8), phase(Poisson(0.1), 2.0, 5)]
    assert unamplified_mu(phases[0]) == math.inf
    assert phases_upper(phases).epsilon == phases_lower(phases).epsilon == math.inf


def test_losses_beyond_floats_fall_back_on_gaussian_dp_and_on_one_phase():
    phases = [phase(Poisson(0.5), 0.01, 2), phase(FullBatch(), 1.0, 1)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(2 * 100**2 + 1)))
    assert phases_upper(phases).epsilon == pytest.approx(exact, rel=1e-9)
    alone = float(gaussian_dp.epsilon(DELTA, 200.0))
    assert phases_lower([phase(FullBatch(), 0.005, 1), phases[1]]).epsilon == pytest.approx(alone, rel=1e-9)


def test_epochs_that_are_not_complete_count_above_only():
    full, cut = phase(FullBatch(), 2.0, 1, ZERO), phase(ShuffledEpochs(10, 40), 3.0, 3, ZERO)
    assert phases_lower([full, cut]).epsilon == pytest.approx(float(gaussian_dp.epsilon(DELTA, 0.5)), rel=1e-3)
    assert phases_upper([full, cut]).epsilon == pytest.approx(
        float(gaussian_dp.epsilon(DELTA, math.sqrt(1 / 4 + 1 / 9))), rel=1e-9
    )
