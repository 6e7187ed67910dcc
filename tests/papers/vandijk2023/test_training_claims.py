import math

import pytest

from dpfl.papers.vandijk2023 import training_claims
from dpfl.papers.vandijk2023.figures import FIGURES
from dpfl.reporting.claims import Outcome
from dpfl.reporting.evidence import Comparison, Relation, table
from dpfl.reporting.results import write_csv


@pytest.fixture
def judged(trained):
    """Return a function that makes figures' data from runs, and perhaps checks, and asks for a verdict."""

    def judge(claim, figure, runs, checks=(), stand_in_for=""):
        results = trained(runs, stand_in_for)
        tables = {("figures", figure): FIGURES[figure].data(results)}
        if checks:
            tables["tables", "checks"] = table(list(checks))
        for (kind, name), data in tables.items():
            path = results.folder / kind / f"vandijk2023_{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w") as stream:
                write_csv(data, stream)
        return getattr(training_claims, claim)(results)

    return judge


def check(claim, case, relation, off):
    return Comparison(claim, case, relation, 1.0, 1.0 + off, 1e-9)


@pytest.mark.parametrize(
    ("cost", "outcome"),
    [
        ({}, Outcome.HOLDS),
        ({"late_64": 20.0, "reordered_16": 20.0}, Outcome.HOLDS),  # large delays may cost accuracy
        ({"late_4": 3.0}, Outcome.IN_PART),
        ({"late_4": 3.0, "dropped_90": 3.0}, Outcome.FAILS),
    ],
)
def test_asynchrony_is_judged_on_short_delays(judged, asynchrony_runs, cost, outcome):
    verdict = judged("asynchronous", "asynchrony", asynchrony_runs(cost))
    assert verdict.outcome == outcome and "the same in every scenario" in verdict.evidence


def test_a_statement_that_changes_with_the_network_refutes_the_claim(judged, asynchrony_runs):
    verdict = judged("asynchronous", "asynchrony", asynchrony_runs({}, {"late_4": 2.5}))
    assert verdict.outcome == Outcome.FAILS and "NOT the same" in verdict.evidence


def test_stand_ins_settle_nothing(judged, asynchrony_runs):
    verdict = judged("asynchronous", "asynchrony", asynchrony_runs({}), stand_in_for="mnist")
    assert verdict.outcome == Outcome.NOT_TESTABLE and "would be 'holds'" in verdict.evidence


@pytest.mark.parametrize(("lost", "outcome"), [(0.5, Outcome.HOLDS), (5.0, Outcome.IN_PART)])
def test_batch_scaling_is_judged_with_as_many_rounds(judged, lost, outcome):
    runs = [
        ("batch_scaling", {"scaling": scaling, "batch_factor": factor}, 80 - drop, 2.0 / factor, 1.0)
        for scaling, drops in (("rounds", (0, 0, lost)), ("epochs", (0, 9, 9)))
        for factor, drop in zip((1, 2, 4), drops, strict=True)
    ]
    verdict = judged("batch_scaling", "batch_scaling", runs)
    assert verdict.outcome == outcome and "is so in 0 of 2" in verdict.evidence


@pytest.mark.parametrize(
    ("unpaid", "paid", "off", "outcome"),
    [(3, 2, 0.0, Outcome.HOLDS), (3, -2, 0.0, Outcome.IN_PART), (-1, -2, 0.1, Outcome.FAILS)],
)
def test_the_last_epoch_has_three_parts(judged, unpaid, paid, off, outcome):
    gains = {"constant": (0, 2.0), "last_epoch": (paid, 2.0), "last_epoch_unpaid": (unpaid, 6.0)}
    runs = [
        ("strategies", {"strategy": name, "epsilon": 2.0}, 80 + gain, spent, 1.0)
        for name, (gain, spent) in gains.items()
    ]
    checks = [check("last_epoch_noise", "E = 20", Relation.EQUALS, off)]
    verdict = judged("last_epoch_noise", "strategies", runs, checks)
    assert verdict.outcome == outcome and "by a factor 3.0 to 3.0" in verdict.evidence


@pytest.mark.parametrize(("gain", "outcome"), [(2, Outcome.HOLDS), (-2, Outcome.IN_PART)])
def test_arsinh_noise_is_judged_on_tail_and_accuracy(judged, gain, outcome):
    runs = [("strategies", {"strategy": name, "epsilon": 2.0}, 80 + own, 2.0, 1.0) for name, own in
            (("constant", 0), ("arsinh_2", gain), ("arsinh_4", gain))]  # fmt: skip
    checks = [
        check("arsinh_noise", "lighter tail beyond", Relation.AT_MOST, -0.5),
        check("arsinh_noise", "epsilon no larger", Relation.AT_MOST, 2.0),
    ]
    verdict = judged("arsinh_noise", "strategies", runs, checks)
    assert verdict.outcome == outcome and "up to 3.0 times" in verdict.evidence


@pytest.mark.parametrize(("noise", "outcome"), [(1.2, Outcome.HOLDS), (1.0, Outcome.FAILS)])
def test_normalisation_is_paid_for_in_noise(judged, noise, outcome):
    cells = {"none": (80, 2.0, 1.0), "normalised": (84, 2.0, noise), "normalised_exactly": (85, math.inf, 1.0)}
    runs = [
        ("preparation", {"preparation": name, "epsilon": 2.0}, level, spent, own)
        for name, (level, spent, own) in cells.items()
    ]
    verdict = judged("private_normalisation", "preparation", runs)
    assert (
        verdict.outcome == outcome and "+4.0 to +4.0 points" in verdict.evidence and "-1.0 points" in verdict.evidence
    )


def test_what_fixed_batches_cost_in_accuracy_is_said(trained):
    runs = [
        ("samplers", {"sampling": sampling, "neighbouring": relation, "epsilon": 1.0}, level, 1.0, 1.0)
        for sampling, relation, level in (
            ("fixed_without_replacement", "replace_one", 80),
            ("poisson", "zero_out", 83),
        )
    ]
    results = trained(runs)
    path = results.folder / "figures" / "vandijk2023_samplers.csv"
    path.parent.mkdir(parents=True)
    with path.open("w") as stream:
        write_csv(FIGURES["samplers"].data(results), stream)
    assert "change accuracy by +3.0 to +3.0 points" in training_claims.samplers_trained(results)


@pytest.mark.parametrize(
    ("claim", "figure"),
    [("asynchronous", "asynchrony"), ("batch_scaling", "batch_scaling"), ("private_normalisation", "preparation")],
)
def test_nothing_run_is_not_testable(judged, claim, figure):
    assert judged(claim, figure, [("other", {}, 80.0, 2.0, 1.0)]).outcome == Outcome.NOT_TESTABLE


def test_without_runs_the_half_about_privacy_is_not_the_whole(judged):
    checks = [check("last_epoch_noise", "E = 20", Relation.EQUALS, 0.0)]
    verdict = judged("last_epoch_noise", "strategies", [("other", {}, 80.0, 2.0, 1.0)], checks)
    assert verdict.outcome == Outcome.IN_PART and "no run has an interval" in verdict.evidence
