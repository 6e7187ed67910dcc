"""Bounds from error rates: closed forms, scipy's own exact intervals, and coverage where the truth is known."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from dpfl.accounting import gaussian_dp
from dpfl.attacks.lower_bounds import (
    TestErrors,
    binomial_bounds,
    epsilon_lower_bound,
    gaussian_fit_mu,
    log_likelihood_excess,
    mu_lower_bound,
    refuted_noise,
)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (17, 2000)])
def test_binomial_bounds_are_those_of_scipy(successes, trials):
    interval = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    lower, upper = binomial_bounds(successes, trials, 0.025)
    assert (float(lower), float(upper)) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_no_false_positive_gives_the_closed_form():
    # TPR >= 0.025^(1/N) and FPR <= 1 - 0.025^(1/N) where all of N are right.
    rate = 0.025 ** (1 / 100)
    found = epsilon_lower_bound(TestErrors(100, 100, 0, 100), delta=0.01)
    assert found == pytest.approx(math.log((rate - 0.01) / (1 - rate)), rel=1e-9)


def test_the_excess_is_the_largest_over_the_claims():
    claims = [(0.5, 1e-5), (0.1, 0.2), (3.0, 0.0)]
    expected = max(math.log((0.6 - delta) / 0.3) - epsilon for epsilon, delta in claims)
    assert log_likelihood_excess(0.6, 0.3, claims) == pytest.approx(expected, rel=1e-12)
    assert log_likelihood_excess(0.1, 0.3, [(0.1, 0.2)]) == -math.inf


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_refuted_no_oftener_than_stated(epsilon):
    # 1000 attacks at 95 %: more than 72 refutations have probability below 1e-3 if the bound holds.
    draw = np.random.default_rng(0)
    share = 1 / (1 + math.exp(-epsilon))
    counts = zip(draw.binomial(500, share, 1000), draw.binomial(500, 1 - share, 1000), strict=True)
    found = np.array([epsilon_lower_bound(TestErrors(int(t), 500, int(f), 500), delta=0) for t, f in counts])
    assert (found > epsilon).sum() <= 72
    assert np.median(found) > 0.6 * epsilon


def test_gaussian_bounds_cover_as_stated_and_are_tight():
    # 500 attacks at 90 %: the fit is exact, so 50 +- 4 * sqrt(500 * 0.09) exceed the truth (false alarm 1e-4).
    draw, mu = np.random.default_rng(1), 1.3
    worlds = ((mu + draw.standard_normal(60), draw.standard_normal(40)) for _ in range(500))
    fits = [gaussian_fit_mu(*pair, confidence=0.9) for pair in worlds]
    assert abs((np.array(fits) > mu).sum() - 50) < 27
    inside, outside = (draw.binomial(400, norm.sf(0.65 - shift), 2000) for shift in (mu, 0))
    counted = [
        mu_lower_bound(TestErrors(int(t), 400, int(f), 400), confidence=0.9)
        for t, f in zip(inside, outside, strict=True)
    ]
    assert (np.array(counted) > mu).mean() < 0.1
    assert np.median(fits) > 0.7 * mu and np.median(counted) > 0.7 * mu


def test_the_noise_that_is_refuted_is_the_gaussian_mechanism_s():
    # One full-batch step with noise s is 1/s-GDP, so the counted mu gives the noise in closed form.
    errors = TestErrors(5000, 10_000, 700, 10_000)

    def claims_at(noise):
        deltas = np.geomspace(1e-6, 0.5, 400)
        return tuple(zip(gaussian_dp.epsilon(deltas, 1 / noise).tolist(), deltas.tolist(), strict=True))

    assert refuted_noise(errors, claims_at, least=0.1, most=10) == pytest.approx(1 / mu_lower_bound(errors), rel=3e-3)
    assert refuted_noise(TestErrors(50, 100, 50, 100), claims_at, least=0.1, most=10) == math.inf


@pytest.mark.parametrize("wrong", [{"true_positives": 11}, {"false_positives": -1}, {"negatives": 0}])
def test_counts_are_named(wrong):
    with pytest.raises(ValueError, match=r"positives|negatives"):
        TestErrors(**{"true_positives": 5, "positives": 10, "false_positives": 5, "negatives": 10} | wrong)


def test_arguments_are_named():
    errors = TestErrors(5, 10, 5, 10)
    for call, word in (
        (lambda: epsilon_lower_bound(errors, delta=1.0), "delta"),
        (lambda: epsilon_lower_bound(errors, delta=0.0, confidence=1.0), "confidence"),
        (lambda: gaussian_fit_mu([1.0], [1.0, 2.0]), "scores_in"),
        (lambda: refuted_noise(errors, lambda noise: ((0, 0),), least=2, most=1), "most"),
    ):
        with pytest.raises(ValueError, match=word):
            call()
