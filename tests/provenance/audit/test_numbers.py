"""Epsilon by another accountant: which one answers for which statement, and each against another route."""

import math
from dataclasses import replace

import pytest

from dpfl import experiments
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.provenance.audit.numbers import StatedPrivacy, control_problem, interval
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


def test_a_control_is_judged_by_what_its_run_does():
    proven = str(interval(stated(), "proven").upper)
    planted = replace(stated(preparation="batch_normalised", epsilon_proven=proven), is_control=True)
    assert control_problem(planted) == "" and interval(planted, "proven").proves(float(proven))
    honest = replace(stated(epsilon_proven=proven), is_control=True)
    assert "is proven" in control_problem(honest)
