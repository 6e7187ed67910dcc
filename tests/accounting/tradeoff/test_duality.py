"""Callables: inverse, conjugates, groups, and (epsilon, delta) to trade-off and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    conjugate,
    delta_of,
    double_conjugate,
    epsilon_delta,
    from_delta,
    group,
    inverse,
    subsample,
)

ALPHAS = np.concatenate([[0.0, 1e-12, 1e-6], np.linspace(0.01, 0.99, 99), [1 - 1e-6, 1.0]])
MUS = st.floats(0.1, 6)


def gaussian(mu):
    """G_mu as a function of alpha alone."""
    return lambda alpha: gaussian_dp.tradeoff(alpha, mu)


@settings(max_examples=15, deadline=None)
@given(MUS)
def test_gaussian_is_its_own_inverse_and_its_own_double_conjugate(mu):
    assert np.allclose(inverse(gaussian(mu), ALPHAS), gaussian_dp.tradeoff(ALPHAS, mu), rtol=1e-6, atol=1e-12)
    assert np.allclose(double_conjugate(gaussian(mu))(ALPHAS), gaussian_dp.tradeoff(ALPHAS, mu), atol=2e-4)


@settings(max_examples=25, deadline=None)
@given(MUS, st.floats(0, 6))
def test_tradeoff_to_delta_to_1e_9(mu, epsilon):
    assert abs(delta_of(gaussian(mu), epsilon) - gaussian_dp.delta(epsilon, mu)) < 1e-9


@settings(max_examples=6, deadline=None)
@given(MUS)
def test_delta_to_tradeoff_to_1e_9(mu):
    rebuilt = from_delta(lambda epsilon: gaussian_dp.delta(epsilon, mu), ALPHAS)
    assert np.max(np.abs(rebuilt - gaussian_dp.tradeoff(ALPHAS, mu))) < 1e-9


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
    gap = hull(ALPHAS) - subsample(p, mu, ALPHAS)
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
