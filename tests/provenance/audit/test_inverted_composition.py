"""Composition by inversion against closed forms, against accountants that convolve, and step by step."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, norm

from dpfl.accounting import dpsgd, gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.accounting.tradeoff.privacy_loss import arsinh_delta
from dpfl.provenance.audit.inverted_composition import (
    InvertedComposition,
    laplace_log_delta,
    poisson_replaced,
    sampled_arsinh,
    sampled_gaussian,
)

# Composition by inversion against closed forms and against accountants that convolve grids of losses.


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


@pytest.mark.parametrize("blur", [0.5, 1.0, 1.9])
def test_a_gaussian_mechanism_beside_the_steps_adds_its_square(blur):
    exact = float(gaussian_dp.epsilon(1e-6, math.sqrt(16 * 0.09 + blur**2)))
    assert InvertedComposition(((gaussian(0.3), 16),), 1e-6).epsilon(blur) == pytest.approx(exact, rel=1e-6)


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


# Profiles of single steps against integrals over their densities.


def mixture(sigma, weights, epsilon):
    """delta(epsilon) of one replaced step: where j copies are drawn, with weights[j - 1], the laws lie at +j and -j."""
    stays = 1 - sum(weights)

    def law(x, side):
        return stays * norm.pdf(x, 0, sigma) + sum(w * norm.pdf(x, side * j, sigma) for j, w in enumerate(weights, 1))

    return quad(lambda x: max(0.0, law(x, 1) - math.exp(epsilon) * law(x, -1)), -12 * sigma, 12 * sigma, limit=400)[0]


def at(profile, epsilon):
    return math.exp(profile(np.array([epsilon]))[0])


@pytest.mark.parametrize("weights", [[0.2], [1.0], [0.3, 0.05]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_profile_of_a_step_is_an_upper_bound_and_exact_where_every_step_sees_the_record(weights, epsilon):
    sigma = 1.5
    shifts = np.arange(1.0, len(weights) + 1) * 2 / sigma
    bound, truth = at(sampled_gaussian(shifts, np.array(weights)), epsilon), mixture(sigma, weights, epsilon)
    assert bound >= truth - 1e-9
    if weights == [1.0] or epsilon == 0.0:
        assert bound == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_a_poisson_sample_s_profile_is_the_integral(rate, epsilon):
    assert at(poisson_replaced(1.5, rate), epsilon) == pytest.approx(mixture(1.5, [rate], epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("scale", [2.0, 6.0])
def test_arsinh_noise_has_the_profile_of_its_exact_tails(scale, epsilon):
    exact = float(arsinh_delta(epsilon, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 1.0), epsilon) == pytest.approx(exact, rel=1e-6)
    inner = math.log1p(math.expm1(epsilon) / 0.1)
    sampled = 0.1 * float(arsinh_delta(inner, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 0.1), epsilon) == pytest.approx(sampled, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.9])
def test_laplace_noise_has_the_integral_over_its_densities(epsilon):
    def lost(x):
        return max(0.0, laplace.pdf(x) - math.exp(epsilon) * laplace.pdf(x, 2.0))

    truth = quad(lost, -40, 42, points=[0.0, 2.0, (2 - epsilon) / 2], limit=400)[0]
    assert math.exp(laplace_log_delta(epsilon, 2.0)) == pytest.approx(truth, rel=1e-7)
    assert laplace_log_delta(2.0, 2.0) == laplace_log_delta(2.5, 2.0) == -math.inf
