"""Losses and clipped gradients of linear models against torch, minima by other solvers, smoothing by brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from dpfl.convex import problems
from dpfl.convex.problems import (
    TOLERANCE,
    Absolute,
    Hinge,
    Logistic,
    Smoothed,
    Square,
    gradients,
    minimum,
    risk,
    sharpness_for,
)

LOSSES = [problems.Square(), problems.Logistic(), problems.Absolute(), problems.Hinge()]
TORCH = {
    problems.Square: lambda s, y: (s - y) ** 2 / 2,
    problems.Logistic: lambda s, y: torch.nn.functional.softplus(-y * s),
    problems.Absolute: lambda s, y: (s - y).abs(),
    problems.Hinge: lambda s, y: (1 - y * s).clamp(min=0),
}

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


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


@every_loss
def test_losses_and_gradients_are_torchs(loss, stack):
    weights, x, y = stack
    losses, gradients = problems.losses(loss, weights, x, y), problems.gradients(loss, weights, x, y)
    for place in range(2):
        for which in range(3):
            value, gradient = autograd(loss, weights[place, :, which], x[place], y[place])
            assert losses[place, which] == pytest.approx(value, rel=1e-13)
            np.testing.assert_allclose(gradients[place, :, which], gradient, rtol=1e-12, atol=1e-14)


@every_loss
def test_the_bounds_are_the_largest_slope_and_curvature(loss):
    points = np.linspace(-30, 30, 600_001)
    slopes = loss.derivative(points, np.array(1.0))
    if np.isfinite(loss.lipschitz):
        assert np.abs(slopes).max() == pytest.approx(loss.lipschitz, rel=1e-9)
    curvature = np.diff(slopes).max() / (points[1] - points[0])
    assert curvature > 1e3 if np.isinf(loss.smoothness) else curvature == pytest.approx(loss.smoothness, rel=1e-6)


@every_loss
def test_values_stay_finite_far_out(loss):
    far = np.array([-1e4, 1e4])
    assert np.isfinite(loss.value(far, 1.0)).all() and np.isfinite(loss.derivative(far, 1.0)).all()


def test_least_squares_has_no_gradient_left(stack):
    _, x, y = stack
    best = problems.least_squares(x[0], y[0])
    np.testing.assert_allclose(problems.gradients(problems.Square(), best[:, None], x[0], y[0]), 0.0, atol=1e-14)


def clipped_sums(loss, weights, x, y, clip_norm):
    """`clipped_gradient_sums` with its buffers made on the spot."""
    records = problems.FactoredRecords.of(x, y)
    lengths = np.empty((*y.shape, weights.shape[-1]))
    return problems.clipped_gradient_sums(loss, weights, records, clip_norm, lengths, np.empty_like(weights))


@every_loss
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


@every_loss
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


@every_loss
def test_a_record_of_zeros_has_a_zero_gradient(loss):
    zero = clipped_sums(loss, np.ones((3, 2)), np.zeros((1, 3)), np.array([5.0]), np.ones(2))
    assert np.array_equal(zero, np.zeros((3, 2)))


@every_loss
def test_a_model_does_not_depend_on_its_stack(loss, stack):
    weights, x, y = stack
    clip_norm = np.array([0.5, 2.0, np.inf])
    pair = clipped_sums(loss, np.ascontiguousarray(weights[..., 1:]), x, y, clip_norm[1:])
    assert np.array_equal(clipped_sums(loss, weights, x, y, clip_norm)[..., 1:], pair)


@every_loss
def test_clipped_sums_stay_bounded_at_weights_that_are_not_finite(loss, stack):
    """Scores are then infinite or not numbers; only where nothing is clipped may the sum say so."""
    weights, x, y = stack
    weights[:, :2] = np.array([np.inf, -np.inf])[:, None]
    with np.errstate(invalid="ignore"):
        sums = clipped_sums(loss, weights, x, y, np.array([0.5, 2.0, np.inf]))
    assert (np.linalg.norm(sums, axis=1)[:, :2] <= 6 * np.array([0.5, 2.0]) * (1 + 1e-14)).all()
    if isinstance(loss, problems.Square):
        assert not np.isfinite(sums[..., 2]).any()


RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 4)) / 4
Y = np.sign(X @ np.array([3.0, -2.0, 0.5, 0.0]) + 0.3 * RNG.normal(size=80))


def test_least_squares_in_closed_form():
    targets = X @ np.arange(4.0) + 0.1
    exact = np.linalg.solve(X.T @ X / 80 + 0.2 * np.eye(4), X.T @ targets / 80)
    np.testing.assert_allclose(minimum(Square(), X, targets, regularisation=0.2, radius=9.0), exact, atol=1e-9)


def test_the_gradient_vanishes_inside_the_ball():
    best = minimum(Logistic(), X, Y, regularisation=0.05, radius=100.0)
    gradient = gradients(Logistic(), best[:, None], X, Y)[:, 0] + 0.05 * best
    assert np.sum(gradient**2) / (2 * 0.05) < TOLERANCE


def test_on_the_boundary_nothing_in_the_ball_is_better():
    radius = 0.5
    best = minimum(Logistic(), X, Y, regularisation=0.01, radius=radius)
    assert np.linalg.norm(best) == pytest.approx(radius, rel=1e-12)
    least = risk(Logistic(), best[:, None], X, Y, 0.01)[0]
    other = minimize(
        lambda w: risk(Logistic(), w[:, None], X, Y, 0.01)[0],
        np.zeros(4),
        constraints={"type": "ineq", "fun": lambda w: radius**2 - w @ w},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert least <= other.fun + TOLERANCE
    directions = RNG.normal(size=(4, 5000))
    inside = radius * directions / np.linalg.norm(directions, axis=0) * RNG.random(5000) ** 0.25
    assert (risk(Logistic(), inside, X, Y, 0.01) >= least).all()


@pytest.mark.parametrize("bad", [{"regularisation": 0.0}, {"radius": -1.0}])
def test_bad_arguments_of_the_minimum_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        minimum(Logistic(), X, Y, **{"regularisation": 0.1, "radius": 1.0} | bad)


# Smoothed losses: against minimisation by brute force, their error, and what is refused.


KINKED = {"absolute": (Absolute(), (-2.0, 0.3, 2.0)), "hinge": (Hinge(), (-1.0, 1.0))}
SHARPNESS = st.floats(0.1, 50.0)


def envelope(loss, sharpness: float, score: float, target: float) -> tuple[float, float]:
    """Return min_t phi(t) + b/2 (s - t)^2 and b (s - t) at the minimiser, found numerically; |s - t| <= 1/b."""

    def value(t: float) -> float:
        return float(loss.value(np.float64(t), np.float64(target))) + sharpness / 2 * (score - t) ** 2

    reach = 1.0 / sharpness
    found = minimize_scalar(value, bounds=(score - reach, score + reach), method="bounded", options={"xatol": 1e-13})
    return min(found.fun, value(score - reach), value(score + reach)), sharpness * (score - found.x)


@pytest.mark.parametrize("name", KINKED)
@settings(max_examples=50)
@given(score=st.floats(-4.0, 4.0), sharpness=SHARPNESS)
def test_moreau_envelope(name, score, sharpness):
    loss, targets = KINKED[name]
    smooth = Smoothed(loss, sharpness)
    for target in targets:
        value, slope = envelope(loss, sharpness, score, target)
        assert float(smooth.value(np.float64(score), np.float64(target))) == pytest.approx(value, abs=1e-6)
        assert float(smooth.derivative(np.float64(score), np.float64(target))) == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("name", KINKED)
@settings(max_examples=50)
@given(sharpness=SHARPNESS)
def test_error_slope_and_curvature_are_bounded_and_reached(name, sharpness):
    loss, targets = KINKED[name]
    smooth = Smoothed(loss, sharpness)
    scores = np.linspace(-30.0, 30.0, 20_001)
    for target in targets:
        gap = loss.value(scores, target) - smooth.value(scores, target)
        slope = smooth.derivative(scores, target)
        assert gap.min() >= -1e-12
        assert gap.max() == pytest.approx(smooth.uniform_error(), rel=1e-9)
        assert np.abs(slope).max() == smooth.lipschitz
        steepest = np.abs(np.diff(slope)).max() / (scores[1] - scores[0])
        assert steepest <= smooth.smoothness * (1 + 1e-6)


@settings(max_examples=50)
@given(excess=st.floats(1e-6, 10.0))
def test_sharpness_for_an_error(excess):
    assert Smoothed(Absolute(), sharpness_for(excess)).uniform_error() == pytest.approx(excess)


def test_weights_are_smoothed_along_the_record():
    """min over all weights v of |x . v - y| + beta/2 |w - v|^2 is the envelope in the score where |x| = 1."""
    x, w, y, beta = np.array([0.6, 0.8]), np.array([0.3, -0.2]), 0.5, 3.0
    grid = np.linspace(-1.5, 1.5, 1201)
    v = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    least = (np.abs(v @ x - y) + beta / 2 * np.sum((v - w) ** 2, axis=-1)).min()
    assert float(Smoothed(Absolute(), beta).value(w @ x, y)) == pytest.approx(least, abs=1e-4)


def test_losses_that_cannot_be_smoothed_are_refused():
    with pytest.raises(ValueError, match="kink"):
        Smoothed(Square(), 1.0)
    for sharpness in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="sharpness"):
            Smoothed(Hinge(), sharpness)
    with pytest.raises(ValueError, match="excess"):
        sharpness_for(0.0)
