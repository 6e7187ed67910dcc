import math

import numpy as np
import pytest
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.shuffling import blanket_law


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("radius", [1e-3, 0.25, 1.0, 2.0])
def test_both_reports_are_laws_and_their_divergence_is_the_gaussian_one(radius, dimension):
    blanket = blanket_law(radius, dimension)
    assert blanket.masses.sum() == pytest.approx(1, rel=1e-12)
    assert blanket.masses @ blanket.ours == pytest.approx(1, rel=1e-9)
    assert blanket.masses @ blanket.theirs == pytest.approx(1, rel=1e-9)
    gain = blanket.masses @ np.maximum(blanket.ours - math.exp(radius) * blanket.theirs, 0)
    # one dimension spreads upwards; in more, nodes meet the kink of the positive part
    assert gain == pytest.approx(gaussian_dp.delta(radius, 2 * radius), rel=1e-5)


def test_the_weight():
    assert blanket_law(0.7, 1).weight == pytest.approx(2 * norm.cdf(-0.7), rel=1e-14)
    # in two dimensions the integral of r e^(-(r + a)^2/2) is e^(-a^2/2) - a sqrt(2 pi) Q(a)
    exact = math.exp(-(0.7**2) / 2) - 0.7 * math.sqrt(2 * math.pi) * norm.sf(0.7)
    assert blanket_law(0.7, 2).weight == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("share", [1e-3, 1e-9])
def test_the_largest_ratio_leaves_its_share_above(share):
    # in one dimension R_x/w passes gamma e^(2 a y) where a standard normal passes y - a
    radius, blanket = 0.8, blanket_law(0.8, 1)
    exact = blanket.weight * math.exp(2 * radius * (radius + norm.isf(share)))
    assert blanket.largest(share) == pytest.approx(exact, rel=2e-3)
