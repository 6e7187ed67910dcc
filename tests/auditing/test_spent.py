"""Every accountant of the audit against another route, and with the noise of a tamperer."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from opacus.accountants import RDPAccountant
from scipy.integrate import quad
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd
from dpfl.auditing import spent
from dpfl.federated import shuffled

RUN = {"noise_multiplier": 1.2, "sample_rate": 0.05, "steps": 200, "delta": 1e-5}
TAMPERED = RUN | {"noise_multiplier": 1.32}


def test_the_renyi_interval_holds_opacus_s_epsilon_and_not_that_of_other_noise():
    accountant = RDPAccountant()
    accountant.history = [(1.2, 0.05, 200)]
    epsilon = accountant.get_epsilon(1e-5)
    assert spent.poisson_rdp(**RUN).holds(epsilon) and not spent.poisson_rdp(**TAMPERED).holds(epsilon)


def test_the_pld_interval_holds_dp_accounting_s_epsilon_and_not_that_of_other_noise():
    epsilon = dpsgd.epsilon(**RUN, accountant="pld")
    assert spent.poisson_pld(**RUN).holds(epsilon) and not spent.poisson_pld(**TAMPERED).holds(epsilon)


def test_noise_too_small_for_one_accountant_is_bounded_by_the_other():
    interval = spent.poisson_pld(noise_multiplier=0.02, sample_rate=1.0, steps=10, delta=1e-5)
    assert interval.least == 0 and interval.most > 1000 and "Renyi" in interval.accountant


@pytest.mark.parametrize("move", [1.0, 2.0])
def test_the_closed_form_is_the_privacy_loss_distribution_s(move):
    pld = privacy_loss_distribution.from_gaussian_mechanism(8.0 / move, value_discretization_interval=1e-4)
    epsilon = pld.self_compose(16).get_epsilon_for_delta(1e-6)
    interval = spent.gaussian(noise_multiplier=8.0, move=move, steps=16, delta=1e-6)
    assert interval.holds(epsilon) and interval.most - interval.least < 0.01 * epsilon
    assert not spent.gaussian(noise_multiplier=8.1, move=move, steps=16, delta=1e-6).holds(epsilon)


def test_hardly_any_signal_spends_nothing():
    assert spent.gaussian(noise_multiplier=1e6, move=1.0, steps=1, delta=1e-5).most <= 1e-6


def test_behind_a_shuffler_epsilon_lies_between_those_of_a_trusted_server_and_of_nobody():
    run = {"noise_multiplier": 20.0, "steps": 16, "delta": 1e-6}
    epsilon = shuffled.epsilon(noise_multiplier=20.0, clients=32, rounds=16, delta=1e-6, dimension=2)
    interval = spent.shuffled(**run, move=2.0, clients=32)
    assert interval.holds(epsilon)
    assert interval.least < spent.gaussian(**run, move=2 / math.sqrt(32)).most < epsilon
    assert epsilon < spent.gaussian(**run, move=2.0).least <= interval.most


def privacy_profile(sigma, weights, epsilon):
    """delta(epsilon) of one replaced step, by integration: where j copies are drawn the laws lie at +j and -j."""
    stays = 1 - sum(weights)

    def law(x, side):
        return stays * norm.pdf(x, 0, sigma) + sum(w * norm.pdf(x, side * j, sigma) for j, w in enumerate(weights, 1))

    def lost(x):
        return max(0.0, law(x, 1) - math.exp(epsilon) * law(x, -1))

    return quad(lost, -12 * sigma, 12 * sigma, limit=400)[0]


@pytest.mark.parametrize("weights", [[0.2], [1.0], [0.3, 0.05]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_profile_of_a_step_is_an_upper_bound_and_exact_where_every_step_sees_the_record(weights, epsilon):
    sigma = 1.5
    shifts = np.arange(1.0, len(weights) + 1) * 2 / sigma
    bound = math.exp(spent._profile(shifts, np.array(weights))(np.array([epsilon]))[0])
    truth = privacy_profile(sigma, weights, epsilon)
    assert bound >= truth - 1e-9
    if weights == [1.0] or epsilon == 0.0:
        assert bound == pytest.approx(truth, rel=1e-6)


def test_the_renyi_bound_of_full_batches_lies_just_above_the_closed_form():
    run = {"noise_multiplier": 20.0, "steps": 10, "delta": 1e-5}
    bound = spent.sampled_replacement(**run, batch_size=50, records=50, replaced="fixed_without_replacement").most
    exact = spent.gaussian(**run, move=2.0).least
    assert exact < bound < 1.3 * exact


def test_a_clipped_mean_spends_what_the_record_s_presence_in_a_batch_lets_it():
    run = {"noise_multiplier": 3.0, "steps": 5, "delta": 1e-5, "batch_size": 8, "records": 40}
    one, turned = (
        spent.sampled_replacement(**run, replaced=how) for how in ("fixed_without_replacement", "clipped_mean")
    )
    assert binom.sf(0, 8, 1 / 40) < 8 / 40
    assert turned.most < one.most


def test_more_noise_is_told_apart_from_less():
    run = {"steps": 35, "delta": 1e-5, "batch_size": 40, "records": 400}
    for replaced in ("with_replacement", "fixed_without_replacement"):
        bounds = [spent.sampled_replacement(noise_multiplier=s, **run, replaced=replaced).most for s in (2, 4, 8)]
        assert bounds[0] > bounds[1] > bounds[2] > 0
