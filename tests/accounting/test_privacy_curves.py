"""Ends of profile, trade-off curve and advantage against closed forms, integrals, dp_accounting and simulation."""

import math
import subprocess
import sys

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfl.accounting import (
    BallsInBins,
    FixedBatches,
    FullBatch,
    Phase,
    Poisson,
    ShuffledEpochs,
    WithReplacement,
    guarantee,
    privacy_curve,
)
from dpfl.accounting.tradeoff.privacy_loss import from_pld

ALPHA = np.array([1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.5, 0.8, 0.99])
RELATIONS = ["zero_out", "add_or_remove", "replace_one"]


def curve(sampler, noise, steps, relation="add_or_remove"):
    return privacy_curve([Phase(sampler, noise, steps)], neighbouring=relation)


def lies_within(value, ends, *, room=1e-9, width=None):
    """Whether the value is between the ends, but for its own error, and these no further apart than that."""
    assert np.all(ends.lower <= value * (1 + room) + 1e-13) and np.all(value * (1 - room) - 1e-13 <= ends.upper)
    if width is not None:
        assert ends.upper == pytest.approx(ends.lower, rel=width, abs=1e-10)


@pytest.mark.parametrize(("noise", "steps"), [(0.5, 1), (2.0, 9), (30.0, 4), (0.01, 1)])
def test_full_batches_have_the_curve_of_gaussian_dp(noise, steps):
    mu, found = math.sqrt(steps) / noise, curve(FullBatch(), noise, steps)
    lies_within(2 * norm.cdf(mu / 2) - 1, found.advantage(), width=1e-9)
    lies_within(norm.cdf(norm.ppf(1 - ALPHA) - mu), found.type_ii_error(ALPHA), width=1e-9)
    lies_within(norm.cdf(norm.ppf(ALPHA) + mu), found.true_positive_rate(ALPHA), width=1e-9)
    delta = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
    lies_within(delta, found.delta(1.0), width=1e-8)


def threshold_errors(rate, shift, alpha):
    """The errors of the best tests of N(0, 1) and the mixture with N(shift, 1): thresholds, as the ratio grows."""
    mixture = lambda z: (1 - rate) * norm.cdf(z) + rate * norm.cdf(z - shift)  # noqa: E731
    joins = mixture(norm.isf(alpha))
    z = np.linspace(-12, 12 + shift, 400_001)
    leaves = norm.sf(np.interp(alpha, mixture(z), z))
    return joins, leaves


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 1.0), (0.5, 0.7), (0.9, 2.0)])
def test_one_coin_has_the_lesser_of_two_threshold_tests(rate, noise):
    found = curve(Poisson(rate), noise, 1)
    joins, leaves = threshold_errors(rate, 1 / noise, ALPHA)
    lies_within(np.minimum(joins, leaves), found.type_ii_error(ALPHA), room=1e-6, width=1e-5)
    lies_within(rate * (2 * norm.cdf(1 / noise / 2) - 1), found.advantage(), width=1e-4)


def test_many_coins_against_the_pld_of_dp_accounting():
    rate, noise, steps = 0.02, 0.9, 300
    pld = from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    pld, found = pld.self_compose(steps), curve(Poisson(rate), noise, steps)
    joins, swapped = from_pld(pld, ALPHA), np.linspace(0, 1, 200_001) ** 3
    leaves = np.interp(ALPHA, from_pld(pld, swapped)[::-1], swapped[::-1])  # the inverse function
    lies_within(np.minimum(joins, leaves), found.type_ii_error(ALPHA), room=2e-4, width=1e-4)
    for epsilon in (0.0, 0.5, 2.0):
        lies_within(pld.get_delta_for_epsilon(epsilon), found.delta(epsilon), room=2e-4, width=1e-4)
    lies_within(pld.get_delta_for_epsilon(0.0), found.advantage(), room=2e-4)


def test_a_simulated_likelihood_ratio_test_reaches_the_curve_and_no_more():
    """The record in the data against out of it, 40 steps, 40,000 runs of each; five standard errors of room."""
    rate, noise, steps, runs = 0.2, 1.5, 40, 40_000
    generator = np.random.default_rng(7)
    out = generator.normal(size=(runs, steps))
    into = generator.normal(size=(runs, steps)) + (generator.random((runs, steps)) < rate) / noise
    losses = [np.log1p(rate * np.expm1(x / noise - 0.5 / noise**2)).sum(axis=1) for x in (out, into)]
    for alpha in (0.01, 0.1, 0.5):
        joins = np.mean(losses[1] > np.quantile(losses[0], 1 - alpha))
        leaves = np.mean(losses[0] < np.quantile(losses[1], alpha))
        ends = curve(Poisson(rate), noise, steps).true_positive_rate(alpha)
        room = 5 * math.sqrt(alpha / runs) * 3
        assert max(joins, leaves) == pytest.approx(float(ends.upper), abs=room)
        assert ends.upper == pytest.approx(ends.lower, rel=1e-4)


