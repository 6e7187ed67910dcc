"""Lemma 1 of asoodeh2020 against integration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace

from dpfl.accounting.contraction import laplace_divergence
from dpfl.accounting.contraction.kernels import log_divergence


@pytest.mark.parametrize(("epsilon", "m1", "m2", "scale"), [(0.0, 0, 1, 1), (0.1, 3, 0, 0.5), (1.5, -1, 1, 1.2)])
def test_is_the_integral_of_the_densities_excess(epsilon, m1, m2, scale):
    def excess(y: float) -> float:
        return max(0.0, laplace.pdf(y, m1, scale) - np.exp(epsilon) * laplace.pdf(y, m2, scale))

    # the excess vanishes where the log-ratio (|y - m2| - |y - m1|)/scale falls to epsilon
    crossing = (m1 + m2) / 2 + np.sign(m1 - m2) * epsilon * scale / 2
    integral, _ = quad(excess, -60, 60, points=sorted({m1, m2, crossing}), limit=400)
    assert laplace_divergence(epsilon, m1, m2, scale) == pytest.approx(integral, rel=1e-7)


def test_tiny_and_huge_distances():
    assert laplace_divergence(0.0, 0.0, 1e-20, 1.0) == pytest.approx(5e-21, rel=1e-15)
    assert laplace_divergence(0.0, 0.0, 1e300, 1e-300) == 1.0
    assert laplace_divergence(1e308, 0.0, 1.0, 1.0) == 0.0
    assert log_divergence(np.float64(0.0), np.float64(80.0)) == pytest.approx(-np.exp(-40.0), rel=1e-12)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 12))
@settings(max_examples=50, deadline=None)
def test_falls_with_epsilon_and_vanishes_at_the_distance(epsilon, other, distance):
    low, high = sorted((epsilon, other))
    assert laplace_divergence(high, 0.0, distance, 1.0) <= laplace_divergence(low, 0.0, distance, 1.0)
    assert laplace_divergence(distance, 0.0, distance, 1.0) == 0.0
