"""Generalised linear models against torch's autograd, and the clipping of every single record."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.convex import problems

LOSSES = [problems.Square(), problems.Logistic(), problems.Absolute(), problems.Hinge()]
TORCH = {
    problems.Square: lambda s, y: (s - y) ** 2 / 2,
    problems.Logistic: lambda s, y: torch.nn.functional.softplus(-y * s),
    problems.Absolute: lambda s, y: (s - y).abs(),
    problems.Hinge: lambda s, y: (1 - y * s).clamp(min=0),
}

pytestmark = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@pytest.fixture
def stack() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (2, 4, 3), x (2, 6, 4), y (2, 6) of -1 and 1: two data sets, three models each."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 6, 4)), rng.choice([-1.0, 1.0], size=(2, 6))


def autograd(loss, w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean loss and its gradient of one model on one data set, by torch."""
    weights = torch.tensor(w, requires_grad=True)
    value = TORCH[type(loss)](torch.tensor(x) @ weights, torch.tensor(y)).mean()
    value.backward()
    return value.item(), weights.grad.numpy()


def test_losses_and_gradients_are_torchs(loss, stack):
    weights, x, y = stack
    losses, gradients = problems.losses(loss, weights, x, y), problems.gradients(loss, weights, x, y)
    for place in range(2):
        for which in range(3):
            value, gradient = autograd(loss, weights[place, :, which], x[place], y[place])
            assert losses[place, which] == pytest.approx(value, rel=1e-13)
            np.testing.assert_allclose(gradients[place, :, which], gradient, rtol=1e-12, atol=1e-14)


def test_the_bounds_are_the_largest_slope_and_curvature(loss, stack):
    points = np.linspace(-30, 30, 600_001)
    slopes = loss.derivative(points, np.array(1.0))
    if np.isfinite(loss.lipschitz):
        assert np.abs(slopes).max() == pytest.approx(loss.lipschitz, rel=1e-9)
    curvature = np.diff(slopes).max() / (points[1] - points[0])
    assert curvature > 1e3 if np.isinf(loss.smoothness) else curvature == pytest.approx(loss.smoothness, rel=1e-6)


def test_values_stay_finite_far_out(loss, stack):
    far = np.array([-1e4, 1e4])
    assert np.isfinite(loss.value(far, 1.0)).all() and np.isfinite(loss.derivative(far, 1.0)).all()


def test_least_squares_has_no_gradient_left(loss, stack):
    _, x, y = stack
    best = problems.least_squares(x[0], y[0])
    np.testing.assert_allclose(problems.gradients(problems.Square(), best[:, None], x[0], y[0]), 0.0, atol=1e-14)


def clipped_sums(loss, weights, x, y, clip_norm):
    """`clipped_gradient_sums` with its buffers made on the spot."""
    records = problems.FactoredRecords.of(x, y)
    lengths = np.empty((*y.shape, weights.shape[-1]))
    return problems.clipped_gradient_sums(loss, weights, records, clip_norm, lengths, np.empty_like(weights))


def test_clipped_sums_are_the_sums_of_textbook_clipped_gradients(loss, stack):
    weights, x, y = stack
    clip_norm = np.array([0.5, 2.0, np.inf])
    each = np.array(
        [
            [
                np.transpose([autograd(loss, weights[p, :, m], x[p, r : r + 1], y[p, r : r + 1])[1] for m in range(3)])
                for r in range(6)
            ]
            for p in range(2)
        ]
    )
    norms = np.linalg.norm(each, axis=-2, keepdims=True)
    assert (norms > 0.5)[..., 0].any() and (norms < 2.0)[..., 1].any()
    expected = (each * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))).sum(axis=1)
    np.testing.assert_allclose(clipped_sums(loss, weights, x, y, clip_norm), expected, rtol=1e-12, atol=1e-14)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(1e-3, 1e12),
    clip_norm=st.floats(1e-2, 1e6),
)
def test_replacing_one_record_moves_the_sum_by_at_most_twice_the_clip_norm(loss, seed, size, clip_norm):
    rng = np.random.default_rng(seed)
    weights, x, y = rng.normal(size=(3, 1)) * size, rng.normal(size=(5, 3)), rng.choice([-1.0, 1.0], size=5)
    other_x, other_y = x.copy(), y.copy()
    other_x[2], other_y[2] = rng.normal(size=3) * 10 * rng.random(), -y[2]
    clip = np.array([clip_norm])
    moved = np.linalg.norm(
        clipped_sums(loss, weights, x, y, clip) - clipped_sums(loss, weights, other_x, other_y, clip)
    )
    alone = np.linalg.norm(clipped_sums(loss, weights, x[:1], y[:1], clip))
    assert moved <= 2 * clip_norm * (1 + 1e-12)
    assert alone <= clip_norm * (1 + 1e-12)


def test_a_record_of_zeros_has_a_zero_gradient(loss):
    zero = clipped_sums(loss, np.ones((3, 2)), np.zeros((1, 3)), np.array([5.0]), np.ones(2))
    assert np.array_equal(zero, np.zeros((3, 2)))


def test_a_model_does_not_depend_on_its_stack(loss, stack):
    weights, x, y = stack
    clip_norm = np.array([0.5, 2.0, np.inf])
    pair = clipped_sums(loss, np.ascontiguousarray(weights[..., 1:]), x, y, clip_norm[1:])
    assert np.array_equal(clipped_sums(loss, weights, x, y, clip_norm)[..., 1:], pair)


def test_clipped_sums_stay_bounded_at_weights_that_are_not_finite(loss, stack):
    """Scores are then infinite or not numbers; only where nothing is clipped may the sum say so."""
    weights, x, y = stack
    weights[:, :2] = np.array([np.inf, -np.inf])[:, None]
    with np.errstate(invalid="ignore"):
        sums = clipped_sums(loss, weights, x, y, np.array([0.5, 2.0, np.inf]))
    assert (np.linalg.norm(sums, axis=1)[:, :2] <= 6 * np.array([0.5, 2.0]) * (1 + 1e-14)).all()
    if isinstance(loss, problems.Square):
        assert not np.isfinite(sums[..., 2]).any()
