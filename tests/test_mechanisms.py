"""Clipping and projection: norms, nearest points, and torch and numpy alike to the bit."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpfl.mechanisms import clip_factors, clip_lengths, clip_vectors, project

NORMS = st.lists(st.floats(0, 1e30), min_size=1, max_size=20).map(np.array)
KINDS = {"torch": lambda values: torch.tensor(np.asarray(values)), "numpy": np.asarray}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=50, deadline=None)
@given(norms=NORMS, clip_norm=st.floats(1e-3, 1e3))
def test_scaled_norms_are_exactly_those_in_the_ball_and_the_radius_beyond(kind, norms, clip_norm):
    factors = np.asarray(clip_factors(kind(norms), clip_norm))
    inside = norms <= clip_norm
    assert (factors[inside] == 1).all()
    np.testing.assert_allclose((factors * norms)[~inside], clip_norm, rtol=1e-15)
    assert (factors > 0).all()


@settings(max_examples=50, deadline=None)
@given(norms=NORMS, clip_norm=st.floats(1e-3, 1e3))
def test_torch_and_numpy_agree_to_the_bit(norms, clip_norm):
    assert np.array_equal(clip_factors(torch.tensor(norms), clip_norm).numpy(), clip_factors(norms, clip_norm))


@settings(max_examples=50, deadline=None)
@given(norms=NORMS, clip_norm=st.floats(1e-3, 1e3), sign=st.sampled_from([-1.0, 1.0]))
def test_signed_lengths_follow_the_same_rule(norms, clip_norm, sign):
    lengths = sign * norms
    np.testing.assert_allclose(clip_lengths(lengths, clip_norm), lengths * clip_factors(norms, clip_norm), rtol=1e-15)
    clip_lengths(lengths, np.array([clip_norm]), out=lengths)
    assert (abs(lengths) <= clip_norm).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_edge_cases(kind):
    """Zero, no bound, and what is not finite, as the docstring has them."""
    with np.errstate(invalid="ignore"):
        assert clip_factors(kind([0.0, 1.0, 1e30]), math.inf).tolist() == [1, 1, 1]
        for norm in (math.inf, math.nan):
            assert math.isnan(clip_factors(kind([norm]), 2.0)[0])
    assert clip_lengths(np.array([-5.0, 0.0, 5.0]), math.inf).tolist() == [-5, 0, 5]
    assert clip_lengths(np.array([-math.inf, math.nan, 5.0]), 2.0).tolist() == [-2, 0, 2]
    unclipped, clipped = clip_lengths(np.full((1, 2), math.nan), np.array([math.inf, 1.0]))[0]
    assert math.isnan(unclipped) and clipped == 0


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 1e30])
def test_vectors_that_no_factor_can_clip_become_zero(entry):
    """1e30 is finite, but its square is not in single precision."""
    vectors = torch.tensor([[3.0, 4.0], [entry, 1.0], [0.0, 0.5]])
    assert clip_vectors(vectors, 2.5).tolist()[::2] == [[1.5, 2.0], [0.0, 0.5]]
    assert clip_vectors(vectors, 2.5)[1].norm() <= 2.5 * (1 + 1e-6)
    assert clip_vectors(vectors, 2.5).isfinite().all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10))
def test_adding_a_vector_moves_the_sum_by_at_most_the_clip_norm_and_replacing_it_by_twice(seed, clip_norm):
    vectors = np.random.default_rng(seed).standard_normal((5, 3)) * np.logspace(-3, 3, 5)[:, None]
    clipped = vectors * clip_factors(np.linalg.norm(vectors, axis=1), clip_norm)[:, None]
    for one in clipped:
        assert np.linalg.norm(one) <= clip_norm * (1 + 1e-14)
        for other in clipped:
            assert np.linalg.norm(one - other) <= 2 * clip_norm * (1 + 1e-14)


def test_numpys_side_does_without_torch():
    program = "import sys, dpfl.mechanisms; print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


# Projection on a ball: nearest point, non-expansive, nothing moved inside.


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
