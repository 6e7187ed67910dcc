"""Composition by inversion against closed forms and against accountants that convolve grids of losses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import dpsgd, gaussian_dp, local_privacy
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.provenance.audit.numbers import InvertedComposition, poisson_replaced, sampled_gaussian


def gaussian(shift):
    """The profile of a Gaussian mechanism."""
    return sampled_gaussian(np.array([shift]), np.ones(1))


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 3.0), st.integers(1, 500), st.floats(-9.0, -2.0))
def test_gaussian_steps_compose_to_the_closed_form(shift, steps, log_delta):
    delta = 10.0**log_delta
    exact = float(gaussian_dp.epsilon(delta, shift * math.sqrt(steps)))
    assert InvertedComposition(((gaussian(shift), steps),), delta).epsilon() == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_steps_of_two_kinds_compose_in_any_order():
    mixed = ((gaussian(0.3), 16), (gaussian(0.9), 4))
    exact = float(gaussian_dp.epsilon(1e-6, math.sqrt(16 * 0.09 + 4 * 0.81)))
    assert InvertedComposition(mixed, 1e-6).epsilon() == pytest.approx(exact, rel=1e-6)
    assert InvertedComposition(mixed[::-1], 1e-6).epsilon() == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("noise", "size", "records", "steps"), [(1.0, 500, 60000, 360), (1.2, 60, 2400, 120)])
def test_batches_without_replacement_agree_with_a_convolved_grid(noise, size, records, steps):
    run = {"batch_size": size, "records": records, "steps": steps, "delta": 1e-5}
    known = local_privacy.epsilon(noise_multiplier=noise, **run, sampling=Sampling.FIXED)
    step = sampled_gaussian(np.array([2 / noise]), np.array([size / records]))
    assert InvertedComposition(((step, steps),), 1e-5).epsilon() == pytest.approx(float(known), rel=1e-4)


def test_poisson_samples_under_replacement_agree_with_dp_accounting():
    known = dpsgd.epsilon(
        noise_multiplier=1.5, sample_rate=0.05, steps=60, delta=1e-5, neighbouring=Neighbouring.REPLACE_ONE
    )
    assert InvertedComposition(((poisson_replaced(1.5, 0.05), 60),), 1e-5).epsilon() == pytest.approx(known, rel=1e-3)


def test_a_renyi_bound_lies_above():
    whole = InvertedComposition(((sampled_gaussian(np.array([0.8]), np.array([0.1])), 50),), 1e-5)
    assert whole.epsilon() < whole.bound < 1.5 * whole.epsilon()


def test_a_loss_with_an_atom_has_no_answer_and_nothing_spent_is_0():
    rare = sampled_gaussian(np.array([2.0]), np.array([0.01]))
    assert math.isnan(InvertedComposition(((rare, 1),), 1e-5).epsilon())
    assert InvertedComposition(((gaussian(1e-7), 3),), 1e-5).epsilon() == 0.0


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(0.8, 1e-3, 300), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.9, 3e-4, 300), (1.2, 1e-3, 300)))],
)
def test_rare_large_losses_are_not_folded_in(sigma, rate, steps):
    known = segments_epsilon([Segment(steps, sigma, rate)], 1e-5)
    step = sampled_gaussian(np.array([1 / sigma]), np.array([rate]))
    assert InvertedComposition(((step, steps),), 1e-5).epsilon() == pytest.approx(known, rel=1e-3)


def test_what_does_not_settle_has_no_value_and_a_bound():
    """300 rounds of which 9 in 10 never see the record, and then lose much: every place tells something else."""
    whole = InvertedComposition(((sampled_gaussian(np.array([2.0]), np.array([3e-4])), 300),), 1e-5)
    assert math.isnan(whole.epsilon())
    assert segments_epsilon([Segment(300, 0.5, 3e-4)], 1e-5) < whole.bound < 5


def test_a_step_that_loses_too_much_has_neither():
    whole = InvertedComposition(((sampled_gaussian(np.array([400.0]), np.array([0.1])), 5),), 1e-5)
    assert math.isnan(whole.epsilon(blur=0.1)) and whole.bound == math.inf
