"""Gaussian steps on Poisson samples against other accountants, integrals and 50-digit arithmetic."""

import math
import time

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.poisson_gaussian import (
    Step,
    amplified_epsilon,
    epsilon_interval,
    epsilon_upper,
    poisson_add_delta,
    subsampled_delta,
)

pytestmark = pytest.mark.usefixtures("fifty_digits")

# Gaussian steps on Poisson samples against other accountants, integrals and 50-digit arithmetic.

# (noise multiplier, sample rate, steps, delta, relation, low, high): brackets found elsewhere by a plain grid of the
# privacy loss (steps > 1) and by mpmath (one step, no sampling).
REFERENCES = [
    (0.7, 1 / 94, 1880, 1e-5, "add_or_remove", 6.425491683626733, 6.425726727102229),
    (0.7, 1 / 94, 1880, 1e-5, "replace_one", 8.543071821486345, 8.54330856065414),
    (1.0072, 1 / 94, 1880, 1e-5, "add_or_remove", 2.642206344655408, 2.6424431814341567),
    (1.0072, 1 / 94, 1880, 1e-6, "replace_one", 4.810615503466668, 4.810856031434333),
    (1.7676, 1 / 94, 1880, 1e-5, "add_or_remove", 1.0934729946174462, 1.0937110494719837),
    (3.0, 1 / 94, 1880, 1e-6, "zero_out", 0.6589348920348316, 0.6591761055961382),
    (3.0, 1 / 94, 1880, 1e-6, "replace_one", 1.3273587220370502, 1.327598257378049),
    (5.0, 1.0, 1000, 1e-12, "replace_one", 168.1854476579635, 168.1854476579635),
    (2.0, 1.0, 10, 1e-30, "add_or_remove", 19.085246947340412, 19.085246947340412),
    (0.5, 1.0, 10, 1e-20, "replace_one", 196.41051012665918, 196.41051012665918),
    (1000.0, 1.0, 100, 1e-5, "add_or_remove", 0.027219419814577137, 0.027219419814577137),
    (1.0, 0.01, 1, 1e-5, "add_or_remove", 0.19945044779591473, 0.19945044779591473),
    (1.0, 0.01, 1, 1e-12, "replace_one", 2.0854717618379195, 2.0854717618379195),
    (0.7, 0.1, 1, 1e-20, "add_or_remove", 11.278879466591167, 11.278879466591167),
    (2.0, 0.5, 1, 1e-15, "replace_one", 3.8782927562667715, 3.8782927562667715),
    (1.5, 1e-4, 1, 1e-6, "add_or_remove", 0.0002851479299006106, 0.0002851479299006106),
    (3.0, 0.05, 1, 1e-18, "add_or_remove", 0.5403401459791837, 0.5403401459791837),
]


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta", "relation", "low", "high"), REFERENCES)
def test_the_interval_holds_the_reference(sigma, rate, steps, delta, relation, low, high):
    lower, upper = epsilon_interval(
        noise_multiplier=sigma, sample_rate=rate, steps=steps, delta=delta, neighbouring=relation
    )
    assert lower <= high * (1 + 1e-9)
    assert upper >= low * (1 - 1e-9)
    assert upper - lower <= 1e-4 * upper
    assert upper <= high * (1 + 1e-9) + 0.5 * (high - low)


@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "exact"), [(1.0, 100, 1e-18, 136.86), (1e6, 1000, 1e-5, 5.6e-6), (1.0, 5, 1e-300, None)]
)
def test_without_sampling_it_is_the_gaussian(sigma, steps, delta, exact):
    if exact is None:
        with pytest.raises(ValueError, match="delta"):
            epsilon_interval(noise_multiplier=sigma, sample_rate=1.0, steps=steps, delta=delta)
        return
    lower, upper = epsilon_interval(noise_multiplier=sigma, sample_rate=1.0, steps=steps, delta=delta)
    assert upper == pytest.approx(exact, rel=1e-2 if exact < 1 else 1e-4)
    assert lower < float(gaussian_dp.epsilon(delta, math.sqrt(steps) / sigma)) < upper <= lower * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(
    sigma=st.floats(0.5, 5),
    rate=st.floats(1e-3, 0.9),
    steps=st.integers(1, 1000),
    exponent=st.floats(2, 8),
    relation=st.sampled_from(["add_or_remove", "replace_one"]),
)
def test_the_interval_against_dp_accounting(sigma, rate, steps, exponent, relation):
    from dp_accounting import NeighboringRelation

    pairs = {
        "add_or_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }
    theirs = (
        privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=1e-3, neighboring_relation=pairs[relation]
        )
        .self_compose(steps)
        .get_epsilon_for_delta(10**-exponent)
    )
    lower, upper = epsilon_interval(
        noise_multiplier=sigma, sample_rate=rate, steps=steps, delta=10**-exponent, neighbouring=relation
    )
    assert lower <= theirs * (1 + 1e-6) + 1e-9  # theirs is an upper bound, loose where epsilon is small
    assert upper - lower <= 1e-3 * upper + 1e-9


@pytest.mark.parametrize("order", ["remove", "add", "replace"])
def test_a_step_is_its_pair(order):
    step = Step(shift=1.4, rate=0.03, order=order)
    x = np.linspace(-9, 9, 37)
    still, moved, back = norm.pdf(x), norm.pdf(x, 1.4), norm.pdf(x, -1.4)
    if order == "add":  # along -x, so that the loss grows
        p, q = still, 0.97 * still + 0.03 * back
    else:
        p, q = 0.97 * still + 0.03 * moved, still if order == "remove" else 0.97 * still + 0.03 * back
    assert step.loss_and_log_density(x)[1] == pytest.approx(np.log(p), rel=1e-12)
    assert step.loss(x) == pytest.approx(np.log(p / q), rel=1e-9, abs=1e-13)
    inside = np.abs(x) < 5
    assert step.place(step.loss(x[inside])) == pytest.approx(x[inside], rel=1e-6, abs=1e-6)
    mass = quad(lambda y: np.exp(step.loss_and_log_density(y)[1]), -12, 14, epsabs=1e-13)[0]
    assert mass == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
