import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import binomial, exp, mp, mpf
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting import gaussian_dp, shuffling
from dpfl.accounting.shuffling import clones_delta, clones_epsilon, restricted_clones_epsilon


def enumerated_delta(epsilon: float, n: int, epsilon0: float) -> float:
    """The divergence of the two laws of counts, from their tables, in 30 digits."""
    return enumerated(epsilon, n, epsilon0, most=n - 1)


def enumerated(epsilon: float, n: int, epsilon0: float, most: int) -> float:
    """The same from tables of up to `most` clones, in digits enough for e^(2 epsilon0)."""
    with mp.workdps(30 + int(epsilon0)):
        p, d = exp(-mpf(epsilon0)), exp(mpf(epsilon0)) / (1 + exp(mpf(epsilon0)))
        ours, theirs = {}, {}
        for c in range(min(n, most + 1)):
            for a, one in itertools.product(range(c + 1), (0, 1)):
                mass = binomial(n - 1, c) * p**c * (1 - p) ** (n - 1 - c) * binomial(c, a) / mpf(2) ** c
                mass *= d if one else 1 - d
                for law, key in ((ours, (a + one, c - a + 1 - one)), (theirs, (a + 1 - one, c - a + one))):
                    law[key] = law.get(key, 0) + mass
        return float(sum(max(mpf(0), ours.get(k, 0) - exp(mpf(epsilon)) * theirs.get(k, 0)) for k in ours))


@settings(max_examples=25, deadline=None)
@given(epsilon=st.floats(0, 3), n=st.integers(1, 9), epsilon0=st.floats(0.01, 5))
def test_delta_is_the_enumerated_divergence(epsilon, n, epsilon0):
    assert clones_delta(epsilon, n, epsilon0) == pytest.approx(
        enumerated_delta(epsilon, n, epsilon0), rel=1e-9, abs=1e-15
    )


@pytest.mark.parametrize(("epsilon", "n", "epsilon0"), [(37, 100, 40), (34.9, 1, 35), (28, 3, 30), (150, 10, 300)])
def test_nothing_is_lost_where_a_report_alone_reveals_its_input(epsilon, n, epsilon0):
    assert clones_delta(epsilon, n, epsilon0) == pytest.approx(enumerated(epsilon, n, epsilon0, most=2), rel=1e-9)
    spent = clones_epsilon(n, epsilon0, 1e-5)
    assert enumerated(spent, n, epsilon0, most=2) <= 1e-5 * (1 + 1e-6) or spent == epsilon0
    assert spent > epsilon0 - 1e-4


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 3000), epsilon0=st.floats(0.05, 6), delta=st.floats(1e-9, 1e-2))
def test_epsilon_is_the_least_that_spends_delta(n, epsilon0, delta):
    epsilon = clones_epsilon(n, epsilon0, delta)
    assert 0 <= epsilon <= epsilon0
    assert clones_delta(epsilon, n, epsilon0) <= delta * (1 + 1e-6)
    if 0 < epsilon < epsilon0:
        assert clones_delta(epsilon * (1 - 1e-4), n, epsilon0) > delta


def randomised_response_epsilon(n: int, epsilon0: float, delta: float) -> float:
    """What shuffled binary randomised response really spends when one of n bits, the others 0, is flipped."""
    flip = 1 / (1 + math.exp(epsilon0))
    rest = binom.pmf(np.arange(n), n - 1, flip)
    laws = [np.convolve(rest, [1 - p, p]) for p in (flip, 1 - flip)]

    def spent(epsilon: float) -> float:
        return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in (laws, laws[::-1]))

    return brentq(lambda e: spent(e) - delta, 0, epsilon0)


@pytest.mark.parametrize(("n", "epsilon0"), [(100, 1.0), (1000, 1.0), (1000, 3.0)])
def test_the_bounds_cover_randomised_response(n, epsilon0):
    truth = randomised_response_epsilon(n, epsilon0, 1e-5)
    assert truth <= restricted_clones_epsilon(n, epsilon0, 1e-5) <= clones_epsilon(n, epsilon0, 1e-5) < epsilon0


