"""The paper's claims: their verdicts, cases by hand, and what would refute them."""

import math
from dataclasses import replace

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.accounting import contraction
from dpfl.catalog import load
from dpfl.papers.asoodeh2020 import claims
from dpfl.papers.asoodeh2020.exact_pnsgd import stopped_delta
from dpfl.papers.asoodeh2020.figures import parameters
from dpfl.reporting.claims import evaluate
from dpfl.reporting.rules import Status, Verdict

KEY = "asoodeh2020"
REFUTED = {
    "laplace_zero",
    "laplace_any_step",
    "gaussian_any_step",
    "random_stopping_any_sigma",
    "random_stopping_against_renyi",
}
"""The last two are questions of ours."""
BOUNDS = [key for key, claim in load(KEY).claims.items() if claim["kind"] == "bound"]


def test_verdicts(results):
    rows = evaluate(KEY, results)[0].set_index("claim")
    assert set(rows.index[rows["verdict"] == Verdict.REFUTED]) == REFUTED
    assert (rows["verdict"].drop(REFUTED) == Verdict.AS_STATED).all()
    assert rows.loc["convex_late_records", "places"] == "figures/figure_3" and rows.loc["gaussian", "places"] == ""
    assert not rows.loc[["laplace_zero", "laplace_any_step", "gaussian_any_step"], "our_question"].any()


def test_the_last_record_refutes_the_consequence_of_theorem_3(judged, results):
    judgement = judged("laplace_zero", results)
    first = judgement.cases[0]
    assert "i = 1 of 1," in first.case.case and first.case.estimate == pytest.approx(0.503, abs=1e-3)
    assert judgement.counts.fail == 1
    assert claims.laplace_zero(1.0, 0.5, 1, 0.6).estimate < 1e-12


@pytest.mark.parametrize("key", BOUNDS)
def test_one_number_above_its_bound_refutes_a_theorem_and_none_does_not(verdict, cases, key):
    within = [replace(case, estimate=case.target) for case in cases[key]]
    assert verdict(key, within) is Verdict.AS_STATED
    assert verdict(key, [*within[:-1], replace(within[-1], estimate=within[-1].target + 1e-4)]) is Verdict.REFUTED


def test_the_projected_kernel_meets_theta_only_where_the_projection_is_free():
    free, hidden = claims.projected_coefficient(0.5, 2.0), claims.projected_coefficient(1.0, 1.0)
    assert free.estimate == pytest.approx(free.target, abs=2e-5)
    assert hidden.estimate < hidden.target - 1e-3


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_projected_laplace_kernel_meets_lemma_1_and_a_wider_interval_exceeds_it(epsilon):
    case = claims.projected_laplace(epsilon, 1.0)
    assert case.estimate == pytest.approx(case.target, abs=2e-5) and case.target > 0
    assert claims.projected_laplace(epsilon, 1.2).estimate > case.target + 0.01


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_inputs_near_to_each_other_are_not_told_apart(verdict, noise):
    by_formula = {"gaussian": contraction.theta(0.5, 3.0), "laplace": contraction.laplace_divergence(0.5, 0, 3, 1)}
    near = claims.unbounded_kernels(noise, 0.5, 3.0)
    assert near.estimate == pytest.approx(by_formula[noise], abs=1e-9)
    assert verdict("unbounded_kernels", [near]) is Verdict.REFUTED


def test_the_known_counterexample_to_long_steps_is_found():
    case = claims.gaussian_any_step(8.0, 0.0)
    assert (case.estimate, case.target) == (pytest.approx(0.1015, abs=1e-4), pytest.approx(0.0340, abs=1e-4))
    case = claims.laplace_any_step(8.0, 0.0)
    assert case.estimate > 2 * case.target and case.target == pytest.approx(
        (1 - math.exp(-1)) * (1 - math.exp(-1 / 16))
    )


