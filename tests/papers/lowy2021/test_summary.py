import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.errors import InputError
from dpfl.papers.lowy2021.summary import mean_interval, trials
from dpfl.reporting.results import Results


def test_the_interval_is_students_and_leaves_diverged_trials_out():
    values = np.random.default_rng(1).normal(size=20)
    count, mean, half = mean_interval(pd.Series([*values, math.nan]))
    low, high = stats.t.interval(0.90, 19, loc=values.mean(), scale=stats.sem(values))
    assert count == 20 and mean == pytest.approx(values.mean()) and half == pytest.approx((high - low) / 2)


def test_one_trial_has_no_interval():
    assert math.isnan(mean_interval(pd.Series([1.0]))["interval"])


def test_without_runs_it_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="run make"):
        trials(Results(tmp_path))
