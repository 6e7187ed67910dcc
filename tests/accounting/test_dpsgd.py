"""DP-SGD by each accountant: against the others and closed forms; conversions against mechanisms."""

import math
import time

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.accounting import dpsgd, gaussian_dp, tradeoff
from dpfl.accounting.neighbouring import Neighbouring

# DP-SGD by each accountant: against the others and closed forms; conversions against mechanisms.

RUN = {"sample_rate": 0.02, "steps": 200, "delta": 1e-5}


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of G_mu by its closed form."""
    return brentq(
        lambda e: norm.sf(e / mu - mu / 2) - math.exp(e) * norm.sf(e / mu + mu / 2) - delta, 0, 100, xtol=1e-13
    )


@pytest.mark.parametrize("accountant", ["rdp", "prv", "pld"])
def test_full_batches_are_the_gaussian_mechanism(accountant):
    truth = gaussian_epsilon(math.sqrt(4) / 2.5, 1e-5)
    ours = dpsgd.epsilon(noise_multiplier=2.5, sample_rate=1.0, steps=4, delta=1e-5, accountant=accountant)
    slack = {"rdp": 0.3, "prv": 0.011, "pld": 1e-6}[accountant]
    assert truth * (1 - 1e-9) <= ours <= truth + slack


def test_replacing_a_record_doubles_the_move():
    ours = dpsgd.epsilon(noise_multiplier=2.5, sample_rate=1.0, steps=4, delta=1e-5, neighbouring="replace_one")
    assert ours == pytest.approx(gaussian_epsilon(2 * math.sqrt(4) / 2.5, 1e-5), rel=1e-6)


def test_the_accountants_agree_in_their_order():
    spent = [dpsgd.epsilon(noise_multiplier=1.0, **RUN, accountant=name) for name in ("pld", "prv", "rdp")]
    assert spent == sorted(spent)
    assert spent[1] - spent[0] < 0.021  # the PRV accountant allows itself 0.01 either way


def test_zeroing_out_costs_as_adding_and_removing():
    for accountant in ("rdp", "prv", "pld"):
        pair = [
            dpsgd.epsilon(noise_multiplier=1.2, **RUN, accountant=accountant, neighbouring=n)
            for n in (Neighbouring.ZERO_OUT, Neighbouring.ADD_OR_REMOVE)
        ]
        assert pair[0] == pair[1]


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_opacus_does_not_know_replacement(accountant):
    with pytest.raises(ValueError, match=r"neighbouring 'replace_one'.*use 'pld'"):
        dpsgd.epsilon(noise_multiplier=1.0, **RUN, accountant=accountant, neighbouring="replace_one")


def test_edges():
    assert dpsgd.epsilon(noise_multiplier=1.0, sample_rate=0.5, steps=0, delta=1e-5) == 0
    assert math.isfinite(dpsgd.epsilon(noise_multiplier=1.0, sample_rate=0.01, steps=1, delta=1e-15))


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
@pytest.mark.parametrize("noise", [1e-200, 1e200])
def test_noise_that_opacus_cannot_square_is_refused(accountant, noise):
    with pytest.raises(ValueError, match=r"^noise_multiplier .* is out of the range of accountants 'rdp' and 'prv'"):
        dpsgd.epsilon(noise_multiplier=noise, **RUN, accountant=accountant)


@pytest.mark.parametrize("values", [{"noise_multiplier": 0.05}, {"delta": 0.99, "noise_multiplier": 100.0}])
def test_prv_refuses_what_it_cannot_tell(values):
    with pytest.raises(ValueError, match="use 'pld'"):
        dpsgd.epsilon(**{"noise_multiplier": 1.0, **RUN, **values}, accountant="prv")
    with pytest.raises(ValueError, match="use 'pld'"):
        dpsgd.noise_multiplier(target_epsilon=1, sample_rate=0.01, steps=10, delta=0.999, accountant="prv")


def test_epsilon_broadcasts():
    spent = dpsgd.epsilon(noise_multiplier=[[1.0], [2.0]], sample_rate=0.02, steps=[10, 100, 200], delta=1e-5)
    assert spent.shape == (2, 3)
    assert np.all(np.diff(spent, axis=1) > 0)
    assert np.all(np.diff(spent, axis=0) < 0)
    assert spent[0, 2] == dpsgd.epsilon(noise_multiplier=1.0, **RUN)


@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # of Opacus's own search
@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_opacus_calibration_is_opacus_own(accountant):
    from opacus.accountants.utils import get_noise_multiplier

    ours = dpsgd.noise_multiplier(target_epsilon=0.9, **RUN, accountant=accountant)
    theirs = get_noise_multiplier(
        target_epsilon=0.9,
        target_delta=1e-5,
        sample_rate=0.02,
        steps=200,
        accountant=accountant,
    )
    assert ours == theirs
    assert 0.9 - 0.01 <= dpsgd.epsilon(noise_multiplier=ours, **RUN, accountant=accountant) <= 0.9


@pytest.mark.parametrize("target", [1e-3, 0.05, 1.0, 8.0])
def test_pld_calibration_meets_its_target(target):
    sigma = dpsgd.noise_multiplier(target_epsilon=target, **RUN, accountant="pld")
    assert target * (1 - 4e-6) <= dpsgd.epsilon(noise_multiplier=sigma, **RUN) <= target


@pytest.mark.slow
def test_pld_calibration_is_dp_accountings_answer_faster():
    q, steps, delta, target = 64 / 6000, 1880, 1e-5, 2.93
    begin = time.process_time()
    ours = dpsgd.noise_multiplier(target_epsilon=target, sample_rate=q, steps=steps, delta=delta, accountant="pld")
    middle = time.process_time()
    theirs = dp_accounting.calibrate_dp_mechanism(
        PLDAccountant,
        lambda sigma: dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)), steps
        ),
        target,
        delta,
    )
    end = time.process_time()
    assert ours == pytest.approx(theirs, abs=3e-6)
    assert end - middle > 2 * (middle - begin)  # measured 4 and more, in a benchmark


@pytest.mark.parametrize(("accountant", "target"), [("rdp", 0.05), ("pld", 1e-12)])
def test_a_target_out_of_reach_is_named(accountant, target):
    with pytest.raises(ValueError, match="target_epsilon"):
        dpsgd.noise_multiplier(target_epsilon=target, **{**RUN, "delta": 1e-15}, accountant=accountant)


def test_tiny_targets_get_the_noise_that_they_need():
    sigma = dpsgd.noise_multiplier(target_epsilon=1e-4, sample_rate=0.01, steps=100, delta=1e-5, accountant="pld")
    assert sigma == pytest.approx(937.43, rel=1e-5)  # 6211 by a grid of 1e-4


def test_where_any_noise_will_do_the_least_is_returned():
    run = {"sample_rate": 1e-9, "steps": 10, "delta": 1e-5}
    assert dpsgd.noise_multiplier(target_epsilon=1.0, **run, accountant="pld") == pytest.approx(0.05)
    assert dpsgd.noise_multiplier(target_epsilon=1e9, **RUN, accountant="pld") == pytest.approx(0.05)


@pytest.mark.parametrize(("accountant", "delta"), [("pld", 1e-291), ("prv", 1e-12), ("rdp", 1e-291)])
def test_a_delta_that_an_accountant_cannot_serve_is_refused(accountant, delta):
    run = {**RUN, "delta": delta, "accountant": accountant}
    with pytest.raises(ValueError, match="delta"):
        dpsgd.epsilon(noise_multiplier=1.0, **run)
    with pytest.raises(ValueError, match="delta"):
        dpsgd.noise_multiplier(target_epsilon=1.0, **run)


def test_ten_million_steps_are_those_of_the_central_limit():
    ours = dpsgd.epsilon(noise_multiplier=100.0, sample_rate=0.01, steps=10**7, delta=1e-5)
    # q^2 T (e^(1/sigma^2) - 1) = mu^2, off by a third-moment term of 1 / sqrt(T).
    assert ours == pytest.approx(float(gaussian_dp.epsilon(1e-5, 0.01 * math.sqrt(1e7 * math.expm1(1e-4)))), rel=1e-3)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_calibration_takes_the_neighbouring_relation(neighbouring):
    sigma = dpsgd.noise_multiplier(target_epsilon=1.0, **RUN, accountant="pld", neighbouring=neighbouring)
    assert 1 - 4e-6 <= dpsgd.epsilon(noise_multiplier=sigma, **RUN, neighbouring=neighbouring) <= 1
    added = dpsgd.noise_multiplier(target_epsilon=1.0, **RUN, accountant="pld")
    assert sigma == added if neighbouring == "zero_out" else 1.2 * added < sigma < 2 * added
    with pytest.raises(ValueError, match="replace_one"):
        dpsgd.noise_multiplier(target_epsilon=1.0, **RUN, accountant="rdp", neighbouring="replace_one")


@pytest.mark.filterwarnings("error")
def test_nothing_is_warned():
    dpsgd.noise_multiplier(target_epsilon=0.9, **RUN, accountant="rdp")
    dpsgd.epsilon(noise_multiplier=1e4, **RUN, accountant="rdp")
    dpsgd.epsilon(noise_multiplier=0.3, **RUN, accountant="prv")
    dpsgd.epsilon(noise_multiplier=0.3, **RUN)


# Conversions against the mechanisms they speak about, and against the printed forms.


@settings(max_examples=50, deadline=None)
@given(st.floats(0.05, 4), st.floats(1e-12, 0.1))
def test_zcdp_is_the_best_renyi_order_and_covers_the_gaussian(mu, delta):
    rho, orders = mu**2 / 2, 1 + np.geomspace(1e-3, 1e4, 4001)
    epsilon, by_orders = dpsgd.zcdp_to_epsilon(rho, delta), rho * orders - np.log(delta) / (orders - 1)
    assert epsilon <= by_orders.min() * (1 + 1e-12) and np.isclose(epsilon, by_orders.min(), rtol=1e-3)
    assert gaussian_dp.epsilon(delta, mu) <= epsilon


def test_advanced_composition_covers_composed_gaussians_and_randomised_response():
    """k rounds of exact (epsilon, 0) randomised response, composed as curves, stay within the bound."""
    epsilon, rounds, slack = 0.2, 6, 1e-3
    one = tradeoff.Curve.of_epsilon_delta(epsilon, 0.0)
    composed = one
    for _ in range(rounds - 1):
        composed = composed.compose(one)
    total, failure = dpsgd.advanced_composition(epsilon, 0.0, rounds, slack)
    with mp.workdps(50):
        e, k = mp.mpf(epsilon), mp.mpf(rounds)
        exact = mp.sqrt(2 * k * mp.log(1 / mp.mpf(slack))) * e + k * e * mp.expm1(e) / 2
    assert abs(total - exact) < 1e-14 * exact and failure == slack
    assert composed.delta(total) <= failure
    assert dpsgd.advanced_composition(1000.0, 0.1, 20, 0.1) == (np.inf, 1.0)


@settings(max_examples=6, deadline=None)
@given(st.floats(0, 3), st.floats(1e-8, 1e-2), st.integers(1, 5))
def test_group_delta_is_that_of_the_iterated_curve(epsilon, delta, g):
    grouped = tradeoff.group(lambda alpha: tradeoff.epsilon_delta(alpha, epsilon, delta), g)
    exact = dpsgd.group_delta(epsilon, delta, g)
    if exact < 0.5:
        assert np.isclose(tradeoff.delta_of(grouped, g * epsilon), exact, rtol=1e-6, atol=1e-12)
    assert exact <= dpsgd.group_delta_bound(epsilon, delta, g) * (1 + 1e-12)


def test_group_delta_at_its_limits():
    assert dpsgd.group_delta(0.0, 0.01, 7) == pytest.approx(0.07, rel=1e-15)
    assert dpsgd.group_delta(1e-9, 0.01, 7) == pytest.approx(0.07, rel=1e-8)
    assert dpsgd.group_delta(800.0, 0.1, 3) == np.inf and dpsgd.group_delta(800.0, 0.0, 3) == 0
