"""asoodeh2021 by contraction against sums at 60 digits, exact runs, and each other."""

import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from dpfl.accounting import contraction
from dpfl.accounting.contraction import (
    contraction_factor,
    federated_delta,
    federated_delta_relaxed,
    federated_delta_strongly_convex,
    federated_harmonic_bound,
    federated_harmonic_delta,
    federated_random_stop_bound,
    federated_random_stop_delta,
    federated_sigma,
    federated_suffix_stop_delta,
    federated_unamplified_delta,
    theta,
)
from dpfl.accounting.contraction import federated as module
from dpfl.accounting.contraction.federated import (
    FederatedRelease,
    federated_release_delta,
    last_model,
    non_negative,
    read_rounds,
    read_users,
    release_epsilon,
    release_sigma,
    round_epsilon,
    round_sigma,
    step_diameter,
    stopped_model,
)
from dpfl.papers.asoodeh2021.claims import ExactFederatedSgd

# Sums over rounds against a recursion at 60 digits, in logarithms far below what a float can hold.


def recursion(exact, epsilon, given, lipschitz, diameter):
    """The divergence after each round, delta_t = m/n head_t + link_t delta_(t - 1): neither a sum nor a logarithm."""
    eta, sigma, diameters = np.broadcast_arrays(given.eta, given.sigma, diameter)
    delta, history = mp.mpf(0), []
    for t in range(eta.size):
        head = exact.theta(epsilon, 2 * mp.mpf(lipschitz) / (mp.sqrt(given.m) * mp.mpf(sigma[t])))
        reach = mp.mpf(diameters[t]) * mp.sqrt(given.m) / (mp.mpf(eta[t]) * mp.mpf(sigma[t]))
        delta = head * given.m / given.n + exact.theta(epsilon, reach) * delta
        history.append(delta)
    return history


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_schedules_and_constants_agree_with_the_recursion(exact, seed):
    """Up to epsilon = 2000, where delta is about e^-1e5: only its logarithm is a float."""
    rng = np.random.default_rng(seed)
    m, count = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    epsilon, lipschitz = 10 ** rng.uniform(-1, 3.3), rng.uniform(0.2, 2)
    eta, sigma = 10 ** rng.uniform(-1.5, 0.5, count), 10 ** rng.uniform(-0.5, 1, count)
    varied, constant = read_rounds(m * count, m, eta, sigma), read_rounds(m * count, m, eta[0], sigma[0])
    written = read_rounds(m * count, m, np.full(count, eta[0]), sigma[0])
    diameter, first = rng.uniform(0.1, 2, count), int(rng.integers(1, count + 1))
    for given_, width, truth_of in ((varied, diameter, varied), (constant, 0.7, written)):
        with mp.workdps(60):
            history = recursion(exact, epsilon, truth_of, lipschitz, width)
            last, stopped = mp.log(history[-1]), mp.log(mp.fsum(history[first - 1 :]) / (count - first + 1))
        assert last_model(epsilon, given_, lipschitz, width) == pytest.approx(float(last), rel=1e-11, abs=1e-11)
        found = stopped_model(epsilon, given_, lipschitz, width, first)
        assert found == pytest.approx(float(stopped), rel=1e-11, abs=1e-11)


def test_blocks_of_epsilon_keep_values_and_shape(monkeypatch):
    schedule = read_rounds(6, 2, [0.5, 0.2, 1.0], 2.0)
    epsilon = np.linspace(0, 3, 10).reshape(5, 2)
    whole = last_model(epsilon, schedule, 1.0, 1.0)
    one_by_one = [[float(last_model(each, schedule, 1.0, 1.0)) for each in row] for row in epsilon]
    monkeypatch.setattr(module, "_BLOCK", 12)  # four epsilons at a time
    for found in (whole, last_model(epsilon, schedule, 1.0, 1.0)):
        np.testing.assert_allclose(found, one_by_one, rtol=1e-14)
    assert last_model(np.empty((0, 3)), schedule, 1.0, 1.0).shape == (0, 3)


def test_what_is_never_seen_spends_nothing():
    for schedule in (read_rounds(6, 2, 0.5, 2.0), read_rounds(6, 2, [0.5] * 3, 2.0)):
        assert last_model(0.5, schedule, 0.0, 1.0) == -np.inf


