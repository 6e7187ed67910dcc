import pytest

from dpfl.papers.asoodeh2020.claims import CLAIMS
from dpfl.reporting.claims import Outcome, evaluate

KEY = "asoodeh2020"


def test_outcomes(results):
    outcomes = evaluate(KEY, results).set_index("claim")["outcome"]
    assert outcomes["beats_rdp_strongly_convex"] == Outcome.HOLDS
    assert (outcomes.drop("beats_rdp_strongly_convex") == Outcome.IN_PART).all()


@pytest.mark.parametrize("claim", ["dobrushin", "laplace", "gaussian", "random_stopping"])
def test_an_exact_run_above_every_bound_refutes_the_theorem(doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"] + 1))
    assert CLAIMS[claim](changed).outcome == Outcome.FAILS


@pytest.mark.parametrize("claim", ["dobrushin", "laplace", "gaussian"])
def test_bounds_that_are_met_in_every_case_hold(doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"]))
    assert CLAIMS[claim](changed).outcome == Outcome.HOLDS


def lift_theorem(data):
    data.loc[data["route"] == "theorem_4", "delta"] = 1.0


@pytest.mark.parametrize("figure", ["figure_2", "figure_3"])
def test_a_theorem_4_that_lies_above_loses_its_claim(doctored, figure):
    claim = {"figure_2": "beats_rdp_early_vs_late", "figure_3": "beats_rdp_strongly_convex"}[figure]
    verdict = CLAIMS[claim](doctored("figures", figure, lift_theorem))
    assert verdict.outcome == Outcome.FAILS
