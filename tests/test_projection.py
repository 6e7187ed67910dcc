"""Projection on a ball: nearest point, non-expansive, nothing moved inside."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpfl.mechanisms import project


def test_inside_the_ball_nothing_moves_and_outside_the_norm_is_the_radius():
    weights = np.random.default_rng(2).normal(size=(4, 3, 5, 6)) * np.array([0.01, 0.1, 1, 10, 1e6, 1e100])
    radius = np.array([1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    moved = project(weights, radius)
    outside = np.linalg.norm(weights, axis=-2) > radius
    assert outside.any() and not outside.all()
    np.testing.assert_allclose(np.linalg.norm(moved, axis=-2)[outside], np.broadcast_to(radius, outside.shape)[outside])
    keep = np.broadcast_to(~outside[..., None, :], weights.shape)
    assert np.array_equal(moved[keep], weights[keep])


def test_it_is_the_nearest_point_that_an_optimiser_finds():
    point = np.array([2.0, -1.0, 0.5])
    ball = {"type": "ineq", "fun": lambda w: 1.5**2 - w @ w}
    found = minimize(lambda w: np.sum((w - point) ** 2), np.zeros(3), constraints=[ball], tol=1e-14)
    np.testing.assert_allclose(project(point[:, None], 1.5)[:, 0], found.x, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(1e-3, 1e3))
def test_it_never_moves_two_points_apart(seed, radius):
    a, b = np.random.default_rng(seed).normal(size=(2, 4, 1)) * 10
    before, after = np.linalg.norm(a - b), np.linalg.norm(project(a, radius) - project(b, radius))
    assert after <= before * (1 + 1e-12)


def test_an_infinite_radius_projects_nothing():
    weights = np.array([[1e100], [np.inf]])
    assert np.array_equal(project(weights, np.inf), weights)


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan])
def test_a_radius_that_is_no_radius_is_refused(radius):
    with pytest.raises(ValueError, match="radius"):
        project(np.ones((2, 1)), radius)
