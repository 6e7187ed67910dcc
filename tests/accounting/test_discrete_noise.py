"""Integer noise in shares against the exact laws of sums in one coordinate."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import skellam

from dpfl.accounting.discrete_noise import discrete_gaussian_rho, skellam_divergence
from dpfl.accounting.gaussian_dp import joint_noise


def exact(order, log_p, log_q):
    """The Renyi divergence of two laws on the integers."""
    known = (log_p > -650) & (log_q > -650)
    return float(np.log(np.sum(np.exp(order * log_p[known] + (1 - order) * log_q[known]))) / (order - 1))


@pytest.mark.parametrize(("came", "variance", "move"), [(1, 20.0, 1), (7, 1.0, 2), (10, 0.3, 1), (30, 5.0, 4)])
def test_skellam_shares_of_those_who_came_against_the_exact_law(came, variance, move):
    x, half = np.arange(-300, 301), came * variance / 2
    for order in (2, 3, 8):
        truth = exact(order, skellam.logpmf(x, half, half), skellam.logpmf(x - move, half, half))
        bound = skellam_divergence(order, shares=came, share_variance=variance, l2=move, l1=move)
        assert truth <= bound
        assert bound <= truth * (1 + 8 / (came * variance)) + 1e-12
    fewer = skellam_divergence(3, shares=came, share_variance=variance, l2=move, l1=move)
    assert fewer > skellam_divergence(3, shares=came + 1, share_variance=variance, l2=move, l1=move)


@pytest.mark.parametrize(
    ("came", "variance", "move"), [(1, 1.0, 1), (3, 0.5, 1), (3, 1.0, 2), (10, 0.3, 1), (5, 2.0, 3)]
)
def test_discrete_gaussian_shares_against_their_convolution(came, variance, move):
    one = np.exp(-(np.arange(-60, 61) ** 2) / (2 * variance))
    law = np.ones(1)
    for _ in range(came):
        law = np.convolve(law, one / one.sum())
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(law[move:]), np.log(law[:-move])
    rho = discrete_gaussian_rho(shares=came, share_variance=variance, l2=move, l1=move, dimension=1)
    for order in (1.5, 2, 4, 20):
        assert exact(order, log_p, log_q) <= rho * order * (1 + 1e-12)
    if variance >= 1:
        assert exact(4, log_p, log_q) >= 0.99 * 4 * rho


def test_skellam_noise_has_the_terms_beyond_the_gaussians_by_hand():
    """Order 2, v = 4: 2/8 + min((3 + 6)/64, 3/8); and where v = 1/2, 2 + min(9, 3)."""
    assert skellam_divergence(2, shares=4, share_variance=1.0, l2=1.0, l1=1.0) == pytest.approx(0.25 + 9 / 64)
    assert skellam_divergence(2, shares=1, share_variance=0.5, l2=1.0, l1=1.0) == pytest.approx(2 + 3)


def test_many_coordinates_and_little_noise_cost_more_than_a_gaussian():
    plain = 4.0 / (2 * 10 * 2.0)
    wide = discrete_gaussian_rho(shares=10, share_variance=2.0, l2=2.0, l1=2e3, dimension=10**6)
    assert wide > plain and discrete_gaussian_rho(shares=10, share_variance=2.0, l2=0.0, l1=0.0, dimension=10**6) == 0.0
    assert discrete_gaussian_rho(shares=10, share_variance=40.0, l2=2.0, l1=2e3, dimension=10**6) == pytest.approx(
        plain / 20
    )


def test_norms_that_no_vector_has_are_refused():
    """An l1 of 0 would leave out all that discrete noise costs beyond a Gaussian."""
    with pytest.raises(ValueError, match=r"^l1 must be at least"):
        skellam_divergence(2, shares=4, share_variance=1.0, l2=1.0, l1=0.0)
    with pytest.raises(ValueError, match=r"^l1 must be at least"):
        discrete_gaussian_rho(shares=10, share_variance=2.0, l2=2.0, l1=1.0, dimension=4)
    assert skellam_divergence(2, shares=4, share_variance=1.0, l2=0.1, l1=0.1) > 0  # a vector with one entry


def test_two_gaussian_parts_are_one_with_the_root_of_their_squares():
    """A count whose noise is s, each record moving it by 1/2, beside a sum: the mu of both, seen together."""
    z, s = 1.3, 7.0
    both = joint_noise([z, 2 * s])
    assert 1 / both == pytest.approx(math.hypot(1 / z, 0.5 / s), rel=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert joint_noise([]) == math.inf
    assert joint_noise([[1.0, 1.0], [3.0, 4.0]]) == pytest.approx([1 / math.sqrt(2), 2.4])
