"""Numbers of the errata by hand; tests/papers/test_errata.py holds them against each entry's other route."""

import math

import pytest
from scipy.stats import norm

from dpfl.papers.asoodeh2020 import errata
from dpfl.papers.asoodeh2020.errata import pnsgd_laplace_pure_epsilon_as_printed


def theta(epsilon: float, r: float) -> float:
    return norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)


def test_the_divergence_grows_with_the_square_of_the_distance():
    assert errata.renyi_square(2.0, 3.0)[:3] == pytest.approx((3.0, 9.0, 9.0))
    same = errata.renyi_square(2.0, 1.0)
    assert same.printed == same.corrected == pytest.approx(same.independent)


def test_the_first_step_does_not_contract_itself():
    numbers = errata.product_start(0.1, 1.0)
    assert numbers[:3] == pytest.approx((theta(0.1, 1) ** 2, theta(0.1, 1), theta(0.1, 1)), rel=1e-6)


def test_a_step_of_eight_stretches_by_three():
    """|1 - 8 0.5| = 3 over sigma eta = 8; the print has 1 over 8."""
    numbers = errata.step_size(8.0, 0.5)
    first = 2 * norm.cdf(1) - 1
    assert numbers.printed == pytest.approx(first * (2 * norm.cdf(1 / 16) - 1))
    assert numbers.corrected == pytest.approx(first * (2 * norm.cdf(3 / 16) - 1))
    assert numbers.independent == pytest.approx(numbers.corrected, rel=2e-3)


def test_so_it_does_with_laplace_noise():
    """Two Laplace laws of scale 1 and r apart have a total variation of 1 - e^(-r/2)."""
    numbers = errata.step_size_laplace(8.0, 0.5)
    first, printed, corrected = (1 - math.exp(-distance / 2) for distance in (2, 1 / 8, 3 / 8))
    assert numbers[:2] == pytest.approx((first * printed, first * corrected))
    assert numbers.independent == pytest.approx(numbers.corrected, rel=2e-3)


@pytest.mark.parametrize(("epsilon", "promised"), [(0.6, 0.0), (0.4, 1 - math.exp(-0.8))])
def test_no_step_after_the_last_record_protects_it(epsilon, promised):
    """1 - e^((epsilon - 2)/2) for Laplace noise of scale 1 and points 2 apart; nothing is promised below 0.5."""
    numbers = errata.last_record_laplace(epsilon, 0.5)
    assert numbers.printed == pytest.approx(promised)
    assert numbers.corrected == pytest.approx(1 - math.exp((epsilon - 2) / 2))
    assert numbers.independent == pytest.approx(numbers.corrected, rel=2e-3)


@pytest.mark.parametrize(("i", "printed", "corrected"), [(39, 0.5, 0.25), (20, 0.5 / 20, 0.5 / 21)])
def test_the_best_shift_counts_one_step_more(i, printed, corrected):
    """Without contraction (2 L^2/sigma^2) over n - i steps as printed, over n - i + 1 with the best shift."""
    numbers = errata.optimal_shift(i)
    assert numbers[:2] == pytest.approx((printed, corrected))
    assert (numbers.independent == pytest.approx(corrected)) == (i == 39)  # the search is for two steps


@pytest.mark.parametrize(("i", "better"), [(20, True), (38, False)])
def test_the_shifted_gaussian_is_attained_in_figure_3(i, better):
    """M^2 = 0.8 and 40 - i steps after record i; the distance 2 over the noise that is left of one more."""
    numbers, steps = errata.shifted_interpolation(1.0, i), 40 - i
    printed = theta(1.0, 2.0) * theta(1.0, math.sqrt(0.8) / 0.7) ** steps
    exact = theta(1.0, 2 / math.sqrt(sum(0.8**-k for k in range(steps + 1))))
    assert numbers.printed == pytest.approx(printed, rel=1e-9, abs=0)
    assert numbers.corrected == pytest.approx(exact, rel=1e-6, abs=0)
    assert numbers.independent == pytest.approx(exact, rel=1e-6, abs=0)
    assert (numbers.corrected < numbers.printed) == better


def test_the_last_step_of_theorem_5_drops_a_factor():
    """With eta = 1 and sigma = 2 a step keeps theta(0, 1/2); the sum before it has 1 - that^40 more."""
    numbers = errata.vacuous_stopping(2.0, 1.0)
    kept = 2 * norm.cdf(1 / 4) - 1
    assert numbers.corrected / numbers.printed == pytest.approx(1 - kept**40)
    weak = errata.vacuous_stopping(1.0, 0.1)
    assert weak.corrected / weak.printed == pytest.approx(1 - (2 * norm.cdf(5) - 1) ** 40, rel=1e-6)
    assert weak.printed > 1 > weak.corrected >= weak.independent


# The printed pure epsilon by hand.


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
