"""Contraction of one noisy update against real steps, mpmath and integration."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chisquare, laplace, norm

from dpfl.accounting.contraction import (
    contraction_coefficient,
    contraction_factor,
    hockey_stick,
    laplace_divergence,
    theta,
)
from dpfl.accounting.contraction.kernels import (
    DiscretisedInterval,
    double_geometric,
    geometric,
    log_contraction_factor,
    log_divergence,
)

# M of asoodeh2020 eq. (14) against the slopes of real gradient steps.


@given(st.floats(1e-3, 10), st.floats(0, 1), st.floats(1e-6, 1))
@settings(max_examples=50, deadline=None)
def test_is_the_formula_and_bounds_every_quadratic(smoothness, convex_share, step_share):
    strong_convexity = convex_share * smoothness
    eta = step_share * 2.0 / (smoothness + strong_convexity)
    with mp.workdps(50):
        loss = 2 * mp.mpf(eta) * smoothness * strong_convexity / (mp.mpf(smoothness) + strong_convexity)
        square = 1 - loss
        logarithm = mp.log1p(-loss) / 2 if square > 1e-14 else None
    factor = contraction_factor(eta, smoothness, strong_convexity)
    assert factor**2 == pytest.approx(float(square), rel=1e-12, abs=1e-15)
    if logarithm is not None:
        logarithms = log_contraction_factor(eta, smoothness, strong_convexity)
        assert logarithms == pytest.approx(float(logarithm), rel=1e-12, abs=1e-300)
    curvatures = np.linspace(strong_convexity, smoothness, 21)
    assert np.abs(1 - eta * curvatures).max() <= factor + 1e-12


def test_ends_of_the_range():
    assert contraction_factor(4.0, 0.5, 0.0) == 1.0
    assert contraction_factor(2.0 / (0.5 + 0.2), 0.5, 0.2) == pytest.approx(0.3 / 0.7, rel=1e-12)
    assert contraction_factor(1.0, 1.0, 1.0) == 0.0
    assert log_contraction_factor(1.0, 1.0, 1.0) == -np.inf
    assert log_contraction_factor(1.0, 1.0, 1e-20) == pytest.approx(-1e-20, rel=1e-12)
    assert contraction_factor(1e-3, 1e-200, 0.0) == 1.0
    assert contraction_factor([0.1, 0.2], 1.0, [[0.0], [0.5]]).shape == (2, 2)


# Geometric sums against mpmath from a factor of 0 to one that rounds to 1.

GAPS = ["1", "0.999", "0.5", "1e-3", "1.1e-7", "1e-9", "1e-17", "1e-200", "0"]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("terms", [1, 2, 10, 1000, 10**6, 10**12])
def test_agrees_with_mpmath(gap, terms):
    with mp.workdps(700):
        exact_gap = mp.mpf(float(gap))
        factor = 1 - exact_gap
        log_factor = float(mp.log(factor)) if factor else -np.inf
        if exact_gap:
            single = (1 - factor**terms) / exact_gap
            double = (terms - factor * single) / exact_gap
        else:
            single, double = mp.mpf(terms), mp.mpf(terms) * (terms + 1) / 2
    arguments = np.float64(log_factor), np.float64(gap), np.float64(terms)
    assert float(geometric(*arguments)) == pytest.approx(float(single), rel=1e-12)
    assert float(double_geometric(*arguments)) == pytest.approx(float(double), rel=1e-11)


def test_no_terms_sum_to_nothing():
    log_factor, gap = np.log([0.5, 0.9]), np.array([0.5, 0.1])
    np.testing.assert_array_equal(geometric(log_factor, gap, np.float64(0)), 0.0)
    np.testing.assert_array_equal(double_geometric(log_factor, gap, np.float64(0)), 0.0)
    assert geometric(np.float64(-np.inf), np.float64(1.0), np.float64(0.0)) == 0.0


# The law of a projected noisy step on cells: its mass, its ends, its moments, and the draw itself.


def test_a_projected_law_has_mass_one_and_piles_up_at_the_ends():
    masses = DiscretisedInterval(-1.0, 2.0, cells=50).projected(np.array([0.0, 5.0]), norm(scale=1.5))
    assert masses.shape == (2, 52)
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(masses[:, 0], norm.cdf([-1.0, -6.0], scale=1.5), rtol=1e-12)
    np.testing.assert_allclose(masses[:, -1], norm.sf([2.0, -3.0], scale=1.5), rtol=1e-12)


def test_masses_sit_at_the_ends_and_at_the_middles_of_equal_cells():
    interval = DiscretisedInterval(-1.0, 2.0, cells=6)
    np.testing.assert_allclose(interval.edges, [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(interval.points, [-1.0, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 2.0])


@pytest.mark.parametrize("noise", [norm(scale=0.1), laplace(scale=0.05)])
def test_well_inside_mean_and_variance_are_those_of_the_noise(noise):
    """Rounding to the middles of cells of width h adds h^2/12 to the variance (Sheppard)."""
    interval = DiscretisedInterval(-2.0, 2.0, cells=800)
    [masses] = interval.projected(np.array([0.3]), noise)
    mean = masses @ interval.points
    assert mean == pytest.approx(0.3, abs=1e-9)
    assert masses @ (interval.points - mean) ** 2 == pytest.approx(noise.var() + 0.005**2 / 12, rel=1e-3)


def test_the_far_upper_tail_keeps_its_digits():
    """1 - cdf would be 0 there: Phi(-12) = 1.776e-33."""
    [masses] = DiscretisedInterval(-1.0, 12.0, cells=4).projected(np.array([0.0]), norm())
    assert masses[-1] == pytest.approx(1.776482112077679e-33, rel=1e-12, abs=0)


def test_draws_have_the_masses():
    """Counts of 50,000 projected draws; a correct law is refused once in 1e6 seeds."""
    interval = DiscretisedInterval(-0.5, 1.0, cells=8)
    [masses] = interval.projected(np.array([0.2]), laplace(scale=0.6))
    draws = np.clip(0.2 + np.random.default_rng(3).laplace(scale=0.6, size=50_000), -0.5, 1.0)
    inside = draws[(draws > -0.5) & (draws < 1.0)]
    counts = [np.sum(draws == -0.5), *np.histogram(inside, np.linspace(-0.5, 1.0, 9))[0], np.sum(draws == 1.0)]
    assert chisquare(counts, 50_000 * masses).pvalue > 1e-6


# Theorem 2 of asoodeh2020: two inputs decide the contraction of a kernel.


@given(st.integers(0, 10_000), st.floats(0, 2))
@settings(max_examples=50, deadline=None)
def test_no_pair_of_inputs_contracts_less(seed, epsilon):
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(5, 0.3), size=4)
    mu, nu = rng.dirichlet(np.full(4, 0.3), size=(2, 200))
    before, after = hockey_stick(mu, nu, epsilon), hockey_stick(mu @ kernel, nu @ kernel, epsilon)
    coefficient = contraction_coefficient(kernel, epsilon)
    assert np.all(after <= coefficient * before + 1e-12)
    pairs = [hockey_stick(p, q, epsilon) for p in kernel for q in kernel]
    assert coefficient == max(pairs)


def test_gamma_one_is_dobrushins_coefficient():
    kernel = np.array([[0.8, 0.2, 0.0], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    dobrushin = max(0.5 * np.abs(p - q).sum() for p in kernel for q in kernel)
    assert contraction_coefficient(kernel, 0.0) == pytest.approx(dobrushin, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_projected_gaussian_noise_contracts_by_theta(epsilon):
    """y -> projection of y + N(0, 0.8^2) on [0, 1], cells of 1/400: theta(diameter/sigma) up to the cells' width."""
    sigma, edges = 0.8, np.linspace(0.0, 1.0, 401)
    inputs = np.linspace(0.0, 1.0, 11)
    below = norm.cdf((edges - inputs[:, None]) / sigma)
    kernel = np.column_stack([below[:, :1], np.diff(below), 1.0 - below[:, -1:]])
    coefficient = contraction_coefficient(kernel, epsilon)
    expected = theta(epsilon, 1.0 / sigma)
    if epsilon < 0.5 / sigma**2:  # the best cut, at epsilon sigma^2/D + D/2 from the lower input, lies in the interval
        assert coefficient == pytest.approx(expected, rel=1e-4)
    assert coefficient <= expected


