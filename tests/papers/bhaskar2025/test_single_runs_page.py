"""The page on means of ten or single runs: rows with known numbers, and what follows from their intervals."""

import math

import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.single_runs import AVERAGED
from dpfl.papers.bhaskar2025.single_runs_page import single_runs_page

COLUMN = {
    "test": "scatter", "dataset": "mnist", "model": "scatter_linear", "epsilon": 2.93, "local_epochs": 0, "splits": 6,
    "curve": 1, "runs": 10, "columns": 1, "probability_ten": 0.0004, "probability_single": 0.25,
    "largest_step_ten": 4.25, "largest_step_single": 1.5, "averaged_low": 0.6, "averaged_high": 3.2,
}  # fmt: skip
TOGETHER = {**COLUMN, "dataset": "all", "epsilon": math.nan, "columns": 9}
TOGETHER |= {"largest_step_ten": math.nan, "largest_step_single": math.nan}
CONSTANT = {
    "test": "constant", "dataset": "mnist", "model": "cnn_relu", "epsilon": math.inf, "local_epochs": 20, "runs": 3,
    "published_accuracy_pct": 9.74, "constant_runs": 3, "same_runs": 1, "probability_ten": 0.18,
    "probability_single": 1.0, "averaged_low": math.nan, "averaged_high": math.nan,
}  # fmt: skip


def page(*rows: dict):
    return single_runs_page(pd.DataFrame(rows, columns=list(COLUMN | CONSTANT)))


def test_a_row_a_column_and_the_sums_below():
    body = page(COLUMN, {**TOGETHER, "curve": 2, "splits": 5}, CONSTANT).body
    assert body.iloc[0].tolist() == [
        "MNIST, ε = 2.93", "a straight line", "10", "4.2", "1.5", "below 0.001", "0.250", "0.6 to 3.2"
    ]  # fmt: skip
    assert body.iloc[1, :2].tolist() == ["all 9 together, without (20, 1)", "a parabola"] and len(body) == 2
    assert body.iloc[1, 3:5].tolist() == ["–", "–"]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (AVERAGED[0], 3.0, "below 0.05 to 3"),
        (2.0, AVERAGED[-1], "2 to more"),
        (math.nan, math.nan, "none fits"),
        (2.0, 23.4, "2 to 23"),
        (2.0, 104.0, "2 to 100"),
    ],
)
def test_an_interval_is_open_where_the_search_ended(low, high, text):
    assert page({**COLUMN, "averaged_low": low, "averaged_high": high}).body.iloc[0, -1] == text


@pytest.mark.parametrize(
    ("intervals", "ten", "single"),
    [
        ([(0.6, 3.2), (0.5, 4.0)], "excluded", "allowed"),
        ([(4.0, 30.0), (2.0, 20.0)], "allowed", "excluded"),
        ([(0.6, 3.2), (2.0, 20.0)], "open", "open"),
        ([(10.0, 30.0)], "allowed", "excluded"),
        ([(0.2, 1.0)], "excluded", "allowed"),
        ([(math.nan, math.nan)], "excluded", "excluded"),
    ],
)
def test_a_reading_is_allowed_inside_all_intervals_and_excluded_outside_all(intervals, ten, single):
    """The interval of one column alone decides nothing: only those of all columns together."""
    rows = [{**TOGETHER, "averaged_low": low, "averaged_high": high} for low, high in intervals]
    alone = {**COLUMN, "averaged_low": 0.1, "averaged_high": 0.2}
    note = page(alone, *rows).notes[0]
    assert note.startswith(f"means of ten: {ten}; single runs: {single}. By their scatter in all 9 columns")
    assert note.count("with a straight line taken out") == len(intervals)


def test_no_column_together_is_said():
    for rows in ([CONSTANT], [COLUMN]):
        assert page(*rows).notes[0].startswith("No column has enough seeds")


@pytest.mark.parametrize(
    ("changes", "said", "nothing"),
    [
        ({}, "(3 of our 3 runs are constant, 1 of them with this digit)", False),
        ({"same_runs": 3}, "(3 of our 3 runs are constant, 3 of them with this digit)", True),
        ({"constant_runs": 1, "same_runs": 1}, "(1 of our 3 runs are constant, 1 of them with this digit)", False),
        ({"constant_runs": 0, "same_runs": 0}, "(0 of our 3 runs are constant)", False),
        ({"runs": 0, "constant_runs": 0, "same_runs": 0}, "(ours did not run)", False),
    ],
)
def test_a_constant_cell_says_what_ours_answer(changes, said, nothing):
    note = page(COLUMN, {**CONSTANT, **changes}).notes[1]
    assert said in note and "MNIST, CNN + ReLU, E = 20: the published 9.74" in note and "probability 0.18" in note
    assert note.endswith("a mean of ten prints it, and this says nothing.") == nothing