def test_rounds_in_numbers():
    """sqrt(m) = 2: heads 2 * 3/(2 sigma), links 5 * 2/(eta sigma)."""
    schedule = read_rounds(8, 4, [0.5, 0.25], [2.0, 4.0])
    assert (schedule.constant, schedule.count, schedule.whole_count()) == (False, 2.0, 2)
    np.testing.assert_allclose(schedule.head(3.0), [1.5, 0.75])
    np.testing.assert_allclose(schedule.link(5.0), [10.0, 10.0])
    np.testing.assert_allclose(schedule.link([5.0, 1.0]), [10.0, 2.0])
    fractional = read_rounds(10, 3, 0.5, 2.0)
    assert fractional.constant and fractional.count == pytest.approx(10 / 3)
    assert read_rounds(10, 3, [1.0] * 3, 2.0).count == 3
    assert non_negative(radius=0, lipschitz=2) == (0.0, 2.0) and read_users(3, 3.0) == (3, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_users(3, 4), "m must be at most n = 3, got 4"),
        (lambda: read_users(0, 1), "n must be at least 1, got 0.0"),
        (lambda: read_rounds(10, 3, [1.0] * 5, 1.0), "eta must be one number or n/m = 3 of them, got shape (5,)"),
        (
            lambda: read_rounds(10, 3, [1.0] * 4, 1.0),
            "eta must be one number or n/m = 3 of them, got shape (4,): the last round would have 1 users, not m",
        ),
        (lambda: read_rounds(9, 3, [1.0] * 4, 1.0), "eta must be one number or n/m = 3 of them, got shape (4,)"),
        (lambda: read_rounds(4, 2, 1.0, [[1.0, 1.0]]), "sigma must be one number or n/m = 2 of them, got shape (1, 2)"),
        (lambda: read_rounds(4, 2, 0.0, 1.0), "eta must be above 0.0, got 0.0"),
        (lambda: non_negative(radius=-1), "radius must be at least 0.0, got -1.0"),
        (
            lambda: stopped_model(0.1, read_rounds(10, 3, 1.0, 1.0), 1.0, 1.0, 1),
            "m must divide n, so that every round has m users, got n = 10 and m = 3",
        ),
        (lambda: last_model(-1, read_rounds(4, 2, 1.0, 1.0), 1.0, 1.0), "epsilon must be at least 0.0, got -1.0"),
        (lambda: round_epsilon(1e-5, m=1, sigma=0.0, lipschitz=1.0), "sigma must be above 0.0, got 0.0"),
        (lambda: round_epsilon(1e-5, m=1, sigma=-0.5, lipschitz=1.0), "sigma must be above 0.0, got -0.5"),
    ],
)
def test_a_wrong_argument_is_one_line(call, message):
    with pytest.raises(ValueError) as refused:
        call()
    assert str(refused.value) == message


# Theorem 2 of asoodeh2021 and its variants against the sum at 60 digits.

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


# Corollary 1 of asoodeh2021: steps 1/(lambda t).

CASE = {"n": 100, "m": 10, "sigma": 1.5, "lipschitz": 1.0, "radius": 1.0, "strong_convexity": 0.1}
EPSILON = np.array([0.0, 0.5, 1.0, 4.0])


def test_is_theorem_2_at_its_steps(exact):
    eta = 1 / (0.1 * np.arange(1, 11))
    delta = federated_harmonic_delta(EPSILON, **CASE)
    rest = {key: value for key, value in CASE.items() if key != "strong_convexity"}
    np.testing.assert_allclose(delta, federated_delta(EPSILON, eta=eta, **rest), rtol=1e-14)
    for epsilon, value in zip(EPSILON, delta, strict=True):
        truth = exact.federated(epsilon, 100, 10, eta, [1.5] * 10, 1.0, [2.0] * 10)
        assert exact.relative_error(value, truth) < 1e-11


def test_bounds_are_ordered():
    delta, bound = federated_harmonic_delta(EPSILON, **CASE), federated_harmonic_bound(EPSILON, **CASE)
    trivial = federated_unamplified_delta(EPSILON, n=100, m=10, sigma=1.5, lipschitz=1.0)
    assert np.all(delta < bound) and np.all(bound < trivial)


