"""One Gaussian step on a sample against 50-digit integrals of the hockey stick, and where the closed forms end."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.poisson_gaussian import amplified_epsilon, poisson_add_delta, subsampled_delta


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def hockey_stick(upper, lower, epsilon, edge):
    """The integral of (upper - e^epsilon lower)+, positive on one side of `edge`."""
    gap = lambda x: upper(x) - mp.exp(epsilon) * lower(x)  # noqa: E731
    sides = [mp.quad(gap, [edge, edge + 5, edge + 15, edge + 40]), mp.quad(gap, [edge - 40, edge - 15, edge - 5, edge])]
    return max(sides)


@pytest.mark.parametrize(
    ("p", "mu", "epsilon"), [(0.1, 1.0, 0.05), *slow((0.1, 1.0, 0.1), (0.04, 2.0, 0.02)), (1.0, 1.5, 1.0)]
)
def test_both_poisson_directions_against_integrals(p, mu, epsilon):
    p, mu, epsilon = map(mp.mpf, (p, mu, epsilon))
    normal = lambda x: mp.npdf(x)  # noqa: E731
    mixture = lambda x: (1 - p) * mp.npdf(x) + p * mp.npdf(x, mu)  # noqa: E731
    edges = [mp.log(1 + mp.expm1(sign * epsilon) / p) / mu + mu / 2 for sign in (1, -1)]
    remove, add = hockey_stick(mixture, normal, epsilon, edges[0]), hockey_stick(normal, mixture, epsilon, edges[1])
    arguments = (float(epsilon), float(p), float(mu))
    assert abs(subsampled_delta(*arguments) - remove) <= 1e-12 * remove
    assert abs(poisson_add_delta(*arguments) - add) <= 1e-10 * add


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 800), st.floats(0, 1), st.floats(0, 10))
def test_remove_dominates_add_and_add_ends_where_it_must(epsilon, p, mu):
    remove, add = subsampled_delta(epsilon, p, mu), poisson_add_delta(epsilon, p, mu)
    assert 0 <= add <= remove * (1 + 1e-9) + 1e-15
    if -np.expm1(-epsilon) >= p:
        assert add == 0


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 900), st.floats(1e-6, 1))
def test_amplified_epsilon_is_the_logarithm_without_overflow(epsilon, p):
    e, share = mp.mpf(epsilon), mp.mpf(p)
    assert amplified_epsilon(epsilon, p) == pytest.approx(float(mp.log1p(mp.expm1(e) / share)), rel=1e-13)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-9, 1), st.floats(0.05, 5), st.floats(1e-3, 0.999))
def test_the_add_direction_keeps_its_digits_where_little_is_left(p, mu, share):
    """Up to the epsilon where it ends, e^-epsilon = 1 - p: a difference of two tails at 50 digits."""
    epsilon = -math.log1p(-share * p)
    left = mp.exp(-mp.mpf(epsilon)) - (1 - mp.mpf(p))
    edge = mp.log(left / p) / mu + mp.mpf(mu) / 2  # Q is below e^-epsilon P below here
    below_p, below_q = mp.ncdf(edge), (1 - mp.mpf(p)) * mp.ncdf(edge) + p * mp.ncdf(edge - mu)
    exact = below_p - mp.exp(mp.mpf(epsilon)) * below_q
    assert poisson_add_delta(epsilon, p, mu) == pytest.approx(float(exact), rel=1e-7, abs=1e-300)


def test_whole_batches_and_no_batches():
    """p = 1 is the Gaussian step itself, at epsilon = 0 its total variation 2 Phi(mu/2) - 1; p = 0 spends nothing."""
    for profile in (subsampled_delta, poisson_add_delta):
        assert profile(0.0, 1.0, 2.0) == pytest.approx(0.6826894921370859, rel=1e-14)
        assert profile(0.0, 0.25, 2.0) == pytest.approx(0.6826894921370859 / 4, rel=1e-14)
        assert profile([0.0, 1.0], 0.0, 2.0).tolist() == [0.0, 0.0]
        assert profile([[0.0], [1.0]], [0.1, 0.2, 0.3], 1.0).shape == (2, 3)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (amplified_epsilon, (-1, 0.5), "epsilon must be at least 0, got -1.0"),
        (amplified_epsilon, (1, 0), "p must be above 0, got 0.0"),
        (subsampled_delta, (1, 1.5, 1), "p must be at most 1, got 1.5"),
        (subsampled_delta, (1, 0.5, -1), "mu must be at least 0, got -1.0"),
        (poisson_add_delta, (1, -0.5, 1), "p must be at least 0, got -0.5"),
    ],
)
def test_a_wrong_argument_is_one_line(function, arguments, message):
    with pytest.raises(ValueError) as refused:
        function(*arguments)
    assert str(refused.value) == message