def test_fixed_batches_under_add_or_remove_are_coins_at_half_the_noise():
    batches, coins = (curve(*run, 50) for run in ((FixedBatches(5, 100), 2.0), (Poisson(0.05), 1.0)))
    for one, other in zip(batches.type_ii_error(ALPHA), coins.type_ii_error(ALPHA), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_rare_large_losses_leave_the_ends_of_a_batch_with_replacement_near():
    """A batch may have the record many times; without care these losses left only the trivial 1 - alpha and 0."""
    found = curve(WithReplacement(64, 6016), 1.5, 1880, "zero_out")
    alpha = np.array([1e-3, 0.01, 0.1])
    ends = found.true_positive_rate(alpha)
    # Each epsilon at a delta, by another composition, bounds the rate by a line; the best of many is near the curve.
    lines = [np.ones(3)]
    for delta in np.geomspace(1e-4, 0.3, 12):
        epsilon = guarantee(WithReplacement(64, 6016), noise_multiplier=1.5, steps=1880, delta=delta).upper
        lines.append(delta + math.exp(epsilon) * alpha)
    best = np.min(lines, axis=0)
    assert np.all(ends.upper <= best * (1 + 1e-4)) and np.all(ends.upper >= 0.9 * best)
    assert np.all(ends.lower > 2 * alpha)


def test_a_replaced_ball_is_a_removal_and_then_an_addition():
    """The curve of both is that of one applied to the other's: no triangle of deltas is better."""
    one, both = curve(BallsInBins(40), 1.5, 80), curve(BallsInBins(40), 1.5, 80, "replace_one")
    found, alpha = both.type_ii_error(ALPHA), ALPHA
    twice = one.proven_error(1 - one.proven_error(alpha))
    assert np.all(found.lower >= twice - 1e-12)
    assert np.all(found.upper <= one.type_ii_error(alpha).upper + 1e-12)
    for epsilon in (0.5, 1.0, 3.0):
        line = 1 - both.proven_delta(epsilon) - math.exp(epsilon) * alpha
        assert np.all(found.lower >= line - 1e-9)


def test_no_step_tells_nothing_and_a_count_of_steps_tells_all():
    for relation in RELATIONS:
        nothing = curve(Poisson(0.5), 1.0, 0, relation)
        assert nothing.advantage() == (0, 0)
        assert np.all(np.array(nothing.type_ii_error(ALPHA)) == 1 - ALPHA)
    told = curve(ShuffledEpochs(64, 6017), 1.0, 95)
    assert told.advantage() == (1, 1) and told.true_positive_rate(0.0) == (1, 1)


def test_a_record_that_is_hardly_used_bounds_every_test():
    found = curve(Poisson(1e-6), 0.001, 10)  # losses are beyond floats
    assert found.advantage().upper == pytest.approx(1e-5, rel=1e-4)
    assert found.advantage().lower == pytest.approx(1e-5, rel=0.1)
    assert found.true_positive_rate(0.01).upper == pytest.approx(0.01 + 1e-5, rel=1e-6)


SAMPLERS = st.one_of(
    st.builds(Poisson, st.floats(1e-3, 1)),
    st.builds(FixedBatches, st.integers(1, 5), st.integers(10, 500)),
    st.builds(WithReplacement, st.integers(1, 5), st.integers(10, 500)),
    st.builds(ShuffledEpochs, st.integers(1, 5), st.integers(10, 50)),
    st.builds(BallsInBins, st.integers(1, 30)),
    st.just(FullBatch()),
)
PHASES = st.lists(st.builds(Phase, SAMPLERS, st.floats(0.3, 20), st.integers(1, 60)), min_size=1, max_size=2)
GRID = np.linspace(0, 1, 41)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(phases=PHASES, relation=st.sampled_from(RELATIONS), epsilon=st.floats(0, 4))
def test_ends_are_ordered_curves_fall_and_the_profile_is_their_dual(phases, relation, epsilon):
    found = privacy_curve(phases, neighbouring=relation)
    errors, rates, delta = found.type_ii_error(GRID), found.true_positive_rate(GRID), found.delta(epsilon)
    advantage = found.advantage()
    for ends in (errors, rates, delta, advantage):
        assert np.all(np.asarray(ends.lower) <= ends.upper)
    for ends in errors:
        assert np.all(np.diff(ends) <= 1e-12) and np.all(ends <= 1 - GRID + 1e-15) and np.all(ends >= 0)
    assert np.all(rates.lower >= GRID - 1e-15)
    # No excess of a test over e^epsilon alpha is above delta, nor over alpha above the advantage: proven ends ...
    assert np.all(rates.lower - math.exp(epsilon) * GRID <= delta.upper + 1e-9)
    assert np.all(rates.lower - GRID <= advantage.upper + 1e-9)
    # ... and the proven curve is above the line of the proven delta, for it is the highest of these.
    if relation != "replace_one":
        assert np.all(rates.upper <= delta.upper * (1 + 1e-4) + math.exp(epsilon) * GRID + 1e-8)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(phases=PHASES)
def test_curves_of_a_replaced_record_are_convex(phases):
    """Both orders are alike there."""
    lower = privacy_curve(phases, neighbouring="replace_one").type_ii_error(GRID).lower
    assert np.all(np.diff(lower, 2) >= -1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_delta_meets_epsilon_of_the_guarantee(relation):
    found = guarantee(Poisson(0.02), noise_multiplier=1.1, steps=100, delta=1e-6, neighbouring=relation)
    ends = curve(Poisson(0.02), 1.1, 100, relation).delta(found.upper)
    assert ends.lower <= 1e-6 * (1 + 1e-9) and ends.upper == pytest.approx(1e-6, rel=1e-3)


def test_the_plot_shows_both_ends():
    found = curve(FixedBatches(5, 100), 2.0, 50, "replace_one")
    axes = found.plot()
    lines = [line.get_ydata() for line in axes.get_lines()]
    alpha = axes.get_lines()[0].get_xdata()
    for line, ends in zip(lines, found.type_ii_error(alpha), strict=False):
        assert np.array_equal(line, ends)
    assert found.plot(axes) is axes


def test_only_the_plot_needs_matplotlib():
    code = (
        "import sys; from dpfl.accounting import Phase, Poisson, privacy_curve;"
        "privacy_curve([Phase(Poisson(0.1), 1.0, 5)]).advantage(); print('matplotlib' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == ["False"]
