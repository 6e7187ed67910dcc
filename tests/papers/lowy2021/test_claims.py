import pytest

from dpfl.papers.lowy2021 import claims
from dpfl.papers.lowy2021.figures import FIGURES
from dpfl.papers.lowy2021.tables import TABLES
from dpfl.reporting.claims import Outcome
from dpfl.reporting.results import write_csv

READ = {
    "tables": (TABLES, ("paired_differences", "noise", "price", "mnist_differences")),
    "figures": (FIGURES, ("figure_2",)),
}


@pytest.fixture
def finished(results):
    """Run tables carried on to the tables and figures that the claims read."""

    def write(**how):
        made = results(**how)
        for kind, (recipes, names) in READ.items():
            (made.folder / kind).mkdir(exist_ok=True)
            for name in names:
                write_csv(recipes[name].data(made), made.folder / kind / f"lowy2021_{name}.csv")
        return made

    return write


@pytest.mark.parametrize("check", [claims.insurance_minibatch_beats_local, claims.mnist_minibatch_beats_local])
def test_minibatch_against_local_follows_the_paired_tests(finished, check):
    assert check(finished(gap=1.0)).outcome is Outcome.HOLDS
    verdict = check(finished(gap=-1.0, mean_gap=-1.0))
    assert verdict.outcome is Outcome.FAILS and "minibatch 0, local 2" in verdict.evidence
    assert check(finished(gap=0.0, mean_gap=0.0)).outcome is Outcome.NOT_TESTABLE


def test_what_holds_only_without_protection_is_said_exactly(finished):
    verdict = claims.insurance_minibatch_beats_local(finished(gap=-1.0, mean_gap=1.0))
    assert verdict.outcome is Outcome.FAILS
    # At both budgets the clipped means spend 50: neither counts.
    assert verdict.evidence.startswith("It holds only with noise that does not protect: in 2 of 2 settings.")
    assert "means clipped, N = 3: minibatch 2, local 0, undecided 0, of 2 (ε kept by both in 0)" in verdict.evidence
    assert verdict.evidence.endswith("with noise that does not protect: noise of Theorem 2.1, means clipped, N = 3.")
    verdict = claims.insurance_minibatch_beats_local(finished(gap=1.0, epsilon_proven=90.0))
    assert verdict.outcome is Outcome.NOT_TESTABLE and verdict.evidence.startswith("No noise that was run keeps ε")


def test_mnist_at_large_budgets_against_local_without_privacy(finished):
    assert claims.mnist_beats_nonprivate_local(finished()).outcome is Outcome.HOLDS
    assert claims.mnist_beats_nonprivate_local(finished(price=40.0)).outcome is Outcome.FAILS
    verdict = claims.mnist_beats_nonprivate_local(finished(epsilon_proven=20.0))
    assert verdict.outcome is Outcome.NOT_TESTABLE and "is not shown to keep ε" in verdict.evidence


def test_stand_in_data_settle_nothing_about_the_paper(finished):
    made = finished(gap=1.0, stand_in_for="insurance")
    for check in (claims.insurance_minibatch_beats_local, claims.mnist_beats_nonprivate_local, claims.price_vanishes):
        assert check(made).outcome is Outcome.NOT_TESTABLE


def test_the_price_vanishes_within_its_tolerance_only(finished):
    verdict = claims.price_vanishes(finished())
    assert verdict.outcome is Outcome.IN_PART  # still 11 % at 18
    assert "201 % at ε = 1, 11 % at ε = 18" in verdict.evidence
    assert claims.price_vanishes(finished(price=3.0)).outcome is Outcome.HOLDS  # 3 % at 18
    kept_only_at_1 = claims.price_vanishes(finished(epsilon_proven=30.0))
    assert kept_only_at_1.outcome is Outcome.NOT_TESTABLE and "not counted" in kept_only_at_1.evidence


def test_noise_that_spends_too_much_is_found(finished):
    assert claims.noise_suffices(finished(epsilon_proven=0.1)).outcome is Outcome.HOLDS
    assert claims.noise_suffices(finished(epsilon_proven=2.0)).outcome is Outcome.IN_PART
    assert claims.noise_suffices(finished(epsilon_proven=20.0)).outcome is Outcome.FAILS


@pytest.mark.parametrize("check", [*claims.CLAIMS.values()][:4])
def test_without_private_runs_nothing_is_settled(finished, check):
    made = finished()
    for name in ("paired_differences", "price", "mnist_differences"):
        data = made.table("lowy2021", name)
        write_csv(data[data["epsilon"] == float("inf")], made.folder / "tables" / f"lowy2021_{name}.csv")
    assert check(made).outcome is Outcome.NOT_TESTABLE
