"""The bound that knows the mechanism but for its noise: a closed form, simulated attacks, and what it must not say."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from dpfl.accounting import FixedBatches, FullBatch, Poisson, gaussian_dp, guarantee
from dpfl.attacks.lower_bounds import TestErrors
from dpfl.attacks.noise_family import family_epsilon


@pytest.mark.parametrize(("right", "wrong"), [(600, 200), (900, 30), (160, 90)])
def test_full_batches_have_a_closed_form(right, wrong):
    """A Gaussian curve through the point of the rates: mu is the difference of their quantiles."""
    errors = TestErrors(right, 1000, wrong, 1000)
    found, false = errors.rates(0.95)
    mu = float(ndtri(found) - ndtri(false))
    run = {"noise_multiplier": 5.0, "steps": 9, "delta": 1e-5, "neighbouring": "zero_out"}
    exact = float(gaussian_dp.epsilon(1e-5, mu))
    assert exact * 0.985 <= family_epsilon(errors, FullBatch(), **run) <= exact * (1 + 1e-9)


def _attack(rate: float, noise: float, steps: int, trials: int, seed: int) -> TestErrors:
    """Poisson samples, the record +1 or nothing: the log likelihood ratio, at a threshold from other trainings."""
    generator = np.random.default_rng(seed)

    def scores(world: int) -> np.ndarray:
        seen = generator.normal(0, noise, (trials, steps)) + world * (generator.random((trials, steps)) < rate)
        return np.log1p(rate * np.expm1(seen / noise**2 - 1 / (2 * noise**2))).sum(axis=1)

    threshold = float(np.quantile(scores(0), 0.98))
    return TestErrors(int((scores(1) >= threshold).sum()), trials, int((scores(0) >= threshold).sum()), trials)


def test_most_of_the_epsilon_is_reached_and_never_more():
    """100,000 trainings reach over nine tenths; a bound above the truth is a false alarm once in twenty such tests."""
    run = {"steps": 40, "delta": 1e-5, "neighbouring": "zero_out"}
    truth = guarantee(Poisson(0.1), noise_multiplier=1.5, **run).upper
    found = family_epsilon(_attack(0.1, 1.5, 40, 100_000, 5), Poisson(0.1), noise_multiplier=1.5, **run)
    assert 0.9 * truth < found < truth
    few = family_epsilon(_attack(0.1, 1.5, 40, 1_000, 5), Poisson(0.1), noise_multiplier=1.5, **run)
    assert 0 < few < found


def test_counts_that_show_nothing_give_nothing():
    run = {"noise_multiplier": 2.0, "steps": 10, "delta": 1e-5, "neighbouring": "replace_one"}
    for errors in (TestErrors(50, 100, 50, 100), TestErrors(0, 100, 0, 100), TestErrors(100, 100, 100, 100)):
        assert family_epsilon(errors, FixedBatches(5, 50), **run) == 0.0
    assert math.isfinite(family_epsilon(TestErrors(1000, 1000, 0, 1000), FixedBatches(5, 50), **run))
