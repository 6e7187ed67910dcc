"""Summaries of the theory studies: powers, intervals, the worst of a family, ratios."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import InputError
from dpfl.papers.lowy2021 import theory_rates
from dpfl.reporting.results import Results, write_csv


@given(power=st.floats(-3, 3), constant=st.floats(1e-6, 10.0))
def test_a_power_is_found_exactly(power, constant):
    axis = np.array([2.0, 4.0, 16.0])
    seeds = 1 + 0.1 * np.arange(5)
    fitted, half = theory_rates.slope(axis, constant * axis[:, None] ** power * seeds)
    assert fitted == pytest.approx(power, abs=1e-9)
    assert half == pytest.approx(0.0, abs=1e-9)  # a factor shared by a seed's settings leaves the slope alone


def test_a_power_against_numbers_and_against_other_risks():
    """Against numbers their own power is taken off; against risks of the same seeds their shared chance is too."""
    axis, rng = np.array([2.0, 4.0, 16.0]), np.random.default_rng(1)
    chance = 1 + 0.3 * rng.random((3, 9))
    risks = axis[:, None] ** -2.0 * chance
    alone, half = theory_rates.slope(axis, risks)
    over, same = theory_rates.slope(axis, risks, axis**-0.5)
    assert over == pytest.approx(alone + 0.5) and same == pytest.approx(half)
    shared, none = theory_rates.slope(axis, risks, axis[:, None] ** -0.5 * chance)
    assert shared == pytest.approx(-1.5) and none == pytest.approx(0.0, abs=1e-9)


def test_the_slopes_interval_covers():
    """2,000 fits of noisy powers: 90 % intervals cover in 90 % +- 4 % (six standard errors of the count)."""
    rng, axis = np.random.default_rng(0), np.array([1.0, 2.0, 4.0, 8.0])
    risks = axis[:, None] ** -1.0 * (1 + 0.1 * rng.standard_normal((2000, 4, 12)))
    fits = np.array([theory_rates.slope(axis, one) for one in risks])
    assert np.mean(np.abs(fits[:, 0] + 1.0) <= fits[:, 1]) == pytest.approx(0.90, abs=0.04)


def test_where_no_slope_is_known():
    assert all(map(math.isnan, theory_rates.slope([2.0], np.ones((1, 5)))))
    assert all(map(math.isnan, theory_rates.slope([1.0, 2.0], -np.ones((2, 5)))))
    assert math.isnan(theory_rates.slope([1.0, 2.0], np.ones((2, 2)))[1])


def test_intervals_are_students():
    table = pd.DataFrame([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    low, high = stats.t.interval(0.9, 2, loc=table.loc[0].mean(), scale=stats.sem(table.loc[0]))
    np.testing.assert_allclose(theory_rates.interval(table), [(high - low) / 2, 0.0])
    assert theory_rates.interval(table[[0]]).isna().all()


def test_the_worst_of_a_family_is_chosen_by_its_mean():
    runs = pd.DataFrame(
        [
            (n, scale, seed, risk)
            for n, scale, risks in ((8, 1.0, (1, 2)), (8, 0.5, (5, 0)), (16, 1.0, (3, 3)), (16, 0.5, (0, 1)))
            for seed, risk in enumerate(risks)
        ],
        columns=["records", "signal", "seed", "excess_risk"],
    )
    worst = theory_rates.worst(theory_rates.by_seed(runs, ["records", "signal"]))
    assert worst.loc[(8, 0.5)].tolist() == [5, 0]
    assert worst.loc[(16, 1.0)].tolist() == [3, 3]
    assert len(worst) == 2


def test_a_seed_that_a_setting_lacks_is_left_out():
    runs = pd.DataFrame({"a": [1, 1, 2], "seed": [0, 1, 1], "excess_risk": [1.0, 2.0, 3.0]})
    assert theory_rates.by_seed(runs, ["a"]).columns.tolist() == [1]


def test_ratio_of_paired_risks():
    left, right = pd.Series([2.0, 4.0, 6.0]), pd.Series([1.0, 2.0, 3.0])
    found, half = theory_rates.ratio(left, right)
    assert found == pytest.approx(2.0)
    assert half == pytest.approx(0.0, abs=1e-12)


def test_a_study_that_was_not_run_is_named(tmp_path):
    with pytest.raises(InputError, match="shuffle"):
        theory_rates.study(Results(tmp_path, {}), ("shuffle",))
    rows = pd.DataFrame({"experiment": ["ldp_theory", "ldp_theory", "other"], "study": ["shuffle", "rates_x", "nan"]})
    rows["status"] = ["finished", "diverged", "finished"]
    with (tmp_path / "runs.csv").open("w") as stream:
        write_csv(rows, stream)
    results = Results(tmp_path, {"lowy2021": (tmp_path / "runs.csv",)})
    assert len(theory_rates.study(results, ("shuffle",))) == 1
    assert theory_rates.study(results, ("rates_x",)).empty
    assert len(theory_rates.study(results)) == 1
