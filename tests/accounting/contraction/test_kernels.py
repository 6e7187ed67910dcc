"""Theorem 2 of asoodeh2020: two inputs decide the contraction of a kernel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfl.accounting.contraction import contraction_coefficient, hockey_stick, theta


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
