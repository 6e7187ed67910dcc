"""Theorem 2 of asoodeh2021 and its variants against the sum at 60 digits."""

import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import (
    contraction_factor,
    federated_delta,
    federated_delta_relaxed,
    federated_delta_strongly_convex,
    federated_unamplified_delta,
    one_minus_theta,
    theta,
)

CASES = [  # n, m, eta, sigma, L, rho
    (10, 1, 1.0, 2.0, 1.0, 0.5),
    (60, 6, 0.5, 4.0, 1.0, 0.2),
    (12, 4, 1e-3, 1.5, 1.0, 1.0),
    (5, 1, 2.0, 30.0, 1.0, 1.0),
    (1, 1, 0.5, 1.0, 1.0, 1.0),
    (7, 7, 0.5, 1.0, 1.0, 1.0),
    (40, 1, 3.0, 0.9, 0.01, 0.004),
    (30, 2, 1.0, 1.0, 0.0, 1.0),
    (30, 2, 1.0, 1.0, 1.0, 0.0),
    (8, 2, 1e-9, 1e3, 1e3, 1e-9),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 25.0, 800.0])
def test_closed_form_and_sum_agree_with_mpmath(exact, case, epsilon):
    n, m, eta, sigma, lipschitz, radius = case
    rounds = n // m
    truth = exact.federated(epsilon, n, m, [eta] * rounds, [sigma] * rounds, lipschitz, [2 * radius] * rounds)
    common = {"n": n, "m": m, "lipschitz": lipschitz, "radius": radius}
    closed = federated_delta(epsilon, eta=eta, sigma=sigma, **common)
    summed = federated_delta(epsilon, eta=[eta] * rounds, sigma=[sigma] * rounds, **common)
    assert exact.relative_error(closed, truth) < 1e-11
    assert exact.relative_error(summed, truth) < 1e-11


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_schedules_agree_with_mpmath(exact, seed):
    rng = np.random.default_rng(seed)
    m, rounds = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    eta, sigma = 10 ** rng.uniform(-1.5, 0.5, rounds), 10 ** rng.uniform(-0.5, 1, rounds)
    n, epsilon, radius = m * rounds, rng.uniform(0, 3), rng.uniform(0, 1)
    common = {"n": n, "m": m, "eta": eta, "sigma": sigma, "lipschitz": 1.0, "radius": radius}
    truth = exact.federated(epsilon, n, m, eta, sigma, 1.0, [2 * radius] * rounds)
    assert exact.relative_error(federated_delta(epsilon, **common), truth) < 1e-11
    truth = exact.federated(epsilon, n, m, eta, sigma, 1.0, 2 * (radius + eta))
    assert exact.relative_error(federated_delta_relaxed(epsilon, **common), truth) < 1e-11


def test_many_rounds_near_no_contraction(exact):
    """1e5 rounds whose factors are 1 - O(1e-6): the closed form in mpmath, once as a scalar and once as a schedule."""
    rounds, epsilon = 10**5, 0.2
    common = {"n": rounds, "m": 1, "lipschitz": 1.0, "radius": 1.0}
    with mp.workdps(60):
        gap = exact.gap(epsilon, 10.0)
        truth = exact.theta(epsilon, 1.0) * (1 - (1 - gap) ** rounds) / gap / rounds
    assert 1e-7 < gap < 1e-5
    assert exact.relative_error(federated_delta(epsilon, eta=0.1, sigma=2.0, **common), truth) < 1e-11
    schedule = np.full(rounds, 0.1)
    assert exact.relative_error(federated_delta(epsilon, eta=schedule, sigma=2.0, **common), truth) < 1e-11


@pytest.mark.slow  # a limit of time fails beside other work
def test_many_rounds_are_fast():
    rng = np.random.default_rng(0)
    rounds = 10**5
    schedules = {"eta": rng.uniform(0.1, 1, rounds), "sigma": rng.uniform(1, 3, rounds)}
    seconds = []
    for _ in range(5):
        start = time.process_time()
        federated_delta(1.0, n=rounds, m=1, lipschitz=1.0, radius=0.5, **schedules)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.2  # of processor time; measured 0.022


def test_more_rounds_than_can_be_listed():
    common = {"eta": 1e-3, "sigma": 1.0, "lipschitz": 1.0, "radius": 1.0}
    np.testing.assert_allclose(federated_delta([0.0, 1.0], n=10**12, m=1, **common), theta([0.0, 1.0], 2.0), rtol=1e-12)


