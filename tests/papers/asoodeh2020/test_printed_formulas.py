"""The print of asoodeh2020 by hand, and where it falls below what is true."""

import math

import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from dpfl.papers.asoodeh2020.errata import iteration_renyi_as_printed, pnsgd_laplace_pure_epsilon_as_printed


def test_the_distance_is_printed_without_its_square():
    assert iteration_renyi_as_printed(2.0, n=4, distance=3.0, sigma=0.5) == pytest.approx(2 * 3 / (2 * 4 * 0.25))


@pytest.mark.parametrize(("distance", "holds"), [(0.5, True), (1.0, True), (3.0, False)])
def test_it_is_a_bound_up_to_a_distance_of_one(distance, holds):
    """Renyi divergence of order 2 between Gaussians of deviation 1.5, by integration."""
    square = quad(lambda y: norm.pdf(y, distance, 1.5) ** 2 / norm.pdf(y, 0, 1.5), -20, 30)[0]
    printed = iteration_renyi_as_printed(2.0, n=1, distance=distance, sigma=1.5)
    assert (printed >= math.log(square) - 1e-9) == holds
    assert (printed == pytest.approx(math.log(square), rel=1e-6)) == (distance == 1.0)


@pytest.mark.parametrize(
    ("changes", "epsilon"),
    [
        ({}, 0.25),  # M = 1 and 0.25/(0.5 2)
        ({"diameter": 8.0}, 1.0),  # 2 L/v
        ({"diameter": 8.0, "lipschitz": 3.0}, 3.0),
        ({"strong_convexity": 0.5}, 0.25 * math.sqrt(1 - 2 * 0.5 * 0.5 * 0.5 / 1.0)),
    ],
)
def test_the_pure_epsilon_is_the_smaller_of_two(changes, epsilon):
    case = {"eta": 0.5, "scale": 2.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0, "diameter": 0.25}
    assert pnsgd_laplace_pure_epsilon_as_printed(**{**case, **changes}) == pytest.approx(epsilon)


def test_the_last_record_spends_more_than_the_pure_epsilon():
    """One Laplace step from points 2 L apart: at 0.3, above the printed 0.25, delta is far from 0."""
    case = {"eta": 1.0, "scale": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0, "diameter": 0.25}
    assert pnsgd_laplace_pure_epsilon_as_printed(**case) == 0.25
    excess = quad(lambda y: max(0.0, laplace.pdf(y, 2) - math.exp(0.3) * laplace.pdf(y)), -40, 40, points=[0, 1.15, 2])[
        0
    ]
    assert excess > 0.5