def test_early_steps_beyond_smoothness_take_the_wider_diameter(exact):
    """eta_t = 10/t exceeds 2/beta = 2.5 for t < 4."""
    eta = 10 / np.arange(1, 11)
    diameters = 2.0 + np.where(np.arange(1, 11) < 4, 2 * eta, 0.0)
    truth = exact.federated(0.5, 100, 10, eta, [1.5] * 10, 1.0, diameters)
    delta = federated_harmonic_delta(0.5, smoothness=0.8, **CASE)
    assert exact.relative_error(delta, truth) < 1e-11
    assert delta > federated_harmonic_delta(0.5, **CASE)
    assert federated_harmonic_delta(0.5, smoothness=0.2, **CASE) == federated_harmonic_delta(0.5, **CASE)


# Released models of regularised losses.

SIGMA = 1.2
RELEASED = {"n": 60, "m": 6, "lipschitz": 1.0, "radius": 0.4}
SCHEDULE = 1 / np.arange(1.0, 11.0)
EPSILONS = np.array([0.0, 0.3, 1.0])


@pytest.mark.parametrize("eta", [0.5, SCHEDULE])
@pytest.mark.parametrize(
    ("first", "known", "extra"),
    [
        (10, contraction.federated_delta, {}),
        (1, contraction.federated_random_stop_delta, {}),
        (5, contraction.federated_suffix_stop_delta, {"alpha": 0.5}),
    ],
)
def test_without_strong_convexity_it_is_the_papers(eta, first, known, extra):
    release = FederatedRelease(eta=eta, smoothness=1.5, strong_convexity=0.0, first_stop=first, **RELEASED)
    ours = federated_release_delta(EPSILONS, release, sigma=SIGMA)
    np.testing.assert_allclose(ours, known(EPSILONS, eta=eta, sigma=SIGMA, **RELEASED, **extra), rtol=1e-10)


def test_short_steps_of_strongly_convex_losses_shrink_the_ball():
    theory = {"smoothness": 1.0, "strong_convexity": 0.4}
    release = FederatedRelease(eta=0.3, first_stop=10, **theory, **RELEASED)
    ours = federated_release_delta(EPSILONS, release, sigma=SIGMA)
    known = contraction.federated_delta_strongly_convex(EPSILONS, eta=0.3, sigma=SIGMA, **theory, **RELEASED)
    np.testing.assert_allclose(ours, known, rtol=1e-10)
    assert (ours < contraction.federated_delta(EPSILONS, eta=0.3, sigma=SIGMA, **RELEASED)).all()


