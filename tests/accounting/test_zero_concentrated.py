"""zCDP: dp_accounting's Renyi accountant, mpmath, and Gaussian mechanisms of which only the zCDP is stated."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as events

from dpfl.accounting import (
    FullBatch,
    Phase,
    Poisson,
    gaussian_dp,
    guarantee,
    guarantee_of_phases,
    noise_multiplier,
    privacy_curve,
)
from dpfl.accounting.composition import epsilon_above
from dpfl.accounting.external_claims import from_dp_event
from dpfl.accounting.zero_concentrated import ZeroConcentrated, law_above, profile, zcdp_epsilon

ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 200), np.linspace(2, 300, 3000)])


@pytest.mark.parametrize(("xi", "rho", "delta"), [(0, 0.1, 1e-5), (0, 1, 1e-8), (0.3, 0.5, 1e-5), (0, 100.0, 1e-5)])
def test_epsilon_agrees_with_their_accountant(xi, rho, delta):
    theirs = dp_accounting.rdp.RdpAccountant(orders=ORDERS).compose(events.ZCDpEvent(rho, xi)).get_epsilon(delta)
    found = zcdp_epsilon(xi, rho, delta)
    assert theirs * (1 - 1e-4) <= found <= theirs
    gaussian = float(gaussian_dp.epsilon(delta, math.sqrt(2 * rho)))  # a mechanism that has no more
    assert gaussian <= found <= xi + rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize(("xi", "rho"), [(0.0, 1e-6), (0.0, 0.5), (0.2, 3.0)])
def test_the_profile_agrees_with_mpmath(xi, rho):
    """The least over the orders, looked for with 30 digits, by the formula of Canonne, Kamath and Steinke."""
    with mpmath.workdps(30):
        for epsilon in (xi + 2 * rho, xi + rho + 3 * math.sqrt(rho), xi + rho + 12 * math.sqrt(rho)):

            def log_delta(u, epsilon=epsilon):
                less = mpmath.exp(u)
                tail = (less + 1) * mpmath.log(1 - 1 / (less + 1)) - mpmath.log(less)
                return less * (xi + rho * (less + 1) - epsilon) + tail

            least = min((log_delta(u) for u in mpmath.linspace(-5, 12, 3401)), default=0)
            found = float(profile(np.array(epsilon), xi, rho))
            variation = min(math.sqrt((xi + rho) / 2), math.sqrt(-math.expm1(-xi - rho)))
            assert found == pytest.approx(min(float(mpmath.exp(least)), variation), rel=1e-4)


def test_a_pure_mechanism_has_its_largest_loss_and_nothing_has_none():
    assert zcdp_epsilon(2.0, 0.0, 1e-5) == pytest.approx(2.0, rel=1e-9)
    assert zcdp_epsilon(0.0, 1e-12, 1e-5) == 0.0  # the total variation is below delta
    assert from_dp_event(events.ZCDpEvent(0.0, 0.0)) == ()


def test_events_add_up_wherever_they_stand():
    step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
    parts = [events.ZCDpEvent(0.1), step, events.SelfComposedDpEvent(events.ZCDpEvent(0.02, 0.005), 3)]
    (zcdp, noise, count), other = from_dp_event(events.ComposedDpEvent(parts))
    assert other == Phase(Poisson(0.01), 1.0, 1) and count == 1
    assert zcdp.xi == pytest.approx(0.015) and 1 / (2 * noise**2) == pytest.approx(0.16)
    for wrong in (events.ZCDpEvent(-1.0), events.ZCDpEvent(1.0, -0.1), events.ZCDpEvent(math.nan)):
        with pytest.raises(ValueError, match=r"rho|xi"):
            from_dp_event(wrong)
    with pytest.raises(ValueError, match="not known here"):  # zCDP says nothing of what sampling amplifies
        from_dp_event(events.PoissonSampledDpEvent(0.1, events.ZCDpEvent(1.0)))


def test_in_a_run_it_is_no_less_than_the_mechanism_that_has_it_and_less_than_renyi():
    """Half of a run of Gaussian noise is stated as zCDP: more than what is known of it, less than zCDP of all."""
    event = events.ComposedDpEvent([events.ZCDpEvent(0.5), events.GaussianDpEvent(1.0)])
    found = guarantee_of_phases(from_dp_event(event), delta=1e-5, neighbouring="add_or_remove")
    assert float(gaussian_dp.epsilon(1e-5, math.sqrt(2.0))) < found.upper < zcdp_epsilon(0.0, 1.0, 1e-5)
    assert found.lower == pytest.approx(float(gaussian_dp.epsilon(1e-5, 1.0)), rel=1e-6)  # the known part alone
    theirs = dp_accounting.rdp.RdpAccountant(orders=ORDERS).compose(event).get_epsilon(1e-5)
    assert found.upper < theirs
    alone = guarantee(ZeroConcentrated(), noise_multiplier=1.0, steps=3, delta=1e-5)
    assert alone.lower == 0.0 and alone.upper == pytest.approx(zcdp_epsilon(0.0, 1.5, 1e-5), rel=1e-9)
    law = law_above(0.0, 0.5, 1e-5)
    for order in law:
        assert epsilon_above([(order, 1)], 1e-5) == pytest.approx(zcdp_epsilon(0.0, 0.5, 1e-5), rel=1e-4)
        assert epsilon_above([(order, 4)], 1e-5) >= float(gaussian_dp.epsilon(1e-5, 2.0))


@pytest.mark.parametrize("xi", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_the_least_noise_for_an_epsilon_spends_it(xi):
    run = {"steps": 3, "delta": 1e-5}
    noise = noise_multiplier(ZeroConcentrated(xi), target_epsilon=1.0, **run)
    assert zcdp_epsilon(3 * xi, 1.5 / noise**2, 1e-5) == pytest.approx(1.0, rel=1e-5)
    assert guarantee(ZeroConcentrated(xi), noise_multiplier=noise, **run).upper <= 1.0
    with pytest.raises(ValueError, match=r"^target_epsilon 0\.05 is met by no noise: any spends at least 3$"):
        noise_multiplier(ZeroConcentrated(1.0), target_epsilon=0.05, **run)


def test_next_to_no_noise_spends_more_than_any_epsilon():
    for noise in (1e-163, 1e-300):
        assert guarantee(ZeroConcentrated(), noise_multiplier=noise, steps=2, delta=1e-5).upper == math.inf
    with pytest.raises(ValueError, match="rho of its zCDP parts is beyond floats"):
        from_dp_event(events.ComposedDpEvent([events.ZCDpEvent(1e308)] * 2))


def test_its_curve_holds_the_gaussian_one():
    curve = privacy_curve([Phase(ZeroConcentrated(), 1.0, 1), Phase(FullBatch(), 2.0, 1)])
    mu = math.hypot(1.0, 0.5)
    for epsilon in (0.0, 1.0, 4.0):
        lower, upper = curve.delta(epsilon)
        assert lower <= float(gaussian_dp.delta(epsilon, mu)) <= upper < 1
    assert curve.type_ii_error(0.1).lower <= float(gaussian_dp.tradeoff(0.1, mu))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="xi"):
        ZeroConcentrated(-0.1)
    with pytest.raises(ValueError, match="rho"):
        ZeroConcentrated().noise_multiplier(-1)
