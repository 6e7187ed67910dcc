"""Subsampling against 50-digit roots, duals and sums."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import from_delta, poisson_renyi, subsample, subsampled_delta

ALPHAS = np.concatenate([[0.0, 1e-9], np.linspace(0.005, 0.995, 199), [1 - 1e-9, 1.0]])


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


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
    dual = from_delta(lambda epsilon: subsampled_delta(epsilon, p, mu), ALPHAS)
    assert np.max(np.abs(subsample(p, mu, ALPHAS) - dual)) < 1e-9


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(0, 40))
def test_subsample_is_a_symmetric_tradeoff_curve_between_no_leak_and_the_whole_batch(p, mu):
    beta = subsample(p, mu, ALPHAS)
    assert np.all(beta >= 0) and np.all(beta <= 1 - ALPHAS) and np.all(np.diff(beta) <= 0)
    assert np.all(np.diff(np.diff(beta) / np.diff(ALPHAS)) >= -1e-6)
    assert np.all(beta >= gaussian_dp.tradeoff(ALPHAS, mu) - 1e-12)
    inside = (beta > 1e-3) & (beta < 1)
    assert np.allclose(subsample(p, mu, beta[inside]), ALPHAS[inside], atol=1e-8)


def test_subsample_at_the_ends_of_p_and_mu():
    assert np.array_equal(subsample(0.0, 1.0, ALPHAS), 1 - ALPHAS)
    assert np.allclose(subsample(1.0, 1.0, ALPHAS), gaussian_dp.tradeoff(ALPHAS, 1.0), rtol=1e-12)
    assert np.allclose(subsample(0.3, 0.0, ALPHAS), 1 - ALPHAS, rtol=1e-12)
    assert np.allclose(subsample(0.3, 80.0, ALPHAS[1:]), np.maximum(0.7 - ALPHAS[1:], 0), atol=1e-14)
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
