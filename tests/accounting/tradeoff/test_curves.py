"""Trade-off curves: vertices, duality and subsampling against 50-digit roots, duals and sums."""

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters, from_randomized_response
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    Curve,
    PrivacyLoss,
    conjugate,
    delta_of,
    double_conjugate,
    epsilon_delta,
    from_delta,
    group,
    inverse,
    poisson_renyi,
    subsample,
    subsampled_delta,
)

pytestmark = pytest.mark.usefixtures("fifty_digits")

# Piecewise-linear curves: f_{epsilon,delta} and the exact operations on vertices.

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


# Callables: inverse, conjugates, groups, and (epsilon, delta) to trade-off and back.

DUAL_ALPHAS = np.concatenate([[0.0, 1e-12, 1e-6], np.linspace(0.01, 0.99, 99), [1 - 1e-6, 1.0]])
MUS = st.floats(0.1, 6)


def gaussian(mu):
    """G_mu as a function of alpha alone."""
    return lambda alpha: gaussian_dp.tradeoff(alpha, mu)


@settings(max_examples=15, deadline=None)
@given(MUS)
def test_gaussian_is_its_own_inverse_and_its_own_double_conjugate(mu):
    assert np.allclose(inverse(gaussian(mu), DUAL_ALPHAS), gaussian_dp.tradeoff(DUAL_ALPHAS, mu), rtol=1e-6, atol=1e-12)
    assert np.allclose(double_conjugate(gaussian(mu))(DUAL_ALPHAS), gaussian_dp.tradeoff(DUAL_ALPHAS, mu), atol=2e-4)


@settings(max_examples=25, deadline=None)
@given(MUS, st.floats(0, 6))
def test_tradeoff_to_delta_to_1e_9(mu, epsilon):
    assert abs(delta_of(gaussian(mu), epsilon) - gaussian_dp.delta(epsilon, mu)) < 1e-9


@settings(max_examples=6, deadline=None)
@given(MUS)
def test_delta_to_tradeoff_to_1e_9(mu):
    rebuilt = from_delta(lambda epsilon: gaussian_dp.delta(epsilon, mu), DUAL_ALPHAS)
    assert np.max(np.abs(rebuilt - gaussian_dp.tradeoff(DUAL_ALPHAS, mu))) < 1e-9


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 5), st.floats(0, 0.5))
def test_duality_of_a_single_epsilon_and_delta(epsilon, delta):
    f = lambda alpha: epsilon_delta(alpha, epsilon, delta)  # noqa: E731
    assert abs(delta_of(f, epsilon) - delta) < 1e-9
    assert abs(delta_of(f, 2 * epsilon) - delta) < 1e-9  # no second point: delta stays


def test_conjugate_against_its_closed_form():
    """f = G_mu: f' = -e^{mu z - mu^2/2} at alpha = Q(z), so f*(-e^s) is reached at z = s/mu + mu/2."""
    mu, logs = 1.3, np.linspace(-3, 5, 17)
    alpha = ndtr(-logs / mu - mu / 2)
    expected = -np.exp(logs) * alpha - gaussian_dp.tradeoff(alpha, mu)
    assert np.allclose(conjugate(gaussian(mu), -np.exp(logs)), expected, atol=1e-12)


def test_double_conjugate_of_the_subsampled_minimum_is_the_operator():
    p, mu = 0.2, 1.5
    mixed = lambda a: p * gaussian_dp.tradeoff(a, mu) + (1 - p) * (1 - a)  # noqa: E731
    lower = lambda a: np.minimum(mixed(a), inverse(mixed, a))  # noqa: E731
    hull = double_conjugate(lower, knots=20001)
    gap = hull(DUAL_ALPHAS) - subsample(p, mu, DUAL_ALPHAS)
    assert np.all(gap > -1e-12) and np.max(gap) < 1e-6
    middle = np.linspace(0.3, 0.75, 40)  # here the minimum is not convex, and the hull strictly lower
    assert np.max(lower(middle) - subsample(p, mu, middle)) > 1e-3


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 2), st.integers(1, 6))
def test_group_of_a_gaussian_is_g_mu(mu, g):
    alphas = np.linspace(0.01, 0.99, 33)
    expected = gaussian_dp.tradeoff(alphas, gaussian_dp.group(mu, g))
    assert np.allclose(group(gaussian(mu), g)(alphas), expected, rtol=1e-6, atol=1e-14)


def test_a_group_has_its_alphas_in_the_unit_interval():
    with pytest.raises(ValueError, match=r"^alpha "):
        group(gaussian(1), 2)(-1)


# Subsampling against 50-digit roots, duals and sums.

SAMPLED_ALPHAS = np.concatenate([[0.0, 1e-9], np.linspace(0.005, 0.995, 199), [1 - 1e-9, 1.0]])


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def exact_mirror(p, mu, alpha):
    """f_p^-1(alpha) from p Phi(z - mu) + (1 - p) Phi(z) = alpha at 50 digits."""
    p, mu, alpha = map(mp.mpf, (p, mu, alpha))
    gap = lambda z: p * mp.ncdf(z - mu) + (1 - p) * mp.ncdf(z) - alpha  # noqa: E731
    start = brentq(lambda z: float(gap(mp.mpf(z))), -5, 10 + float(mu))
    return mp.ncdf(-mp.findroot(gap, start))


