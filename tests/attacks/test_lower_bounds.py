"""Lower bounds of epsilon: from error rates, likelihood ratios and the test that is chosen, against closed forms."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binomtest, norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import (
    StepLaw,
    TestErrors,
    binomial_bounds,
    energy,
    epoch_maxima,
    epsilon_lower_bound,
    log_likelihood_excess,
    log_likelihood_ratio,
    repeated_batch,
    repeated_batches,
    repeated_noise,
    simulate,
    statistics,
    strongest_test,
    total,
    worst_pair,
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


@pytest.mark.parametrize("wrong", [{"true_positives": 11}, {"false_positives": -1}, {"negatives": 0}])
def test_counts_are_named(wrong):
    with pytest.raises(ValueError, match=r"positives|negatives"):
        TestErrors(**{"true_positives": 5, "positives": 10, "false_positives": 5, "negatives": 10} | wrong)


def test_arguments_are_named():
    errors = TestErrors(5, 10, 5, 10)
    for call, word in (
        (lambda: epsilon_lower_bound(errors, delta=1.0), "delta"),
        (lambda: epsilon_lower_bound(errors, delta=0.0, confidence=1.0), "confidence"),
    ):
        with pytest.raises(ValueError, match=word):
            call()


# Likelihood ratios against densities integrated, differentiated or written out, and power against trade-off curves.


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


# A test is chosen by design alone, and right claims are refuted no oftener than stated.


LAW = StepLaw.of(Sampling.POISSON, 1.0, (1.0, 0.0), 1.0)
DELTAS = np.array([1e-3, 0.01, 0.1])


def worlds(trials, seed, law=LAW):
    """Observations of two full-batch steps in both worlds."""
    return tuple(simulate(law, (trials, 1, 2), world=world, seed=seed) for world in (0, 1))


def claims(mu):
    """What a mu-GDP mechanism guarantees."""
    return tuple(zip(gaussian_dp.epsilon(DELTAS, mu).tolist(), DELTAS.tolist(), strict=True))


@pytest.mark.slow
def test_right_claims_are_refuted_no_oftener_than_stated_whatever_is_tried():
    # 80 attacks at 90 %, each with seven statistics: more than 20 refutations have probability below 1e-4.
    tried, right = statistics(LAW), claims(np.sqrt(2))
    found = [strongest_test(worlds(100, 2 * s), worlds(100, 2 * s + 1), tried, right, 0.9).excess for s in range(80)]
    assert (np.array(found) > 0).sum() <= 20


def test_a_claim_of_too_little_is_refuted_and_the_errors_are_those_of_the_test():
    seen = worlds(2000, 8)
    evidence = strongest_test(worlds(2000, 7), seen, {"total": total}, claims(0.7), 0.999)
    assert evidence.excess > 0 and evidence.statistic == "total"
    here, there = (total(each) for each in seen)
    if evidence.reversed:
        counts = (there <= evidence.threshold).sum(), (here <= evidence.threshold).sum()
    else:
        counts = (here >= evidence.threshold).sum(), (there >= evidence.threshold).sum()
    assert evidence.errors == TestErrors(int(counts[0]), 2000, int(counts[1]), 2000)


def test_both_orders_of_the_worlds_are_tried():
    # World Q alone has a rare, large value: only the test that calls Q sees it.
    here, there = np.zeros((400, 1, 1)), np.where(np.arange(400) % 4, 0.0, -9.0)[:, None, None]
    evidence = strongest_test((here, there), (here, there), {"total": total}, ((0.0, 0.0),), 0.95)
    assert evidence.reversed and evidence.errors.true_positives == 100 and evidence.errors.false_positives == 0
    assert evidence.excess > 2


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_not_finite_is_named(which):
    good, bad = worlds(5, 0), (np.full((5, 1, 2), np.nan), np.zeros((5, 1, 2)))
    pairs = (bad, good) if which == 0 else (good, bad)
    with pytest.raises(ValueError, match=("design", "evaluation")[which]):
        strongest_test(*pairs, {"total": total}, ((0.0, 0.0),), 0.95)


@pytest.mark.parametrize(
    ("sampling", "neighbouring", "shifts"),
    [
        # Hostile mates contribute -1, so a drawn record adds 2 to a batch of them where it contributes +1.
        (Sampling.SHUFFLED, Neighbouring.ZERO_OUT, (2, 1)),
        (Sampling.SHUFFLED, Neighbouring.ADD_OR_REMOVE, (2, 1)),  # the removed record's slot stays empty
        (Sampling.SHUFFLED, Neighbouring.REPLACE_ONE, (2, 0)),
        (Sampling.BALLS_IN_BINS, Neighbouring.REPLACE_ONE, (1, -1)),
        (Sampling.FIXED, Neighbouring.REPLACE_ONE, (2, 0)),
        (Sampling.WITH_REPLACEMENT, Neighbouring.ZERO_OUT, (2, 1)),
        (Sampling.POISSON, Neighbouring.ZERO_OUT, (1, 0)),
        (Sampling.POISSON, Neighbouring.ADD_OR_REMOVE, (1, 0)),
        (Sampling.POISSON, Neighbouring.REPLACE_ONE, (1, -1)),
    ],
)
def test_what_a_step_gains_by_the_record(sampling, neighbouring, shifts):
    assert worst_pair(sampling, neighbouring).shifts == shifts


def test_gradients_differ_in_one_record_of_each_trial_and_are_clipped_to_the_pair():
    pair = worst_pair(Sampling.SHUFFLED, Neighbouring.ZERO_OUT)
    here, there = (pair.gradients(5, 3, world=world, clip_norm=2.0) for world in (0, 1))
    assert ((here != there) == np.eye(3, 5, dtype=bool)).all()
    clipped = np.clip(here, -2, 2)
    assert clipped.diagonal().tolist() == [2, 2, 2] and clipped.sum() == 2 * (3 - 12)
    assert there.diagonal().tolist() == [0, 0, 0]


def test_a_removed_record_is_gone_and_more_trials_than_records_are_refused():
    pair = worst_pair(Sampling.SHUFFLED, Neighbouring.ADD_OR_REMOVE)
    without = pair.gradients(5, 3, world=1, clip_norm=1.0)
    assert without.shape == (3, 4) and (without < -1).all()
    with pytest.raises(ValueError, match="trials"):
        pair.gradients(5, 6, world=0, clip_norm=1.0)
