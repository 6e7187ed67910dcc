import math
import shutil
from functools import cache

import pytest

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
        assert judgement.verdict is Verdict.UNDECIDED and judgement.reason.startswith("Stand-in data only"), claim


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
