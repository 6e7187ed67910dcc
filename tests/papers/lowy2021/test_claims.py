"""Claims and the evidence for the theorems, from points with known numbers."""

import math
import shutil
from functools import cache

import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.papers.lowy2021 import claims as theory_claims
from dpfl.papers.lowy2021.figures import FIGURES
from dpfl.papers.lowy2021.tables import TABLES
from dpfl.reporting.results import Results, write_csv
from dpfl.reporting.rules import Status, Verdict

READ = {
    "tables": (TABLES, ("paired_differences", "noise", "price", "mnist_differences")),
    "figures": (FIGURES, ("figure_2",)),
}
AGAINST_LOCAL = ("insurance_minibatch_beats_local", "insurance_least_noise", "mnist_minibatch_beats_local")


@pytest.fixture(scope="module")
def finished(results):
    """Run tables carried on to the tables and figures that the claims read; not to be changed."""

    @cache
    def write(**how):
        made = results(**how)
        for kind, (recipes, names) in READ.items():
            (made.folder / kind).mkdir(exist_ok=True)
            for name in names:
                write_csv(recipes[name].data(made), made.folder / kind / f"lowy2021_{name}.csv")
        return made

    return write


@pytest.mark.parametrize("claim", AGAINST_LOCAL)
def test_minibatch_against_local_follows_the_paired_tests(finished, judged, claim):
    assert judged(claim, finished(gap=1.0)).verdict is Verdict.AS_STATED
    assert judged(claim, finished(gap=-1.0, mean_gap=-1.0)).verdict is Verdict.REFUTED
    assert judged(claim, finished(gap=0.0, mean_gap=0.0)).verdict is not Verdict.AS_STATED


def test_the_authors_protocol_and_the_noise_that_protects_are_two_claims(finished, judged):
    made = finished(gap=-1.0, mean_gap=1.0)
    authors = judged("insurance_minibatch_beats_local", made)
    assert authors.verdict is Verdict.AS_STATED
    assert {"means clipped" in each.case.case for each in authors.cases if each.status is Status.HOLDS} == {True}
    assert any(each.status is Status.BESIDE and "tight noise" in each.case.case for each in authors.cases)
    assert judged("insurance_least_noise", made).verdict is Verdict.REFUTED


def test_what_a_case_spends_is_rounded_up(finished, judged):
    cases = judged("insurance_least_noise", finished(epsilon_proven=0.183103)).cases
    assert all("spent at most 0.184 by minibatch SGD, 0.184 by local SGD" in each.case.case for each in cases
               if each.status is not Status.BESIDE)  # fmt: skip


def test_the_authors_protocol_has_a_price_that_shrinks_and_stands_beside_the_question_at_ten(finished, judged):
    shrinks, vanishes = (judged(claim, finished()).cases for claim in ("price_shrinks", "price_vanishes"))
    assert sum("means clipped" in each.case.case for each in shrinks if each.status is not Status.BESIDE) == 1
    assert {each.status for each in vanishes if "means clipped" in each.case.case} == {Status.BESIDE}


def test_differences_are_shares_of_the_loss_and_points_of_error(finished, judged):
    made = finished(gap=1.0, price=0.0)
    share = judged("insurance_least_noise", made).cases[0].case
    assert share.estimate == pytest.approx(1 / 5, abs=0.01) and share.n == 20
    assert judged("mnist_minibatch_beats_local", made).cases[0].case.estimate == pytest.approx(1.0, abs=0.02)


def test_mnist_at_large_budgets_against_local_without_privacy(finished, judged):
    claim = "mnist_beats_nonprivate_local"
    stands = judged(claim, finished())
    assert stands.verdict is Verdict.AS_STATED and all("ε = 18" in each.case.case for each in stands.cases)
    assert judged(claim, finished(price=40.0)).verdict is Verdict.REFUTED


def test_stand_in_data_settle_nothing_about_the_paper(finished, judged):
    made = finished(gap=1.0, stand_in_for="insurance")
    for claim in (*AGAINST_LOCAL, "price_shrinks", "price_vanishes", "mnist_beats_nonprivate_local"):
        judgement = judged(claim, made)
        assert judgement.verdict is Verdict.UNDECIDED and judgement.reason.startswith(
            "It was run on stand-in data only"
        ), claim