def test_the_bound_is_nearly_attained_right_after_the_record():
    case = claims.gaussian(2.0, 0.5, 0.0, 0.0, 0, 0.0)
    assert case.target >= case.estimate > 0.98 * case.target


@pytest.mark.parametrize(("figure", "number"), [("figure_2", 0), ("figure_3", 1)])
def test_exact_runs_have_the_parameters_of_the_figures(figure, number):
    _, printed = parameters(figure)
    ran = load(KEY).claims["gaussian"]["cases"][number]
    given = {"sigma": ran["sigma"], "eta": ran["eta"], "strong_convexity": ran["rho"], "n": claims.RECORDS}
    assert printed == claims.LOSS | given


def test_stopping_early_protects_late_records():
    _, values = parameters("figure_2")
    assert 0 < stopped_delta(values, 0.0, 40) < stopped_delta(values, 0.0, 1)


def lift_theorem(data):
    data.loc[data["route"] == "theorem_4", "delta"] = 1.0


@pytest.mark.parametrize(
    ("figure", "claim"),
    [("figure_2", "beats_rdp"), ("figure_3", "convex_small_epsilon"), ("figure_3", "convex_late_records")],
)
def test_a_theorem_4_that_is_above_loses_its_claim(judged, doctored, figure, claim):
    assert judged(claim, doctored("figures", figure, lift_theorem)).verdict is Verdict.REFUTED


def test_a_gain_that_falls_with_the_record_on_both_axes_is_refuted(judged, doctored):
    def turn(data):
        data["i"] = data["i"].map({1: 39, 20: 20, 39: 1})

    judgement = judged("beats_rdp_late_most", doctored("figures", "figure_2", turn))
    failing = [each.case.case for each in judgement.cases if each.status is Status.FAILS]
    assert judgement.verdict is Verdict.WEAKER and len(failing) == 2 and all("in delta" in case for case in failing)


def test_the_gap_in_epsilon_is_that_of_the_whole_curves(judged, results):
    """Proposition 1's epsilon by its closed form, beyond what the figure draws; Theorem 4's is 0 for record 20."""

    def theta_squared(epsilon):  # 2 L/sigma and D/(eta sigma) are both 1
        return (norm.sf(epsilon - 0.5) - math.exp(epsilon) * norm.sf(epsilon + 0.5)) ** 2

    cases = {each.case.case: each.case for each in judged("beats_rdp_late_most", results).cases}
    last = cases["difference in epsilon at delta = 1e-05, record 39 over record 20"]
    by_renyi = {i: kappa + 2 * math.sqrt(kappa * math.log(1e5)) for i, kappa in ((20, 1 / 40), (39, 1 / 2))}
    by_theorem_4 = brentq(lambda epsilon: theta_squared(epsilon) - 1e-5, 1, 5)
    assert last.estimate == pytest.approx(by_renyi[39] - by_theorem_4) and last.target == pytest.approx(by_renyi[20])


def test_the_gain_in_orders_of_magnitude_falls_and_is_shown_beside(judged, results):
    cases = judged("beats_rdp_late_most", results).cases
    beside = [each.case for each in cases if each.status is Status.BESIDE]
    assert len(beside) == 3 and all("orders of magnitude" in case.case for case in beside)
    assert [case.estimate for case in beside] == sorted((case.estimate for case in beside), reverse=True)


def test_a_bound_of_one_or_more_promises_nothing(verdict, cases):
    assert [case.estimate <= 0 for case in cases["random_stopping_any_sigma"]].count(True) == 2
    halved = [replace(case, estimate=max(case.estimate, 0.5)) for case in cases["random_stopping_any_sigma"]]
    assert verdict("random_stopping_any_sigma", halved) is Verdict.AS_STATED


def test_theorem_5_is_below_the_renyi_route_but_where_it_says_nothing(cases):
    losing = {case.case for case in cases["random_stopping_against_renyi"] if case.estimate <= 0}
    assert len(losing) == 6 and all("sigma = 2.0, eta = 0.05" in case for case in losing)
