"""Closed forms for mu against 50-digit arithmetic and against the exact runs that they approximate."""

import mpmath as mp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    clt_mu,
    h_bar_mu,
    h_mu,
    last_epoch_mu,
    poisson_clt_mu,
    shuffled_mu,
    sufficient_sigma,
)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 1), st.integers(1, 10**5), st.floats(0.05, 1e7))
def test_central_limits_against_50_digits(p, rounds, sigma):
    with mp.workdps(60):
        x = 1 / mp.mpf(sigma)
        bracket = mp.exp(x**2) * mp.ncdf(1.5 * x) + 3 * mp.ncdf(-x / 2) - 2
        fixed = mp.sqrt(2 * rounds * bracket) * p
        poisson = p * mp.sqrt(rounds * mp.expm1(x**2))
    assert abs(clt_mu(p, rounds, sigma) - fixed) <= 1e-11 * fixed
    assert abs(poisson_clt_mu(p, rounds, sigma) - poisson) <= 1e-12 * poisson


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.floats(0.1, 50), st.integers(1, 16))
def test_h_and_h_bar_embrace_the_epochs(epochs, sigma, g):
    middle, total = shuffled_mu(epochs, sigma, g), g * epochs
    assert h_bar_mu(epochs, sigma, g) < middle < h_mu(epochs, sigma, g)
    assert np.isclose(h_mu(epochs, sigma, g), np.sqrt((1 + 1 / np.sqrt(2 * total)) * total) / sigma, rtol=1e-13)
    assert np.isclose(h_bar_mu(epochs, sigma, g), np.sqrt((1 - 1 / np.sqrt(2 * total)) * total) / sigma, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.floats(0.1, 50), st.integers(1, 16))
def test_last_epoch_composes_and_costs_a_factor_root_two(epochs, sigma, g):
    parts = np.append(np.full(epochs - 1, 1 / sigma), np.sqrt(epochs + 1) / sigma)
    mu = last_epoch_mu(epochs, sigma, group_size=g)
    assert np.isclose(mu, np.sqrt(g) * gaussian_dp.compose(parts), rtol=1e-12)
    assert np.isclose(mu, np.sqrt(2) * shuffled_mu(epochs, sigma, g), rtol=1e-12)
    assert np.isclose(last_epoch_mu(epochs, sigma, sigma, g), shuffled_mu(epochs, sigma, g), rtol=1e-12)


def test_h_is_root_n_over_m_too_pessimistic_for_dpsgd():
    """Large sigma: the limit of A0 is sqrt(E m/n)/sigma, of A1 sqrt(E)/sigma."""
    n, m, epochs, sigma = 6000, 60, 50, 100.0
    ratio = shuffled_mu(epochs, sigma) / clt_mu(m / n, epochs * n / m, sigma)
    assert np.isclose(ratio, np.sqrt(n / m), rtol=0.02)


def test_sufficient_sigma_is_enough_up_to_the_rounds_it_asks_for():
    """T = epsilon (N/m)^2/2 subsampled rounds by the central limit; one full batch, T > epsilon/2, needs more."""
    epsilons, deltas, p = np.array([0.1, 1.0, 5.0])[:, None], np.array([1e-9, 1e-5, 1e-2]), 1e-3
    sigma = sufficient_sigma(epsilons, deltas)
    assert np.all(gaussian_dp.delta(epsilons, clt_mu(p, np.rint(epsilons / (2 * p**2)), sigma)) <= deltas)
    assert gaussian_dp.delta(0.1, 1 / sufficient_sigma(0.1, 1e-5)) > 1e-3


def test_extremes_are_finite_or_infinite_but_never_nan():
    assert clt_mu(0.1, 10, 0.01) == np.inf and clt_mu(0.0, 10, 0.01) == 0
    assert poisson_clt_mu(0.1, 10, 1e-3) == np.inf and poisson_clt_mu(0.0, 10, 1e-3) == 0
    assert clt_mu([0.1, 0.2], 10, [[1.0], [2.0]]).shape == (2, 2)