def test_product_over_steps_starts_at_the_second():
    """Eq. (2) of asoodeh2020 as printed has the first kernel's coefficient too, and is then false at n = 1."""
    kernel = np.array([[0.8, 0.2], [0.2, 0.8]])
    first, coefficient = hockey_stick(kernel[0], kernel[1], 0.0), contraction_coefficient(kernel, 0.0)
    for steps in (1, 2, 5):
        measured = hockey_stick(*np.linalg.matrix_power(kernel, steps), 0.0)
        assert measured <= first * coefficient ** (steps - 1) * (1 + 1e-12)
        assert measured > first * coefficient**steps


def test_disjoint_supports_are_told_apart_at_every_epsilon():
    """asoodeh2021 says E_eps = TV only at eps = 0: false where the supports are disjoint."""
    np.testing.assert_array_equal(hockey_stick([1.0, 0.0], [0.0, 1.0], [0.0, 1.0, 50.0, 1e6]), 1.0)
    assert hockey_stick([0.9, 0.1], [0.1, 0.9], 1.0) < hockey_stick([0.9, 0.1], [0.1, 0.9], 0.0)


# Lemma 1 of asoodeh2020 against integration.


@pytest.mark.parametrize(("epsilon", "m1", "m2", "scale"), [(0.0, 0, 1, 1), (0.1, 3, 0, 0.5), (1.5, -1, 1, 1.2)])
def test_is_the_integral_of_the_densities_excess(epsilon, m1, m2, scale):
    def excess(y: float) -> float:
        return max(0.0, laplace.pdf(y, m1, scale) - np.exp(epsilon) * laplace.pdf(y, m2, scale))

    # the excess vanishes where the log-ratio (|y - m2| - |y - m1|)/scale falls to epsilon
    crossing = (m1 + m2) / 2 + np.sign(m1 - m2) * epsilon * scale / 2
    integral, _ = quad(excess, -60, 60, points=sorted({m1, m2, crossing}), limit=400)
    assert laplace_divergence(epsilon, m1, m2, scale) == pytest.approx(integral, rel=1e-7)


def test_tiny_and_huge_distances():
    assert laplace_divergence(0.0, 0.0, 1e-20, 1.0) == pytest.approx(5e-21, rel=1e-15)
    assert laplace_divergence(0.0, 0.0, 1e300, 1e-300) == 1.0
    assert laplace_divergence(1e308, 0.0, 1.0, 1.0) == 0.0
    assert log_divergence(np.float64(0.0), np.float64(80.0)) == pytest.approx(-np.exp(-40.0), rel=1e-12)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 12))
@settings(max_examples=50, deadline=None)
def test_falls_with_epsilon_and_vanishes_at_the_distance(epsilon, other, distance):
    low, high = sorted((epsilon, other))
    assert laplace_divergence(high, 0.0, distance, 1.0) <= laplace_divergence(low, 0.0, distance, 1.0)
    assert laplace_divergence(distance, 0.0, distance, 1.0) == 0.0
