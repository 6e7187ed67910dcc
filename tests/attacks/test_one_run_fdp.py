"""The bound of arXiv 2410.22235: against a linear program, the binomial law, and Monte Carlo of a known truth."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dpfl.attacks import one_run
from dpfl.attacks.one_run import curve_p_value, epsilon_delta_curve, gaussian_curve, mu_lower_bound


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
def test_arguments_are_named(wrong):
    given = {"canaries": 50, "guesses": 20, "right": 10} | wrong
    with pytest.raises(ValueError, match=r"guesses|canaries"):
        curve_p_value(gaussian_curve(1.0), **given)
