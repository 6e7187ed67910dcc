"""Every accountant of the audit against another route, and with the noise of a tamperer."""

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant

from dpfl.accounting import dpsgd, gaussian_dp, local_privacy, shuffling
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, step_epsilon, worst_epsilon
from dpfl.accounting.samplers import Sampling
from dpfl.provenance.audit import second_accountants as second
from dpfl.provenance.audit.second_accountants import Hidden, hidden_epsilon

RUN = {"noise_multiplier": 1.2, "sample_rate": 0.05, "steps": 200, "delta": 1e-5}
TAMPERED = RUN | {"noise_multiplier": 1.32}


def test_the_renyi_interval_holds_opacus_s_epsilon_and_not_that_of_other_noise():
    accountant = RDPAccountant()
    accountant.history = [(1.2, 0.05, 200)]
    epsilon = accountant.get_epsilon(1e-5)
    assert second.poisson_rdp(**RUN).holds(epsilon) and not second.poisson_rdp(**TAMPERED).holds(epsilon)


def test_the_pld_interval_holds_dp_accounting_s_epsilon_and_not_that_of_other_noise():
    epsilon = dpsgd.epsilon(**RUN, accountant="pld")
    assert second.poisson_pld(**RUN).holds(epsilon) and not second.poisson_pld(**TAMPERED).holds(epsilon)


def test_noise_too_small_for_one_accountant_is_bounded_by_the_other():
    interval = second.poisson_pld(noise_multiplier=0.02, sample_rate=1.0, steps=10, delta=1e-5)
    assert interval.lower == 0 and interval.upper > 1000 and "Renyi" in interval.accountant


@pytest.mark.parametrize("move", [1.0, 2.0])
def test_the_closed_form_is_the_privacy_loss_distribution_s(move):
    pld = privacy_loss_distribution.from_gaussian_mechanism(8.0 / move, value_discretization_interval=1e-4)
    epsilon = pld.self_compose(16).get_epsilon_for_delta(1e-6)
    interval = second.gaussian(noise_multiplier=8.0, move=move, steps=16, delta=1e-6)
    assert interval.holds(epsilon) and interval.upper - interval.lower < 0.01 * epsilon
    assert not second.gaussian(noise_multiplier=8.1, move=move, steps=16, delta=1e-6).holds(epsilon)


def test_hardly_any_signal_spends_nothing():
    assert second.gaussian(noise_multiplier=1e6, move=1.0, steps=1, delta=1e-5).upper <= 1e-6


def test_behind_a_shuffler_epsilon_lies_between_those_of_a_trusted_server_and_of_nobody():
    run = {"noise_multiplier": 10.0, "steps": 4, "delta": 1e-6}
    epsilon = shuffling.epsilon(noise_multiplier=10.0, clients=9, records=1, rounds=4, delta=1e-6, dimension=1)
    interval = second.shuffled(**run, move=2.0, clients=9, records=1)
    assert interval.holds(epsilon)
    assert interval.lower < second.gaussian(**run, move=2 / math.sqrt(9)).upper < epsilon
    assert epsilon < second.gaussian(**run, move=2.0).lower <= interval.upper
    apart = second.shuffled(**run, move=2.0, clients=9, records=100)
    assert not apart.holds(epsilon) and apart.lower == pytest.approx(interval.upper, rel=5e-3)


def test_full_batches_in_a_sampler_s_clothes_have_the_closed_form():
    run = {"noise_multiplier": 20.0, "steps": 10, "delta": 1e-5}
    sampled = second.sampled_replacement(**run, batch_size=50, records=50, replaced="fixed_without_replacement")
    exact = second.gaussian(**run, move=2.0)
    assert sampled.lower == pytest.approx(exact.lower, rel=3e-3) and sampled.upper == pytest.approx(
        exact.upper, rel=3e-3
    )


@pytest.mark.parametrize(("size", "steps"), [(1, 400), (40, 35), (5, 200)])
@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.WITH_REPLACEMENT])
def test_sampled_batches_hold_what_a_convolved_grid_gives_and_not_that_of_other_noise(sampling, size, steps):
    run = {"batch_size": size, "records": 400, "steps": steps, "delta": 1e-5}
    epsilon = float(local_privacy.epsilon(noise_multiplier=3.0, sampling=sampling, **run))
    assert second.sampled_replacement(noise_multiplier=3.0, **run, replaced=sampling).holds(epsilon)
    for other in (2.85, 3.15):
        assert not second.sampled_replacement(noise_multiplier=other, **run, replaced=sampling).holds(epsilon)


def test_where_an_atom_stops_the_inversion_renyi_divergences_bound_epsilon():
    run = {"noise_multiplier": 3.0, "batch_size": 1, "records": 400, "steps": 1, "delta": 1e-5}
    interval = second.sampled_replacement(**run, replaced=Sampling.FIXED)
    assert interval.wide and "Renyi" in interval.accountant
    assert interval.holds(float(local_privacy.epsilon(**run, sampling=Sampling.FIXED)))


