import math

import pytest

from dpfl.papers.vandijk2023 import training_claims
from dpfl.papers.vandijk2023.figures import FIGURES
from dpfl.reporting.evidence import Comparison, Relation, table
from dpfl.reporting.results import write_csv
from dpfl.reporting.rules import Status, Verdict


@pytest.fixture
def trained_and_judged(trained, judged):
    """Return a function that makes figures' data from runs, and perhaps checks, and judges a claim."""

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
        return judged(claim, results)

    return judge


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [
        ({}, Verdict.AS_STATED),
        ({"late_64": 20.0, "reordered_16": 20.0}, Verdict.AS_STATED),  # large delays may cost accuracy
        ({"late_4": 0.9}, Verdict.AS_STATED),
        ({"late_4": 3.0}, Verdict.REFUTED),
    ],
)
def test_small_delays_may_cost_a_point(trained_and_judged, asynchrony_runs, cost, verdict):
    assert trained_and_judged("asynchronous", "asynchrony", asynchrony_runs(cost)).verdict is verdict


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [({}, Verdict.REFUTED), ({"late_64": 0.5}, Verdict.WEAKER), ({"late_64": 20.0}, Verdict.AS_STATED)],
)
def test_large_delays_have_to_cost_a_point_once(trained_and_judged, asynchrony_runs, cost, verdict):
    assert trained_and_judged("asynchronous_large_delays", "asynchrony", asynchrony_runs(cost)).verdict is verdict


@pytest.mark.parametrize(("spent", "verdict"), [({}, Verdict.AS_STATED), ({"late_4": 2.5}, Verdict.REFUTED)])
def test_a_statement_that_changes_with_the_network_refutes_the_claim(
    trained_and_judged, asynchrony_runs, spent, verdict
):
    judgement = trained_and_judged("asynchronous_guarantee", "asynchrony", asynchrony_runs({}, spent))
    assert judgement.verdict is verdict
    decide = [each.case.case for each in judgement.cases if each.status is not Status.BESIDE]
    assert decide and not any("update" in case or "window" in case for case in decide)


def test_stand_ins_settle_nothing(trained_and_judged, asynchrony_runs):
    judgement = trained_and_judged("asynchronous", "asynchrony", asynchrony_runs({}), stand_in_for="mnist")
    assert judgement.verdict is Verdict.UNDECIDED and "would be 'as stated'" in judgement.reason


@pytest.mark.parametrize(
    ("claim", "lost", "verdict"),
    [
        ("batch_scaling", 0.5, Verdict.AS_STATED),
        ("batch_scaling", 5.0, Verdict.REFUTED),
        ("batch_scaling_epochs", 0.5, Verdict.REFUTED),
    ],
)
def test_batch_scaling_is_judged_by_rounds_and_by_epochs(trained_and_judged, claim, lost, verdict):
    runs = [
        ("batch_scaling", {"scaling": scaling, "batch_factor": factor}, 80 - drop, 2.0 / factor, 1.0)
        for scaling, drops in (("rounds", (0, 0, lost)), ("epochs", (0, 9, 9)))
        for factor, drop in zip((1, 2, 4), drops, strict=True)
    ]
    judgement = trained_and_judged(claim, "batch_scaling", runs)
    assert judgement.verdict is verdict and judgement.count(Status.BESIDE) == 3


def strategy_runs(gains):
    """Runs of each strategy: (points over the constant one, epsilon spent)."""
    return [
        ("strategies", {"strategy": name, "epsilon": 2.0}, 80 + gain, spent, 1.0)
        for name, (gain, spent) in {"constant": (0, 2.0), **gains}.items()
    ]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [("last_epoch_accuracy", Verdict.AS_STATED), ("last_epoch_equal_budget", Verdict.REFUTED)],
)
def test_the_last_epoch_helps_or_not_paid_and_unpaid(trained_and_judged, claim, verdict):
    runs = strategy_runs({"last_epoch": (-2, 2.0), "last_epoch_unpaid": (3, 6.0)})
    judgement = trained_and_judged(claim, "strategies", runs)
    assert judgement.verdict is verdict
    if claim == "last_epoch_accuracy":
        assert judgement.cases[-1].case.estimate == pytest.approx(3.0)  # six where two were asked for


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((2, -3), Verdict.AS_STATED), ((0.5, -3), Verdict.WEAKER), ((-1, -3), Verdict.REFUTED)],
)
def test_arsinh_noise_may_help_if_it_does_once_by_a_point(trained_and_judged, gains, verdict):
    runs = strategy_runs({"arsinh_2": (gains[0], 2.0), "arsinh_4": (gains[1], 2.0)})
    checks = [Comparison("arsinh_noise", "epsilon no larger", Relation.AT_MOST, 1.0, 3.0, 1e-9)]
    judgement = trained_and_judged("arsinh_accuracy", "strategies", runs, checks)
    assert judgement.verdict is verdict
    assert judgement.cases[-1].status is Status.BESIDE and judgement.cases[-1].case.estimate == 3.0


@pytest.mark.parametrize(("gain", "verdict"), [(4, Verdict.AS_STATED), (-4, Verdict.REFUTED)])
def test_normalisation_is_judged_by_what_can_fail(trained_and_judged, gain, verdict):
    cells = {"none": (80, 2.0, 1.0), "normalised": (80 + gain, 2.0, 1.2), "normalised_exactly": (85, math.inf, 1.0)}
    runs = [
        ("preparation", {"preparation": name, "epsilon": 2.0}, level, spent, own)
        for name, (level, spent, own) in cells.items()
    ]
    judgement = trained_and_judged("private_normalisation", "preparation", runs)
    assert judgement.verdict is verdict
    beside = [each.case for each in judgement.cases if each.status is Status.BESIDE]
    assert beside[0].estimate == pytest.approx(1.2) and "no guarantee covers" in beside[1].case


def test_what_fixed_batches_cost_in_accuracy_is_shown(trained):
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
    assert [case.estimate for case in training_claims.samplers_trained(results)] == [pytest.approx(3.0)]


@pytest.mark.parametrize(
    ("claim", "figure"),
    [
        ("asynchronous", "asynchrony"),
        ("asynchronous_guarantee", "asynchrony"),
        ("batch_scaling", "batch_scaling"),
        ("private_normalisation", "preparation"),
        ("last_epoch_accuracy", "strategies"),
    ],
)
def test_what_was_not_run_is_not_run(trained_and_judged, claim, figure):
    assert trained_and_judged(claim, figure, [("other", {}, 80.0, 2.0, 1.0)]).verdict is Verdict.NOT_RUN
