"""Corollary 3 of asoodeh2021, eq. (12) and suffix stopping against the double sum done by brute force."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import (
    federated_delta,
    federated_random_stop_bound,
    federated_random_stop_delta,
    federated_suffix_stop_delta,
    theta,
)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_schedules_agree_with_brute_force(exact, seed):
    rng = np.random.default_rng(seed)
    m, rounds = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    eta, sigma = 10 ** rng.uniform(-1.5, 0.5, rounds), 10 ** rng.uniform(-0.5, 1, rounds)
    epsilon, radius, alpha = rng.uniform(0, 3), rng.uniform(0, 1), rng.uniform(0.01, 0.99)
    common = {"n": m * rounds, "m": m, "eta": eta, "sigma": sigma, "lipschitz": 1.0, "radius": radius}
    truth = exact.stopped(epsilon, m * rounds, m, eta, sigma, 1.0, 2 * radius)
    delta = federated_random_stop_delta(epsilon, **common)
    assert exact.relative_error(delta, truth) < 1e-11
    assert delta <= federated_random_stop_bound(epsilon, **common) * (1 + 1e-12)
    first = int(np.ceil(alpha * rounds))
    truth = exact.stopped(epsilon, m * rounds, m, eta, sigma, 1.0, 2 * radius, first)
    assert exact.relative_error(federated_suffix_stop_delta(epsilon, alpha=alpha, **common), truth) < 1e-11


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 100.0])
@pytest.mark.parametrize(
    ("eta", "sigma", "radius"), [(0.5, 1.5, 1.0), (0.05, 1.0, 1.0), (1.0, 4.0, 0.2), (1.0, 1.0, 0.0)]
)
def test_constant_schedules_agree_with_brute_force(exact, epsilon, eta, sigma, radius):
    rounds = 12
    truth = exact.stopped(epsilon, 24, 2, [eta] * rounds, [sigma] * rounds, 1.0, 2 * radius)
    late = exact.stopped(epsilon, 24, 2, [eta] * rounds, [sigma] * rounds, 1.0, 2 * radius, first=6)
    common = {"n": 24, "m": 2, "lipschitz": 1.0, "radius": radius}
    for schedules in ({"eta": eta, "sigma": sigma}, {"eta": [eta] * rounds, "sigma": sigma}):
        assert exact.relative_error(federated_random_stop_delta(epsilon, **schedules, **common), truth) < 1e-11
        assert exact.relative_error(federated_random_stop_bound(epsilon, **schedules, **common), truth) < 1e-11
        suffix = federated_suffix_stop_delta(epsilon, alpha=0.5, **schedules, **common)
        assert exact.relative_error(suffix, late) < 1e-11


def test_many_rounds_near_no_contraction(exact):
    rounds, epsilon = 10**5, 0.2
    with mp.workdps(60):
        gap = exact.gap(epsilon, 10.0)
        kept = (rounds - (1 - gap) * (1 - (1 - gap) ** rounds) / gap) / gap
        truth = exact.theta(epsilon, 1.0) * kept / rounds**2
    common = {"n": rounds, "m": 1, "sigma": 2.0, "lipschitz": 1.0, "radius": 1.0}
    assert exact.relative_error(federated_random_stop_delta(epsilon, eta=0.1, **common), truth) < 1e-10
    assert exact.relative_error(federated_random_stop_delta(epsilon, eta=np.full(rounds, 0.1), **common), truth) < 1e-10


def test_no_contraction_leaves_half():
    """Without contraction the record has been seen by a uniform time with probability (T + 1)/(2 T)."""
    common = {"eta": 1e-3, "sigma": 1.0, "lipschitz": 1.0, "radius": 1.0}
    for rounds in (1, 2, 10, 10**9):
        delta = federated_random_stop_delta([0.0, 1.0], n=rounds, m=1, **common)
        np.testing.assert_allclose(delta, theta([0.0, 1.0], 2.0) * (rounds + 1) / (2 * rounds), rtol=1e-12)


def test_suffix_stopping_lies_between_random_and_no_stopping():
    """The paper hopes that the suffix improves delta; for constant schedules it costs, up to the last model's delta."""
    common = {"n": 40, "m": 2, "eta": 0.5, "sigma": 2.0, "lipschitz": 1.0, "radius": 1.0}
    alphas = [0.05, 0.25, 0.5, 0.75, 0.99]
    epsilon = np.array([0.0, 0.3, 1.0])
    deltas = [federated_suffix_stop_delta(epsilon, alpha=alpha, **common) for alpha in alphas]
    np.testing.assert_allclose(deltas[0], federated_random_stop_delta(epsilon, **common), rtol=1e-13)
    np.testing.assert_allclose(deltas[-1], federated_delta(epsilon, **common), rtol=1e-13)
    assert np.all(np.diff(deltas, axis=0) > 0)


def test_suffix_stopping_helps_where_noise_grows():
    sigma = np.geomspace(0.5, 20, 20)
    common = {"n": 20, "m": 1, "eta": 1.0, "sigma": sigma, "lipschitz": 1.0, "radius": 1.0}
    assert federated_suffix_stop_delta(0.5, alpha=0.75, **common) < federated_random_stop_delta(0.5, **common)


def test_the_first_round_of_the_suffix_is_not_rounded_up():
    common = {"n": 30, "m": 1, "eta": 1.0, "sigma": 3.0, "lipschitz": 1.0, "radius": 0.5}
    just_below = federated_suffix_stop_delta(0.5, alpha=0.1 - 1e-6, **common)  # 0.1 * 30 > 3 in floating point
    assert federated_suffix_stop_delta(0.5, alpha=0.1, **common) == just_below
