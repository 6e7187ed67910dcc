"""Sums over rounds against a recursion at 60 digits, in logarithms far below what a float can hold."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import federated as module
from dpfl.accounting.contraction.federated import last_model, non_negative, read_rounds, read_users, stopped_model


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
    ],
)
def test_a_wrong_argument_is_one_line(call, message):
    with pytest.raises(ValueError) as refused:
        call()
    assert str(refused.value) == message
