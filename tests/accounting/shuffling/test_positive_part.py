import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, poisson

from dpfl.accounting.shuffling import Fineness, positive_part

FINE = Fineness(1e-7, 1 << 18, 400)


def enumerated(values: list[float], masses: list[float], n: int) -> float:
    """E[(sum)_+] from the whole law of the n-fold sum."""
    law = {0.0: 1.0}
    for _ in range(n):
        longer: dict[float, float] = {}
        for total, chance in law.items():
            for value, mass in zip([0.0, *values], [1 - sum(masses), *masses], strict=True):
                longer[total + value] = longer.get(total + value, 0.0) + chance * mass
        law = longer
    return sum(max(total, 0.0) * chance for total, chance in law.items())


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.floats(-100, 10).filter(lambda x: abs(x) > 0.01), min_size=2, max_size=3, unique=True),
    rare=st.floats(10, 1e5),
    n=st.integers(1, 5),
)
def test_against_enumeration_with_a_rare_large_value(values, rare, n):
    values = [*values, rare]
    masses = [0.6 / (len(values) - 1)] * (len(values) - 1) + [1e-4]
    exact = enumerated(values, masses, n)
    ours = positive_part(np.array(values), np.array(masses), n, negligible=1e-12, fineness=FINE)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_sum_of_nothing_but_the_largest_value_stays_on_the_lattice(n):
    mean = positive_part(np.array([1.0]), np.array([0.01]), n, negligible=1e-12, fineness=FINE)
    assert 0.01 * n <= mean <= 0.01 * n * (1 + 1e-9)


@pytest.mark.parametrize("n", [10**3, 10**6, 10**9])
@pytest.mark.parametrize("deviations", [1.0, 4.5])
def test_many_small_values_are_normal(n, deviations):
    # +-1 by 1/4 each, less a drift of `deviations` standard deviations of the sum. Skewness is 0, and the next term
    # of Edgeworth's series is of order 1/n.
    spread = math.sqrt(n / 2)
    drift = deviations * spread / n
    values, masses = np.array([1 - drift, -1 - drift, -drift]), np.array([0.25, 0.25, 0.5])
    ours = positive_part(values, masses, n, negligible=1e-12, fineness=FINE)
    exact = spread * (norm.pdf(deviations) - deviations * norm.sf(deviations))
    assert ours == pytest.approx(exact, rel=5e-6 + 100 / n)


def test_what_is_all_but_impossible_keeps_its_digits():
    # n signs of which more than 0.65 n must be positive: a chance of 1e-21.
    n, drift = 1000, 0.301  # no sum is 0, where an atom would be spread over the kink
    plus = np.arange(n + 1)
    exact = float(binom.pmf(plus, n, 0.5) @ np.maximum(2 * plus - n - n * drift, 0))
    values = np.array([1 - drift, -1 - drift])
    ours = positive_part(values, np.array([0.5, 0.5]), n, negligible=1e-30, fineness=FINE)
    assert exact < 1e-19
    assert exact <= ours <= exact * (1 + 1e-4)


def test_heavy_tails():
    # One value in a thousand is ten thousand times the others, which only push down.
    n, large = 100, 1e4
    values, masses = np.array([-1.0, large]), np.array([0.5, 1e-5])
    exact = n * 1e-5 * large - 0.5 * n * (1 - poisson.pmf(0, n * 1e-5))  # any large value outweighs all the rest
    ours = positive_part(values, masses, n, negligible=1e-12, fineness=FINE)
    assert ours == pytest.approx(exact, rel=1e-4)  # a second large value, which 1 in 2000 has, is not in `exact`
