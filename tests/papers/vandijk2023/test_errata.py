"""Numbers of the errata and the print of vandijk2023, by hand and by integration."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfl.papers.vandijk2023 import errata
from dpfl.papers.vandijk2023.errata import epsilon_delta_as_printed, group_delta_as_printed, renyi_as_printed


@pytest.mark.parametrize(
    ("numbers", "printed", "corrected"),
    [
        (errata.epsilon_delta_curve(0.1, 1.0, 1e-5), 0.0, 0.7282),
        (errata.renyi_sign(3.0, 1.0), -0.5, 1.5),
        (errata.loss_within_epsilon(1.0, 1.0), 0.127, 0.375),
        (errata.expected_rounds(0.5), 0.625, 0.3125),
        (errata.concentrated("A0", 64), 250.0, 4450.0),
        (errata.concentrated("A1", 2), 7.8125, 9.464),
        (errata.optimistic_h(20.0), 4.76e-8, 6.63e-7),
    ],
    ids=["curve", "renyi", "loss", "rounds", "A0", "A1", "h"],
)
def test_printed_and_corrected_values(numbers, printed, corrected):
    assert numbers.printed == pytest.approx(printed, rel=2e-3, abs=1e-12)
    assert numbers.corrected == pytest.approx(corrected, rel=2e-3, abs=0)


def test_the_accountants_differ():
    poisson, limit = errata.whose_accountant(), errata.central_limit()
    assert poisson.printed == pytest.approx(3.18, abs=0.005)
    assert poisson.corrected == pytest.approx(2.75, abs=0.005)
    assert poisson.independent == pytest.approx(poisson.corrected, abs=0.02)
    assert limit.printed == pytest.approx(3.23, abs=0.01)


# The print of vandijk2023 by hand and by integration, and where it cannot be right.


def test_the_group_delta_grows_by_a_power_of_e_whatever_epsilon_is():
    assert group_delta_as_printed(0.01, 3) == pytest.approx(3 * math.e**2 * 0.01)
    assert group_delta_as_printed([1e-5, 0.0], [1, 4]).tolist() == [1e-5, 0.0]


@pytest.mark.parametrize(("epsilon", "enough"), [(1.4, True), (1.6, False)])
def test_for_two_records_it_is_enough_up_to_an_epsilon_of_about_one_and_a_half(epsilon, enough):
    """The chain of two neighbours gives delta (1 + e^epsilon)."""
    assert (group_delta_as_printed(1e-3, 2) >= 1e-3 * (1 + math.exp(epsilon))) == enough


@pytest.mark.parametrize(("order", "mu"), [(1.5, 0.8), (2.0, 1.0), (3.0, 2.0)])
def test_the_renyi_expression_is_the_printed_moment(order, mu):
    """ln E[e^((1 - order) Z)]/(1 - order) of a privacy loss Z of mean mu^2/2 and deviation mu."""
    law = norm(mu**2 / 2, mu)
    moment = quad(lambda z: math.exp((1 - order) * z) * law.pdf(z), law.ppf(1e-15) - 20, law.ppf(1 - 1e-15) + 5)[0]
    assert renyi_as_printed(order, mu) == pytest.approx(math.log(moment) / (1 - order), abs=1e-7)
    assert (renyi_as_printed(order, mu) < 0) == (order > 2)  # no divergence is negative


def test_the_curve_is_the_least_of_three_lines():
    """epsilon = 1, delta = 0.1: steep 0.9 - e alpha, flat (0.9 - alpha)/e, and 0; e alpha counts up to sqrt(e)."""
    alpha = np.array([0.0, 0.3, 0.5, 0.6, 1.0])
    steep = 0.9 - np.minimum(math.e * alpha, math.sqrt(math.e))
    expected = np.minimum(0, np.minimum(steep, (0.9 - alpha) / math.e))
    assert epsilon_delta_as_printed(alpha, 1.0, 0.1) == pytest.approx(expected)
    assert expected[0] == expected[1] == 0 and expected[2:] == pytest.approx(
        [-0.459141, -0.730969, 0.9 - math.sqrt(math.e)]
    )
