import pytest

from dpfl.reporting.claims import evaluate
from dpfl.reporting.rules import Status, Verdict

KEY = "asoodeh2020"
REFUTED = {"laplace_zero", "gaussian_any_step", "random_stopping_any_sigma"}  # the last is a question of ours
BOUNDS = ["dobrushin", "projected_coefficient", "laplace", "laplace_zero", "gaussian", "gaussian_any_step"]


def test_verdicts(results):
    verdicts = evaluate(KEY, results)[0].set_index("claim")["verdict"]
    assert set(verdicts[verdicts == Verdict.REFUTED].index) == REFUTED
    assert verdicts["beats_rdp_late_most"] == Verdict.WEAKER
    assert (verdicts.drop([*REFUTED, "beats_rdp_late_most"]) == Verdict.AS_STATED).all()


def test_the_last_record_refutes_the_consequence_of_theorem_3(judged, results):
    judgement = judged("laplace_zero", results)
    first = judgement.cases[0]
    assert "i = 40 of 40" in first.case.case and first.case.estimate == pytest.approx(0.503, abs=1e-3)
    assert judgement.count(Status.FAILS) == 1


@pytest.mark.parametrize("claim", [*BOUNDS, "random_stopping"])
def test_an_exact_run_above_the_bound_refutes_the_theorem(judged, doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"] + 1))
    assert judged(claim, changed).verdict is Verdict.REFUTED


@pytest.mark.parametrize("claim", BOUNDS)
def test_bounds_that_are_met_in_every_case_stand(judged, doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"]))
    assert judged(claim, changed).verdict is Verdict.AS_STATED


def test_one_exact_run_above_its_bound_is_enough(judged, doctored):
    def exceed(data):
        data.loc[data[data["claim"] == "gaussian"].index[3], "independent"] = 1.0

    assert judged("gaussian", doctored("tables", "checks", exceed)).verdict is Verdict.REFUTED


def lift_theorem(data):
    data.loc[data["route"] == "theorem_4", "delta"] = 1.0


@pytest.mark.parametrize(
    ("figure", "claim"),
    [("figure_2", "beats_rdp"), ("figure_3", "convex_small_epsilon"), ("figure_3", "convex_late_records")],
)
def test_a_theorem_4_that_is_above_loses_its_claim(judged, doctored, figure, claim):
    assert judged(claim, doctored("figures", figure, lift_theorem)).verdict is Verdict.REFUTED


def test_a_gain_that_falls_with_the_record_by_every_measure_is_refuted(judged, doctored):
    def turn(data):
        data["i"] = data["i"].map({1: 39, 20: 20, 39: 1})

    verdict = judged("beats_rdp_late_most", doctored("figures", "figure_2", turn)).verdict
    assert verdict is Verdict.REFUTED


def test_a_bound_of_one_or_more_promises_nothing(judged, doctored):
    def halve(data):
        data["ours"] = data["ours"].clip(upper=0.5)

    assert judged("random_stopping_any_sigma", doctored("tables", "checks", halve)).verdict is Verdict.AS_STATED


def test_what_the_stop_costs_is_shown_and_not_counted(judged, results):
    beside = [each for each in judged("random_stopping", results).cases if each.status is Status.BESIDE]
    assert any("excess risk of the last model over the stopped one" in each.case.case for each in beside)