def test_the_upper_end_alone_is_that_of_the_interval(relation):
    setting = {"noise_multiplier": 0.8, "sample_rate": 0.02, "steps": 300, "delta": 1e-7, "neighbouring": relation}
    assert epsilon_upper(**setting) == epsilon_interval(**setting)[1]


@pytest.mark.slow  # a limit of time fails beside other work
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [(1.0, 0.01, 10**7, 1e-5), (2.2, 3e-3, 10**6, 1e-200), (0.6, 2e-4, 2, 1e-9), (300.0, 1e-3, 50, 1e-30)],
)
def test_far_settings_take_seconds(sigma, rate, steps, delta):
    begin = time.process_time()
    lower, upper = epsilon_interval(noise_multiplier=sigma, sample_rate=rate, steps=steps, delta=delta)
    assert time.process_time() - begin < 10  # measured 0.1 to 1
    assert 0 < lower <= upper <= lower * (1 + 1e-3)


def test_no_steps_spend_nothing():
    assert epsilon_interval(noise_multiplier=1.0, sample_rate=0.5, steps=0, delta=1e-5) == (0.0, 0.0)


def test_a_simulated_composition_is_held():
    # delta at epsilon is E[(1 - e^(epsilon - loss))_+]; 4.75 standard errors: false alarm 2e-6 for the two ends.
    sigma, rate, steps, delta, runs = 1.0, 0.2, 20, 1e-2, 200_000
    lower, upper = epsilon_interval(noise_multiplier=sigma, sample_rate=rate, steps=steps, delta=delta)
    draw = np.random.default_rng(3)
    moved = draw.random((steps, runs)) < rate
    z = draw.standard_normal((steps, runs)) * sigma + moved
    loss = np.log1p(rate * np.expm1((2 * z - 1) / (2 * sigma**2))).sum(axis=0)
    for end in (lower, upper):
        gains = np.maximum(0, -np.expm1(end - loss))
        assert abs(gains.mean() - delta) < 4.75 * gains.std() / math.sqrt(runs)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("delta", [1e-6, 1e-15, 1e-40])
def test_two_steps_against_a_plain_double_sum(relation, delta):
    # delta = E[(1 - e^(epsilon - L1 - L2))_+] over a grid of both outcomes: positive terms, no transform.
    sigma, rate = 1.2, 0.1
    x = np.linspace(-17, 18, 3501) * sigma
    still, moved, back = norm.pdf(x, 0, sigma), norm.pdf(x, 1, sigma), norm.pdf(x, -1, sigma)
    p = (1 - rate) * still + rate * moved
    pairs = [(p, still), (still, p)] if relation == "add_or_remove" else [(p, (1 - rate) * still + rate * back)]
    lower, upper = epsilon_interval(
        noise_multiplier=sigma, sample_rate=rate, steps=2, delta=delta, neighbouring=relation
    )
    for end, sign in ((lower, 1), (upper, -1)):
        spent = 0.0
        for one, two in pairs:
            masses, losses = one * (x[1] - x[0]), np.log(one / two)
            rows = (
                mass * (masses @ np.maximum(0, -np.expm1(np.minimum(end - loss - losses, 0))))
                for mass, loss in zip(masses, losses, strict=True)
            )
            spent = max(spent, sum(rows))
        assert sign * (spent / delta - 1) > -2e-4
        assert abs(spent / delta - 1) < 5e-3


def test_no_replacement_spends_more_than_the_pair_of_opposites():
    """A record x and another one x', in the plane, summed over a grid: none exceeds x = -x', of norm 1."""
    z = np.linspace(-6, 6, 241)
    first, second = np.meshgrid(z, z)
    cell = (z[1] - z[0]) ** 2 / (2 * np.pi)

    def spent(record, other, growth, rate=0.3, shift=1.4):
        here, there, none = (
            np.exp(-((first - shift * x) ** 2 + (second - shift * y) ** 2) / 2) for x, y in (record, other, (0, 0))
        )
        p, q = (1 - rate) * none + rate * here, (1 - rate) * none + rate * there
        return float(np.maximum(p - growth * q, 0).sum() * cell)

    generator = np.random.default_rng(0)
    for growth in (0.4, 0.9, 1.0, 1.3, 3.0):
        most = spent((1, 0), (-1, 0), growth)
        for _ in range(12):
            turn, length = generator.uniform(0, 2 * np.pi, 2), generator.uniform(0.3, 1, 2)
            record, other = ((r * np.cos(a), r * np.sin(a)) for r, a in zip(length, turn, strict=True))
            assert spent(record, other, growth) <= most * (1 + 1e-9)


# One Gaussian step on a sample against 50-digit integrals of the hockey stick, and where the closed forms end.


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


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


@pytest.mark.parametrize("order", ["remove", "add", "replace"])
@pytest.mark.parametrize("rate", [0.01, 0.7, 1 - 2.0**-30, 1.0])
def test_a_loss_is_at_its_place(order, rate):
    """Where e^-loss rounds to nothing beside 1 too: certain uses had losses of 40 at infinity in the order add."""
    step, x = Step(9.0, rate, order), np.linspace(-14, 14, 57)
    kept = np.abs(np.gradient(step.loss(x), x)) > 1e-3  # elsewhere the loss hardly tells the place
    assert step.place(step.loss(x))[kept] == pytest.approx(x[kept], abs=1e-9)
