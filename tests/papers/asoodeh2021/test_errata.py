"""Numbers of the errata by hand, and the print of equation (11) where it falls below Theorem 2."""

import math

import pytest
from scipy.stats import norm

from dpfl.papers.asoodeh2021 import errata
from dpfl.papers.asoodeh2021.errata import federated_harmonic_delta_as_printed


def test_the_simulated_risk_is_that_of_averaged_noise():
    # Without the projection |w|^2/2 has mean d sigma^2/(2 T) = 2.5e-3; five runs of d = 100 scatter by 6 %.
    numbers = errata.corollary_utility(dimension=100, rounds=20_000, repeats=5)
    assert numbers.independent == pytest.approx(2.5e-3, rel=0.3)
    assert 1.5 * numbers.printed < numbers.independent < numbers.corrected


def test_broken_rounds():
    numbers = errata.broken_rounds(0.3, 3, 0.5)
    assert numbers.corrected / numbers.printed == pytest.approx(0.9, rel=1e-4)


# The print of asoodeh2021's equation (11), summed by hand, and where it falls below Theorem 2.


def theta(epsilon: float, r: float) -> float:
    return norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)


def summed(epsilon, links, *, n, m, sigma, lipschitz) -> float:
    """(m/n) theta(2 L/(sqrt(m) sigma)) times the sum over t of the product of theta(link_j) for j > t."""
    head = theta(epsilon, 2 * lipschitz / (math.sqrt(m) * sigma))
    products = [math.prod(theta(epsilon, link) for link in links[t:]) for t in range(1, len(links) + 1)]
    return m / n * head * sum(products)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_printed_links_have_the_root_of_lambda_m_j(epsilon):
    """Twelve users, three a round: four rounds with links 2 radius sqrt(lambda m j)/sigma."""
    case = {"n": 12, "m": 3, "sigma": 1.5, "lipschitz": 0.7}
    links = [2 * 0.4 * math.sqrt(0.2 * 3 * j) / 1.5 for j in range(1, 5)]
    printed = federated_harmonic_delta_as_printed(epsilon, **case, radius=0.4, strong_convexity=0.2)
    assert printed == pytest.approx(summed(epsilon, links, **case), rel=1e-10)


@pytest.mark.parametrize(("strong_convexity", "below"), [(8.0, True), (0.01, False)])
def test_it_is_below_the_theorem_where_lambda_j_exceeds_one(strong_convexity, below):
    """Theorem 2 has 2 radius sqrt(m)/(eta_j sigma) with eta_j = 1/(lambda j): the root is missing in the print."""
    case = {"n": 8, "m": 1, "sigma": 1.0, "lipschitz": 1.0}
    theorem = summed(0.0, [2 * 0.02 * strong_convexity * j for j in range(1, 9)], **case)
    printed = federated_harmonic_delta_as_printed(0.0, **case, radius=0.02, strong_convexity=strong_convexity)
    assert (printed < theorem) == below and printed != pytest.approx(theorem, rel=1e-3)
