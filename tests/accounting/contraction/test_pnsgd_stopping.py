"""Theorem 5 of asoodeh2020: the mean of Theorem 4 over a uniform stopping time."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dpfl.accounting.contraction import (
    pnsgd_gaussian_delta,
    pnsgd_random_stop_bound,
    pnsgd_random_stop_delta,
    pnsgd_random_stop_renyi_delta,
    theta,
)

WEAK = {
    "n": 40,
    "eta": 0.01,
    "sigma": 1.0,
    "lipschitz": 1.0,
    "smoothness": 0.5,
    "strong_convexity": 0.0,
    "diameter": 1.0,
}


@given(st.integers(1, 12), st.floats(0, 5), st.floats(0.01, 2.8), st.floats(0.3, 5))
@settings(max_examples=50, deadline=None)
def test_is_the_mean_of_theorem_4_over_the_stopping_time(i, epsilon, eta, sigma):
    case = {"eta": eta, "sigma": sigma, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.2, "diameter": 1.0}
    mean = sum(pnsgd_gaussian_delta(epsilon, i=i, n=stop, **case) for stop in range(i, 13)) / 12
    delta = pnsgd_random_stop_delta(epsilon, i=i, n=12, **case)
    assert delta == pytest.approx(mean, rel=1e-11)
    assert delta <= pnsgd_random_stop_bound(epsilon, n=12, **case) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_bound_is_vacuous_where_contraction_is_weak(exact, epsilon):
    """theta(100) = 1 - 1e-544: eq. (16) exceeds 1e540 and so float64; the sum stays at theta(2L/sigma) (n-i+1)/n."""
    truth = exact.theta(epsilon, 2.0) / exact.gap(epsilon, 100.0) / 40
    assert truth > mp.mpf("1e540")
    assert pnsgd_random_stop_bound(epsilon, **WEAK) == np.inf
    delta = pnsgd_random_stop_delta(epsilon, i=[1, 20, 40], **WEAK)
    np.testing.assert_allclose(delta, theta(epsilon, 2.0) * np.array([40, 21, 1]) / 40, rtol=1e-12)


def test_bound_is_finite_up_to_the_end_of_float64(exact):
    """1 - theta = 3e-310 is below the normal range, its reciprocal is not beyond it."""
    case = {**WEAK, "n": 10**6, "eta": 1 / 75.33}
    value = pnsgd_random_stop_bound(0.0, **case)
    truth = exact.theta(0.0, 2.0) / exact.gap(0.0, 1.0 / case["eta"]) / 10**6
    assert 1e300 < value < np.inf
    assert exact.relative_error(value, truth) < 1e-10


def test_uniform_guarantee_under_strong_contraction(figure_2):
    """Every record but the very last ones has the bound's delta, as the paper says."""
    epsilon = np.array([0.0, 0.5, 2.0])
    bound = pnsgd_random_stop_bound(epsilon, diameter=1.0, **figure_2)
    np.testing.assert_allclose(pnsgd_random_stop_delta(epsilon, i=1, diameter=1.0, **figure_2), bound, rtol=1e-12)
    assert np.all(pnsgd_random_stop_delta(epsilon, i=40, diameter=1.0, **figure_2) < bound)


def test_no_influence_means_no_divergence():
    case = {**WEAK, "lipschitz": 0.0}
    assert pnsgd_random_stop_bound(1.0, **case) == 0.0
    assert pnsgd_random_stop_delta(1.0, i=1, **case) == 0.0


def stopped_density(sign, y, n, sigma):
    """Density at y of the stopped model of n linear losses from 0, eta = L = 1, no projection, first slope +-1."""
    taus = np.arange(1, n + 1)
    return norm.pdf(y, sign, sigma * np.sqrt(taus)).mean()


@pytest.mark.parametrize(("n", "sigma"), [(2, 2.0), (5, 3.0), (12, 8.0)])
@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_the_renyi_guarantee_of_the_stop_covers_a_mixture_that_is_integrated(n, sigma, epsilon):
    far = 9 * sigma * np.sqrt(n)

    def integral(function):
        densities = lambda y: (stopped_density(sign, y, n, sigma) for sign in (1, -1))  # noqa: E731
        return quad(lambda y: function(*densities(y)), -far, far, points=(-1, 0, 1), limit=200)[0]

    kappa = 4 * float(mp.harmonic(n)) / (n * sigma**2)
    most = 0.5 + np.sqrt(0.25 + sigma**2 / 2)
    for order in (1.01, (1 + most) / 2, most):
        spent = np.log(integral(lambda p, q, order=order: p**order * q ** (1 - order))) / (order - 1)
        assert order * kappa / 8 < spent <= order * kappa
    exact = integral(lambda p, q: max(p - np.exp(epsilon) * q, 0))
    assert exact < pnsgd_random_stop_renyi_delta(epsilon, n=n, sigma=sigma, lipschitz=1.0) <= 1


@given(st.integers(1, 10**6), st.floats(0, 5), st.floats(0.01, 100), st.floats(0.01, 10))
@settings(max_examples=60, deadline=None)
def test_the_renyi_guarantee_of_the_stop_is_the_best_of_the_orders_allowed(n, epsilon, sigma, lipschitz):
    delta = float(pnsgd_random_stop_renyi_delta(epsilon, n=n, sigma=sigma, lipschitz=lipschitz))
    square = mp.mpf(lipschitz) ** 2 / mp.mpf(sigma) ** 2
    kappa = 4 * square * mp.harmonic(n) / n
    most = mp.mpf(1) / 2 + mp.sqrt(mp.mpf(1) / 4 + 1 / (2 * square))
    assert most * (most - 1) == pytest.approx(1 / (2 * square))
    orders = [1 + (most - 1) * mp.mpf(k) / 400 for k in range(401)]
    tried = min(mp.exp((order - 1) * (order * kappa - epsilon)) for order in orders)
    assert delta <= float(tried) * (1 + 1e-9)
    nearest = min(max((1 + epsilon / kappa) / 2, 1), most)
    assert delta == pytest.approx(float(min(mp.exp((nearest - 1) * (nearest * kappa - epsilon)), 1)), rel=1e-8)


def test_the_renyi_guarantee_of_the_stop_at_its_edges():
    values = pnsgd_random_stop_renyi_delta([0.0, 1.0], n=10, sigma=1.0, lipschitz=0.0)
    assert values.tolist() == [0.0, 0.0]
    assert pnsgd_random_stop_renyi_delta(0.0, n=10, sigma=1.0, lipschitz=1.0) == 1.0
    assert pnsgd_random_stop_renyi_delta(50.0, n=10, sigma=1e-200, lipschitz=1e200) == 1.0
    with pytest.raises(ValueError, match="sigma"):
        pnsgd_random_stop_renyi_delta(1.0, n=10, sigma=0.0, lipschitz=1.0)
