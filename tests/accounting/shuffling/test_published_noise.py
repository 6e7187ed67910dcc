from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import exp, log, mp, mpf, sqrt
from scipy.optimize import brentq

from dpfl.accounting.shuffling import clones_epsilon, published_noise, restricted_clones_epsilon
from dpfl.papers.lowy2021 import printed_formulas


def test_closed_forms_in_thirty_digits():
    with mp.workdps(30):
        n, e, d = mpf(10000), exp(mpf(1)), mpf("1e-6")
        first = log(1 + (e - 1) / (e + 1) * (8 * sqrt(e * log(4 / d) / n) + 8 * e / n))
        second = log(1 + (e - 1) * (4 * sqrt(2 * log(4 / d)) / sqrt((e + 1) * n) + 4 / n))
    assert printed_formulas.clones_epsilon_as_printed(10000, 1.0, 1e-6) == pytest.approx(float(first), rel=1e-12)
    assert printed_formulas.restricted_clones_epsilon_as_printed(10000, 1.0, 1e-6) == pytest.approx(
        float(second), rel=1e-12
    )


@pytest.mark.parametrize(("n", "epsilon0"), [(1000, 1.0), (10000, 3.0), (100000, 4.0)])
def test_the_numeric_bounds_are_below_the_closed_forms(n, epsilon0):
    assert clones_epsilon(n, epsilon0, 1e-6) < printed_formulas.clones_epsilon_as_printed(n, epsilon0, 1e-6)
    assert restricted_clones_epsilon(n, epsilon0, 1e-6) < printed_formulas.restricted_clones_epsilon_as_printed(
        n, epsilon0, 1e-6
    )


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1000, 10**8), epsilon0=st.floats(0.1, 1.2), spent=st.floats(0, 0.999), delta=st.floats(1e-9, 1e-4))
def test_no_split_of_delta_gives_less_than_the_closed_form(n, epsilon0, spent, delta):
    # `spent` is the share of delta that the failures would take at epsilon = 0, twice over.
    failures = spent * delta / 2 / 2
    epsilon = printed_formulas.clones_epsilon_as_printed(
        n, epsilon0, delta, failures / (1 + math.exp(-epsilon0) / 2) / n
    )
    left = delta - (math.exp(epsilon) + 1) * failures
    assert epsilon == pytest.approx(printed_formulas.clones_epsilon_as_printed(n, epsilon0, left), rel=1e-14)
    shares = np.geomspace(0.2, 1, 4000)
    shares = shares[np.exp(epsilon0) * 16 * np.log(2 / (shares * delta)) <= n]
    split = printed_formulas.clones_epsilon_as_printed(n, epsilon0, shares * delta)
    fits = shares * delta + (np.exp(split) + 1) * failures <= delta
    # The grid ends above, by at most what one of its steps is worth.
    assert epsilon * (1 - 1e-12) <= split[fits].min() <= epsilon * (1 + 1e-3)


def test_local_failures_that_fill_delta():
    n, epsilon0, delta = 1000, 1.0, 1e-5
    largest = brentq(lambda d: _room(n, epsilon0, delta, d), 1e-9, 3e-9, xtol=1e-20)
    epsilon = printed_formulas.clones_epsilon_as_printed(n, epsilon0, delta, largest * (1 - 1e-6))
    left = delta - (math.exp(epsilon) + 1) * (1 + math.exp(-epsilon0) / 2) * n * largest * (1 - 1e-6)
    assert epsilon == pytest.approx(printed_formulas.clones_epsilon_as_printed(n, epsilon0, left), rel=1e-9)
    with pytest.raises(ValueError, match="delta0"):
        printed_formulas.clones_epsilon_as_printed(n, epsilon0, delta, largest * (1 + 1e-6))


def _room(n: int, epsilon0: float, delta: float, delta0: float) -> float:
    """What the best split leaves of delta: below 0 where `delta0` is too large for any."""
    kept = np.linspace(1e-4, 1, 200_001) * delta
    kept = kept[math.exp(epsilon0) * 16 * np.log(2 / kept) <= n]
    epsilons = printed_formulas.clones_epsilon_as_printed(n, epsilon0, kept)
    return float(np.max(delta - kept - (np.exp(epsilons) + 1) * (1 + math.exp(-epsilon0) / 2) * n * delta0))


def test_the_closed_forms_refuse_what_their_theorems_exclude():
    for form in (printed_formulas.clones_epsilon_as_printed, printed_formulas.restricted_clones_epsilon_as_printed):
        with pytest.raises(ValueError, match="epsilon0"):
            form(100, 1.0, 1e-5)


FEDERATION = {"clients_per_round": 25, "clients": 25, "rounds": 35, "delta": 1e-5}


def test_no_experiment_of_the_paper_has_clients_enough_for_theorem_4_1():
    assert math.ceil(published_noise.least_reports(**FEDERATION)) == 339
    with pytest.raises(ValueError, match="clients_per_round"):
        published_noise.shuffled_noise_variance(**FEDERATION, epsilon=1.0, lipschitz=1.0, records=100)


def test_the_printed_variance():
    ours = published_noise.shuffled_noise_variance(
        epsilon=2.0,
        delta=1e-5,
        lipschitz=3.0,
        rounds=35,
        records=100,
        clients_per_round=1000,
        clients=2000,
        constant=0.5,
    )
    logs = math.log(35 * 1000**2 / (2000 * 1e-5)) * math.log(35 / 1e-5) * math.log(1e5)
    assert ours == pytest.approx(0.5 * 9 * 35 * 1000 * logs / (100 * 2000 * 2) ** 2, rel=1e-14)


@pytest.mark.parametrize(("name", "value"), [("epsilon", 20.0), ("clients", 10), ("lipschitz", 0.0), ("records", 0)])
def test_a_wrong_argument_is_named(name, value):
    good = {**FEDERATION, "clients_per_round": 1000, "clients": 1000, "epsilon": 1.0, "lipschitz": 1.0, "records": 9}
    with pytest.raises(ValueError, match=name):
        published_noise.shuffled_noise_variance(**{**good, name: value})
