"""The bound of steinke2023 holds where the truth is known, and is not idle there."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpfl.attacks.one_run import epsilon_lower_bound, p_value, right_guesses


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
    # mu = 1 spends epsilon 4.38 at delta 1e-5; the audit sees a good part of it and no more.
    draw = np.random.default_rng(1)
    bits = draw.integers(0, 2, 2000)
    right = right_guesses(bits + draw.standard_normal(2000), bits, 100)
    assert 0.5 < epsilon_lower_bound(delta=1e-5, canaries=2000, guesses=100, right=right) < 4.38


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
