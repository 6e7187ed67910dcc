"""The three noises: published formulas by hand, the tight one by another accountant; and what statements say."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.samplers import Sampling, WithReplacement
from dpfl.convex.federated_rounds import Clipping
from dpfl.convex.silo_jobs import EPSILON_TOLERANCE, ClientMessages, NoiseRule, noise_multiplier, statement

MINIBATCH = ClientMessages(37, 356, 35, 1 / 356**2, Sampling.WITH_REPLACEMENT, Clipping.RECORD, batch_share=37 / 356)
LOCAL = ClientMessages(1, 356, 37 * 35, 1 / 356**2, Sampling.WITH_REPLACEMENT, Clipping.RECORD, batch_share=37 / 356)


def changed(mechanism: ClientMessages, **changes) -> ClientMessages:
    """Return a mechanism with some fields changed."""
    return ClientMessages(**{**vars(mechanism), **changes})


@pytest.mark.parametrize(("mechanism", "steps", "share"), [(MINIBATCH, 35, 37), (LOCAL, 1295, 1)])
def test_the_published_noises_are_their_formulas(mechanism, steps, share):
    n, delta, epsilon = 356, 1 / 356**2, 2.5
    advanced = 256 * steps * math.log(2.5 * steps * (37 / n) / delta) * math.log(2 / delta) / (n * epsilon) ** 2
    moments = 8 * steps * math.log(1 / delta) / (n * epsilon) ** 2
    for noise, variance in ((NoiseRule.ADVANCED_COMPOSITION, advanced), (NoiseRule.MOMENTS, moments)):
        assert noise_multiplier(noise, mechanism, epsilon) == pytest.approx(share * math.sqrt(variance), rel=1e-12)


@settings(max_examples=6, deadline=None)
@given(epsilon=st.floats(0.3, 3), records=st.integers(20, 200), releases=st.integers(1, 60), share=st.floats(0.05, 1))
def test_the_tight_noise_spends_its_epsilon_and_no_more(epsilon, records, releases, share):
    batch = max(1, round(share * records))
    mechanism = ClientMessages(batch, records, releases, 1e-5, Sampling.FIXED, Clipping.RECORD, batch_share=share)
    spent = mechanism.stated(noise_multiplier(NoiseRule.TIGHT, mechanism, epsilon)).guarantee.upper
    assert (1 - EPSILON_TOLERANCE) * epsilon <= spent <= epsilon


def test_the_tight_noise_of_full_batches_is_that_of_one_gaussian():
    """T full batches shift a unit Gaussian by 2 sqrt(T) / noise_multiplier."""
    mechanism = changed(MINIBATCH, message_records=356, sampling=Sampling.FIXED)
    for epsilon in (0.5, 3.0, 10.0):
        mean = 2 * math.sqrt(35) / noise_multiplier(NoiseRule.TIGHT, mechanism, epsilon)
        assert gaussian_dp.epsilon(1 / 356**2, mean) == pytest.approx(epsilon, rel=2 * EPSILON_TOLERANCE)


@pytest.mark.parametrize(("epsilon", "nearest"), [pytest.param(1.0, 0.85, marks=pytest.mark.slow), (7.5, 0.95)])
def test_the_tight_noise_of_local_steps_by_dp_accounting(epsilon, nearest):
    """A step draws one record of n; where all others pull the other way, dp_accounting finds nearly as much spent."""
    multiplier = noise_multiplier(NoiseRule.TIGHT, LOCAL, epsilon)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier / 2, sampling_prob=1 / 356, use_connect_dots=True, value_discretization_interval=1e-3
    )
    theirs = one.self_compose(1295).get_epsilon_for_delta(1 / 356**2)
    assert nearest * epsilon < theirs <= epsilon * 1.001


def test_clipping_the_mean_costs_a_thousand_and_says_so():
    stated = statement(NoiseRule.MOMENTS, changed(MINIBATCH, message_records=65, clipping=Clipping.MEAN), 1.0, "rest")
    assert stated.guarantee.upper > 1000 and "does not protect" in stated.note
    # The noise itself is the same: only its relation to one record's share differs.
    own = noise_multiplier(NoiseRule.MOMENTS, changed(MINIBATCH, message_records=65), 1.0)
    assert own == pytest.approx(65 * stated.noise_multiplier, rel=1e-12)


def test_clipping_the_mean_of_one_record_is_clipping_the_record():
    mean = statement(NoiseRule.MOMENTS, changed(LOCAL, clipping=Clipping.MEAN), 1.0, "rest")
    assert mean == statement(NoiseRule.MOMENTS, LOCAL, 1.0, "rest")


def test_statements_say_where_the_noise_comes_from():
    tight = statement(NoiseRule.TIGHT, changed(MINIBATCH, sampling=Sampling.FIXED), 2.0, "rest")
    assert "calibrated to spend epsilon 2" in tight.note and tight.guarantee.upper == pytest.approx(2, rel=1e-3)
    published = statement(NoiseRule.ADVANCED_COMPOSITION, MINIBATCH, 2.0, "rest")
    assert "as published (advanced_composition)" in published.note and published.guarantee.upper < 0.1
    assert (published.records, published.steps, published.sampler) == (356, 35, WithReplacement(37, 356))
    free = statement(NoiseRule.TIGHT, MINIBATCH, math.inf, "rest")
    assert math.isinf(free.guarantee.upper) and free.noise_multiplier == 0.0


def test_less_noise_spends_more():
    multipliers = np.geomspace(3, 50, 5)
    spent = [changed(MINIBATCH, sampling=Sampling.FIXED).stated(each).guarantee.upper for each in multipliers]
    assert np.all(np.diff(spent) < 0)
