"""Linear regression: closed forms against torch's autograd, and the clipping of every single record."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.models import linear_regression as model


@pytest.fixture
def stack() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (2, 4, 3), x (2, 6, 4), y (2, 6): two data sets, three models each."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 6, 4)), rng.normal(size=(2, 6))


def autograd(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and gradient of one model on one data set, by torch."""
    weights = torch.tensor(w, requires_grad=True)
    loss = ((torch.tensor(x) @ weights - torch.tensor(y)) ** 2).sum() / (2 * len(y))
    loss.backward()
    return loss.item(), weights.grad.numpy()


def test_losses_and_gradients_are_torchs(stack):
    weights, x, y = stack
    losses, gradients = model.losses(weights, x, y), model.gradients(weights, x, y)
    for place in range(2):
        for which in range(3):
            loss, gradient = autograd(weights[place, :, which], x[place], y[place])
            assert losses[place, which] == pytest.approx(loss, rel=1e-13)
            np.testing.assert_allclose(gradients[place, :, which], gradient, rtol=1e-12, atol=1e-14)


def test_record_gradients_are_torchs_one_record_at_a_time(stack):
    weights, x, y = stack
    records = model.record_gradients(weights, x, y)
    assert records.shape == (2, 6, 4, 3)
    for record in range(6):
        _, gradient = autograd(weights[1, :, 2], x[1, record : record + 1], y[1, record : record + 1])
        np.testing.assert_allclose(records[1, record, :, 2], gradient, rtol=1e-12, atol=1e-14)


def test_least_squares_has_no_gradient_left(stack):
    _, x, y = stack
    best = model.least_squares(x[0], y[0])
    np.testing.assert_allclose(model.gradients(best[:, None], x[0], y[0]), 0.0, atol=1e-14)


def clipped_sums(weights, x, y, clip_norm):
    """`clipped_gradient_sums` with its buffers made on the spot."""
    records = model.Records.of(x, y)
    lengths = np.empty((*y.shape, weights.shape[-1]))
    return model.clipped_gradient_sums(weights, records, clip_norm, lengths, np.empty_like(weights))


def test_clipped_sums_are_the_sums_of_textbook_clipped_gradients(stack):
    weights, x, y = stack
    clip_norm = np.array([0.5, 2.0, np.inf])
    each = model.record_gradients(weights, x, y)
    norms = np.linalg.norm(each, axis=-2, keepdims=True)
    assert (norms > 0.5)[..., 0].any() and (norms < 2.0)[..., 1].any()
    expected = (each * np.minimum(1.0, clip_norm / norms)).sum(axis=1)
    np.testing.assert_allclose(clipped_sums(weights, x, y, clip_norm), expected, rtol=1e-12, atol=1e-14)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(1e-3, 1e12),
    clip_norm=st.floats(1e-2, 1e6),
)
def test_replacing_one_record_moves_the_sum_by_at_most_twice_the_clip_norm(seed, size, clip_norm):
    rng = np.random.default_rng(seed)
    weights, x, y = rng.normal(size=(3, 1)) * size, rng.normal(size=(5, 3)), rng.normal(size=5) * size
    other_x, other_y = x.copy(), y.copy()
    other_x[2], other_y[2] = rng.normal(size=3) * 10 * rng.random(), rng.normal() * size
    clip = np.array([clip_norm])
    moved = np.linalg.norm(clipped_sums(weights, x, y, clip) - clipped_sums(weights, other_x, other_y, clip))
    alone = np.linalg.norm(clipped_sums(weights, x[:1], y[:1], clip))
    assert moved <= 2 * clip_norm * (1 + 1e-12)
    assert alone <= clip_norm * (1 + 1e-12)


def test_a_record_of_zeros_has_a_zero_gradient():
    zero = clipped_sums(np.ones((3, 2)), np.zeros((1, 3)), np.array([5.0]), np.ones(2))
    assert np.array_equal(zero, np.zeros((3, 2)))


def test_a_model_does_not_depend_on_its_stack(stack):
    weights, x, y = stack
    clip_norm = np.array([0.5, 2.0, np.inf])
    pair = clipped_sums(np.ascontiguousarray(weights[..., 1:]), x, y, clip_norm[1:])
    assert np.array_equal(clipped_sums(weights, x, y, clip_norm)[..., 1:], pair)