def test_all_users_at_once_is_the_gaussian_mechanism():
    epsilon = np.linspace(0, 4, 9)
    delta = federated_delta(epsilon, n=25, m=25, eta=0.5, sigma=0.4, lipschitz=1.0, radius=3.0)
    np.testing.assert_allclose(delta, theta(epsilon, 1.0), rtol=1e-14)


@given(st.floats(0, 5), st.floats(0, 5), st.sampled_from([1, 2, 5, 20]), st.floats(0.01, 2), st.floats(0.3, 5))
@settings(max_examples=50, deadline=None)
def test_ordering_of_the_variants(epsilon, other, m, eta, sigma):
    low, high = sorted((epsilon, other))
    common = {"n": 20, "m": m, "sigma": sigma, "lipschitz": 1.0, "radius": 0.5}
    delta = federated_delta(low, eta=eta, **common)
    assert federated_delta(high, eta=eta, **common) <= delta * (1 + 1e-12)
    assert delta <= federated_delta_relaxed(low, eta=eta, **common) * (1 + 1e-12)
    unamplified = federated_unamplified_delta(low, n=20, m=m, sigma=sigma, lipschitz=1.0)
    assert federated_delta_relaxed(low, eta=eta, **common) <= unamplified * (1 + 1e-12)
    curved = federated_delta_strongly_convex(low, eta=eta, smoothness=0.6, strong_convexity=0.3, **common)
    assert curved <= delta * (1 + 1e-12)
    flat = federated_delta_strongly_convex(low, eta=eta, smoothness=0.6, strong_convexity=0.0, **common)
    assert flat == pytest.approx(delta, rel=1e-12)


def test_strongly_convex_shrinks_the_ball_each_round(exact):
    eta = np.array([0.5, 1.0, 1.5])
    common = {"n": 6, "m": 2, "eta": eta, "sigma": 3.0, "lipschitz": 1.0, "radius": 1.0}
    shrink = contraction_factor(eta, 0.8, 0.3)
    truth = exact.federated(0.4, 6, 2, eta, [3.0] * 3, 1.0, 2.0 * shrink)
    delta = federated_delta_strongly_convex(0.4, smoothness=0.8, strong_convexity=0.3, **common)
    assert exact.relative_error(delta, truth) < 1e-11
    with pytest.raises(ValueError, match=r"^eta "):
        federated_delta_strongly_convex(0.4, smoothness=1.2, strong_convexity=0.3, **common)


def test_figure_2_at_a_fractional_number_of_rounds(figure_2021):
    """q = 0.3 means T = 10/3: three rounds give 0.9 times the closed form that is drawn; four would need 120 users."""
    scalars = {"lipschitz": 1.0, "radius": 1.0, "n": 100, "m": 30}
    epsilon = np.array([0.0, 0.5, 1.0])
    closed = federated_delta(epsilon, n=100, m=30, **figure_2021)
    summed = federated_delta(epsilon, eta=[0.5] * 3, sigma=[1.5] * 3, **scalars)
    np.testing.assert_allclose(summed / closed, 0.9, rtol=1e-3)
    with pytest.raises(ValueError, match="the last round would have 10 users, not m"):
        federated_delta(epsilon, eta=[0.5] * 4, sigma=[1.5] * 4, **scalars)


@pytest.mark.parametrize("m", [10, 20, 30])
def test_contraction_is_inert_in_figure_2(figure_2021, m):
    link = 2 * np.sqrt(m) / (0.5 * 1.5)
    assert one_minus_theta(0.5, link) < 4e-5
    delta = federated_delta(0.5, n=100, m=m, **figure_2021)
    assert delta == pytest.approx(federated_unamplified_delta(0.5, n=100, m=m, sigma=1.5, lipschitz=1.0), rel=2e-4)


def test_more_users_a_round_need_not_help(figure_2021):
    """The claim of Fig. 2 holds for its q = 0.1, 0.2, 0.3 and fails for small q."""
    delta = {m: federated_delta(0.5, n=100, m=m, **figure_2021) for m in (1, 2, 5, 10, 20, 30)}
    assert delta[1] < delta[2] < delta[5] > delta[10] > delta[20] > delta[30]
    np.testing.assert_allclose([delta[m] for m in (1, 2, 5, 10)], [0.016, 0.056, 0.081, 0.031], atol=5e-4)


def test_refuses_schedules_of_different_lengths():
    with pytest.raises(ValueError, match=r"^sigma "):
        federated_delta(1.0, n=100, m=30, eta=[0.5] * 3, sigma=[1.0] * 4, lipschitz=1.0, radius=1.0)
