import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.reporting.rules import ALPHA, LEVEL, Case, difference, from_interval, from_values, interval_cases

numbers = st.floats(-5, 5)
errors = st.floats(0.01, 3)


def test_values_give_the_paired_t_test_of_scipy():
    values = np.random.default_rng(0).normal(0.4, 1.0, 12)
    case = from_values("case", values)
    test = stats.ttest_1samp(values, 0.0)
    assert case.p_outside(0.0, math.inf) == pytest.approx(test.pvalue, rel=1e-12)
    assert case.interval() == pytest.approx(tuple(test.confidence_interval(LEVEL)), rel=1e-12)
    assert case.n == 12


def test_a_missing_value_is_left_out_and_one_run_has_no_interval():
    assert from_values("case", [1.0, math.nan, 3.0]).n == 2
    single = from_values("case", [1.0])
    assert single.n == 1 and all(map(math.isnan, single.interval())) and math.isnan(single.p_outside(0, math.inf))
    assert math.isnan(from_interval("case", 1, 1.0, math.nan, level=0.9).error)
    assert math.isnan(from_values("case", []).estimate)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_an_interval_of_any_level_gives_the_same_case(level):
    values = np.random.default_rng(1).normal(size=7)
    half = stats.t.ppf(0.5 + level / 2, 6) * values.std(ddof=1) / math.sqrt(7)
    case, right = from_interval("case", 7, values.mean(), half, level=level), from_values("case", values)
    assert case.error == pytest.approx(right.error, rel=1e-12) and case.freedom == right.freedom


@given(numbers, errors, numbers, st.integers(1, 30))
def test_interval_and_test_agree_on_a_threshold(estimate, error, threshold, freedom):
    case = Case("case", estimate, error, freedom + 1, freedom)
    low, high = case.interval()
    if min(abs(low - threshold), abs(high - threshold)) < 1e-6:
        return
    assert (case.p_outside(threshold, math.inf) < ALPHA) == (low > threshold)
    assert (case.p_inside(threshold, math.inf) < ALPHA) == (high < threshold)


@given(numbers, errors, st.floats(0.1, 4), st.integers(1, 30))
def test_equivalence_is_two_one_sided_tests(estimate, error, margin, freedom):
    case = Case("case", estimate, error, freedom + 1, freedom)
    low, high = case.interval()
    if min(abs(low + margin), abs(high - margin), abs(low - margin), abs(high + margin)) < 1e-6:
        return
    assert (case.p_outside(-margin, margin) < ALPHA) == (-margin < low and high < margin)
    assert (case.p_inside(-margin, margin) < ALPHA) == (low > margin or high < -margin)


@given(numbers, numbers, numbers)
def test_a_computed_number_has_no_chance_in_it(estimate, one, other):
    low, high = sorted((one, other))
    case = Case("case", estimate)
    assert case.p_outside(low, high) == float(not low <= estimate <= high) == 1 - case.p_inside(low, high)
    assert case.interval() == (estimate, estimate)


def test_the_difference_of_separate_runs_is_welchs():
    draw = np.random.default_rng(2)
    one, two = draw.normal(1.0, 1.0, 5), draw.normal(0.0, 3.0, 9)
    case = difference("case", from_values("", one), from_values("", two), published=1.5)
    test = stats.ttest_ind(one, two, equal_var=False)
    assert case.p_outside(0.0, math.inf) == pytest.approx(test.pvalue, rel=1e-10)
    assert case.freedom == pytest.approx(test.df, rel=1e-10) and case.published == 1.5
    single = difference("case", from_values("", one), from_values("", [1.0]))
    assert math.isnan(single.error)
    assert difference("case", Case("", 3.0), Case("", 1.0)).interval() == (2.0, 2.0)


def test_a_row_is_the_case_of_its_interval_and_names_the_data_that_stand_in():
    data = pd.DataFrame({"dataset": ["a", "b"], "stand_in_for": ["", "c"], "seeds": [3, 1], "mean": [2.0, 4.0]})
    one, other = interval_cases(data, "on {dataset}", data["mean"] / 2, data["mean"], runs="seeds", target=1.0)
    assert one == from_interval("on a", 3, 1.0, 2.0, level=0.9, target=1.0)
    assert (other.case, other.n, other.stand_in) == ("on b", 1, "b") and np.isnan(other.error)


def test_a_number_that_no_run_gives_is_a_case_without_runs():
    case = from_interval("case", math.nan, math.nan, math.nan, level=0.9, target=0.0)
    assert case.n == 0 and math.isnan(case.estimate) and math.isnan(case.p_outside(-1.0, 1.0))
