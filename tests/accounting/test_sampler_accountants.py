"""Bounds of one run against hand-computed sensitivities, closed forms and integrals of single steps."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.sampler_accountants import SHARES, Run, accountant, beyond_floats, in_two_moves, unamplified
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement

ZERO, REPLACE, ADD = Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE


@pytest.mark.parametrize(
    ("sampler", "steps", "squared"),
    [  # mu^2 noise^2 under zero_out, replace_one, add_or_remove: squared reach a step, times steps that use the record
        (FullBatch(), 9, (9, 36, 9)),
        (Poisson(0.1), 9, (9, 36, 9)),
        (FixedBatches(5, 50), 9, (9, 36, 36)),
        (WithReplacement(5, 50), 9, (225, 900, 900)),
        (BallsInBins(4), 9, (3, 12, 3)),  # a third epoch is begun
        (ShuffledEpochs(10, 40), 9, (3, 12, 15)),
        (ShuffledEpochs(10, 31), 9, (3, 12, math.inf)),  # without the record there are three steps, not four
        (ShuffledEpochs(10, 31), 4, (1, 4, math.inf)),  # as soon as an epoch is complete
        (ShuffledEpochs(10, 31), 3, (1, 4, 4)),
    ],
)
def test_sensitivities_by_hand(sampler, steps, squared):
    found = [accountant(Run(sampler, 2.0, steps, 1e-5, relation)).unamplified_mu() for relation in (ZERO, REPLACE, ADD)]
    assert found == pytest.approx([math.sqrt(each) / 2 for each in squared], rel=1e-15)


@pytest.mark.parametrize(("mu", "delta"), [(0.3, 1e-5), (4.0, 1e-12), (1.0, 1e-200)])
def test_unamplified_is_the_gaussian_epsilon_rounded_up(mu, delta):
    """At 40 digits delta(epsilon) is at most delta, and above it a little earlier; full batches have both bounds."""

    def spent(epsilon):
        with mp.workdps(320):
            place, scale = mp.mpf(epsilon) / mu, mp.mpf(mu) / 2
            return mp.ncdf(scale - place) - mp.exp(mp.mpf(epsilon)) * mp.ncdf(-scale - place)

    run = Run(FullBatch(), 3 / mu, 9, delta, ZERO)
    for epsilon in (unamplified(mu, delta).epsilon, accountant(run).upper().epsilon):
        assert spent(epsilon) <= delta < spent(epsilon * (1 - 1e-9))
    assert spent(accountant(run).lower().epsilon) > delta
    assert accountant(run).lower().epsilon == pytest.approx(accountant(run).upper().epsilon, rel=1e-9)
    assert unamplified(1e101, delta).epsilon == math.inf


def epsilon_of_a_step(delta, p_law, q_law, low=-12.0, high=30.0):
    """Epsilon of a pair of mixtures ((weight, mean), ...) with unit noise, its positive part summed on a fine mesh."""
    x = np.linspace(low, high, 20_001)
    p, q = (sum(weight * norm.pdf(x, mean) for weight, mean in law) for law in (p_law, q_law))
    spent = lambda epsilon: np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])  # noqa: E731
    return brentq(lambda epsilon: spent(epsilon) - delta, 1e-9, 50)


RATE, NOISE, DELTA = 0.2, 0.8, 1e-3
NONE, ONCE, TWICE = ((1, 0),), ((1 - RATE, 0), (RATE, 1 / NOISE)), ((1 - RATE, 0), (RATE, 2 / NOISE))


@pytest.mark.parametrize(
    ("sampler", "relation", "p_law", "q_law"),
    [
        (Poisson(RATE), ADD, ONCE, NONE),
        (Poisson(RATE), ZERO, ONCE, NONE),
        (Poisson(RATE), REPLACE, ONCE, ((1 - RATE, 0), (RATE, -1 / NOISE))),
        (FixedBatches(4, 20), ADD, TWICE, NONE),
        (FixedBatches(4, 20), REPLACE, TWICE, NONE),
        pytest.param(WithReplacement(1, 5), REPLACE, TWICE, NONE, marks=pytest.mark.slow),
        pytest.param(BallsInBins(1), ADD, ((1, 1 / NOISE),), NONE, marks=pytest.mark.slow),
    ],
)
def test_one_step_lies_between_its_bounds(sampler, relation, p_law, q_law):
    """The pairs are exact for one step, so both bounds are near."""
    exact = epsilon_of_a_step(DELTA, p_law, q_law)
    known = accountant(Run(sampler, NOISE, 1, DELTA, relation))
    assert known.lower().epsilon <= exact * (1 + 1e-6) and exact <= known.upper().epsilon * (1 + 1e-6)
    assert known.lower().epsilon == pytest.approx(exact, rel=3e-3)
    assert known.upper().epsilon == pytest.approx(exact, rel=3e-3)


def test_the_first_step_of_a_shuffled_epoch_is_a_fixed_batch():
    """It uses the record with the chance 4/20, whatever comes later; a second step depends on it."""
    first, second = (accountant(Run(ShuffledEpochs(4, 20), NOISE, steps, DELTA, ADD)) for steps in (1, 2))
    exact = epsilon_of_a_step(DELTA, TWICE, NONE)
    assert accountant(first.simplified()).upper().epsilon == pytest.approx(exact, rel=3e-3)
    assert second.simplified() == second.run


@pytest.mark.parametrize(
    ("sampler", "relation", "known"),
    [
        (ShuffledEpochs(10, 40), ADD, True),
        (ShuffledEpochs(10, 31), ADD, False),  # without the record there are three steps, not four
        (ShuffledEpochs(10, 31), ZERO, True),
        (ShuffledEpochs(10, 10), ADD, False),  # one step has no largest step among others
    ],
)
def test_the_law_of_an_epoch_is_of_several_steps_that_a_record_does_not_change(sampler, relation, known):
    assert (accountant(Run(sampler, 2.0, 4, 1e-5, relation)).below() is not None) == known


def test_fixed_batches_with_a_record_that_is_zeroed_lie_above_its_best_pair():
    """Others -1, the record 1 or zeroed, in one of five batches: N(2 or 0) against N(1 or 0)."""
    exact = epsilon_of_a_step(DELTA, TWICE, ONCE)
    run = Run(FixedBatches(4, 20), NOISE, 1, DELTA, ZERO)
    assert accountant(run).lower().epsilon <= accountant(run).upper().epsilon
    assert accountant(run).lower().epsilon >= exact * (1 - 3e-3)


@pytest.mark.parametrize(
    ("sampler", "chance"),
    [
        (Poisson(1e-8), 1e-6 - 4.95e-13),  # 1 - (1 - 1e-8)^100 to second order
        (FixedBatches(3, 4), 1 - 0.25**100),
        (FixedBatches(1, 200), 1 - 0.995**100),
        (WithReplacement(3, 200), 1 - 0.995**300),
        (ShuffledEpochs(1, 200), 1.0),
        (FullBatch(), 1.0),
    ],
)
def test_the_chance_of_any_use_in_100_steps(sampler, chance):
    assert accountant(Run(sampler, 0.5, 100, 1e-6, ZERO)).chance_of_use() == pytest.approx(chance, rel=1e-12, abs=0)


def test_a_record_that_is_hardly_ever_used_spends_nothing():
    assert accountant(Run(Poisson(1e-6), 0.1, 1, 1.000001e-6, ZERO)).upper().epsilon == 0.0
    assert accountant(Run(Poisson(1e-6), 0.1, 1, 0.9e-6, ZERO)).upper().epsilon > 1


def test_uses_of_a_batch_are_binomial():
    weights, beyond = accountant(Run(WithReplacement(30, 200), 1.0, 10, 1e-5, ZERO)).uses()
    np.testing.assert_allclose(weights, binom(30, 1 / 200).pmf(np.arange(weights.size)), rtol=1e-12)
    assert 0 < beyond <= 1e-12 and beyond == pytest.approx(binom(30, 1 / 200).sf(weights.size - 1), rel=1e-9, abs=0)
    assert accountant(Run(FixedBatches(6, 20), 1.0, 10, 1e-5, ZERO)).uses()[0].tolist() == [0.7, 0.3]


@given(st.floats(0.01, 3), st.floats(1e-3, 0.5), st.integers(1, 10_000))
def test_the_likely_noise_gives_the_central_limit_s_mu(mu, rate, steps):
    """bu2020: mu = rate sqrt(steps (e^(move^2/noise^2) - 1)); the move is 2 for a replacement."""
    for relation, move in ((ADD, 1), (REPLACE, 2)):
        noise = accountant(Run(Poisson(rate), 1.0, steps, 1e-5, relation)).likely_noise(mu)
        assert rate * math.sqrt(steps * math.expm1((move / noise) ** 2)) == pytest.approx(mu, rel=1e-9)


def test_losses_beyond_floats_by_hand():
    """At delta e^-50 of one step: move^2/2 + 10 move, which is 650 at move = sqrt(1400) - 10 = 27.417."""
    assert beyond_floats(1e300, 1, 0.5)  # whose square is no float
    assert not beyond_floats(27.41, 1, math.exp(-50)) and beyond_floats(27.42, 1, math.exp(-50))
    assert beyond_floats(27.41, 10, math.exp(-50))


@settings(max_examples=20)
@given(st.floats(0.05, 5), st.floats(0.05, 5), st.floats(-10, -3))
def test_two_moves_spend_what_their_sum_does_and_little_more(one, other, log_delta):
    """Gaussian moves add up: the bound is above the exact sum, by 1.5 % at most, and no other of SHARES has less.

    The exact sum has mu = one + other, at 30 digits; at the best share of delta the triangle is an equality.
    """
    delta = 10**log_delta
    remove, add = (lambda share, mu=mu: float(gaussian_dp.epsilon(share, mu)) for mu in (one, other))

    def exact(epsilon: float) -> float:
        with mp.workdps(30):
            mu = mp.mpf(one) + other
            return float(mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu))

    def spent(share: float) -> float:
        return remove(share * delta) + add((1 - share) * delta * math.exp(-remove(share * delta)))

    found = in_two_moves(remove, add, delta)
    assert exact(found) <= delta * (1 + 1e-9) < exact(found / 1.015)
    assert found == pytest.approx(min(spent(share) for share in SHARES), rel=1e-12)


def test_a_share_of_delta_too_small_to_ask_for_proves_nothing():
    """The two moves spend 407.4 together; a share cut off at 1e-300 once proved 388.6."""
    one = lambda share: float(gaussian_dp.epsilon(share, 5.0))  # noqa: E731
    assert in_two_moves(one, one, 1e-280) == math.inf > float(gaussian_dp.epsilon(1e-280, 10.0))
