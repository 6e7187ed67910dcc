"""Published numbers beside ours: their agreement, the table that shows them, and the gaps."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.reporting.report_page.agreement import (
    Agreement,
    Row,
    TextTable,
    gaps_in_words,
    in_words,
    printed_gaps,
    printed_numbers,
    printed_table,
    said_once,
    summary,
)
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import html
from dpfl.reporting.results import not_run_table
from dpfl.reporting.tables import printed_columns

TABLE = "tables/bhaskar2025_table_2.csv"


@pytest.fixture
def numbers(made):
    return printed_numbers("bhaskar2025", "table_2", made[0] / TABLE)


def test_tables_with_printed_numbers_are_those_of_the_paper():
    known = {name for name in load("bhaskar2025").tables if printed_columns("bhaskar2025", name)}
    assert known == {"table_2", "table_3", "table_4", "table_5"}
    assert not any(printed_columns("asoodeh2020", name) for name in load("asoodeh2020").tables)


def test_every_printed_number_is_there_with_what_paper_yaml_says(numbers):
    printed = load("bhaskar2025").tables["table_2"]["published_accuracy_pct"]
    assert [each.printed for each in numbers] == [
        value for model in printed.values() for row in model.values() for value in row
    ]
    assert numbers[0].keys["model"] == "cnn_relu" and numbers[0].keys["local_epochs"] == "1"


def test_a_number_says_what_it_is_how_many_runs_are_printed_and_where_the_print_is_expected(numbers):
    assert {(each.quantity, each.scale, each.unit, each.printed_runs) for each in numbers} == {
        ("accuracy", "%", "points", 10)
    }
    assert [each.prediction for each in numbers[:4]] == [12.25] * 4, "not the interval of our mean, which is 1.5"
    assert all(math.isnan(each.prediction) for each in numbers[4:])


def test_each_state_is_recognised(numbers):
    states = [each.agreement for each in numbers[:7]]
    assert states == [
        Agreement.REPRODUCED, Agreement.REPRODUCED, Agreement.NOT_REPRODUCED, Agreement.UNDECIDED, Agreement.SINGLE,
        Agreement.STAND_IN,
        Agreement.NOT_RUN,
    ]  # fmt: skip


def test_differences_are_ours_minus_printed_and_none_without_comparable_runs(numbers):
    for each in numbers[:5]:
        assert each.difference == pytest.approx(each.ours - each.printed)
    assert all(math.isnan(each.difference) for each in numbers[5:])


def test_the_summary_counts_and_measures_by_hand(numbers):
    found = summary(numbers)
    assert (found.printed, found.run, found.comparable) == (72, 6, 5)
    assert found.median == pytest.approx(0.7) and found.largest == pytest.approx(9.0)  # of 0.1 0.4 0.7 5 9
    assert found.sentence() == (
        "5 of 72 published numbers were run: 2 reproduced, 1 not reproduced, 1 undecided, 1 with one run. Reproduced "
        "with as many runs as the paper: 2 of 2. Reproduced by an interval wider than ±2 points: 2 of 2. Median "
        "difference 0.7, largest 9 points. 1 more ran on stand-in data."
    )
    assert found.in_short() == "5 of 72 published numbers were run. The median difference is 0.7 points."
    assert summary(numbers[5:]).in_short() == ""


def test_a_largest_difference_that_a_collapsed_run_makes_comes_with_its_cause(changed):
    def collapsed(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[4, ["accuracy_pct", "difference_pct", "at_chance"]] = (
            7.8,
            7.8 - table.loc[4, "published_accuracy_pct"],
            1,
        )
        return table

    folder = changed(TABLE, collapsed)
    numbers = printed_numbers("bhaskar2025", "table_2", folder / TABLE)
    found = summary(numbers)
    assert (found.farthest, found.collapsed, found.farthest_of_others) == (numbers[4], 1, numbers[3])
    printed, other = numbers[4].printed, numbers[3].printed
    assert found.sentence().partition("largest ")[2] == (
        f"{printed - 7.8:.2g} points. The largest is at Table 2, MNIST, CNN + ReLU, no privacy, (E, R) = (10, 2), 10 "
        f"clients: published {printed:.2f}, ours 7.80 (one run). Our only run diverged or ended no better than a "
        "constant answer. Without this number it is 9 points, at Table 2, MNIST, CNN + ReLU, no privacy, "
        f"(E, R) = (5, 4), 10 clients: published {other:.2f}, ours {other + 9:.2f} (mean of 2 runs). "
        "1 more ran on stand-in data."
    )


def test_a_paper_without_printed_numbers_and_one_on_stand_ins_say_so(numbers):
    assert summary([]).sentence() == "The paper has no table of numbers." and summary([]).in_short() == ""
    assert summary(numbers[5:]).sentence() == (
        "1 of 67 published numbers were run on stand-in data, so they cannot be compared."
    )
    assert summary(numbers[6:]).sentence() == "None of 66 published numbers were run."


def test_nothing_is_printed_where_the_table_was_not_run(changed, tmp_path):
    folder = changed(TABLE, lambda table: not_run_table(ValueError("no such runs")))
    assert printed_numbers("bhaskar2025", "table_2", folder / TABLE) == []
    assert printed_numbers("bhaskar2025", "table_2", tmp_path / "absent.csv") == []


def test_a_value_that_is_not_reproduced_reaches_the_page_only_from_the_table(changed):
    def all_reproduced(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(prediction="reproduced")

    folder = changed(TABLE, all_reproduced)
    assert summary(printed_numbers("bhaskar2025", "table_2", folder / TABLE)).counts[Agreement.NOT_REPRODUCED] == 0


def test_the_sum_says_where_the_prints_would_be_were_they_single_runs(changed):
    def with_single(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(prediction_single=table["prediction"].replace("not reproduced", "reproduced"))

    folder = changed(TABLE, with_single)
    numbers = printed_numbers("bhaskar2025", "table_2", folder / TABLE)
    assert [each.single for each in numbers[:5]] == [Agreement.REPRODUCED] * 3 + [Agreement.UNDECIDED, Agreement.SINGLE]
    said = "2 of 2. If the published values are single runs, not means: 3 reproduced, 1 undecided. Median "
    assert said in summary(numbers).sentence()


@pytest.mark.parametrize(
    ("first", "said"),
    [(10, "1 with one run. Reproduced with as many runs as the paper: 1 of 1"), (9, "1 with one run")],
)
def test_numbers_with_all_runs_are_counted_apart(numbers, first, said):
    changed = [replace(each, runs=2 if place else first, prediction=1.0) for place, each in enumerate(numbers)]
    assert numbers[0].printed_runs == 10 and summary(changed).outcomes().endswith(said)


def test_nothing_is_counted_apart_if_all_numbers_have_all_runs(numbers):
    assert "as many runs" not in summary([replace(each, runs=10) for each in numbers]).outcomes()


SPLIT = {"local_epochs": "1", "rounds": "20"}


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
    assert said.startswith("In every row: MNIST, 10 clients. Prediction: the mean of 10 new runs")
    assert f'"{Agreement.REPRODUCED}" says' in said


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


def test_numbers_without_a_run_and_with_one_are_counted_by_what_was_trained(numbers):
    gaps = {gap.name: gap for gap in printed_gaps(numbers)}
    assert list(gaps) == [f"Table 2, MNIST, {name}" for name in ("CNN + ReLU", "CNN + tanh", "ScatterNet + linear",
                                                               "ScatterNet + CNN")]  # fmt: skip
    first = gaps["Table 2, MNIST, CNN + ReLU"]
    assert (first.total, first.not_run, first.single) == (18, 12, 1)
    assert sum(gap.not_run for gap in gaps.values()) == 66 and gaps["Table 2, MNIST, CNN + tanh"].which == "all"


def test_those_without_a_run_are_named_by_what_tells_them_apart(numbers):
    clients = [
        replace(each, keys={**each.keys, "epsilon": "7.53", "local_epochs": "1", "rounds": "20", "clients": text})
        for each, text in zip([*numbers[:3], *numbers[6:8]], ("10", "25", "50", "100", "1"), strict=True)
    ]
    [gap] = printed_gaps(clients)
    assert (gap.not_run, gap.single, gap.which) == (2, 0, "100 clients; one client")


def test_a_group_whose_numbers_all_have_several_runs_is_no_gap(numbers):
    assert printed_gaps(numbers[:4]) == () and gaps_in_words(numbers[:4]) == "" and gaps_in_words([]) == ""


def test_the_sum_in_words_says_how_many_runs_the_paper_prints(numbers):
    assert gaps_in_words(numbers) == (
        "Of 72 published numbers: 66 we did not run; 1 we ran once (the paper reports means of 10)"
    )
    assert gaps_in_words(numbers[6:]) == "Of 66 published numbers: 66 we did not run"
    unknown = [replace(each, printed_runs=0) for each in numbers[:5]]
    assert gaps_in_words(unknown) == "Of 5 published numbers: 1 we ran once"


def test_the_page_lists_them_and_the_first_screen_leads_there(made):
    text = html(contents(*made))
    assert text.count('href="#bhaskar2025-printed-gaps"') == 1 and 'id="bhaskar2025-printed-gaps"' in text
    assert "asoodeh2020-printed-gaps" not in text, "it prints no table"


# What the reader of a table of text may do with it.


PLAIN = (Row(("a", "1")), Row(("b", "2")), Row(("c", "3")))


@pytest.mark.parametrize(
    ("rows", "sorts"),
    [
        (PLAIN, True),
        (PLAIN[:2], False),  # two rows are in sight at once
        ((), False),
        ((*PLAIN[:2], Row(("c", "3"), heading="Others")), False),  # a row would leave its heading
        ((Row(("a", "1"), heading="First"), *PLAIN), False),
        ((*PLAIN, Row(("d", "4"), where="x=1", style="bad")), True),
    ],
)
def test_rows_may_change_places_only_where_none_stands_below_a_heading(rows, sorts):
    assert TextTable(("name", "number"), rows).can_sort is sorts


@pytest.mark.parametrize("place", [None, 0, 2])
def test_one_row_with_a_condition_makes_a_table_that_can_be_traced(place):
    rows = tuple(Row(row.cells, where="x=1" if number == place else "") for number, row in enumerate(PLAIN))
    assert TextTable(("name", "number"), rows).has_traces is (place is not None)


def test_a_number_that_stands_in_two_tables_is_said_to_count_twice(numbers):
    again = replace(numbers[0], keys=numbers[0].keys | {"table": "5"})
    assert ". Counted twice: 1. Median" in summary([*numbers, again]).sentence()


@pytest.mark.parametrize(
    ("width", "said"), [(1.9, ""), (2.1, ". Reproduced by an interval wider than ±2 points: 1 of 2")]
)
def test_agreement_in_a_wide_interval_is_counted_apart(numbers, width, said):
    runs = [10 if place == 0 else 2 for place in range(len(numbers))]
    changed = [replace(each, runs=count, prediction=0.5) for each, count in zip(numbers, runs, strict=True)]
    changed[1] = replace(changed[1], prediction=width)
    assert summary(changed).outcomes().endswith(f"with as many runs as the paper: 1 of 1{said}")
