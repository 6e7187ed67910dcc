"""M of asoodeh2020 eq. (14) against the slopes of real gradient steps."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import contraction_factor
from dpfl.accounting.contraction.kernels import log_contraction_factor


@given(st.floats(1e-3, 10), st.floats(0, 1), st.floats(1e-6, 1))
@settings(max_examples=50, deadline=None)
def test_is_the_formula_and_bounds_every_quadratic(smoothness, convex_share, step_share):
    strong_convexity = convex_share * smoothness
    eta = step_share * 2.0 / (smoothness + strong_convexity)
    with mp.workdps(50):
        loss = 2 * mp.mpf(eta) * smoothness * strong_convexity / (mp.mpf(smoothness) + strong_convexity)
        square = 1 - loss
        logarithm = mp.log1p(-loss) / 2 if square > 1e-14 else None
    factor = contraction_factor(eta, smoothness, strong_convexity)
    assert factor**2 == pytest.approx(float(square), rel=1e-12, abs=1e-15)
    if logarithm is not None:
        logarithms = log_contraction_factor(eta, smoothness, strong_convexity)
        assert logarithms == pytest.approx(float(logarithm), rel=1e-12, abs=1e-300)
    curvatures = np.linspace(strong_convexity, smoothness, 21)
    assert np.abs(1 - eta * curvatures).max() <= factor + 1e-12


def test_is_no_lipschitz_constant_beyond_the_limit():
    """beta = 0.5, rho = 0, eta = 8: the printed M is 1, the step y - 8 * 0.5 y has slope -3."""
    assert np.sqrt(1 - 2 * 8 * 0.5 * 0 / 0.5) == 1.0 < abs(1 - 8 * 0.5)
    with pytest.raises(ValueError, match=r"^eta "):
        contraction_factor(8.0, 0.5, 0.0)


def test_ends_of_the_range():
    assert contraction_factor(4.0, 0.5, 0.0) == 1.0
    assert contraction_factor(2.0 / (0.5 + 0.2), 0.5, 0.2) == pytest.approx(0.3 / 0.7, rel=1e-12)
    assert contraction_factor(1.0, 1.0, 1.0) == 0.0
    assert log_contraction_factor(1.0, 1.0, 1.0) == -np.inf
    assert log_contraction_factor(1.0, 1.0, 1e-20) == pytest.approx(-1e-20, rel=1e-12)
    assert contraction_factor(1e-3, 1e-200, 0.0) == 1.0
    assert contraction_factor([0.1, 0.2], 1.0, [[0.0], [0.5]]).shape == (2, 2)