@pytest.mark.parametrize(("p", "mu"), [(0.1, 1.0), (0.5, 2.0), (0.01, 0.5), (0.9, 3.0)])
def test_subsample_beyond_the_chord_is_the_mirrored_curve(p, mu):
    fixed_point = mp.ncdf(-mp.mpf(mu) / 2)
    mirrored = float(mp.mpf(p) * fixed_point + (1 - mp.mpf(p)) * (1 - fixed_point))
    for alpha in np.append(mirrored + (1 - mirrored) * np.array([1e-3, 0.1, 0.5, 0.9]), 1 - 2**-40):
        exact = exact_mirror(p, mu, float(alpha))
        assert abs(subsample(p, mu, alpha) - exact) <= 1e-11 * exact


@settings(max_examples=2, deadline=None)
@given(st.floats(1e-3, 1), st.floats(0.05, 5))
def test_subsample_is_the_dual_of_the_amplified_delta(p, mu):
    """Theorem 4.2's other reading: delta_p(epsilon) = p theta(ln(1 + (e^epsilon - 1)/p), mu)."""
    dual = from_delta(lambda epsilon: subsampled_delta(epsilon, p, mu), SAMPLED_ALPHAS)
    assert np.max(np.abs(subsample(p, mu, SAMPLED_ALPHAS) - dual)) < 1e-9


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(0, 40))
def test_subsample_is_a_symmetric_tradeoff_curve_between_no_leak_and_the_whole_batch(p, mu):
    beta = subsample(p, mu, SAMPLED_ALPHAS)
    assert np.all(beta >= 0) and np.all(beta <= 1 - SAMPLED_ALPHAS) and np.all(np.diff(beta) <= 0)
    assert np.all(np.diff(np.diff(beta) / np.diff(SAMPLED_ALPHAS)) >= -1e-6)
    assert np.all(beta >= gaussian_dp.tradeoff(SAMPLED_ALPHAS, mu) - 1e-12)
    inside = (beta > 1e-3) & (beta < 1)
    assert np.allclose(subsample(p, mu, beta[inside]), SAMPLED_ALPHAS[inside], atol=1e-8)


def test_subsample_at_the_ends_of_p_and_mu():
    assert np.array_equal(subsample(0.0, 1.0, SAMPLED_ALPHAS), 1 - SAMPLED_ALPHAS)
    assert np.allclose(subsample(1.0, 1.0, SAMPLED_ALPHAS), gaussian_dp.tradeoff(SAMPLED_ALPHAS, 1.0), rtol=1e-12)
    assert np.allclose(subsample(0.3, 0.0, SAMPLED_ALPHAS), 1 - SAMPLED_ALPHAS, rtol=1e-12)
    assert np.allclose(subsample(0.3, 80.0, SAMPLED_ALPHAS[1:]), np.maximum(0.7 - SAMPLED_ALPHAS[1:], 0), atol=1e-14)
    assert subsample(0.3, 80.0, 0.0) == 1
    assert subsample(1.0, 30.0, 1e-60) == pytest.approx(gaussian_dp.tradeoff(1e-60, 30.0), rel=1e-10)
    assert subsample([[0.1], [0.2]], 1.0, [0.1, 0.2, 0.3]).shape == (2, 3)


@pytest.mark.parametrize(("order", "p", "mu"), [(2, 0.1, 1.0), *slow((8, 0.02, 0.7)), (64, 0.04, 0.6)])
def test_poisson_renyi_against_its_integral(order, p, mu):
    ratio = lambda x: 1 - mp.mpf(p) + p * mp.exp(mu * x - mp.mpf(mu) ** 2 / 2)  # noqa: E731
    peak = order * mp.mpf(mu)
    moment = mp.quad(lambda x: ratio(x) ** order * mp.npdf(x), [-20, 0, peak / 2, peak, peak + 20])
    assert poisson_renyi(order, p, mu) == pytest.approx(float(mp.log(moment) / (order - 1)), rel=1e-10)


def exact_poisson_renyi(order, p, mu):
    """The binomial sum at 50 digits."""
    p, square = mp.mpf(p), mp.mpf(mu) ** 2
    terms = [mp.binomial(order, k) * p**k * (1 - p) ** (order - k) * mp.exp(k * (k - 1) * square / 2)
             for k in range(order + 1)]  # fmt: skip
    return float(mp.log(mp.fsum(terms)) / (order - 1))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.floats(-12, -0.01), st.floats(-3, 0.7))
@example(2, -8.0, np.log10(0.003))
@example(2, -4.0, -3.0)
@example(256, -6.0, -2.0)
def test_poisson_renyi_keeps_its_digits_where_it_is_tiny(order, log_p, log_mu):
    p, mu = 10**log_p, 10**log_mu
    assert poisson_renyi(order, p, mu) == pytest.approx(exact_poisson_renyi(order, p, mu), rel=1e-12, abs=0)


@pytest.mark.filterwarnings("error")
def test_poisson_renyi_at_its_limits():
    assert poisson_renyi(5, 0.1, 0.0) == poisson_renyi(5, 0.1, 1e-200) == 0
    assert poisson_renyi(5, 0.1, 1e200) == np.inf
