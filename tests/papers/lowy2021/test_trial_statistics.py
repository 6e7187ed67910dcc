import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.lowy2021.comparisons import CLASSIFICATION, REGRESSION, paired, trials
from dpfl.reporting.results import NotRunError, Results


def test_one_trial_has_no_interval_and_no_test():
    assert math.isnan(paired(pd.Series([1.0]), pd.Series([2.0]))["interval"])
    assert math.isnan(paired(pd.Series([1.0]), pd.Series([2.0]))["p_value"])


def test_the_paired_test_is_scipys_and_its_interval_has_the_same_verdict():
    rng = np.random.default_rng(2)
    first = pd.Series(rng.normal(size=20))
    second = first + rng.normal(0.4, 1, 20)
    compared = paired(first, second)
    assert compared["p_value"] == pytest.approx(stats.ttest_rel(second, first).pvalue)
    assert (compared["p_value"] < 0.10) == (abs(compared["difference"]) > compared["interval"])
    assert compared["first_smaller"] == (second > first).sum() and compared["trials"] == 20
    missing = paired(first, second.where(second.index > 4))
    assert missing["trials"] == 15


def test_equal_differences_are_decided_without_a_test():
    same = pd.Series([1.0, 2.0, 3.0])
    assert paired(same, same)["p_value"] == 1.0 and paired(same, same + 1)["p_value"] == 0.0


def test_experiments_are_told_apart(results):
    made = results()
    regression, classification = trials(made, REGRESSION), trials(made, CLASSIFICATION)
    assert set(regression["experiment"]) == {"ldp_regression"} and regression["clients"].tolist()[0] == 3
    assert regression["clients"].dtype == int and "split" not in regression and "clients" not in classification
    assert list(dict.fromkeys(regression["noise"])) == ["advanced_composition", "moments", "tight"]


def test_without_runs_it_says_so(tmp_path):
    with pytest.raises(NotRunError, match="no run of lowy2021's ldp_regression in this configuration"):
        trials(Results(tmp_path), REGRESSION)
