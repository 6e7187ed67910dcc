"""Every accountant of the audit against another route, and with the noise of a tamperer."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution
from opacus.accountants import RDPAccountant

from dpfl.accounting import dpsgd, gaussian_dp, local_privacy, shuffling
from dpfl.accounting.contraction.pnsgd import Law, step_epsilon
from dpfl.accounting.samplers import Sampling
from dpfl.provenance.audit import numbers

RUN = {"noise_multiplier": 1.2, "sample_rate": 0.05, "steps": 200, "delta": 1e-5}
TAMPERED = RUN | {"noise_multiplier": 1.32}


def test_the_renyi_interval_holds_opacus_s_epsilon_and_not_that_of_other_noise():
    accountant = RDPAccountant()
    accountant.history = [(1.2, 0.05, 200)]
    epsilon = accountant.get_epsilon(1e-5)
    assert numbers.poisson_rdp(**RUN).holds(epsilon) and not numbers.poisson_rdp(**TAMPERED).holds(epsilon)


def test_the_pld_interval_holds_dp_accounting_s_epsilon_and_not_that_of_other_noise():
    epsilon = dpsgd.epsilon(**RUN, accountant="pld")
    assert numbers.poisson_pld(**RUN).holds(epsilon) and not numbers.poisson_pld(**TAMPERED).holds(epsilon)


def test_noise_too_small_for_one_accountant_is_bounded_by_the_other():
    interval = numbers.poisson_pld(noise_multiplier=0.02, sample_rate=1.0, steps=10, delta=1e-5)
    assert interval.lower == 0 and interval.upper > 1000 and "Renyi" in interval.accountant


@pytest.mark.parametrize("move", [1.0, 2.0])
def test_the_closed_form_is_the_privacy_loss_distribution_s(move):
    pld = privacy_loss_distribution.from_gaussian_mechanism(8.0 / move, value_discretization_interval=1e-4)
    epsilon = pld.self_compose(16).get_epsilon_for_delta(1e-6)
    interval = numbers.gaussian(noise_multiplier=8.0, move=move, steps=16, delta=1e-6)
    assert interval.holds(epsilon) and interval.upper - interval.lower < 0.01 * epsilon
    assert not numbers.gaussian(noise_multiplier=8.1, move=move, steps=16, delta=1e-6).holds(epsilon)


def test_hardly_any_signal_spends_nothing():
    assert numbers.gaussian(noise_multiplier=1e6, move=1.0, steps=1, delta=1e-5).upper <= 1e-6


def test_behind_a_shuffler_epsilon_lies_between_those_of_a_trusted_server_and_of_nobody():
    run = {"noise_multiplier": 10.0, "steps": 4, "delta": 1e-6}
    epsilon = shuffling.epsilon(noise_multiplier=10.0, clients=9, rounds=4, delta=1e-6, dimension=1)
    interval = numbers.shuffled(**run, move=2.0, clients=9)
    assert interval.holds(epsilon)
    assert interval.lower < numbers.gaussian(**run, move=2 / math.sqrt(9)).upper < epsilon
    assert epsilon < numbers.gaussian(**run, move=2.0).lower <= interval.upper


def test_full_batches_in_a_sampler_s_clothes_have_the_closed_form():
    run = {"noise_multiplier": 20.0, "steps": 10, "delta": 1e-5}
    sampled = numbers.sampled_replacement(**run, batch_size=50, records=50, replaced="fixed_without_replacement")
    exact = numbers.gaussian(**run, move=2.0)
    assert sampled.lower == pytest.approx(exact.lower, rel=3e-3) and sampled.upper == pytest.approx(
        exact.upper, rel=3e-3
    )


@pytest.mark.parametrize(("size", "steps"), [(1, 400), (40, 35), (5, 200)])
@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.WITH_REPLACEMENT])
def test_sampled_batches_hold_what_a_convolved_grid_gives_and_not_that_of_other_noise(sampling, size, steps):
    run = {"batch_size": size, "records": 400, "steps": steps, "delta": 1e-5}
    epsilon = float(local_privacy.epsilon(noise_multiplier=3.0, sampling=sampling, **run))
    assert numbers.sampled_replacement(noise_multiplier=3.0, **run, replaced=sampling).holds(epsilon)
    for other in (2.85, 3.15):
        assert not numbers.sampled_replacement(noise_multiplier=other, **run, replaced=sampling).holds(epsilon)


def test_where_an_atom_stops_the_inversion_renyi_divergences_bound_epsilon():
    run = {"noise_multiplier": 3.0, "batch_size": 1, "records": 400, "steps": 1, "delta": 1e-5}
    interval = numbers.sampled_replacement(**run, replaced=Sampling.FIXED)
    assert interval.wide and "Renyi" in interval.accountant
    assert interval.holds(float(local_privacy.epsilon(**run, sampling=Sampling.FIXED)))


def test_a_laplace_mechanism_is_known_by_its_tails():
    epsilon = step_epsilon(1e-3, law=Law.LAPLACE, scale=0.5, lipschitz=1.0)
    for change, holds in ((1.0, True), (0.99, False), (1.01, False)):
        run = {"noise_multiplier": change * 0.5 * math.sqrt(2), "move": 2.0, "delta": 1e-3}
        assert numbers.laplace(**run).holds(epsilon) is holds


def test_the_noise_of_a_release_spends_what_it_is_asked_to():
    sigma = numbers.gaussian_sigma(0.7, 1e-6)
    assert float(gaussian_dp.epsilon(1e-6, 1 / sigma)) == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize("sampling", [Sampling.WITH_REPLACEMENT, Sampling.FIXED])
def test_a_clipped_mean_spends_what_the_record_s_presence_in_a_batch_lets_it(sampling):
    run = {"steps": 60, "delta": 1e-5, "batch_size": 8, "records": 40}
    known = numbers.sampled_replacement(noise_multiplier=3.0, **run, replaced=f"mean_{sampling}")
    for change, same in ((0.95, False), (1.0, True), (1.05, False)):
        spent = local_privacy.clipped_mean_epsilon(sigma_over_lipschitz=change * 3.0, sampling=sampling, **run)
        assert known.holds(spent) is same


def test_more_noise_is_told_apart_from_less():
    run = {"steps": 35, "delta": 1e-5, "batch_size": 40, "records": 400}
    for replaced in ("with_replacement", "fixed_without_replacement"):
        bounds = [numbers.sampled_replacement(noise_multiplier=s, **run, replaced=replaced).upper for s in (2, 4, 8)]
        assert bounds[0] > bounds[1] > bounds[2] > 0
