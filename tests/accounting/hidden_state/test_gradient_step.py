import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.accounting.contraction import contraction_factor
from dpfl.accounting.hidden_state import diameter_in_shifts, step_contraction

SHARE = st.floats(0.01, 1.0)


@given(smoothness=st.floats(0.01, 100), convex_share=st.floats(0, 1), step=SHARE)
def test_contraction_is_the_largest_slope_of_a_quadratic_step(smoothness, convex_share, step):
    eta, convexity = 2 * step / smoothness, convex_share * smoothness
    curvatures = np.linspace(convexity, smoothness, 50)
    factor = step_contraction(eta, smoothness, convexity)
    assert factor == pytest.approx(np.max(np.abs(1 - eta * curvatures)), abs=1e-12)
    assert 0 <= factor <= 1


@given(smoothness=st.floats(0.01, 100), convex_share=st.floats(0, 1), step=SHARE)
def test_contraction_is_never_above_that_of_asoodeh2020(smoothness, convex_share, step):
    convexity = convex_share * smoothness
    eta = step * 2 / (smoothness + convexity)
    published = contraction_factor(eta, smoothness, convexity)
    assert step_contraction(eta, smoothness, convexity) <= published + 1e-9


def test_convex_losses_do_not_contract():
    assert step_contraction(0.5, 1.0, 0.0) == 1.0
    assert step_contraction(2.0, 1.0, 0.5) == 1.0


def test_diameter_is_counted_in_shifts_of_one_step():
    keywords = {"step_size": 0.5, "lipschitz": 2.0, "batch_size": 10}
    assert diameter_in_shifts(3.0, neighbouring="zero_out", **keywords) == 30.0
    assert diameter_in_shifts(3.0, neighbouring="replace_one", **keywords) == 15.0
    assert diameter_in_shifts(np.inf, neighbouring="zero_out", **keywords) == np.inf
