"""Bounds from one run: they hold if the truth is known, and agree with a linear program and the binomial law."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dpfl.attacks import one_run
from dpfl.attacks.one_run import (
    curve_p_value,
    epsilon_lower_bound,
    gaussian_curve,
    mu_lower_bound,
    p_value,
    right_guesses,
)


def test_without_delta_the_p_value_is_the_binomial_tail():
    share = math.e / (1 + math.e)
    expected = sum(math.comb(20, v) * share**v * (1 - share) ** (20 - v) for v in range(17, 21))
    assert p_value(epsilon=1, delta=0, canaries=50, guesses=20, right=17) == pytest.approx(expected, rel=1e-12)


def test_the_correction_for_delta_is_the_maximum_of_the_theorem_over_all_i():
    m, r, v, epsilon, delta = 30, 20, 17, 0.7, 1e-4
    share = 1 / (1 + math.exp(-epsilon))
    below = [binom.cdf(v - 1, r, share) - binom.cdf(v - i - 1, r, share) for i in range(1, m + 1)]
    expected = binom.sf(v - 1, r, share) + 2 * m * delta * max(each / i for i, each in enumerate(below, 1))
    assert p_value(epsilon=epsilon, delta=delta, canaries=m, guesses=r, right=v) == pytest.approx(expected, rel=1e-9)


def test_all_right_gives_the_closed_form():
    share = 0.05 ** (1 / 40)
    bound = epsilon_lower_bound(delta=0, canaries=40, guesses=40, right=40)
    assert bound == pytest.approx(math.log(share / (1 - share)), abs=1e-6)


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "published"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_the_numbers_printed_in_the_paper(canaries, guesses, right, delta, published):
    # steinke2023, Appendix D and section 7; without delta's part the first would be 0.70.
    counts = {"canaries": canaries, "guesses": guesses, "right": right}
    assert epsilon_lower_bound(delta=delta, **counts) == pytest.approx(published, abs=1e-3)
    assert epsilon_lower_bound(delta=0, **counts) > published + 1e-3


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_refuted_no_oftener_than_stated(epsilon):
    # 2000 audits at 95 %: more than 130 refutations have probability below 1e-3 if the bound holds.
    draw = np.random.default_rng(0)
    right = draw.binomial(100, 1 / (1 + math.exp(-epsilon)), size=2000)
    bounds = {v: epsilon_lower_bound(delta=0, canaries=100, guesses=100, right=v) for v in set(right.tolist())}
    found = np.array([bounds[v] for v in right.tolist()])
    assert (found > epsilon).sum() <= 130
    assert np.median(found) > 0.3 * epsilon


def test_a_gaussian_mechanism_is_bounded_below_its_epsilon():
    # mu = 1 spends epsilon 4.38 at delta 1e-5; the audit sees a good part of it and no more. Between 266 and 398 of 400
    # guesses have to be right; other seeds give 347 with a deviation of 7, and fail with probability 7e-14.
    draw = np.random.default_rng(1)
    bits = draw.integers(0, 2, 2000)
    right = right_guesses(bits + draw.standard_normal(2000), bits, 400)
    audited = {"delta": 1e-5, "canaries": 2000, "guesses": 400}
    assert 0.5 < epsilon_lower_bound(**audited, right=right) < 4.38 < epsilon_lower_bound(**audited, right=400)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_mechanism_that_fails_with_probability_delta_is_refuted_no_oftener_than_stated(epsilon):
    # The worst in one bit: with probability delta it tells the bit, else it answers at epsilon. 2000 audits at 95 %.
    draw, canaries, delta = np.random.default_rng(2), 200, 1e-3
    told = draw.random((2000, canaries)) < delta
    right = (told | (draw.random((2000, canaries)) < 1 / (1 + math.exp(-epsilon)))).sum(axis=1)
    counts = {"delta": delta, "canaries": canaries, "guesses": canaries}
    bounds = {v: epsilon_lower_bound(**counts, right=v) for v in set(right.tolist())}
    assert sum(bounds[v] > epsilon for v in right.tolist()) <= 130  # more has probability below 1e-3
    assert np.median([bounds[v] for v in right.tolist()]) > 0.6 * epsilon


@pytest.mark.parametrize("wrong", [{"right": 21}, {"guesses": 51}, {"epsilon": -1.0}, {"delta": 1.0}])
def test_arguments_are_named(wrong):
    given = {"epsilon": 1.0, "delta": 0.0, "canaries": 50, "guesses": 20, "right": 10} | wrong
    with pytest.raises(ValueError, match="guesses" if "right" in wrong else next(iter(wrong))):
        p_value(**given)


# The bound of arXiv 2410.22235: against a linear program, the binomial law, and Monte Carlo of a known truth.


def largest_tail(epsilon, delta, canaries, guesses, right):
    """The largest P[at least `right`] that the constraints allow, by a linear program over the law of the count."""
    count = np.arange(guesses + 1)
    rows, bounds = [], []
    for i in range(1, guesses + 1):
        event = np.where(count >= i, count, 0) / canaries
        swapped = np.where(count >= i - 1, guesses - count, 0) / canaries
        rows += [event - math.exp(epsilon) * swapped, event - math.exp(-epsilon) * swapped]
        bounds += [delta, 1 - math.exp(-epsilon) * (1 - delta)]
    one = np.ones((1, guesses + 1))
    solved = linprog(-(count >= right).astype(float), np.array(rows), bounds, one, [1.0])
    assert solved.status == 0
    return -solved.fun


def epsilon_delta_curve(epsilon, delta):
    """The inverse of 1 - f for (epsilon, delta)-DP: the least y with x <= e^eps y + delta, and for the complements."""
    return lambda x: max(0.0, math.exp(-epsilon) * (x - delta), 1 - math.exp(epsilon) * (1 - x) - delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.0), (0.7, 1e-3), (2.0, 0.05)])
@pytest.mark.parametrize(("canaries", "guesses", "right"), [(30, 30, 22), (40, 20, 17), (12, 6, 6)])
def test_the_recursion_solves_the_linear_program(epsilon, delta, canaries, guesses, right):
    found = curve_p_value(epsilon_delta_curve(epsilon, delta), canaries=canaries, guesses=guesses, right=right)
    assert found == pytest.approx(largest_tail(epsilon, delta, canaries, guesses, right), rel=1e-5)


def test_without_delta_it_is_hardly_looser_than_the_binomial_tail_and_with_delta_tighter_than_steinke():
    for epsilon, right in ((0.0, 70), (0.5, 75), (1.5, 90)):
        exact = binom.sf(right - 1, 100, 1 / (1 + math.exp(-epsilon)))
        counts = {"canaries": 1000, "guesses": 100, "right": right}
        assert exact <= curve_p_value(epsilon_delta_curve(epsilon, 0), **counts) <= 1.1 * exact
        ours = curve_p_value(epsilon_delta_curve(epsilon, 1e-4), **counts)
        assert exact < ours < one_run.p_value(epsilon=epsilon, delta=1e-4, **counts)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_gaussian_mechanisms_are_refuted_no_oftener_than_stated(mu):
    # 1000 runs at 95 %: more than 72 refutations have probability below 1e-3 if the bound holds.
    draw, canaries = np.random.default_rng(2), 200
    bits = draw.integers(0, 2, (1000, canaries))
    scores = mu * bits + draw.standard_normal(bits.shape)
    counts = {"canaries": canaries, "guesses": 40}
    right = [one_run.right_guesses(*pair, 40) for pair in zip(scores, bits, strict=True)]
    p_values = {v: curve_p_value(gaussian_curve(mu), **counts, right=v) for v in set(right)}
    assert sum(p_values[v] <= 0.05 for v in right) <= 72
    assert mu_lower_bound(**counts, right=int(np.median(right))) > 0.2 * mu


def test_the_bound_on_mu_is_where_the_p_value_crosses_the_level():
    counts = {"canaries": 1000, "guesses": 100, "right": 93}
    mu = mu_lower_bound(**counts, confidence=0.99)
    assert curve_p_value(gaussian_curve(mu), **counts) == pytest.approx(0.01, rel=1e-3)
    assert mu_lower_bound(canaries=1000, guesses=100, right=55) == 0


@pytest.mark.parametrize("wrong", [{"right": 21}, {"guesses": 51}, {"canaries": 0}])
def test_arguments_of_the_curve_bound_are_named(wrong):
    given = {"canaries": 50, "guesses": 20, "right": 10} | wrong
    with pytest.raises(ValueError, match=r"guesses|canaries"):
        curve_p_value(gaussian_curve(1.0), **given)
