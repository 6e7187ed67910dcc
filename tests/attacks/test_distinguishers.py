"""Likelihood ratios against densities integrated, differentiated or written out, and power against trade-off curves."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import (
    StepLaw,
    energy,
    epoch_maxima,
    log_likelihood_ratio,
    repeated_batch,
    repeated_batches,
    repeated_noise,
    simulate,
    statistics,
    total,
)

POISSON, SHUFFLED = Sampling.POISSON, Sampling.SHUFFLED


def one(x):
    """One observation of one step."""
    return np.array([[[x]]])


@pytest.mark.parametrize(("rate", "draws"), [(0.3, 1), (1.0, 1), (0.1, 5)])
def test_a_step_s_ratio_is_that_of_the_mixtures(rate, draws):
    law = StepLaw.of(POISSON, rate, (1.0, -1.0), 0.8, draws)

    def density(x, shift):
        return sum(weight * norm.pdf(x, count * shift, 0.8) for count, weight in enumerate(law.counts))

    assert sum(law.counts) == pytest.approx(1, abs=1e-12)
    assert quad(density, -30, 30, args=(1.0,))[0] == pytest.approx(1, abs=1e-9)
    for x in (-2.0, 0.1, 3.0):
        expected = np.log(density(x, 1.0) / density(x, -1.0))
        assert log_likelihood_ratio(one(x), law).item() == pytest.approx(expected, abs=1e-9)


def test_an_epoch_s_ratio_is_that_of_the_mixture_over_positions():
    law = StepLaw.of(SHUFFLED, 1 / 3, (2.0, 1.0), 1.3)
    seen = np.random.default_rng(0).normal(size=(4, 2, 3))

    def density(epoch, shift):
        places = shift * np.eye(3)
        return np.mean([norm.pdf(epoch, place, 1.3).prod() for place in places])

    expected = [sum(np.log(density(each, 2.0) / density(each, 1.0)) for each in trial) for trial in seen]
    np.testing.assert_allclose(log_likelihood_ratio(seen, law), expected, rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 94])
def test_the_law_of_an_epoch_s_maximum_is_the_derivative_of_its_distribution_function(steps):
    law = StepLaw.of(SHUFFLED, 1 / steps, (2.0, 1.0), 1.1)

    def slope(x, shift, h=1e-5):
        below, above = (norm.cdf((y - shift) / 1.1) * norm.cdf(y / 1.1) ** (steps - 1) for y in (x - h, x + h))
        return (above - below) / (2 * h)

    for x in (0.5, 2.0, 4.0):
        seen = np.full((1, 1, steps), -50.0)
        seen[0, 0, -1] = x
        expected = np.log(slope(x, 2.0) / slope(x, 1.0))
        assert epoch_maxima(seen, law).item() == pytest.approx(expected, rel=1e-5)


def test_full_batches_are_told_apart_as_the_gaussian_trade_off_curve_allows():
    # 20000 trials a world, four levels and two errors: 4.5 deviations, a false alarm has probability below 1e-4.
    law, steps = StepLaw.of(POISSON, 1.0, (1.0, 0.0), 2.5), 4
    here, there = (log_likelihood_ratio(simulate(law, (20_000, 2, 2), world=w, seed=1), law) for w in (0, 1))
    mu = np.sqrt(steps) / 2.5
    for alpha in (0.01, 0.1, 0.3, 0.6):
        threshold = mu * norm.isf(alpha) - mu**2 / 2  # under Q the ratio is N(-mu^2/2, mu^2)
        for rate, found in ((alpha, there), (1 - gaussian_dp.tradeoff(alpha, mu), here)):
            deviation = np.sqrt(rate * (1 - rate) / len(found))
            assert abs((found >= threshold).mean() - rate) < 4.5 * deviation
    advantage = (here >= 0).mean() - (there >= 0).mean()
    assert advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=4.5 * np.sqrt(0.5 / 20_000))


@pytest.mark.parametrize("law", [StepLaw.of(POISSON, 0.25, (1, -1), 1.0), StepLaw.of(SHUFFLED, 1 / 6, (2, 1), 2.0)])
def test_the_likelihood_ratio_averages_to_one_in_the_other_world(law):
    # The mean of 40000 weights, five deviations: false alarm below 1e-5.
    seen = simulate(law, (40_000, 1, 6), world=1, seed=2)
    weights = np.exp(log_likelihood_ratio(seen, law))
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    assert seen.mean() == pytest.approx(law.shifts[1] * (1 / 6 if law.sampling is SHUFFLED else 0.25), abs=0.03)


def test_repeated_noise_shows_where_two_messages_share_it():
    law = StepLaw.of(POISSON, 0.5, (1.0, 0.0), 1.0)
    seen = np.random.default_rng(3).normal(size=(200, 2, 3))
    alike = seen.copy()
    alike[:, 1, 2] = alike[:, 0, 0] + 1.0
    assert repeated_noise(alike, law).min() > 30 > 20 > repeated_noise(seen, law).max()
    alike[:, 1, 2] = alike[:, 0, 0]  # the record was drawn in neither
    assert repeated_noise(alike, law).max() < 20


def test_averages_have_the_law_of_one_quieter_step():
    law = StepLaw.of(POISSON, 0.25, (1.0, 0.0), 2.0)
    quiet = StepLaw.of(POISSON, 0.25, (1.0, 0.0), 1.0)
    seen = np.random.default_rng(4).normal(size=(3, 4, 4))
    np.testing.assert_allclose(repeated_batches(seen, law), log_likelihood_ratio(seen.mean(1, keepdims=True), quiet))
    np.testing.assert_allclose(repeated_batch(seen, law), log_likelihood_ratio(seen.mean(2, keepdims=True), quiet))
    np.testing.assert_allclose(total(seen), [each.sum() for each in seen])
    np.testing.assert_allclose(energy(seen), [-(np.linalg.norm(each) ** 2) for each in seen])


def test_every_statistic_gives_a_score_a_trial_and_arguments_are_named():
    law = StepLaw.of(SHUFFLED, 0.2, (2.0, 1.0), 1.0)
    seen = simulate(law, (7, 2, 5), world=0, seed=0)
    for name, statistic in statistics(law).items():
        assert statistic(seen).shape == (7,), name
    for wrong in ({"sample_rate": 0.0}, {"noise_multiplier": -1.0}, {"draws": 0}):
        given = {"sampling": POISSON, "sample_rate": 0.5, "shifts": (1, 0), "noise_multiplier": 1.0} | wrong
        with pytest.raises(ValueError, match=next(iter(wrong))):
            StepLaw.of(**given)