def test_a_laplace_mechanism_is_known_by_its_tails():
    epsilon = step_epsilon(1e-3, law=Law.LAPLACE, scale=0.5, lipschitz=1.0)
    for change, holds in ((1.0, True), (0.99, False), (1.01, False)):
        run = {"noise_multiplier": change * 0.5 * math.sqrt(2), "move": 2.0, "delta": 1e-3}
        assert second.laplace(**run).holds(epsilon) is holds


def test_the_noise_of_a_release_spends_what_it_is_asked_to():
    sigma = second.gaussian_sigma(0.7, 1e-6)
    assert float(gaussian_dp.epsilon(1e-6, 1 / sigma)) == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize("sampling", [Sampling.WITH_REPLACEMENT, Sampling.FIXED])
def test_a_clipped_mean_spends_what_the_record_s_presence_in_a_batch_lets_it(sampling):
    run = {"steps": 60, "delta": 1e-5, "batch_size": 8, "records": 40}
    known = second.sampled_replacement(noise_multiplier=3.0, **run, replaced=f"mean_{sampling}")
    for change, same in ((0.95, False), (1.0, True), (1.05, False)):
        spent = local_privacy.clipped_mean_epsilon(sigma_over_lipschitz=change * 3.0, sampling=sampling, **run)
        assert known.holds(spent) is same


# The recursion over rounds against the closed forms and sums that calibrate such runs.


DELTA = 1e-5


@settings(max_examples=15, deadline=None)
@given(
    noise=st.floats(0.3, 3.0),
    rounds=st.integers(1, 60),
    batch=st.sampled_from([1, 8]),
    step=st.one_of(st.none(), st.floats(0.05, 9.0)),
    radius=st.floats(0.1, 4.0),
    convexity=st.floats(0.01, 0.3),
    share=st.floats(0.0, 1.0),
)
def test_the_recursion_is_the_closed_form_of_the_federated_algorithm(
    noise, rounds, batch, step, radius, convexity, share
):
    first = 1 + round(share * (rounds - 1))
    theory = {"radius": radius, "smoothness": 0.25 + convexity, "strong_convexity": convexity, "first_stop": first}
    run = Hidden(noise_multiplier=noise, rounds=rounds, batch_size=batch, step=step, lipschitz=1.0, **theory)
    eta = [1 / (convexity * t) for t in range(1, rounds + 1)] if step is None else step
    release = FederatedRelease(n=rounds * batch, m=batch, eta=eta, lipschitz=1.0, **theory)
    known = release_epsilon(DELTA, release, sigma=noise / math.sqrt(batch))
    assert hidden_epsilon(run, DELTA) == pytest.approx(known, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("permuted", [True, False])
@pytest.mark.parametrize("stops", [True, False])
def test_the_recursion_is_the_worst_place_of_the_one_pass_algorithm_and_other_noise_is_not(law, permuted, stops):
    run = Hidden(
        noise_multiplier=0.5, rounds=300, batch_size=1, step=0.1, lipschitz=1.0, radius=0.3, smoothness=0.4,
        strong_convexity=0.1, first_stop=1 if stops else 300, permuted=permuted, laplace=law is Law.LAPLACE,
        relaxed=False,
    )  # fmt: skip
    scale = 0.5 / (math.sqrt(2) if run.laplace else 1.0)
    theory = {"eta": 0.1, "lipschitz": 1.0, "smoothness": 0.4, "strong_convexity": 0.1, "diameter": 0.6}
    known = worst_epsilon(DELTA, NoisyPass(300, law, permuted=permuted, random_stop=stops, **theory), scale=scale)
    assert hidden_epsilon(run, DELTA) == pytest.approx(known, rel=1e-6)
    for change in (0.95, 1.05):
        other = hidden_epsilon(replace(run, noise_multiplier=change * 0.5), DELTA)
        assert abs(other / known - 1) > 0.01


def test_a_secret_order_and_a_secret_stop_hide_more_than_neither():
    run = Hidden(0.6, 200, 1, 0.5, 1.0, 0.2, 0.35, 0.1, 200, permuted=False)
    worst = hidden_epsilon(run, DELTA)
    assert hidden_epsilon(replace(run, permuted=True), DELTA) < worst
    assert hidden_epsilon(replace(run, first_stop=1), DELTA) < worst


@pytest.mark.parametrize("change", [{"first_stop": 50}, {"first_stop": 1, "step": None}])
def test_a_public_order_without_a_known_worst_place_is_refused(change):
    with pytest.raises(ValueError, match="permuted"):
        replace(Hidden(0.6, 200, 1, 0.5, 1.0, 0.2, 0.35, 0.1, 200, permuted=False), **change)
