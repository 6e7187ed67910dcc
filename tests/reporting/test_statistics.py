import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.reporting.statistics import half_width, holm, mean_interval, slope, summarised


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_interval_is_students(level):
    values = np.random.default_rng(0).normal(3.0, 2.0, 12)
    low, high = stats.t.interval(level, 11, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval([*values, math.nan], level) == pytest.approx((12, (low + high) / 2, (high - low) / 2))


def test_half_widths_of_a_column_are_those_of_its_rows():
    std, count = pd.Series([math.nan, 1.0, 3.0]), pd.Series([1, 2, 7])
    rows = [half_width(s, c, 0.95) for s, c in zip(std, count, strict=True)]
    assert math.isnan(rows[0]) and math.isnan(half_width(2.0, 1))
    pd.testing.assert_series_equal(half_width(std, count, 0.95), pd.Series(rows))
    assert rows[1] == pytest.approx(12.7062047 / math.sqrt(2))  # Student's quantile at one degree of freedom


def test_too_few_values_have_no_interval():
    assert mean_interval([2.0])[:2] == (1, 2.0) and math.isnan(mean_interval([2.0])[2])
    assert mean_interval([])[0] == 0 and math.isnan(mean_interval([])[1])


def test_groups_keep_their_order_and_missing_keys():
    runs = pd.DataFrame({"a": ["z", "z", "b"], "bound": [math.nan, math.nan, 1.0], "risk": [1.0, 3.0, 5.0]})
    runs["origin"] = ["job:0", "job:1", "other:0"]
    table = summarised(runs, ["a", "bound"], "risk")
    assert (
        table["a"].tolist() == ["z", "b"] and table["risk"].tolist() == [2.0, 5.0] and table["runs"].tolist() == [2, 1]
    )
    assert table["origins"].tolist() == ["job:0 job:1", "other:0"]


def test_slope_is_the_exponent():
    x = np.array([1.0, 3.0, 10.0])
    assert slope(x, 7 * x**-1.5) == pytest.approx(-1.5)
    assert math.isnan(slope(x, [1.0, 0.0, 2.0]))


def test_holm_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, math.nan, 0.9]) == pytest.approx([1.0, math.nan, 1.0], nan_ok=True)
    assert len(holm([])) == 0