@settings(max_examples=50, deadline=None)
@given(
    eta=st.floats(0.01, 50.0),
    radius=st.floats(0.1, 5.0),
    regularisation=st.floats(0.001, 1.0),
    seed=st.integers(0, 1000),
)
def test_no_step_makes_more_of_the_ball(eta, radius, regularisation, seed):
    """Logistic loss of one record of norm 1 in the plane, regularised: L = 1, beta = 1/4 + lambda."""
    rng = np.random.default_rng(seed)
    record = rng.normal(size=2)
    record /= np.linalg.norm(record)
    angles = rng.uniform(0, 2 * np.pi, 60)
    points = radius * np.sqrt(rng.random(60))[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.vstack([points, radius * record, -radius * record])
    moved = points - eta * (-expit(-points @ record)[:, None] * record + regularisation * points)
    across = np.linalg.norm(moved[:, None] - moved[None], axis=-1).max()
    theory = {"radius": radius, "lipschitz": 1.0, "smoothness": 0.25 + regularisation}
    assert across <= step_diameter(eta, strong_convexity=regularisation, **theory) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_the_exact_run_with_long_first_steps_stays_within(epsilon, radius):
    """eta_t = 1/(lambda t) in one dimension: the first steps exceed 2/beta and the ball is small against them."""
    curvature, rounds = 0.2, 6
    etas = 1 / (curvature * np.arange(1.0, rounds + 1))
    run = ExactFederatedSgd(m=2, etas=list(etas), sigma=0.7, lipschitz=1.0, radius=radius, curvature=curvature)
    theory = {"lipschitz": 1.0, "radius": radius, "smoothness": 1.2, "strong_convexity": curvature}
    bounds = {
        first: federated_release_delta(
            epsilon, FederatedRelease(n=12, m=2, eta=etas, first_stop=first, **theory), sigma=0.7
        )
        for first in (1, rounds)
    }
    assert run.delta(epsilon) <= bounds[rounds]
    assert run.stopped_delta(epsilon) <= bounds[1]
    assert run.delta(0.0) > 1e-6


RELEASE = {"n": 600, "m": 1, "lipschitz": 1.0, "eta": 2.0, "radius": 0.5, "smoothness": 0.3, "strong_convexity": 0.05}


@pytest.mark.parametrize("first", [1, 300, 600])
def test_epsilon_and_sigma_invert_delta(first):
    release = FederatedRelease(first_stop=first, **RELEASE)
    sigma = release_sigma(0.8, 1e-5, release)
    delta = federated_release_delta(0.8, release, sigma=sigma)
    assert (1 - 1e-6) * 1e-5 < delta <= 1e-5
    assert release_epsilon(1e-5, release, sigma=sigma) == pytest.approx(0.8, rel=1e-6)
    assert sigma < round_sigma(0.8, 1e-5, m=1, lipschitz=1.0)


def test_the_round_alone_is_the_gaussian_mechanism():
    sigma = round_sigma(1.3, 1e-6, m=4, lipschitz=2.0)
    assert round_epsilon(1e-6, m=4, sigma=sigma, lipschitz=2.0) == pytest.approx(1.3, rel=1e-9)
    assert contraction.theta(1.3, 2 * 2 / (2 * sigma)) == pytest.approx(1e-6, rel=1e-9)


def test_the_last_model_never_spends_more_than_the_round_alone():
    for sigma in (0.1, 1.0, 100.0, 1e6):
        ours = release_epsilon(1e-5, FederatedRelease(first_stop=600, **RELEASE), sigma=sigma)
        assert 0 <= ours <= round_epsilon(1e-5, m=1, sigma=sigma, lipschitz=1.0)
    assert ours == 0.0


# The noise for a target is the root of Theorem 2's delta, on the safe side.

TARGETED = {"n": 100, "m": 10, "eta": 0.5, "lipschitz": 1.0, "radius": 1.0}


@given(st.floats(0, 8), st.floats(-12, -0.01), st.sampled_from([1, 5, 30, 100]), st.floats(0.01, 3))
@settings(max_examples=30, deadline=None)
def test_meets_the_target_and_no_less_noise_does(epsilon, log_delta, m, eta):
    target = 10.0**log_delta
    case = {**TARGETED, "m": m, "eta": eta}
    sigma = federated_sigma(epsilon, target, **case)
    assert target * (1 - 1e-9) < federated_delta(epsilon, sigma=sigma, **case) <= target
    assert federated_delta(epsilon, sigma=sigma * (1 - 1e-9), **case) > target


def test_delta_falls_as_noise_grows():
    for epsilon in (0.0, 1.0, 5.0):
        deltas = [federated_delta(epsilon, sigma=sigma, **TARGETED) for sigma in np.geomspace(0.03, 3, 200)]
        assert np.all(np.diff(deltas) <= 1e-15)


def test_schedules_and_extreme_targets():
    eta = 1 / np.arange(1, 11)
    case = {**TARGETED, "eta": eta}
    for epsilon, delta in ((1.0, 1e-5), (2.0, 1e-300), (0.0, 1e-200), (0.5, 1 - 1e-9), (1e4, 1e-6)):
        sigma = federated_sigma(epsilon, delta, **case)
        assert federated_delta(epsilon, sigma=sigma, **case) == pytest.approx(delta, rel=1e-9)


def test_three_rounds_of_ten_thirds_never_reach_ninety_five_percent():
    """With T = 3, m = 30, n = 100 a record is seen with probability 0.9 only."""
    with pytest.raises(ValueError, match=r"^delta"):
        federated_sigma(0.0, 0.95, **{**TARGETED, "m": 30, "eta": [0.5] * 3})


# Corollary 3 of asoodeh2021, eq. (12) and suffix stopping against the double sum done by brute force.


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


def test_a_stop_in_many_rounds_near_no_contraction(exact):
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
