import pytest

from dpfl.papers.lowy2021.claims import insurance_minibatch_beats_local, noise_suffices, price_vanishes
from dpfl.papers.lowy2021.figures import FIGURES
from dpfl.papers.lowy2021.tables import TABLES
from dpfl.reporting.claims import Outcome
from dpfl.reporting.results import write_csv


@pytest.fixture
def finished(results):
    """Run tables carried on to tables and figures."""

    def write(**how):
        made = results(**how)
        for kind, recipes in (("tables", TABLES), ("figures", FIGURES)):
            (made.folder / kind).mkdir(exist_ok=True)
            for name, recipe in recipes.items():
                if name == "errata":  # needs no runs, and no claim reads it
                    continue
                write_csv(recipe.data(made), made.folder / kind / f"lowy2021_{name}.csv")
        return made

    return write


def test_minibatch_against_local_follows_the_paired_differences(finished):
    assert insurance_minibatch_beats_local(finished(gap=1.0)).outcome is Outcome.HOLDS
    verdict = insurance_minibatch_beats_local(finished(gap=-1.0))
    assert verdict.outcome is Outcome.FAILS and "local is better at 2" in verdict.evidence
    assert insurance_minibatch_beats_local(finished(gap=0.0)).outcome is Outcome.NOT_TESTABLE


def test_stand_in_data_settle_nothing_about_the_paper(finished):
    verdict = insurance_minibatch_beats_local(finished(gap=1.0, stand_in_for="insurance"))
    assert verdict.outcome is Outcome.NOT_TESTABLE and "'holds'" in verdict.evidence


def test_the_price_is_a_ratio_to_the_run_without_privacy(finished):
    verdict = price_vanishes(finished())
    assert verdict.outcome is Outcome.IN_PART  # 3 times at 1, still 1.2 times at 10
    assert "3.0" in verdict.evidence and "1.20 times at ε = 10" in verdict.evidence


def test_noise_that_spends_too_much_is_found(finished):
    assert noise_suffices(finished(epsilon_pld=0.1)).outcome is Outcome.HOLDS
    assert noise_suffices(finished(epsilon_pld=2.0)).outcome is Outcome.IN_PART
    assert noise_suffices(finished(epsilon_pld=20.0)).outcome is Outcome.FAILS
