import math

import numpy as np
import pytest

from dpfl.catalog import load
from dpfl.papers.bhaskar2025 import errata


def test_parallel_composition_of_disjoint_data_is_a_maximum():
    disjoint = errata.parallel_disjoint(1.0, 0.5)
    assert (disjoint.printed, disjoint.corrected) == pytest.approx((1.5, 1.0), abs=2e-4)


def test_a_record_of_ten_clients_spends_more_than_three_budgets():
    two, ten = errata.overlapping_clients(10, 2), errata.overlapping_clients(100, 10)
    exactly = errata.noise("pld")
    assert errata.spent(exactly, errata.EPOCHS) == pytest.approx(errata.BUDGET, abs=1e-4)
    # As run the noise is Opacus's PRV answer, 2.9155 of the 2.93; with exact noise ten clients spend 10.51.
    assert errata.noise("prv") == pytest.approx(0.9595, abs=1e-3)
    assert ten.corrected == pytest.approx(10.46, abs=0.01) and errata.spent(exactly, 200) == pytest.approx(
        10.51, abs=0.01
    )
    assert two.corrected == pytest.approx(4.19, abs=0.01) and two.shown["share"] == pytest.approx(26.39, abs=0.01)
    assert ten.shown["share"] == pytest.approx(54.87, abs=0.01)


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


def test_rows_of_table_5_that_grow_are_counted(monkeypatch):
    assert errata.grows_with_clients()[:3] == (12, 10, 10)
    row = load("bhaskar2025").tables["table_5"]["published_accuracy_pct"]["mnist"]
    monkeypatch.setitem(row, "cnn_relu", [93.06, 93.0, *row["cnn_relu"][2:]])
    assert errata.grows_with_clients()[:3] == (12, 9, 9)


@pytest.mark.parametrize("gamma", [4, 10, 20])
@pytest.mark.parametrize(("budget", "side"), [(2.93, 1), (1.2, -1)])
def test_epsilon_of_an_intermediate_model_is_not_the_printed_root(gamma, budget, side):
    """It is above the root at the larger budget, below it at the smaller one."""
    numbers = errata.intermediate(gamma, budget)
    whole = errata.spent(errata.noise("prv", budget), 20)
    assert numbers.printed == pytest.approx(whole / math.sqrt(gamma)) and whole <= budget
    # Opacus's upper end less twice its error is a lower end: both ends are on one side of the print.
    ends = numbers.independent - 2 * errata.SMALL_ERROR, numbers.independent
    assert all(side * (end - numbers.printed) > 0 for end in ends)
    assert numbers.corrected == pytest.approx(numbers.independent, abs=1.2e-3) and numbers.corrected < whole


def test_the_parameters_of_networks_are_those_of_their_papers_and_of_the_sheet():
    """Papernot et al. print 26,010; the authors' public code has 10,650 and 605,226, and a dense layer of 128 numbers
    where Tramèr and Boneh have 512."""
    (_, _, scattered) = given = load("bhaskar2025").errata["architecture"]["arguments"]
    grey, colour, features = (errata.architecture(**each)[:3] for each in given)
    assert grey == (26_010, 10_650, 10_650) and colour == (550_570, 605_226, 605_226)
    assert features == (33_066, 33_066 - 384 * 32, 20_778) and scattered["model"] == "scatter_cnn"


def test_scatternet_with_a_linear_model_is_the_largest_on_grey_images():
    numbers = errata.smallest_model("fashion_mnist")
    assert numbers[:3] == (1, 4, 4)
    assert numbers.shown == {"own": 39_700, "pixel": 26_010, "scattered": 33_066, "colour": 155_530, "cited": 550_570}


def test_noise_on_the_average_would_hide_nearly_everything():
    """The same noise on a mean of 64 records is 64 times as much, in units of what one record moves."""
    numbers = errata.noise_on_average()
    assert numbers.printed == pytest.approx(errata.spent_by_prv(64 * errata.noise("prv"), 20), abs=2e-3)
    assert 0 < numbers.printed < 0.1 and numbers.corrected == pytest.approx(2.93, abs=0.02)  # PRV overstates by 0.5 %


def test_the_noise_of_every_step_counts():
    one, many = errata.noise_term(1, 10_650), errata.noise_term(20, 10_650)
    assert one.printed == pytest.approx(one.corrected) and many.corrected == pytest.approx(20 * one.corrected)
    assert many.printed < many.corrected
    draws = np.linalg.norm(np.random.default_rng(0).standard_normal((400, 500)), axis=1)
    rate, sigma = 0.3, errata.noise("prv")
    few = errata.noise_term(20, 500)
    # Deviation of the mean norm: 0.71 / 20 = 0.035 of 22.4; five of them.
    assert few.independent == pytest.approx(20 * (2 * rate + rate * sigma / 64 * draws.mean()), rel=0.008)


def test_the_bound_of_all_rounds_does_not_depend_on_the_split():
    for local_epochs in (2, 5, 20):
        numbers = errata.all_rounds(local_epochs, 20)
        assert numbers[:3] == pytest.approx((local_epochs, 1.0, 1.0))


def test_theorem_3_without_the_dimension_is_exceeded_nearly_surely():
    numbers = errata.utility_dimension(26_010, 100, 10.0)
    assert numbers.printed == pytest.approx(1e-4) and numbers.independent == pytest.approx(1.0)
    assert numbers.shown["distance"] == pytest.approx(16.13, abs=0.01)
    far = errata.utility_dimension(100, 100, 10.0)  # here both forms hold
    assert far.independent < far.printed < far.corrected == pytest.approx(0.01)


def test_what_the_paper_states_is_not_called_unstated():
    """It says: randomly sample a mini-batch of size L; group normalization for ScatterNet + CNN."""
    entry = load("bhaskar2025").errata["unstated_settings"]["printed_form"]
    assert '"randomly sample a mini-batch of size L"' in entry and 'the groups of the "group normalization"' in entry
