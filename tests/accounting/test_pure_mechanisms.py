"""Laplace noise and randomised response against sums over all outcomes, integrals, closed forms and dp_accounting."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.stats import laplace, multinomial, norm

from dpfl.accounting import (
    FullBatch,
    LaplaceNoise,
    Phase,
    RandomizedResponse,
    guarantee,
    guarantee_of_phases,
    noise_multiplier,
    privacy_curve,
)
from dpfl.accounting.external_claims import from_dp_event
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.phases import are_by_record
from dpfl.accounting.sampler_accountants import Run, accountant

DELTA = 1e-5


def about(found, exact, width=1e-3):
    """The interval contains the value, but for rounding, and is narrow."""
    assert found.lower <= exact * (1 + 1e-9) and exact <= found.upper * (1 + 1e-9)
    assert found.upper / found.lower < 1 + width


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_one_step_of_laplace_noise_is_the_closed_form(relation):
    largest = (2 if relation == "replace_one" else 1) / 1.7
    found = guarantee(LaplaceNoise(), noise_multiplier=1.7, steps=1, delta=1e-2, neighbouring=relation)
    about(found, largest + 2 * math.log1p(-1e-2), 1e-8)  # delta = 1 - e^((epsilon - s)/2)


@pytest.mark.parametrize("share", [1e-10, 1e-12])
def test_a_delta_of_nearly_all_is_exceeded_by_no_epsilon(share):
    """Six randomised responses differ in total variation by less than 1 - 1e-9: epsilon is 0."""
    found = guarantee(
        RandomizedResponse(2), noise_multiplier=1 / 8, steps=6, delta=1 - share, neighbouring="replace_one"
    )
    same = (1 + math.exp(8)) ** -1  # the chance of another answer
    assert math.comb(6, 3) * same**3 > share
    assert found.lower == 0 <= found.upper


def test_two_steps_of_laplace_noise_are_an_integral_over_a_plane():
    found = guarantee(LaplaceNoise(), noise_multiplier=1.0, steps=2, delta=0.05)
    x = np.linspace(-12, 13, 2501) + 1e-4
    p, q = (laplace.pdf(x, mean) * (x[1] - x[0]) for mean in (0, 1))
    both = np.outer(p, p), np.outer(q, q)
    exact = brentq(lambda e: np.maximum(both[0] - math.exp(e) * both[1], 0).sum() - 0.05, 0, 2)
    assert found.lower <= exact * (1 + 2e-3) and exact <= found.upper * (1 + 2e-3)
    assert found.upper / found.lower < 1.001


def test_many_steps_of_laplace_noise_against_dp_accounting():
    theirs = PLDAccountant(value_discretization_interval=1e-5)
    theirs.compose(dp_accounting.LaplaceDpEvent(10.0), 200)
    found = guarantee(LaplaceNoise(), noise_multiplier=10.0, steps=200, delta=DELTA)
    assert found.lower <= theirs.get_epsilon(DELTA) and found.upper == pytest.approx(
        theirs.get_epsilon(DELTA), rel=1e-4
    )
    assert found.upper / found.lower < 1.0002


def test_a_move_of_several_coordinates_spends_no_more_than_one_of_the_same_sum():
    """0.4 + 0.6 in two coordinates against 1 in one, at some epsilons."""
    x = np.linspace(-14, 15, 2901)
    step = x[1] - x[0]
    one, two = ([laplace.pdf(x, mean) * step for mean in (0, move)] for move in (0.4, 0.6))
    p, q = np.outer(one[0], two[0]), np.outer(one[1], two[1])
    curve = privacy_curve([Phase(LaplaceNoise(), 1.0, 1)])
    for epsilon in (0.0, 0.3, 0.8):
        assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= curve.delta(epsilon).upper * (1 + 1e-3)


@pytest.mark.parametrize(("buckets", "chance", "steps"), [(2, 0.5, 6), (4, 0.5, 30), (5, 0.9, 12)])
def test_randomised_response_against_the_sum_over_all_counts(buckets, chance, steps):
    reports = RandomizedResponse(buckets)
    noise = reports.noise_multiplier(chance)
    true, other = 1 - chance + chance / buckets, chance / buckets
    assert 1 / noise == pytest.approx(math.log(true / other))
    counts = [(a, b, steps - a - b) for a, b in itertools.product(range(steps + 1), repeat=2) if a + b <= steps]
    p = multinomial.pmf(counts, steps, [true, other, (buckets - 2) * other] if buckets > 2 else [true, other, 0.0])
    loss = np.array([a - b for a, b, _ in counts]) / noise
    exact = brentq(lambda e: p @ np.maximum(-np.expm1(np.minimum(e - loss, 0)), 0) - DELTA, 0, steps / noise)
    about(guarantee(reports, noise_multiplier=noise, steps=steps, delta=DELTA, neighbouring="replace_one"), exact)


def test_reports_composed_one_by_one_by_dp_accounting_spend_as_much():
    """`compose(event, 30)` counts the event once: docs/conformance.md."""
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 4)
    once, each = (PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE) for _ in range(2))
    once.compose(event, 30)
    for _ in range(30):
        each.compose(event)
    phases = from_dp_event(dp_accounting.SelfComposedDpEvent(event, 30))
    found = guarantee_of_phases(phases, delta=DELTA, neighbouring="replace_one")
    assert found.upper == pytest.approx(each.get_epsilon(DELTA), rel=1e-4)
    assert once.get_epsilon(DELTA) < 2 and found.lower > 45.02


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-100])
def test_one_report_of_two_buckets_at_a_small_delta_is_the_closed_form(delta):
    """delta = p - e^epsilon q, whose epsilon is next to the largest loss: the search begins at a single point."""
    p = math.e / (math.e + 1)
    found = guarantee(RandomizedResponse(2), noise_multiplier=1.0, steps=1, delta=delta, neighbouring="replace_one")
    about(found, math.log((p - delta) / (1 - p)), 1e-8)


@pytest.mark.parametrize(("noise", "delta"), [(1e3, 1e-5), (1.0, 0.5)])
def test_reports_of_so_many_buckets_that_values_hardly_show_spend_nothing(noise, delta):
    """The total variation of all reports, at most steps times that of one, is below delta."""
    run = {"noise_multiplier": noise, "steps": 10**6, "delta": delta, "neighbouring": "replace_one"}
    found = guarantee(RandomizedResponse(10**12), **run)
    assert 10**6 * math.expm1(1 / noise) / (10**12 - 1 + math.exp(1 / noise)) < delta
    assert (found.lower, found.upper) == (0.0, 0.0)


def test_randomised_response_is_of_replaced_records():
    with pytest.raises(ValueError, match=r"^neighbouring must be replace_one for randomised response"):
        guarantee(RandomizedResponse(3), noise_multiplier=1.0, steps=1, delta=DELTA, neighbouring="zero_out")


def test_phases_of_laplace_and_gaussian_noise_are_an_integral_over_one_of_the_others_profile():
    found = guarantee_of_phases([Phase(LaplaceNoise(), 2.0, 1), Phase(FullBatch(), 1.5, 1)], delta=1e-3)
    x = np.linspace(-0.5, 1.0, 40_001)  # the Laplace loss is 0.5 below 0, -0.5 above the move of 0.5

    def spent(epsilon):
        mu = 1 / 1.5

        def gaussian(left):
            return norm.sf(left / mu - mu / 2) - np.exp(left) * norm.sf(left / mu + mu / 2)

        inside = x[(x > 0) & (x < 0.5)]
        losses = 0.5 - 2 * inside
        middle = np.trapezoid(np.exp(-inside) / 2 * gaussian(epsilon - losses), inside)
        return 0.5 * gaussian(epsilon - 0.5) + middle + math.exp(-0.5) / 2 * gaussian(epsilon + 0.5)

    exact = brentq(lambda epsilon: spent(epsilon) - 1e-3, 0, 10)
    assert found.lower <= exact * (1 + 1e-4) and exact <= found.upper * (1 + 1e-4)
    assert found.upper / found.lower < 1.001


def test_noise_is_found_and_no_outcome_loses_more_than_pure_privacy_says():
    noise = noise_multiplier(LaplaceNoise(), steps=10, target_epsilon=1.0, delta=DELTA)
    spent = guarantee(LaplaceNoise(), noise_multiplier=noise, steps=10, delta=DELTA).upper
    assert 1 - 1e-4 <= spent <= 1.0
    assert guarantee(LaplaceNoise(), noise_multiplier=2.0, steps=3, delta=1e-200).upper <= 1.5 * (1 + 1e-12)
    beyond = guarantee(LaplaceNoise(), noise_multiplier=1e-3, steps=1, delta=DELTA)
    assert beyond.lower == pytest.approx(1000 + 2 * math.log1p(-DELTA), rel=1e-12) and beyond.upper <= 1000 * (
        1 + 1e-12
    )


def test_every_record_is_used_in_every_step():
    """So a replacement may be counted as a removal and an addition, beside a sampler for which only these amplify."""
    run = Run(LaplaceNoise(), 1.0, 1, DELTA, Neighbouring.REPLACE_ONE)
    assert are_by_record([accountant(run)])


def test_events_of_dp_accounting_become_phases():
    coins = dp_accounting.RandomizedResponseDpEvent(0.5, 4)
    events = [dp_accounting.SelfComposedDpEvent(coins, 3), dp_accounting.LaplaceDpEvent(2.0)]
    one, two = from_dp_event(dp_accounting.ComposedDpEvent(events))
    assert one == Phase(RandomizedResponse(4), RandomizedResponse(4).noise_multiplier(0.5), 3)
    assert two == Phase(LaplaceNoise(), 2.0, 1)
    assert from_dp_event(dp_accounting.RandomizedResponseDpEvent(1.0, 4)) == ()
    assert from_dp_event(dp_accounting.RandomizedResponseDpEvent(0.0, 1)) == ()
    with pytest.raises(ValueError, match=r"^noise_parameter must be at least 0"):
        from_dp_event(dp_accounting.RandomizedResponseDpEvent(-0.5, 1))
    with pytest.raises(ValueError, match=r"^noise_parameter must be above 0"):
        from_dp_event(dp_accounting.RandomizedResponseDpEvent(0.0, 4))


def test_several_gaussian_parts_on_one_sample_are_one_step():
    """A clipped sum and a count, as adaptive clipping releases them."""
    parts = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1.2), dp_accounting.GaussianDpEvent(20.0)])
    (phase,) = from_dp_event(dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(0.01, parts), 500))
    assert phase.steps == 500 and phase.noise_multiplier == pytest.approx((1.2**-2 + 20**-2) ** -0.5, rel=1e-14)
    theirs = PLDAccountant()
    theirs.compose(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(phase.noise_multiplier)), 500
    )
    found = guarantee_of_phases([phase], delta=DELTA, neighbouring="add_or_remove")
    assert found.upper == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-3)
    mixed = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1.2), dp_accounting.LaplaceDpEvent(2.0)])
    with pytest.raises(ValueError, match=r"^event PoissonSampledDpEvent.* is not known here"):
        from_dp_event(dp_accounting.PoissonSampledDpEvent(0.01, mixed))