@pytest.mark.parametrize("claim", ["price_vanishes", "price_vanishes_least_noise"])
def test_the_price_vanishes_within_a_twentieth_only(finished, judged, claim):
    still = judged(claim, finished())
    assert still.verdict is Verdict.REFUTED
    assert still.cases[0].case.estimate == pytest.approx(0.11, abs=0.01)  # 10/18 of 5 at the largest budget
    assert judged(claim, finished(price=3.0)).verdict is Verdict.AS_STATED


@pytest.mark.parametrize(("price", "verdict"), [(10.0, Verdict.AS_STATED), (-10.0, Verdict.REFUTED)])
def test_the_price_shrinks_from_the_smallest_budget_to_the_largest(finished, judged, price, verdict):
    assert judged("price_shrinks", finished(price=price)).verdict is verdict


@pytest.mark.parametrize(
    ("spent", "verdict"), [(0.1, Verdict.AS_STATED), (2.0, Verdict.REFUTED), (20.0, Verdict.REFUTED)]
)
def test_noise_that_spends_too_much_is_found(finished, judged, spent, verdict):
    assert judged("noise_suffices", finished(epsilon_proven=spent)).verdict is verdict


@pytest.mark.parametrize("claim", [*AGAINST_LOCAL, "price_shrinks", "mnist_beats_nonprivate_local"])
def test_without_private_runs_nothing_was_run(finished, judged, claim, tmp_path):
    made = Results(shutil.copytree(finished().folder, tmp_path / "demo"), finished().run_tables)
    for name in ("paired_differences", "price", "mnist_differences"):
        data = made.table("lowy2021", name)
        write_csv(data[data["epsilon"] == math.inf], made.folder / "tables" / f"lowy2021_{name}.csv")
    assert judged(claim, made).verdict is Verdict.NOT_RUN


# Evidence for the theorems from points with known numbers; each study's verdicts are tested with its figure.


def test_a_setting_on_two_axes_is_one_case(monkeypatch):
    """The middle of each axis is the same setting, with the same runs."""
    columns = ["problem", "axis", "value", "excess_risk", "interval", "ratio", "ratio_interval", "start_risk", "seeds"]
    rows = [
        ("convex", axis, value, risk, 0.01, 1.0, 0.01, 1.0, 10)
        for axis, points in {"clients": {8: 0.3, 16: 0.2}, "records": {128: 0.2, 256: 0.15}}.items()
        for value, risk in points.items()
    ]
    monkeypatch.setattr(theory_claims, "_one_pass_points", lambda _: pd.DataFrame(rows, columns=columns))
    for claim in (theory_claims.one_pass, theory_claims.one_pass_learns):
        assert [case.case for case in claim(None).cases] == [
            "convex, clients = 8", "convex, clients = 16", "convex, records = 256",
        ]  # fmt: skip


def test_one_seed_settles_nothing(made_up, drawn, judged):
    rows = [
        {**row, "study": study}
        for study in ("shuffle", "acceleration", "one_pass", "availability")
        for row in [
            {"excess_risk": 0.1, "trust": "nobody", "participants": "[5]"},
            {
                "excess_risk": 0.2,
                "trust": "shuffler",
                "participants": "[14]",
                "algorithm": "accelerated",
                "axis": "clients",
            },
            {"excess_risk": 0.1, "trust": "server", "participants": "[2, 20, 20]", "spread": 0.3, "axis": "clients"},
        ]
    ]
    results = made_up(rows, seeds=1)
    claims = {
        "theory_acceleration": ("acceleration", "acceleration_smooth", "acceleration_more_rounds"),
        "theory_one_pass": ("one_pass", "one_pass_falls", "one_pass_learns"),
        "theory_shuffle": ("shuffle_beats_local",),
        "theory_availability": ("availability", "availability_not_mean"),
    }
    for figure, names in claims.items():
        drawn(results, figure)
        assert {judged(name, results).verdict for name in names} <= {Verdict.UNDECIDED, Verdict.NOT_RUN}, figure


