import pandas as pd
import pytest

from dpfl.papers.asoodeh2021.claims import CLAIMS, stopping_costs
from dpfl.papers.asoodeh2021.figures import CLOSED_FORM
from dpfl.reporting.claims import Outcome, evaluate
from dpfl.reporting.results import Results, write_csv

KEY = "asoodeh2021"


def test_outcomes(results):
    outcomes = evaluate(KEY, results).set_index("claim")["outcome"]
    assert outcomes["theorem2"] == outcomes["relaxed"] == Outcome.HOLDS
    assert outcomes["participation"] == outcomes["random_stopping"] == Outcome.IN_PART


def test_participation_names_the_shares_where_it_fails(results):
    evidence = CLAIMS["participation"](results).evidence
    assert "162 of 162" in evidence
    assert "0.016 at q = 0.01, 0.056 at q = 0.02, 0.081 at q = 0.05, 0.031 at q = 0.1" in evidence


@pytest.mark.parametrize("claim", ["theorem2", "random_stopping", "relaxed"])
def test_runs_above_every_bound_refute_a_theorem(doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"] + 1))
    assert CLAIMS[claim](changed).outcome == Outcome.FAILS


def test_a_suffix_that_improved_would_hold(doctored):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"]))
    assert CLAIMS["random_stopping"](changed).outcome == Outcome.HOLDS


@pytest.mark.parametrize(("power", "outcome"), [(1, Outcome.FAILS), (-1, Outcome.HOLDS)])
def test_participation_follows_the_curves(doctored, power, outcome):
    def order(data):
        closed = data["form"] == CLOSED_FORM
        data.loc[closed, "delta"] = 0.01 * data.loc[closed, "q"] ** power

    assert CLAIMS["participation"](doctored("figures", "figure_2", order)).outcome == outcome


def test_claims_without_runs_are_not_testable(without_runs):
    for claim in ("price_of_privacy", "without_replacement"):
        assert CLAIMS[claim](without_runs).outcome == Outcome.NOT_TESTABLE
    assert "not run" in CLAIMS["random_stopping"](without_runs).evidence


def test_runs_decide_on_the_price_and_name_their_data(results):
    for claim in ("price_of_privacy", "without_replacement"):
        verdict = CLAIMS[claim](results)
        assert verdict.outcome is Outcome.NOT_TESTABLE and verdict.evidence.startswith("On stand-in data only (digits)")
        assert "digits (stand-in for mnist)" in verdict.evidence
    evidence = CLAIMS["price_of_privacy"](results).evidence
    assert "features the noise's part grows as d to the power" in evidence and "3 runs a point on synthetic" in evidence


@pytest.mark.parametrize(("slope", "bound", "outcome"), [(None, 1, Outcome.HOLDS), (0, 0, Outcome.FAILS)])
def test_the_price_follows_exponents_and_bounds(doctored, slope, bound, outcome):
    def exponents(data):
        data["slope"] = data["expected"] if slope is None else slope

    def bounds(data):
        data["excess_bound"] = data["excess_risk"] * 2 * bound
        data["interval"], data["stand_in_for"] = 0.0, ""

    first = doctored("tables", "rates", exponents)
    data = first.figure(KEY, "price")
    bounds(data)
    with (first.folder / "figures" / f"{KEY}_price.csv").open("w") as stream:
        write_csv(data, stream)
    assert CLAIMS["price_of_privacy"](first).outcome == outcome


@pytest.mark.parametrize(("difference", "outcome"), [(1.0, Outcome.FAILS), (-1.0, Outcome.HOLDS), (0.0, Outcome.HOLDS)])
def test_replacement_follows_the_paired_differences(doctored, difference, outcome):
    def shift(data):
        data["difference"], data["interval"], data["stand_in_for"] = difference, 0.5, ""

    assert CLAIMS["without_replacement"](doctored("figures", "sampling", shift)).outcome == outcome


def test_what_stopping_costs_is_said_for_every_batch_size(results, tmp_path):
    data = results.figure(KEY, "sampling")
    path = tmp_path / "figures" / f"{KEY}_sampling.csv"
    path.parent.mkdir()
    with path.open("w") as stream:
        write_csv(pd.concat([data, data.assign(batch_size=10)]), stream)
    words = stopping_costs(Results(tmp_path))
    assert words.count("m = 1 and") == words.count("m = 10 and") == data["noise_std"].nunique()
