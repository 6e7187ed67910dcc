from dataclasses import replace

import pytest

from dpfl.reporting.report_page.agreement import Agreement, in_words, printed_numbers, printed_table, said_once

SPLIT = {"local_epochs": "1", "rounds": "20"}


@pytest.fixture
def numbers(made):
    return printed_numbers("bhaskar2025", "table_2", made[0] / "tables/bhaskar2025_table_2.csv")


def shown(numbers):
    """The table with a condition for each row."""
    return printed_table(numbers, [str(number) for number in range(len(numbers))])


def with_keys(numbers, **keys):
    """Numbers with other keys."""
    return [replace(each, keys={**each.keys, **keys}) for each in numbers]


def on_mnist(numbers):
    """Numbers that all ran on the data of the print."""
    return [replace(each, data="mnist" if each.runs else "") for each in numbers]


def test_what_differs_comes_first_then_ours_the_print_and_their_difference(numbers):
    table = shown(on_mnist(numbers))
    assert table.columns == (
        "model", "ε", "(E, R)", "ours", "published", "difference, points", "prediction ± 95 %, points", "agreement",
        "n",
    )  # fmt: skip
    assert table.rows[0].cells[:6] == ("CNN + ReLU", "none", "(1, 20)", "98.30", "98.20", "+0.10")
    assert table.keeps_first and table.rows[3].where == "3"


def test_the_data_are_a_column_only_where_they_differ(numbers):
    table = shown(numbers)
    assert table.columns[-1] == "data" and [row.cells[-1] for row in table.rows[4:7]] == [
        "MNIST", "Digits (stand-in for MNIST)", "–"
    ]  # fmt: skip


def test_data_set_and_model_share_a_column_where_both_differ(numbers):
    first = on_mnist(with_keys(numbers[:30], **SPLIT))
    other = [replace(each, data="cifar10" if each.runs else "") for each in first]
    table = shown([*first, *with_keys(other, dataset="cifar10", clients="25")])
    assert "data" not in table.columns, "the first column says which"
    assert table.columns[:4] == ("data set, model", "ε", "clients", "ours")
    assert table.rows[30].cells[:3] == ("CIFAR-10, CNN + ReLU", "none", "25")


def test_the_interval_shown_is_the_one_that_agreement_is_judged_by(numbers):
    table, wide = shown(numbers), replace(numbers[0], prediction=603.94)
    widths = [row.cells[table.columns.index("prediction ± 95 %, points")] for row in table.rows]
    assert widths[:6] == ["12.2", "12.2", "12.2", "12.2", "–", "–"]
    assert shown([wide, *numbers[1:]]).rows[0].cells[6] == "604"
    assert shown([replace(wide, prediction=9.876), *numbers[1:]]).rows[0].cells[6] == "9.88"


def test_what_all_rows_share_is_said_once_with_what_the_interval_is(numbers):
    said = said_once(on_mnist(numbers))
    assert said.startswith("In every row: MNIST, 10 clients. Prediction: a mean of 10 other runs")
    assert f'"{Agreement.INSIDE}" says' in said


def test_data_that_stand_in_for_those_of_the_print_are_named(numbers):
    runs = [replace(each, data="digits", runs=2) for each in numbers]
    assert said_once(runs).startswith("In every row: MNIST, 10 clients, run on Digits (stand-in for MNIST).")


def test_nothing_is_said_of_an_interval_that_no_row_has(numbers):
    assert said_once(numbers[6:]) == "In every row: MNIST, 10 clients."
    assert said_once([replace(numbers[0], printed_runs=0), *numbers[1:]]).endswith("10 clients.")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"table": "2", "dataset": "mnist", "epsilon": "inf", **SPLIT}, "Table 2, MNIST, no privacy, (E, R) = (1, 20)"),
        ({"model": "cnn_relu", "epsilon": "2.93", "clients": "1"}, "CNN + ReLU, ε = 2.93, one client"),
        ({"clients": "1"}, "one client"),
        ({"clients": "11"}, "11 clients"),
    ],
)
def test_a_cell_in_words(keys, words):
    assert in_words(keys) == words