def shown(stored, figure: str, rows: list[dict]):
    """Results in which the figure's data are the only ones."""
    return stored("figures", figure, pd.DataFrame(rows))


def test_acceleration_is_read_at_the_theorems_rounds(stored):
    """At 16 rounds the risk is 0.1, and Algorithm 1 has 0.05 more; 4, where Algorithm 2 gains more, do not count."""
    row = {
        "task": "absolute loss, condition 3",
        "seeds": 8,
        "epsilon": 1.0,
        "difference_interval": 0.02,
        "theorem": False,
    }
    row |= {"more_minus_this": math.nan, "more_interval": math.nan, "more_rounds": 64}
    fast = {**row, "curve": "accelerated", "rounds": 16}
    rows = [
        {**fast, "excess_risk": 0.3, "plain_minus_this": 0.9, "rounds": 4},
        {**fast, "excess_risk": 0.1, "plain_minus_this": 0.05, "theorem": True}
        | {"more_minus_this": -0.01, "more_interval": 0.02},
        {**fast, "excess_risk": 0.01, "plain_minus_this": 7.0, "epsilon": math.inf, "theorem": True},
        {**row, "curve": "minibatch", "rounds": 16, "excess_risk": 0.15, "plain_minus_this": math.nan, "theorem": True},
    ]
    results = shown(stored, "theory_acceleration", rows)
    evidence = theory_claims.acceleration(results)
    [case], [other] = evidence.cases, evidence.beside
    low, high = case.interval()
    assert (case.case, case.estimate, case.n) == ("absolute loss, condition 3, 16 rounds", pytest.approx(0.5), 8)
    # The figure's half-width is that of 90 %: t = 1.8946 at seven degrees of freedom, 2.3646 at 95 %.
    assert (high - low) / 2 == pytest.approx(0.2 * 2.3646 / 1.8946, rel=1e-4)
    assert (other.case, other.estimate) == ("absolute loss, condition 3, 4 rounds", pytest.approx(3.0))
    [more] = theory_claims.acceleration_more_rounds(results).cases
    assert (more.case, more.estimate) == ("absolute loss, condition 3, 16 rounds against 64", pytest.approx(-0.1))


def test_one_pass_takes_clients_that_differ_with_tight_noise_and_says_what_is_saved(stored):
    row = {"problem": "convex", "axis": "records", "noise": "tight", "federation": "different", "seeds": 8}
    row |= {"start_risk": 2.0, "interval": 0.1, "slope_interval": 0.1, "exponent": -0.5, "ratio_interval": 0.1}
    own = [{**row, "value": n, "excess_risk": 8 / n, "slope": -1.0, "ratio": n / 8} for n in (8, 16)]
    others = [{**own[0], "noise": "theorem", "slope": 9.0}, {**own[0], "federation": "alike", "slope": 7.0}]
    results = shown(stored, "theory_one_pass", [*others, *own])
    learned = theory_claims.one_pass_learns(results).cases
    assert {case.case: case.estimate for case in learned} == {"convex, records = 8": 0.5, "convex, records = 16": 0.75}
    assert [(case.estimate, case.target) for case in theory_claims.one_pass(results).cases] == [(1, 1), (2, 1)]
    falls = theory_claims.one_pass_falls(results)
    assert [case.estimate for case in falls.cases] == [1.0] and [case.estimate for case in falls.beside] == [0.5]


def test_the_shuffler_is_set_between_the_two_other_models_of_trust(stored):
    noise = {"nobody": 40.0, "shuffler": 8.0, "server": 5.0}
    row = {"rounds": 4, "seeds": 8, "excess_risk": 0.2, "nobody_minus_this": 0.1, "difference_interval": 0.02}
    row |= {"implied_constant": 0.7}
    rows = [
        {**row, "clients": m, "trust": trust, "noise_multiplier": own * (100 / m), "least_reports": 300}
        for m in (100, 400)
        for trust, own in noise.items()
    ]
    results = shown(stored, "theory_shuffle", rows)
    enough = theory_claims.shuffle_near_central(results)
    assert [(case.case, case.estimate) for case in enough.cases] == [("M = 400, R = 4", pytest.approx(1.6))]
    constant = theory_claims.shuffle_constant(results)
    assert not constant.cases  # one setting has nothing to grow from
    assert [case.estimate for case in constant.beside] == [0.7, 300]  # C with enough clients, what is asked for without
    few = theory_claims.shuffle_by_accountant(results)
    assert [case.case for case in few.cases] == ["M = 100, R = 4"]
    assert [case.estimate for case in few.beside] == pytest.approx([5.0])
    assert [case.estimate for case in theory_claims.shuffle_beats_local(results).cases] == pytest.approx([0.5, 0.5])


