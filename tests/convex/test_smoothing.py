"""Smoothed losses: against minimisation by brute force, their error, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dpfl.convex.problems import Absolute, Hinge, Smoothed, Square, sharpness_for

LOSSES = {"absolute": (Absolute(), (-2.0, 0.3, 2.0)), "hinge": (Hinge(), (-1.0, 1.0))}
SHARPNESS = st.floats(0.1, 50.0)


def envelope(loss, sharpness: float, score: float, target: float) -> tuple[float, float]:
    """Return min_t phi(t) + b/2 (s - t)^2 and b (s - t) at the minimiser, found numerically; |s - t| <= 1/b."""

    def value(t: float) -> float:
        return float(loss.value(np.float64(t), np.float64(target))) + sharpness / 2 * (score - t) ** 2

    reach = 1.0 / sharpness
    found = minimize_scalar(value, bounds=(score - reach, score + reach), method="bounded", options={"xatol": 1e-13})
    return min(found.fun, value(score - reach), value(score + reach)), sharpness * (score - found.x)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=50)
@given(score=st.floats(-4.0, 4.0), sharpness=SHARPNESS)
def test_moreau_envelope(name, score, sharpness):
    loss, targets = LOSSES[name]
    smooth = Smoothed(loss, sharpness)
    for target in targets:
        value, slope = envelope(loss, sharpness, score, target)
        assert float(smooth.value(np.float64(score), np.float64(target))) == pytest.approx(value, abs=1e-6)
        assert float(smooth.derivative(np.float64(score), np.float64(target))) == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=50)
@given(sharpness=SHARPNESS)
def test_error_slope_and_curvature_are_bounded_and_reached(name, sharpness):
    loss, targets = LOSSES[name]
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


def test_bad_input():
    with pytest.raises(ValueError, match="kink"):
        Smoothed(Square(), 1.0)
    for sharpness in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="sharpness"):
            Smoothed(Hinge(), sharpness)
    with pytest.raises(ValueError, match="excess"):
        sharpness_for(0.0)
