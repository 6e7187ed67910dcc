import math

import pytest

from dpfl.catalog import load
from dpfl.papers.bhaskar2025 import errata


def test_parallel_composition_of_disjoint_data_is_a_maximum():
    disjoint = errata.parallel_disjoint(1.0, 0.5)
    assert (disjoint.printed, disjoint.corrected) == pytest.approx((1.5, 1.0), abs=2e-4)


def test_a_record_of_ten_clients_spends_more_than_three_budgets():
    as_run, exactly = errata.noise("rdp"), errata.noise("pld")
    assert errata.spent(as_run, 200) == pytest.approx(9.49, abs=0.01)
    assert errata.spent(exactly, 200) == pytest.approx(10.51, abs=0.01)
    assert as_run == pytest.approx(1.007, abs=1e-3)
    assert errata.spent(exactly, errata.EPOCHS) == pytest.approx(errata.BUDGET, abs=1e-4)


def test_batches_of_250_and_exact_noise_bring_it_near_eleven(monkeypatch):
    # The paper states no batch size: the record's budget hardly depends on it.
    monkeypatch.setattr(errata, "epoch_steps", lambda: 24)
    noise = errata.noise.__wrapped__("pld")
    assert errata.spent(noise, 200) == pytest.approx(10.8, abs=0.01)
    assert errata.spent(noise, 1) == pytest.approx(0.712, abs=2e-3)


def test_one_of_twelve_shared_cells_differs(monkeypatch):
    numbers = errata.two_tables()
    assert (numbers.shown["fifth"], numbers.shown["other"], numbers.shown["shared"]) == (93.06, 93.86, 12)
    assert numbers.corrected == pytest.approx(0.8) and numbers.independent == pytest.approx(0.8)
    # A second cell that differs would be seen.
    fifth = load("bhaskar2025").tables["table_5"]["published_accuracy_pct"]["cifar10"]
    monkeypatch.setitem(fifth, "scatter_cnn", [52.5, *fifth["scatter_cnn"][1:]])
    assert errata.two_tables().independent == pytest.approx(0.9)


def test_always_best_counts_columns(monkeypatch):
    assert errata.always_best()[:3] == (24, 17, 17)
    relu = load("bhaskar2025").tables["table_2"]["published_accuracy_pct"]["cnn_relu"]
    monkeypatch.setitem(relu, 2.93, [90.0, *relu[2.93][1:]])
    assert errata.always_best()[:3] == (24, 16, 16)


def test_text_against_tables():
    assert errata.text_start(84.26).corrected == 81.26
    assert errata.text_end(82.79, 86.01).corrected == 83.73
    assert errata.text_budget(7.52).corrected == 7.53
    other_budget = load("bhaskar2025").tables["table_3"]["published_accuracy_pct"]["scatter_linear"][1.2]
    assert other_budget[-1] == 82.79


@pytest.mark.parametrize(("accountant", "epsilon"), [("rdp", 0.734), ("pld", 0.858)])
def test_epsilon_of_an_intermediate_model_is_above_the_printed_root(accountant, epsilon):
    for gamma in (10, 20):
        numbers = errata.intermediate(gamma, accountant, "")
        assert numbers.printed == pytest.approx(errata.BUDGET / math.sqrt(gamma))
        # Opacus's upper end less twice its error is a lower end: that too exceeds the print.
        assert numbers.printed < numbers.independent - 2 * errata.SMALL_ERROR
    assert numbers.corrected == pytest.approx(epsilon, abs=1e-3)


def test_for_small_gamma_the_printed_root_is_on_the_safe_side():
    numbers = errata.intermediate(4, "rdp", "")
    assert numbers.corrected < numbers.printed
