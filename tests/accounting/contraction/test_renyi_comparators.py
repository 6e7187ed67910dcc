"""Proposition 1 of asoodeh2020, its optimal shift, and shifted Gaussian DP."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpfl.accounting.contraction import (
    contraction_factor,
    iteration_renyi,
    pnsgd_gaussian_delta,
    pnsgd_renyi_coefficient,
    pnsgd_renyi_delta,
    pnsgd_renyi_optimal_shift_coefficient,
    pnsgd_renyi_optimal_shift_delta,
    pnsgd_shifted_gdp_delta,
    theta,
)
from dpfl.papers.asoodeh2020.errata import iteration_renyi_as_printed


def test_coefficients_of_the_figures(figure_2, figure_3):
    places = [1, 20, 39, 40]
    np.testing.assert_allclose(
        pnsgd_renyi_coefficient(i=places, **figure_2), [0.5 / 39, 0.5 / 20, 0.5, 0.5], rtol=1e-14
    )
    optimal = pnsgd_renyi_optimal_shift_coefficient(i=places, **figure_2)
    np.testing.assert_allclose(optimal, [0.5 / 40, 0.5 / 21, 0.25, 0.5], rtol=1e-14)
    factor = contraction_factor(0.7, 0.5, 0.2)
    np.testing.assert_allclose(
        pnsgd_renyi_coefficient(i=places, **figure_3),
        [2 * factor**40 / 39, 2 * factor**21 / 20, 2 * factor**2, 2],
        rtol=1e-13,
    )
    sums = [sum(factor ** (-2 * k) for k in range(40 - i + 1)) for i in places]
    np.testing.assert_allclose(
        pnsgd_renyi_optimal_shift_coefficient(i=places, **figure_3), 2 / np.array(sums), rtol=1e-13
    )


def test_optimal_shift_is_the_best_split():
    """Shifts a_k >= 0 over n - i + 1 steps with sum_k a_k M^(-k) = 1, of least sum a_k^2: numerically."""
    factor, steps = contraction_factor(0.7, 0.5, 0.2), 4
    growth = factor ** -np.arange(steps)
    result = minimize(
        lambda a: a @ a, np.full(steps, 0.3), constraints={"type": "eq", "fun": lambda a: a @ growth - 1}, tol=1e-14
    )
    case = {"i": 1, "n": steps, "eta": 0.7, "sigma": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.2}
    assert pnsgd_renyi_optimal_shift_coefficient(**case) == pytest.approx(2 * result.fun, rel=1e-6)


def test_shifted_gdp_is_exact_for_linear_steps(figure_3):
    """Without a projection and with slope M, the last model is Gaussian: its shift and variance by recursion."""
    slope, eta = contraction_factor(0.7, 0.5, 0.2), 0.7
    shift, variance = 2 * eta, eta**2  # after the record's own step: 2 eta L and (eta sigma)^2
    for i in range(40, 30, -1):
        delta = pnsgd_shifted_gdp_delta([0.0, 0.5, 2.0], i=i, **figure_3)
        np.testing.assert_allclose(delta, theta([0.0, 0.5, 2.0], shift / np.sqrt(variance)), rtol=1e-11)
        shift, variance = slope * shift, slope**2 * variance + eta**2


@given(st.integers(1, 40), st.floats(0, 6), st.floats(0, 0.5), st.floats(0.01, 1), st.floats(0.3, 5))
@settings(max_examples=50, deadline=None)
def test_comparators_are_ordered(i, epsilon, strong_convexity, step_share, sigma):
    eta = step_share * 2 / (0.5 + strong_convexity)
    case = {"i": i, "n": 40, "eta": eta, "sigma": sigma, "lipschitz": 1.0, "smoothness": 0.5}
    case["strong_convexity"] = strong_convexity
    printed, optimal = pnsgd_renyi_coefficient(**case), pnsgd_renyi_optimal_shift_coefficient(**case)
    assert optimal <= printed * (1 + 1e-9)
    gdp = pnsgd_shifted_gdp_delta(epsilon, **case)
    shifted = pnsgd_renyi_optimal_shift_delta(epsilon, conversion="tight", **case)
    assert gdp <= shifted * (1 + 1e-9)
    assert shifted <= pnsgd_renyi_delta(epsilon, conversion="tight", **case) * (1 + 1e-9)
    assert shifted <= pnsgd_renyi_optimal_shift_delta(epsilon, **case) * (1 + 1e-9)
    assert pnsgd_renyi_delta(epsilon, conversion="tight", **case) <= pnsgd_renyi_delta(epsilon, **case) * (1 + 1e-9)


def test_theorem_4_wins_and_loses_where_the_figures_say(figure_2, figure_3):
    epsilon = np.array([0.1, 0.5, 1.0, 2.0, 4.0])
    for i in (1, 20, 39):  # Fig. 2: below Proposition 1 for every record at moderate epsilon
        contraction = pnsgd_gaussian_delta(epsilon[:3], i=i, diameter=1.0, **figure_2)
        assert np.all(contraction < pnsgd_renyi_delta(epsilon[:3], i=i, **figure_2))
    contraction = pnsgd_gaussian_delta(epsilon, i=20, diameter=1.0, **figure_3)
    gdp = pnsgd_shifted_gdp_delta(epsilon, i=20, **figure_3)
    np.testing.assert_array_equal(contraction < gdp, [True, True, False, False, False])


def test_long_runs_and_tiny_contraction_stay_finite():
    case = {
        "n": 10**12,
        "i": [1, 10**12 - 1, 10**12],
        "eta": 1.0,
        "sigma": 1e-160,
        "lipschitz": 1e-160,
        "smoothness": 1.0,
    }
    for strong_convexity in (0.0, 1e-13, 0.5, 1.0):
        delta = pnsgd_shifted_gdp_delta(1.0, strong_convexity=strong_convexity, **case)
        assert delta[2] == pytest.approx(theta(1.0, 2.0), rel=1e-12) and np.all(np.diff(delta) >= 0)
        assert np.all(np.isfinite(pnsgd_renyi_delta(1.0, strong_convexity=strong_convexity, **case)))
    tiny = {**case, "i": 10**12, "lipschitz": 1e-320, "sigma": 1.0, "strong_convexity": 0.0}
    assert pnsgd_shifted_gdp_delta(0.0, **tiny) == pytest.approx(2e-320 / np.sqrt(2 * np.pi), rel=1e-3)


def test_iteration_needs_the_square_of_the_distance():
    """n translations with noise: N(y, n s^2) from both starts, Renyi divergence alpha d^2/(2 n s^2)."""
    order, n, distance, sigma = 3.0, 5, 2.0, 1.5
    grid = np.linspace(-60, 60, 200_001)
    spread = sigma * np.sqrt(n)
    log_p, log_q = -((grid - distance) ** 2) / (2 * spread**2), -(grid**2) / (2 * spread**2)
    density = np.exp(order * log_p + (1 - order) * log_q) / (spread * np.sqrt(2 * np.pi))
    truth = np.log(density.sum() * (grid[1] - grid[0])) / (order - 1)
    assert iteration_renyi(order, n=n, distance=distance, sigma=sigma) == pytest.approx(truth, rel=1e-9)
    assert iteration_renyi_as_printed(order, n=n, distance=distance, sigma=sigma) < 0.6 * truth
