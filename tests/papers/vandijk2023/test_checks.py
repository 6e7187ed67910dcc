import pytest

from dpfl.papers.vandijk2023.checks import all_checks, arsinh, composed_tightness, duality, last_epoch, subsampling
from dpfl.reporting.evidence import passed, table


def test_duality_and_subsampling_hold_to_their_tolerance():
    assert passed(table(duality(1.0))).all()
    assert passed(table(subsampling(0.1, 1.0))).all()


def test_the_last_epoch_composes_to_the_root_of_two():
    assert passed(table([last_epoch(20)])).all()


def test_the_composed_curve_is_valid_and_not_reached():
    valid, reached, one_round = composed_tightness(1.6)
    assert valid.ours == pytest.approx(3.18, abs=0.005)
    assert valid.independent == pytest.approx(2.75, abs=0.005)
    assert [bool(passed(table([each])).item()) for each in (valid, reached, one_round)] == [True, False, True]


def test_arsinh_noise_has_lighter_tails_and_costs_privacy():
    tail, spent = arsinh(4.0)
    assert tail.independent < 0.2 * tail.ours
    assert spent.independent > spent.ours


@pytest.mark.slow
def test_which_cases_fail():
    rows = table(all_checks())
    failing = rows[~passed(rows)]
    assert set(failing["claim"]) == {"dpsgd_tight", "arsinh_noise"}
    assert len(failing) == 6
