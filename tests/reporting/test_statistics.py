import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.reporting.statistics import mean_interval, slope, summarised


def test_the_interval_is_students():
    values = np.random.default_rng(0).normal(3.0, 2.0, 12)
    low, high = stats.t.interval(0.9, 11, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval([*values, math.nan]) == pytest.approx((12, (low + high) / 2, (high - low) / 2))


def test_too_few_values_have_no_interval():
    assert mean_interval([2.0])[:2] == (1, 2.0) and math.isnan(mean_interval([2.0])[2])
    assert mean_interval([])[0] == 0 and math.isnan(mean_interval([])[1])


def test_groups_keep_their_order_and_missing_keys():
    runs = pd.DataFrame({"a": ["z", "z", "b"], "bound": [math.nan, math.nan, 1.0], "risk": [1.0, 3.0, 5.0]})
    table = summarised(runs, ["a", "bound"], "risk")
    assert (
        table["a"].tolist() == ["z", "b"] and table["risk"].tolist() == [2.0, 5.0] and table["runs"].tolist() == [2, 1]
    )


def test_slope_is_the_exponent():
    x = np.array([1.0, 3.0, 10.0])
    assert slope(x, 7 * x**-1.5) == pytest.approx(-1.5)
    assert math.isnan(slope(x, [1.0, 0.0, 2.0]))
