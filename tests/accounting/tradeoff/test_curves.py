"""Piecewise-linear curves: f_{epsilon,delta} and the exact operations on vertices."""

import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters, from_randomized_response
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import Curve, PrivacyLoss, double_conjugate, epsilon_delta, inverse, subsample
from dpfl.papers.vandijk2023.errata import epsilon_delta_as_printed

ALPHAS = np.linspace(0, 1, 201)
NO_LEAK = Curve(np.array([0.0, 1.0]), np.array([1.0, 0.0]))


@st.composite
def curves(draw):
    """Hulls of a few random points below 1 - alpha."""
    points = draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4))
    alpha = np.round([a for a, _ in points], 3)
    return Curve.hull(alpha, np.round([b for _, b in points], 3) * (1 - alpha))


def assert_tradeoff(beta, alpha):
    """Convex, decreasing, between 0 and 1 - alpha."""
    assert np.all(beta >= 0) and np.all(beta <= 1 - alpha + 1e-15)
    assert np.all(np.diff(beta) <= 1e-15)
    assert np.all(np.diff(np.diff(beta) / np.diff(alpha)) >= -1e-9)


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 20), st.floats(0, 1))
def test_epsilon_delta_is_a_tradeoff_curve_and_its_own_inverse(epsilon, delta):
    beta = epsilon_delta(ALPHAS, epsilon, delta)
    assert_tradeoff(beta, ALPHAS)
    assert np.allclose(beta, Curve.of_epsilon_delta(epsilon, delta)(ALPHAS), rtol=1e-9, atol=1e-12)
    assert np.allclose(inverse(lambda a: epsilon_delta(a, epsilon, delta), ALPHAS), beta, atol=1e-12)


def test_epsilon_delta_is_two_point_testing():
    """Binary outputs with probabilities that meet (epsilon, delta) with equality: the corner is attained."""
    epsilon, delta = 1.0, 0.1
    corner = (1 - delta) / (1 + np.exp(epsilon))
    assert np.isclose(epsilon_delta(corner, epsilon, delta), corner, rtol=1e-15)
    assert epsilon_delta(0.0, epsilon, delta) == 1 - delta and epsilon_delta(1 - delta, epsilon, delta) == 0


def test_printed_min_is_never_a_tradeoff_curve():
    """With min for max the curve is never positive, though (1, 0.1)-DP keeps errors above 0."""
    printed = epsilon_delta_as_printed(ALPHAS, 1.0, 0.1)
    assert np.all(printed <= 0) and printed[-1] < -0.5
    assert np.all(epsilon_delta(ALPHAS[:150], 1.0, 0.1) > 0)


def test_epsilon_delta_does_not_overflow():
    assert epsilon_delta(0.0, np.inf, 0.2) == 0.8 and epsilon_delta(1e-300, np.inf, 0.2) == 0
    assert np.isclose(epsilon_delta(1e-310, 710.0, 0.0), 1 - np.exp(710 - 310 * np.log(10)), rtol=1e-12)
    assert np.isclose(epsilon_delta(0.5, 720.0, 0.0), np.exp(-720) / 2, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(curves())
def test_inverse_of_inverse_and_inverse_against_bisection(curve):
    twice = curve.inverse().inverse()
    assert np.allclose(twice(ALPHAS), curve(ALPHAS), atol=1e-12)
    interior = np.linspace(0.0013, 0.9987, 97)
    assert np.allclose(curve.inverse()(interior), inverse(curve, interior), atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(curves(), curves(), curves())
def test_composition_is_associative_commutes_and_has_a_unit(one, two, three):
    left, right = one.compose(two).compose(three), one.compose(two.compose(three))
    assert np.allclose(left(ALPHAS), right(ALPHAS), atol=1e-11)
    assert np.allclose(one.compose(two)(ALPHAS), two.compose(one)(ALPHAS), atol=1e-12)
    assert np.allclose(one.compose(NO_LEAK)(ALPHAS), one(ALPHAS), atol=1e-12)
    assert np.all(one.compose(two)(ALPHAS) <= np.minimum(one(ALPHAS), two(ALPHAS)) + 1e-12)


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(0.5, 0.0, 4), (1.0, 0.01, 3)])
def test_composition_against_dp_accounting(epsilon, delta, rounds):
    """Composing f_{epsilon,delta}: every loss is a multiple of epsilon, so the other accountant is exact too."""
    one = Curve.of_epsilon_delta(epsilon, delta)
    composed = one
    for _ in range(rounds - 1):
        composed = composed.compose(one)
    pld = from_privacy_parameters(
        DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=epsilon / 8
    )
    epsilons = np.linspace(0, rounds * epsilon, 17)
    expected = [pld.self_compose(rounds).get_delta_for_epsilon(e) for e in epsilons]
    assert np.allclose(composed.delta(epsilons), expected, rtol=1e-9, atol=1e-13)


