"""Conversions against the mechanisms they speak about, and against the printed forms."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import dpsgd, gaussian_dp, tradeoff
from dpfl.papers.vandijk2023.errata import group_delta_as_printed

ORDERS = 1 + np.geomspace(1e-3, 1e4, 4001)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.05, 4), st.floats(1e-12, 0.1))
def test_zcdp_is_the_best_renyi_order_and_covers_the_gaussian(mu, delta):
    rho = dpsgd.gaussian_zcdp(mu)
    epsilon = dpsgd.zcdp_to_epsilon(rho, delta)
    by_orders = dpsgd.rdp_to_epsilon(ORDERS, rho * ORDERS, delta)
    tight = dpsgd.rdp_to_epsilon(ORDERS, rho * ORDERS, delta, tight=True)
    assert epsilon <= by_orders * (1 + 1e-12) and np.isclose(epsilon, by_orders, rtol=1e-3)
    assert gaussian_dp.epsilon(delta, mu) <= tight <= by_orders


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 3), st.floats(1.1, 50), st.floats(1e-12, 0.5))
def test_tcdp_is_the_best_order_below_omega(rho, omega, delta):
    orders = 1 + np.geomspace(1e-4, omega - 1, 4001)
    best = dpsgd.rdp_to_epsilon(orders, rho * orders, delta)
    assert np.isclose(dpsgd.tcdp_to_epsilon(rho, omega, delta), best, rtol=1e-3)


def test_tcdp_joins_zcdp_continuously():
    rho, delta = 0.3, 1e-6
    edge = 1 + np.sqrt(-np.log(delta) / rho)
    assert dpsgd.tcdp_to_epsilon(rho, np.inf, delta) == dpsgd.zcdp_to_epsilon(rho, delta)
    sides = dpsgd.tcdp_to_epsilon(rho, edge * np.array([1 - 1e-9, 1 + 1e-9]), delta)
    assert np.allclose(sides, dpsgd.zcdp_to_epsilon(rho, delta), rtol=1e-12)
    assert dpsgd.tcdp_to_epsilon(0.0, np.inf, 1.0) == 0
    assert np.all(dpsgd.tcdp_to_epsilon(0.0, [2, np.inf], 1e-5) == 0)  # equal laws


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 4), st.floats(0, 20), st.floats(1.05, 30))
def test_loss_tail_bounds_the_gaussian_loss(mu, t, omega):
    """The loss of G_mu is Normal(rho, 2 rho), rho = mu^2/2, so its tail is Q(t/mu)."""
    rho = dpsgd.gaussian_zcdp(mu)
    with mp.workdps(50):
        tail = mp.erfc(mp.mpf(t) / mu / mp.sqrt(2)) / 2
    subgaussian, truncated = dpsgd.loss_tail(t, rho), dpsgd.loss_tail(t, rho, omega)
    assert tail <= subgaussian + 1e-300 and subgaussian <= truncated * (1 + 1e-12)
    if t <= 2 * rho * (omega - 1):
        assert np.isclose(truncated, np.exp(-(t**2) / (4 * rho)), rtol=1e-10)
    else:
        assert np.isclose(truncated, np.exp((omega - 1) ** 2 * rho - (omega - 1) * t), rtol=1e-10)


def test_epochs_give_zcdp_for_shuffled_batches_only():
    """E/(2 sigma^2)-zCDP: exact for shuffling; broken by A1 at order 2 and by Poisson batches at order 64."""
    n, m, epochs, sigma = 6000, 250, 20, 1.6
    rho = dpsgd.gaussian_zcdp(tradeoff.shuffled_mu(epochs, sigma))
    assert np.isclose(rho, epochs / (2 * sigma**2), rtol=1e-14)
    assert np.isclose(gaussian_dp.renyi(64, tradeoff.shuffled_mu(epochs, sigma)), 64 * rho, rtol=1e-14)
    rounds = epochs * n // m
    assert tradeoff.revealed_renyi(2, n=n, m=m, rounds=rounds, sigma=sigma) > 2 * rho
    assert rounds * tradeoff.poisson_renyi(2, m / n, 1 / sigma) < 2 * rho
    assert rounds * tradeoff.poisson_renyi(64, m / n, 1 / sigma) > 64 * rho


def test_advanced_composition_covers_composed_gaussians_and_randomised_response():
    """k rounds of exact (epsilon, 0) randomised response, composed as curves, stay within the bound."""
    epsilon, rounds, slack = 0.2, 6, 1e-3
    one = tradeoff.Curve.of_epsilon_delta(epsilon, 0.0)
    composed = one
    for _ in range(rounds - 1):
        composed = composed.compose(one)
    total, failure = dpsgd.advanced_composition(epsilon, 0.0, rounds, slack)
    with mp.workdps(50):
        e, k = mp.mpf(epsilon), mp.mpf(rounds)
        exact = mp.sqrt(2 * k * mp.log(1 / mp.mpf(slack))) * e + k * e * mp.expm1(e) / 2
    assert abs(total - exact) < 1e-14 * exact and failure == slack
    assert composed.delta(total) <= failure
    assert dpsgd.advanced_composition(1000.0, 0.1, 20, 0.1) == (np.inf, 1.0)


@settings(max_examples=6, deadline=None)
@given(st.floats(0, 3), st.floats(1e-8, 1e-2), st.integers(1, 5))
def test_group_delta_is_that_of_the_iterated_curve(epsilon, delta, g):
    grouped = tradeoff.group(lambda alpha: tradeoff.epsilon_delta(alpha, epsilon, delta), g)
    exact = dpsgd.group_delta(epsilon, delta, g)
    if exact < 0.5:
        assert np.isclose(tradeoff.delta_of(grouped, g * epsilon), exact, rtol=1e-6, atol=1e-12)
    assert exact <= dpsgd.group_delta_bound(epsilon, delta, g) * (1 + 1e-12)


def test_printed_group_delta_fails_from_epsilon_ln_2e_minus_1():
    """g = 2: the exact value delta (e^epsilon + 1) passes the printed 2 e delta at epsilon = ln(2e - 1) = 1.49."""
    delta, threshold = 1e-3, np.log(2 * np.e - 1)
    printed = group_delta_as_printed(delta, 2)
    assert dpsgd.group_delta(threshold - 0.01, delta, 2) < printed < dpsgd.group_delta(threshold + 0.01, delta, 2)
    grouped = tradeoff.group(lambda alpha: tradeoff.epsilon_delta(alpha, 3.0, delta), 2)
    spent = tradeoff.delta_of(grouped, 6.0)
    assert printed < spent <= dpsgd.group_delta_bound(3.0, delta, 2)


def test_group_delta_at_its_limits():
    assert dpsgd.group_delta(0.0, 0.01, 7) == pytest.approx(0.07, rel=1e-15)
    assert dpsgd.group_delta(1e-9, 0.01, 7) == pytest.approx(0.07, rel=1e-8)
    assert dpsgd.group_delta(800.0, 0.1, 3) == np.inf and dpsgd.group_delta(800.0, 0.0, 3) == 0
