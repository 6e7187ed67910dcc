"""The two conversions from a linear Renyi bound against brute-force minimisation and the Gaussian mechanism."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dpfl.accounting.contraction import theta
from dpfl.accounting.contraction.pnsgd import linear_renyi_delta


def _objective(log_x: float, epsilon: float, kappa: float, tight: bool) -> float:
    x = mp.exp(log_x)
    value = x * ((x + 1) * kappa - epsilon)
    return float(value + (x + 1) * mp.log(x / (x + 1)) - mp.log(x) if tight else value)


@pytest.mark.parametrize(("conversion", "tight"), [("mironov", False), ("tight", True)])
@pytest.mark.parametrize(("epsilon", "kappa"), [(0.5, 0.1), (2.0, 0.5), (4.0, 0.0128), (1.0, 0.9), (30.0, 4.0)])
def test_is_the_minimum_over_the_order(conversion, tight, epsilon, kappa):
    found = minimize_scalar(
        _objective, bounds=(-12, 12), args=(epsilon, kappa, tight), method="bounded", options={"xatol": 1e-10}
    )
    assert np.log(linear_renyi_delta(epsilon, kappa, conversion)) == pytest.approx(found.fun, rel=1e-9)


@given(st.floats(0, 20), st.floats(-4, 1))
@settings(max_examples=50, deadline=None)
def test_tight_lies_between_the_gaussian_mechanism_and_mironov(epsilon, log_kappa):
    """N(mu, 1) against N(0, 1) has D_alpha = alpha mu^2/2 exactly, so its delta must lie below."""
    kappa = 10.0**log_kappa
    tight = linear_renyi_delta(epsilon, kappa, "tight")
    assert theta(epsilon, np.sqrt(2 * kappa)) <= tight * (1 + 1e-12)
    assert tight <= linear_renyi_delta(epsilon, kappa, "mironov") * (1 + 1e-12)


def test_edges():
    for conversion in ("mironov", "tight"):
        # Two equal laws are not told apart at any epsilon, 0 included; a divergence near 0 comes near to it.
        assert np.all(linear_renyi_delta(np.array([0.0, 1.0]), np.float64(0.0), conversion) == 0.0)
        assert linear_renyi_delta(0.0, np.float64(np.inf), conversion) == 1.0
    np.testing.assert_array_equal(linear_renyi_delta(np.array([0.0, 0.3, 0.5]), 0.5, "mironov"), 1.0)
    assert linear_renyi_delta(0.0, 1e-300, "tight") < 1e-149
    with pytest.raises(ValueError, match=r"^conversion "):
        linear_renyi_delta(1.0, 1.0, "loose")
