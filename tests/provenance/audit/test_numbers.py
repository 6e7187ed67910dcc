"""Epsilon by another accountant: which one answers for which statement, and each against another route."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from scipy.integrate import quad
from scipy.stats import laplace, norm

from dpfl import experiments
from dpfl.accounting import dpsgd, gaussian_dp, local_privacy, shuffling
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, step_epsilon, worst_epsilon
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.accounting.tradeoff.privacy_loss import arsinh_delta
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.provenance.audit import numbers
from dpfl.provenance.audit.numbers import (
    Hidden,
    InvertedComposition,
    StatedPrivacy,
    control_problem,
    hidden_epsilon,
    interval,
    laplace_log_delta,
    poisson_replaced,
    sampled_arsinh,
    sampled_gaussian,
)
from dpfl.provenance.audit.records import check_epsilons

STATED = {
    "mechanism": '{"kind": "Gaussian"}', "sampler": '{"kind": "Poisson", "sample_rate": 0.1}',
    "neighbouring": "add_or_remove", "records": "100", "sample_rate": "0.1", "clip_norm": "1.0",
    "noise_multiplier": "1.5", "steps": "40", "delta": "1e-05", "epsilon_proven": "nan", "epsilon_refuted": "0",
}  # fmt: skip
DESCRIPTION = {"name": "digits", "records": {"train": 1400, "test": 300}, "stand_in_for": "mnist", "note": ""}


def row(**changes):
    """The statement of a run of DP-SGD, as a run table has it; changes of other names are columns beside it."""
    own = {name: value for name, value in changes.items() if name not in STATED}
    return own | {f"privacy_{name}": changes.get(name, value) for name, value in STATED.items()}


def stated(**changes):
    """The same, read."""
    return StatedPrivacy.of(row(**changes), {})


REPLACED = {"sampler": '{"kind": "WithReplacement", "batch_size": 10, "records": 100}', "neighbouring": "replace_one"}
FIXED = {"sampler": '{"kind": "FixedBatches", "batch_size": 10, "records": 100}', "neighbouring": "replace_one"}
FULL = {"neighbouring": "replace_one", "sampler": '{"kind": "FullBatch"}', "sample_rate": "1"}
EPOCHS = {"sampler": '{"kind": "ShuffledEpochs", "batch_size": 10, "records": 100}', "neighbouring": "zero_out"}
SHUFFLED = {"mechanism": '{"kind": "ShuffledGaussian", "clients": 9, "records": 1, "dimension": 2}'}


def summed(clients):
    """Messages that only their sum is seen of."""
    return {"mechanism": f'{{"kind": "SummedGaussian", "clients": {clients}}}'}


@pytest.mark.parametrize(
    "told",
    [
        {"mechanism": '{"kind": "ClippedMeanGaussian"}', "sampler": FIXED["sampler"]},
        REPLACED | {"neighbouring": "add_or_remove"},
        FIXED | {"neighbouring": "zero_out"},
        {"sampler": '{"kind": "ShuffledEpochs", "batch_size": 10, "records": 100}'},
        {"mechanism": '{"kind": "Laplace"}'},
        {"mechanism": '{"kind": "Another"}'},
    ],
)
def test_a_law_or_relation_that_no_accountant_here_knows_has_none(told):
    assert interval(stated(**told), "proven") is None


def test_a_statement_that_cannot_be_followed_is_a_finding(tmp_path):
    nobody = stated(**FULL | summed(0), epsilon_proven="1")
    [finding] = check_epsilons(tmp_path, [(nobody, tmp_path / "runs.csv")]).findings
    assert "privacy statement that no accountant can follow" in finding.problem


@pytest.mark.parametrize(
    ("told", "which", "accountant"),
    [
        ({}, "proven", "Opacus's PRV accountant"),
        ({}, "refuted", "Opacus's PRV accountant"),
        ({"neighbouring": "replace_one"}, "proven", "inversion of the moment generating function"),
        (FULL, "proven", "the closed form"),
        (FULL | SHUFFLED, "proven", "the closed forms for trust in the server and in nobody"),
        (REPLACED, "proven", "inversion of the moment generating function"),
        (FIXED | {"sample_rate": "1"}, "proven", "the closed form"),
        (EPOCHS, "proven", "the closed form"),
        (EPOCHS | {"sampler": '{"kind": "BallsInBins", "steps_per_epoch": 10}'}, "proven", "the closed form"),
        ({"preparation": "exact_pca"}, "proven", "statistics without noise, no guarantee"),
        ({"preparation": "batch_normalised"}, "proven", "statistics without noise, no guarantee"),
        ({"noise_multiplier": "0"}, "contraction", "no noise, no guarantee"),
    ],
)
def test_each_mechanism_has_its_second_accountant(told, which, accountant):
    if "preparation" in told:
        statement = StatedPrivacy.of(row(**told, epsilon="2"), {"preparation_share": 0.1})
    else:
        statement = stated(**told)
    assert interval(statement, which).accountant == accountant


def test_a_mechanism_without_one_is_said_and_no_epsilon_of_it_is_accepted_silently(tmp_path):
    vote = stated(mechanism='{"kind": "Votes"}', epsilon_proven="1.0")
    seen = check_epsilons(tmp_path, [(vote, tmp_path / "runs.csv")])
    assert seen.checked == {} and "no second accountant here" in seen.notes[0]


def test_an_epsilon_that_can_only_be_bounded_is_said(tmp_path):
    told = stated(**FULL | SHUFFLED | {"noise_multiplier": "30", "epsilon_proven": "1.0"})
    seen = check_epsilons(tmp_path, [(told, tmp_path / "runs.csv")])
    assert seen.findings == [] and "epsilon could only be bounded" in seen.notes[0]


def test_trust_in_the_server_divides_the_move_by_the_root_of_the_clients():
    alone = interval(stated(**FULL, steps="1"), "proven")
    among = interval(stated(**FULL | summed(16), steps="16"), "proven")
    assert alone.upper == pytest.approx(among.upper)


def test_a_clipped_mean_is_not_accounted_for_as_clipped_records():
    """Drawn with replacement a record may fill several slots: each moves a sum, all of them turn a mean once."""
    anew = FIXED | {"sampler": FIXED["sampler"].replace("FixedBatches", "WithReplacement")}
    mean = {"mechanism": '{"kind": "ClippedMeanGaussian"}'}
    assert interval(stated(**anew | mean), "proven") != interval(stated(**anew), "proven")
    assert interval(stated(**anew | mean), "proven").upper < interval(stated(**FIXED | mean), "proven").lower


def test_a_refuted_epsilon_above_what_another_accountant_proves_is_a_finding(tmp_path):
    bound = interval(stated(), "proven").upper
    for refuted, findings in ((0.9 * bound, 0), (1.1 * bound, 1)):
        statement = stated(epsilon_refuted=str(refuted))
        assert len(check_epsilons(tmp_path, [(statement, tmp_path / "runs.csv")]).findings) == findings


def test_equal_statements_are_one_statement_though_nan_is_not_equal_to_itself():
    assert len({stated(), stated()}) == 1


def test_without_noise_only_infinity_may_be_claimed(tmp_path):
    for told, findings in (("inf", 0), ("3.0", 1)):
        statement = stated(noise_multiplier="0", epsilon_proven=told)
        assert len(check_epsilons(tmp_path, [(statement, tmp_path / "runs.csv")]).findings) == findings


def written(algorithm, cell, **settings):
    """The row of a run table that an algorithm of the demo's grid would write for a cell, and its job's settings."""
    jobs = (each for each in expansion.expand(configuration.resolve({"scale": "demo"})) if each.experiment == algorithm)
    first = next(
        each for each in jobs if all(each.settings.get(name, value) == value for name, value in settings.items())
    )
    own = {**first.settings, **settings}
    job = TrainingJob(
        first.paper, algorithm, first.name, own, (cell,), (0,), {"device": "cpu", "threads": 1, "memory_gb": 1}
    )
    noise = experiments.load(algorithm).calibrate(job, DESCRIPTION).iloc[0].to_dict()
    plain = {name: value for name, value in {**own, **cell, **noise}.items() if not isinstance(value, dict | list)}
    return {name: "nan" if value is None else str(value) for name, value in plain.items()}, own


PASS = {"law": "gaussian", "order": "permuted", "release": "random", "step": 0.02, "epsilon": 4.0, "model": "mean_ink"}
PRICE = {"users": 1000, "draw": "one_pass", "release": "last", "noise_std": 0.25, "batch_size": 10, "step": "harmonic"}
COMPARED = {"epsilon": 4.0, "step": 0.3, "clients": 10, "users": 1400, "batch_size": 20, "local_batch_size": 20}
ASYNCHRONOUS = {
    "scenario": "synchronous", "strategy": "constant", "preparation": "none", "batch_factor": 1, "scaling": "epochs",
    "epsilon": math.inf, "sigma": 4.0, "sampling": "fixed_without_replacement", "neighbouring": "replace_one",
    "clients": 4, "batch_size": 32, "epochs": 6, "clip_norm": 1.0,
}  # fmt: skip
WRITTEN = [
    *(("pnsgd", PASS | {"law": law, "order": order, "release": release})
      for law in ("gaussian", "laplace") for order in ("sorted", "permuted") for release in ("last", "random")),
    *(("trusted_aggregator", PRICE | changes) for changes in (
        {}, {"release": "random"}, {"release": "suffix_0.75", "draw": "new_users"}, {"step": 0.4}, {"release": "all"},
        {"draw": "fresh", "noise_std": 0.4}, {"draw": "with_replacement", "noise_std": 0.4})),
    *(("trust_models", COMPARED | {"algorithm": each})
      for each in ("central", "central_full", "last_model", "pnsgd", "minibatch", "averaging", "asynchronous")),
    *(("async_dpsgd", ASYNCHRONOUS | changes) for changes in (
        {"strategy": "constant"}, {"strategy": "growing_batch"}, {"strategy": "falling_both"},
        {"strategy": "last_epoch"}, {"scaling": "rounds", "batch_factor": 2},
        {"preparation": "dp_pca", "epsilon": 8.0}, {"preparation": "layer_normalised", "epsilon": 8.0},
        {"sampling": "poisson"})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "cell"), WRITTEN, ids=[f"{name}-{place}" for place, (name, _) in enumerate(WRITTEN)]
)
def test_what_an_algorithm_states_holds_and_other_noise_or_another_epsilon_is_found(algorithm, cell):
    run, settings = written(algorithm, cell)
    told = StatedPrivacy.of(run, settings)
    assert told.epsilons
    for which, epsilon in told.epsilons.items():
        found = interval(told, which)
        assert found.holds(epsilon), (which, epsilon, found)
        if which == "refuted":  # one-sided: it is found where it exceeds what is proven, as another test says
            continue
        for change in (0.95, 1.05):
            assert not found.holds(change * epsilon)
            noise = str(change * told.noise_multiplier)
            other = StatedPrivacy.of(run | {"privacy_noise_multiplier": noise}, settings)
            assert not interval(other, which).holds(epsilon), (which, change)


def test_no_epsilon_of_arsinh_noise_is_proven_and_none_above_its_bound_along_one_axis_refuted():
    run, settings = written("async_dpsgd", ASYNCHRONOUS | {"strategy": "arsinh_4"})
    told = StatedPrivacy.of(run, settings)
    assert not told.epsilons
    forged = StatedPrivacy.of(run | {"privacy_epsilon_refuted": "1e-3"}, settings)
    one_axis = interval(forged, "refuted")
    assert one_axis.holds(forged.epsilons["refuted"]) and 0 < one_axis.upper < 100
    forged = StatedPrivacy.of(run | {"privacy_epsilon_proven": str(one_axis.upper)}, settings)
    assert not interval(forged, "proven").holds(one_axis.upper)


# Every accountant of the audit against another route, and with the noise of a tamperer.


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
    epsilon = shuffling.epsilon(noise_multiplier=10.0, clients=9, records=1, rounds=4, delta=1e-6, dimension=1)
    interval = numbers.shuffled(**run, move=2.0, clients=9, records=1)
    assert interval.holds(epsilon)
    assert interval.lower < numbers.gaussian(**run, move=2 / math.sqrt(9)).upper < epsilon
    assert epsilon < numbers.gaussian(**run, move=2.0).lower <= interval.upper
    apart = numbers.shuffled(**run, move=2.0, clients=9, records=100)
    assert not apart.holds(epsilon) and apart.lower == pytest.approx(interval.upper, rel=5e-3)


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


# Composition by inversion against closed forms and against accountants that convolve grids of losses.


def gaussian(shift):
    """The profile of a Gaussian mechanism."""
    return sampled_gaussian(np.array([shift]), np.ones(1))


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 3.0), st.integers(1, 500), st.floats(-9.0, -2.0))
def test_gaussian_steps_compose_to_the_closed_form(shift, steps, log_delta):
    delta = 10.0**log_delta
    exact = float(gaussian_dp.epsilon(delta, shift * math.sqrt(steps)))
    assert InvertedComposition(((gaussian(shift), steps),), delta).epsilon() == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_steps_of_two_kinds_compose_in_any_order():
    mixed = ((gaussian(0.3), 16), (gaussian(0.9), 4))
    exact = float(gaussian_dp.epsilon(1e-6, math.sqrt(16 * 0.09 + 4 * 0.81)))
    assert InvertedComposition(mixed, 1e-6).epsilon() == pytest.approx(exact, rel=1e-6)
    assert InvertedComposition(mixed[::-1], 1e-6).epsilon() == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("blur", [0.5, 1.0, 1.9])
def test_a_gaussian_mechanism_beside_the_steps_adds_its_square(blur):
    exact = float(gaussian_dp.epsilon(1e-6, math.sqrt(16 * 0.09 + blur**2)))
    assert InvertedComposition(((gaussian(0.3), 16),), 1e-6).epsilon(blur) == pytest.approx(exact, rel=1e-6)


def test_poisson_samples_under_replacement_agree_with_dp_accounting():
    known = dpsgd.epsilon(
        noise_multiplier=1.5, sample_rate=0.05, steps=60, delta=1e-5, neighbouring=Neighbouring.REPLACE_ONE
    )
    assert InvertedComposition(((poisson_replaced(1.5, 0.05), 60),), 1e-5).epsilon() == pytest.approx(known, rel=1e-3)


def test_a_renyi_bound_lies_above():
    whole = InvertedComposition(((sampled_gaussian(np.array([0.8]), np.array([0.1])), 50),), 1e-5)
    assert whole.epsilon() < whole.bound < 1.5 * whole.epsilon()


def test_a_loss_with_an_atom_has_no_answer_and_nothing_spent_is_0():
    rare = sampled_gaussian(np.array([2.0]), np.array([0.01]))
    assert math.isnan(InvertedComposition(((rare, 1),), 1e-5).epsilon())
    assert InvertedComposition(((gaussian(1e-7), 3),), 1e-5).epsilon() == 0.0


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(0.8, 1e-3, 300), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.9, 3e-4, 300), (1.2, 1e-3, 300)))],
)
def test_rare_large_losses_are_not_folded_in(sigma, rate, steps):
    known = segments_epsilon([Segment(steps, sigma, rate)], 1e-5)
    step = sampled_gaussian(np.array([1 / sigma]), np.array([rate]))
    assert InvertedComposition(((step, steps),), 1e-5).epsilon() == pytest.approx(known, rel=1e-3)


def test_what_does_not_settle_has_no_value_and_a_bound():
    """300 rounds of which 9 in 10 never see the record, and then lose much: every place tells something else."""
    whole = InvertedComposition(((sampled_gaussian(np.array([2.0]), np.array([3e-4])), 300),), 1e-5)
    assert math.isnan(whole.epsilon())
    assert segments_epsilon([Segment(300, 0.5, 3e-4)], 1e-5) < whole.bound < 5


def test_a_step_that_loses_too_much_has_neither():
    whole = InvertedComposition(((sampled_gaussian(np.array([400.0]), np.array([0.1])), 5),), 1e-5)
    assert math.isnan(whole.epsilon(blur=0.1)) and whole.bound == math.inf


# Profiles of single steps against integrals over their densities.


def mixture(sigma, weights, epsilon):
    """delta(epsilon) of one replaced step: where j copies are drawn, with weights[j - 1], the laws lie at +j and -j."""
    stays = 1 - sum(weights)

    def law(x, side):
        return stays * norm.pdf(x, 0, sigma) + sum(w * norm.pdf(x, side * j, sigma) for j, w in enumerate(weights, 1))

    return quad(lambda x: max(0.0, law(x, 1) - math.exp(epsilon) * law(x, -1)), -12 * sigma, 12 * sigma, limit=400)[0]


def at(profile, epsilon):
    return math.exp(profile(np.array([epsilon]))[0])


@pytest.mark.parametrize("weights", [[0.2], [1.0], [0.3, 0.05]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_profile_of_a_step_is_an_upper_bound_and_exact_where_every_step_sees_the_record(weights, epsilon):
    sigma = 1.5
    shifts = np.arange(1.0, len(weights) + 1) * 2 / sigma
    bound, truth = at(sampled_gaussian(shifts, np.array(weights)), epsilon), mixture(sigma, weights, epsilon)
    assert bound >= truth - 1e-9
    if weights == [1.0] or epsilon == 0.0:
        assert bound == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_a_poisson_sample_s_profile_is_the_integral(rate, epsilon):
    assert at(poisson_replaced(1.5, rate), epsilon) == pytest.approx(mixture(1.5, [rate], epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("scale", [2.0, 6.0])
def test_arsinh_noise_has_the_profile_of_its_exact_tails(scale, epsilon):
    exact = float(arsinh_delta(epsilon, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 1.0), epsilon) == pytest.approx(exact, rel=1e-6)
    inner = math.log1p(math.expm1(epsilon) / 0.1)
    sampled = 0.1 * float(arsinh_delta(inner, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 0.1), epsilon) == pytest.approx(sampled, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.9])
def test_laplace_noise_has_the_integral_over_its_densities(epsilon):
    def lost(x):
        return max(0.0, laplace.pdf(x) - math.exp(epsilon) * laplace.pdf(x, 2.0))

    truth = quad(lost, -40, 42, points=[0.0, 2.0, (2 - epsilon) / 2], limit=400)[0]
    assert math.exp(laplace_log_delta(epsilon, 2.0)) == pytest.approx(truth, rel=1e-7)
    assert laplace_log_delta(2.0, 2.0) == laplace_log_delta(2.5, 2.0) == -math.inf


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


def test_a_control_is_judged_by_what_its_run_does():
    proven = str(interval(stated(), "proven").upper)
    planted = replace(stated(preparation="batch_normalised", epsilon_proven=proven), is_control=True)
    assert control_problem(planted) == "" and interval(planted, "proven").proves(float(proven))
    honest = replace(stated(epsilon_proven=proven), is_control=True)
    assert "is proven" in control_problem(honest)
