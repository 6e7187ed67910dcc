from __future__ import annotations

import math

import pytest
from mpmath import exp, log, mp, mpf, sqrt

from dpfl.accounting.shuffling import clones_epsilon, published, restricted_clones_epsilon


def test_closed_forms_in_thirty_digits():
    with mp.workdps(30):
        n, e, d = mpf(10000), exp(mpf(1)), mpf("1e-6")
        first = log(1 + (e - 1) / (e + 1) * (8 * sqrt(e * log(4 / d) / n) + 8 * e / n))
        second = log(1 + (e - 1) * (4 * sqrt(2 * log(4 / d)) / sqrt((e + 1) * n) + 4 / n))
    assert published.clones_epsilon_as_printed(10000, 1.0, 1e-6) == pytest.approx(float(first), rel=1e-12)
    assert published.restricted_clones_epsilon_as_printed(10000, 1.0, 1e-6) == pytest.approx(float(second), rel=1e-12)


@pytest.mark.parametrize(("n", "epsilon0"), [(1000, 1.0), (10000, 3.0), (100000, 4.0)])
def test_the_numeric_bounds_are_below_the_closed_forms(n, epsilon0):
    assert clones_epsilon(n, epsilon0, 1e-6) < published.clones_epsilon_as_printed(n, epsilon0, 1e-6)
    assert restricted_clones_epsilon(n, epsilon0, 1e-6) < published.restricted_clones_epsilon_as_printed(
        n, epsilon0, 1e-6
    )


def test_local_failures_lower_the_delta_of_the_closed_form():
    n, epsilon0, delta, delta0 = 1000, 1.0, 1e-5, 1e-10
    epsilon = published.clones_epsilon_as_printed(n, epsilon0, delta, delta0)
    left = delta - (math.exp(epsilon) + 1) * (1 + math.exp(-epsilon0) / 2) * n * delta0
    assert epsilon == pytest.approx(published.clones_epsilon_as_printed(n, epsilon0, left), rel=1e-14)
    with pytest.raises(ValueError, match="delta0"):
        published.clones_epsilon_as_printed(n, epsilon0, delta, 1e-8)


def test_the_closed_forms_refuse_what_their_theorems_exclude():
    for form in (published.clones_epsilon_as_printed, published.restricted_clones_epsilon_as_printed):
        with pytest.raises(ValueError, match="epsilon0"):
            form(100, 1.0, 1e-5)


FEDERATION = {"clients_per_round": 25, "clients": 25, "rounds": 35, "delta": 1e-5}


def test_no_experiment_of_the_paper_has_clients_enough_for_theorem_4_1():
    assert math.ceil(published.least_reports(**FEDERATION)) == 339
    with pytest.raises(ValueError, match="clients_per_round"):
        published.shuffled_noise_variance(**FEDERATION, epsilon=1.0, lipschitz=1.0, records=100)


def test_the_printed_variance():
    ours = published.shuffled_noise_variance(
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
        published.shuffled_noise_variance(**{**good, name: value})
