import math

import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.reporting.report_page.agreement import Agreement, is_printed, printed_numbers, summary
from dpfl.reporting.results import not_run_table

TABLE = "tables/bhaskar2025_table_2.csv"


@pytest.fixture
def numbers(made):
    return printed_numbers("bhaskar2025", "table_2", made[0] / TABLE)


def test_tables_with_printed_numbers_are_those_of_the_paper():
    known = {name for name in load("bhaskar2025").tables if is_printed("bhaskar2025", name)}
    assert known == {"table_2", "table_3", "table_4", "table_5"}
    assert not any(is_printed("asoodeh2020", name) for name in load("asoodeh2020").tables)


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
        Agreement.INSIDE, Agreement.INSIDE, Agreement.OUTSIDE, Agreement.WIDE, Agreement.SINGLE, Agreement.STAND_IN,
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
        "5 of 72 printed numbers run: 2 inside, 1 outside, 1 too wide to say, 1 with one run; median distance 0.7, "
        "largest 9 points. 1 more on stand-in data."
    )


def test_a_paper_without_printed_numbers_and_one_on_stand_ins_say_so(numbers):
    assert summary([]).sentence() == "The paper prints no table of numbers."
    assert summary(numbers[5:]).sentence() == "1 of 67 printed numbers run on stand-in data, not comparable."
    assert summary(numbers[6:]).sentence() == "None of 66 printed numbers run yet."


def test_nothing_is_printed_where_the_table_was_not_run(changed, tmp_path):
    folder = changed(TABLE, lambda table: not_run_table(ValueError("no such runs")))
    assert printed_numbers("bhaskar2025", "table_2", folder / TABLE) == []
    assert printed_numbers("bhaskar2025", "table_2", tmp_path / "absent.csv") == []


def test_an_outside_mark_reaches_the_page_only_from_the_table(changed):
    def all_inside(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(prediction="inside")

    folder = changed(TABLE, all_inside)
    assert summary(printed_numbers("bhaskar2025", "table_2", folder / TABLE)).counts[Agreement.OUTSIDE] == 0


def test_the_sum_says_where_the_prints_would_be_were_they_single_runs(changed):
    def with_single(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(prediction_single=table["prediction"].replace("outside", "inside"))

    folder = changed(TABLE, with_single)
    numbers = printed_numbers("bhaskar2025", "table_2", folder / TABLE)
    assert [each.single for each in numbers[:5]] == [Agreement.INSIDE] * 3 + [Agreement.WIDE, Agreement.SINGLE]
    said = "1 with one run; read as single runs 3 inside, 1 too wide to say; median distance 0.7"
    assert said in summary(numbers).sentence()