@pytest.mark.parametrize(("n", "epsilon0"), [(10**4, 1.0), (10**5, 4.0), (10**6, 0.1), (10, 0.01)])
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_small_epsilons_are_found_to_a_share_of_themselves(n, epsilon0, share):
    """On the safe side of the root, by less than 1e-11 of it: also where it is 1e-6."""
    delta = share * clones_delta(0.0, n, epsilon0)
    epsilon = clones_epsilon(n, epsilon0, delta)
    exact = brentq(lambda e: clones_delta(e, n, epsilon0) - delta, 0.0, 2 * epsilon, xtol=1e-300, rtol=1e-14)
    assert exact < epsilon <= exact * (1 + 1e-11)


@pytest.mark.parametrize(("n", "epsilon0"), [(1000, 1.0), (10000, 3.0), (100000, 4.0)])
def test_the_bounds_are_below_the_closed_forms_of_their_papers(n, epsilon0):
    """feldman2021, Theorem 3.1, and feldman2023, Theorem 3.1."""
    logs, power = math.log(4e6), math.exp(epsilon0)
    clones_growth = math.tanh(epsilon0 / 2) * 8 * (math.sqrt(power * logs / n) + power / n)
    restricted_growth = (power - 1) * 4 * (math.sqrt(2 * logs / (power + 1) / n) + 1 / n)
    assert clones_epsilon(n, epsilon0, 1e-6) < math.log1p(clones_growth)
    assert restricted_clones_epsilon(n, epsilon0, 1e-6) < math.log1p(restricted_growth)


def test_local_failures_cost_what_theorem_3_8_says():
    n, epsilon0, delta, delta0 = 1000, 1.0, 1e-5, 1e-10
    epsilon = clones_epsilon(n, epsilon0, delta, delta0)
    share = (math.exp(epsilon) + 1) * (1 + math.exp(-epsilon0) / 2) * n * delta0
    assert clones_delta(epsilon, n, epsilon0) + share == pytest.approx(delta, rel=1e-9)
    assert epsilon > clones_epsilon(n, epsilon0, delta)
    assert clones_epsilon(n, epsilon0, delta, 1e-30) == pytest.approx(clones_epsilon(n, epsilon0, delta), rel=1e-12)


def test_without_amplification_the_local_guarantee_remains():
    assert clones_epsilon(1, 1.0, 1e-9) == pytest.approx(1.0, abs=1e-8)
    assert clones_epsilon(2, 20.0, 1e-9) == pytest.approx(20.0, abs=1e-6)
    assert clones_epsilon(10**6, 1.0, 1e-5, 1e-6) == 1.0
    assert clones_epsilon(100, 0.0, 1e-5) == 0.0


def test_arrays_broadcast():
    epsilons = clones_epsilon([100, 1000, 10000], [[0.5], [1.0]], 1e-6)
    assert epsilons.shape == (2, 3)
    assert np.all(np.diff(epsilons, axis=1) < 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "arguments", [(2, 300.0, 1e-5), (1000, 1e-9, 1e-5), (10**6, 5, 1e-30), (10**6, 8, 1e-6, 1e-14)]
)
def test_extremes_stay_finite(arguments):
    assert 0 <= clones_epsilon(*arguments) <= arguments[1]


def test_bins_of_clones_lie_above_single_ones_and_near(monkeypatch):
    single = [clones_epsilon(10**6, 1.0, delta) for delta in (1e-6, 1e-20)]
    monkeypatch.setattr(shuffling, "_MOST_CLONES", 1000)
    for exact, binned in zip(single, (clones_epsilon(10**6, 1.0, delta) for delta in (1e-6, 1e-20)), strict=True):
        assert exact <= binned <= exact * (1 + 1e-5)


def test_a_billion_reports_are_those_of_the_central_limit():
    ours = clones_epsilon(10**9, 1.0, 1e-6)
    # A report moves a count of deviation sqrt(n e^-epsilon0) / 2 by tanh(epsilon0 / 2).
    move = 2 * math.tanh(0.5) / math.sqrt(1e9 * math.exp(-1))
    assert ours == pytest.approx(float(gaussian_dp.epsilon(1e-6, move)), rel=1e-3)