def test_each_law_is_judged_by_its_own_twin(stored):
    row = {"law": "random", "seeds": 8, "same_inverse_ratio_interval": 0.1, "same_mean_ratio_interval": 0.3}
    rows = [
        {**row, "participants": "[2, 20, 20]", "same_inverse_ratio": 1.1, "same_mean_ratio": 2.8},
        {**row, "participants": "[4, 8]", "same_inverse_ratio": math.nan, "same_mean_ratio": 2.0},
        {**row, "participants": "[5]", "law": "fixed", "same_inverse_ratio": 5.0, "same_mean_ratio": 5.0},
    ]
    results = shown(stored, "theory_availability", rows)
    assert [case.estimate for case in theory_claims.availability(results).cases] == [1.1]
    assert [case.estimate for case in theory_claims.availability_not_mean(results).cases] == [2.8, 2.0]


def test_the_caveat_on_the_insurance_data_is_what_the_shipped_table_says(repository):
    pairs = pd.read_csv(repository / "results" / "paper" / "tables" / "lowy2021_paired_differences.csv")
    pairs = pairs[pairs["epsilon"] < math.inf].assign(
        noise=lambda rows: rows["noise"] + " " + rows["clipping"],
        ahead=lambda rows: (rows["difference"] > 0).map({True: "minibatch", False: "local"}).where(
            rows["holm_p_value"] < 0.05, "neither"
        ),
    )  # fmt: skip
    counts = pairs.groupby("noise")["ahead"].value_counts().unstack(fill_value=0).to_dict("index")
    assert counts == {
        "advanced_composition mean": {"local": 0, "minibatch": 12, "neither": 0},
        "tight record": {"local": 0, "minibatch": 12, "neither": 0},
        "advanced_composition record": {"local": 0, "minibatch": 0, "neither": 12},
        "moments record": {"local": 4, "minibatch": 5, "neither": 3},
    }
    authors = pairs[pairs["noise"] == "advanced_composition mean"]
    most = (authors["minibatch_epsilon_spent"] / authors["local_epsilon_spent"]).max()
    caveat = load("lowy2021").claims["insurance_minibatch_beats_local"]["caveat"]
    ahead = pairs[(pairs["noise"] == "moments record") & (pairs["ahead"] == "local")]
    share = ahead["local_epsilon_spent"] / ahead["minibatch_epsilon_spent"]
    assert f"up to {math.ceil(most)} times" in caveat and "in 5 of 12 cases and local SGD in 4" in caveat
    assert f"spends {share.min():.0f} to {share.max():.0f} times" in caveat


def test_the_bounds_of_privacy_for_free_match_up_to_a_logarithm(judged, results):
    """Their ratio is 1 + sqrt(ln(2/delta)), without the root for strongly convex losses, at any n and N."""
    judgement = judged("privacy_for_free", results())
    assert judgement.verdict is Verdict.AS_STATED and len(judgement.cases) == 4
    sizes = {"clients": np.array([16.0, 1e6]), "records": np.array([64.0, 1e5]), "features": 4.0}
    for problem, power in (("convex", 0.5), ("strongly convex", 1.0)):
        ratio = theory_claims._upper_over_lower(problem, epsilon=np.sqrt(4.0 / sizes["records"]), **sizes)
        assert ratio == pytest.approx(1 + math.log(2e6) ** power, rel=1e-6)
        beyond = theory_claims._upper_over_lower(problem, epsilon=2.0 / sizes["records"], **sizes)
        assert beyond[1] > 30 * beyond[0]  # d/epsilon^2 = n^2 is outside of the condition