def test_composition_of_sampled_gaussians_is_root_sum_of_squares():
    """Chords lie above the curve, by knots^-2: the composition approaches G_{sqrt(mu^2 + nu^2)} from above."""
    mu, nu = 0.6, 0.8
    gap = []
    for knots in (61, 121):
        one, two = (double_conjugate(lambda a, m=m: gaussian_dp.tradeoff(a, m), knots=knots) for m in (mu, nu))
        gap.append(one.compose(two)(ALPHAS) - gaussian_dp.tradeoff(ALPHAS, gaussian_dp.compose([mu, nu])))
    assert np.all(gap[1] >= -1e-12) and np.max(gap[1]) < 0.01
    assert np.max(gap[1]) < np.max(gap[0]) / 3


@settings(max_examples=40, deadline=None)
@given(curves(), st.floats(0, 1))
def test_subsampling_is_the_hull_of_the_curve_and_its_mirror(curve, p):
    sampled = curve.subsample(p)
    mixed = lambda a: p * curve(a) + (1 - p) * (1 - a)  # noqa: E731
    lower = np.minimum(mixed(ALPHAS), inverse(mixed, ALPHAS))
    assert np.all(sampled(ALPHAS) <= lower + 1e-9)
    assert np.allclose(sampled(ALPHAS), sampled.inverse()(ALPHAS), atol=1e-9)
    assert_tradeoff(sampled(ALPHAS), ALPHAS)


def test_subsampling_of_a_sampled_gaussian_is_the_closed_form():
    curve = double_conjugate(lambda a: gaussian_dp.tradeoff(a, 1.0), knots=3001)
    assert np.allclose(curve.subsample(0.3)(ALPHAS), subsample(0.3, 1.0, ALPHAS), atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(curves(), st.floats(-50, 5))
def test_conjugate_is_the_largest_gap_over_the_vertices(curve, slope):
    assert np.isclose(curve.conjugate(slope), np.max(slope * curve.alpha - curve.beta), rtol=1e-12, atol=1e-12)


def test_conjugate_gives_delta_of_randomised_response():
    pld = from_randomized_response(0.4, 2, value_discretization_interval=np.log(1.6 / 0.4) / 64)
    curve = Curve(np.array([0.0, 0.2, 1.0]), np.array([1.0, 0.2, 0.0]))
    epsilons = np.array([0.0, 0.5, 1.0, 1.3])
    assert np.allclose(curve.delta(epsilons), PrivacyLoss.of(pld).delta(epsilons), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Curve(np.array([0.0, 1.0]), np.array([1.0])), "alpha"),
        (lambda: Curve(np.array([0.0, 0.9]), np.array([1.0, 0.0])), "alpha"),
        (lambda: Curve(np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.2, 0.0])), "beta"),
        (lambda: Curve(np.array([0.0, 0.5, 1.0]), np.array([0.4, 0.4, 0.0])), "beta"),
        (lambda: NO_LEAK(1.5), "alpha"),
        (lambda: NO_LEAK.subsample(-1), "p"),
        (lambda: NO_LEAK.delta(-1), "epsilon"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=rf"^{name} "):
        call()
