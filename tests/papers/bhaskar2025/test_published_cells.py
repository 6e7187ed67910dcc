import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025 import published_cells as cells_module
from dpfl.papers.bhaskar2025.published_cells import (
    INSIDE,
    OUTSIDE,
    UNDECIDED,
    measured_cells,
    predicted,
    prediction_half_width,
)
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results

LINEAR = "table == 2 and model == 'scatter_linear'"


def cell(cells, epsilon=2.93, local_epochs=1):
    chosen = cells.query("model == 'scatter_linear' and epsilon == @epsilon and local_epochs == @local_epochs")
    [row] = chosen.to_dict("records")
    return row


def test_every_cell_is_the_mean_of_the_runs_that_it_records(as_runs, rows_of_runs):
    tables = [rows_of_runs("table == 2", seeds, noise_pct=1.0) for seeds in ((0, 1), (1, 2))]
    results = as_runs(*tables)
    cells = measured_cells(results, 2)
    assert (cells["runs"] == 3).all()
    for row in cells.to_dict("records"):
        places = [origin.split(":") for origin in row["origins"].split()]
        accuracies = [tables[int(sweep[-1])]["accuracy_pct"].iloc[int(place)] for sweep, place in places]
        assert row["accuracy_pct"] == pytest.approx(np.mean(accuracies), abs=1e-12)


def test_a_cell_has_mean_intervals_count_and_difference(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", range(3))
    runs["accuracy_pct"] = [97.0, 97.5, 98.0]
    measured = measured_cells(as_runs(runs), 2)
    assert len(measured) == 72 and (measured["runs"] > 0).sum() == 1
    row = cell(measured)
    assert row["runs"] == 3 and row["accuracy_pct"] == 97.5 and not row["stand_in"]
    low, high = stats.t.interval(0.95, 2, loc=97.5, scale=0.5 / math.sqrt(3))
    assert row["interval_pct"] == pytest.approx((high - low) / 2, rel=1e-12)
    assert row["difference_pct"] == pytest.approx(97.5 - 97.52)
    assert row["prediction_pct"] == pytest.approx(stats.t.ppf(0.975, 2) * 0.5 * math.sqrt(1 / 3 + 1 / 10))
    assert row["prediction"] == INSIDE and (measured["prediction"] != "").sum() == 1


def test_a_single_run_has_no_prediction_and_a_value_far_off_is_outside(as_runs, rows_of_runs):
    single = measured_cells(as_runs(rows_of_runs(LINEAR, [0])), 2)
    assert (single["prediction"] == "").all() and single["prediction_pct"].isna().all()
    far = measured_cells(as_runs(rows_of_runs(LINEAR, range(5), offset_pct=3.0, noise_pct=0.1)), 2)
    assert (far.query("runs > 0")["prediction"] == OUTSIDE).all()


def test_restricted_run_tables_fill_the_cells_they_have(as_runs, rows_of_runs):
    whole = rows_of_runs(f"{LINEAR} and epsilon == 2.93", range(2))
    ends = rows_of_runs("table == 2 and model == 'cnn_tanh' and local_epochs in [1, 20]", [0])
    measured = measured_cells(as_runs(whole, ends), 2)
    assert measured.groupby("model", sort=False)["runs"].sum().to_dict() == {
        "cnn_relu": 0,
        "cnn_tanh": 6,
        "scatter_linear": 12,
        "scatter_cnn": 0,
    }


def test_a_run_counts_once_and_in_every_table_that_shares_its_cell(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", range(2))
    results = as_runs(runs, runs.assign(study="distances"))
    assert measured_cells(results, 2)["runs"].sum() == 2
    fifth = measured_cells(results, 5).query("runs > 0")
    assert fifth[["model", "clients", "runs"]].values.tolist() == [["scatter_linear", 10, 2]]


@pytest.mark.parametrize(
    "other", [{"batch_size": 32}, {"initialisation": "per_client"}, {"sampling": "shuffled_epochs"}, {"delta": 1e-6}]
)
def test_runs_of_other_settings_are_in_no_published_cell(as_runs, rows_of_runs, other):
    chosen, candidate = rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0, 1], offset_pct=-5, **other)
    measured = measured_cells(as_runs(chosen, candidate.assign(study="identification")), 2)
    assert measured["runs"].max() == 1 and (measured["difference_pct"].dropna().abs() < 1e-9).all()


def test_stand_in_data_are_named_and_never_compared(as_runs, rows_of_runs, as_stand_in):
    cells = measured_cells(as_runs(as_stand_in(rows_of_runs(LINEAR, range(3), noise_pct=1.0))), 2)
    ran = cells[cells["runs"] > 0]
    assert ran["stand_in"].all() and (ran["ran_on"] == "digits").all() and ran["difference_pct"].isna().all()
    assert ran["prediction_pct"].isna().all() and (ran["prediction"] == "").all() and ran["interval_pct"].notna().all()


def test_without_any_run_every_cell_says_so(tmp_path):
    cells = measured_cells(Results(tmp_path), 5)
    assert len(cells) == 60 and (cells["runs"] == 0).all() and cells["accuracy_pct"].isna().all()


def test_the_prediction_interval_holds_the_mean_of_ten_in_95_percent_of_all_cases():
    # 4000 trials: a share outside of 0.95 +- 0.0125 has probability below 3e-4 where the formula is right.
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(90, 0.2, (4000, 3)), draw.normal(90, 0.2, (4000, 10)).mean(1)
    half = prediction_half_width(pd.Series(ours.std(1, ddof=1)), pd.Series(np.full(4000, 3)))
    sides = predicted(pd.Series(ours.mean(1) - theirs), half)
    assert abs((sides == INSIDE).mean() - 0.95) < 0.0125
    assert ((sides == INSIDE) | (sides == OUTSIDE)).all()


def test_a_single_printed_run_has_the_wider_interval(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", range(10))
    runs["accuracy_pct"] = 97.0 + 0.1 * np.arange(10)
    row = cell(measured_cells(as_runs(runs), 2))
    sd, quantile = runs["accuracy_pct"].std(), stats.t.ppf(0.975, 9)
    assert row["prediction_pct"] == pytest.approx(quantile * sd * math.sqrt(0.1 + 0.1))
    assert row["prediction_single_pct"] == pytest.approx(quantile * sd * math.sqrt(0.1 + 1))
    runs["accuracy_pct"] += 0.6
    moved = cell(measured_cells(as_runs(runs), 2))
    assert (moved["prediction"], moved["prediction_single"]) == (OUTSIDE, INSIDE)
    assert "(out, in)" in TABLES["table_2"].page(measured_cells(as_runs(runs), 2)).body.to_string()


def test_a_difference_that_rounds_to_nothing_has_no_minus(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", [0], offset_pct=-0.001)
    text = TABLES["table_2"].page(measured_cells(as_runs(runs), 2)).body.to_string()
    assert "+0.00" in text and "-0.00" not in text


def test_an_interval_that_takes_in_nearly_anything_decides_nothing_but_what_lies_outside():
    sides = predicted(pd.Series([-57.7, -57.7, 3.0]), pd.Series([124.7, 20.0, 9.9]))
    assert list(sides) == [UNDECIDED, OUTSIDE, INSIDE]


def test_constant_models_are_counted_and_stay_in_the_mean(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs == 2", range(3))
    runs["accuracy_pct"] = [11.35, 98.28, 11.35]
    (cell,) = measured_cells(as_runs(runs), 2).query("runs > 0").to_dict("records")
    assert (cell["at_chance"], cell["diverged"], cell["prediction"]) == (2, 0, UNDECIDED)
    assert cell["accuracy_pct"] == pytest.approx(40.327, abs=1e-3)
    page = TABLES["table_2"].page(measured_cells(as_runs(runs), 2))
    text = page.body.to_string()
    assert "40.33 [11.35 to 98.28] (3, 2 at chance)" in text and "-57.66 (wide, wide)" in text and "124" not in text
    assert any("no better than one answer to everything" in note for note in page.notes)


def test_the_advantage_over_one_local_epoch_is_paired_by_seed(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 1.2 and local_epochs < 4", range(3))
    runs["accuracy_pct"] = [96.0, 96.1, 95.0, 95.3, 97.0, 97.2]
    alone = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 1.2 and local_epochs == 1", [7])
    cells = measured_cells(as_runs(runs, alone), 2).query("runs > 0").set_index("local_epochs")
    assert cells.loc[2, "over_first_pct"] == pytest.approx(0.2)
    half = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert cells.loc[2, "over_first_interval_pct"] == pytest.approx(half) and cells.loc[1, "over_first_pct"] == 0


def test_an_advantage_counts_the_seeds_that_both_splits_ran(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 1.2 and local_epochs < 4", range(3))
    third = (runs["seed"] == 2) & (runs["local_epochs"] == 2)
    runs["seed"] = runs["seed"].mask(third, 3)
    cells = measured_cells(as_runs(runs), 2).query("runs > 0").set_index("local_epochs")
    assert cells.loc[2, ["runs", "over_first_runs"]].tolist() == [3, 2]


def test_a_run_that_diverged_is_not_called_constant_as_well(as_runs, rows_of_runs):
    rows = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs == 1", range(3))
    rows[["accuracy_pct", "status"]] = [[97.5, "finished"], [9.8, "finished"], [9.8, "diverged"]]
    page = TABLES["table_2"].page(measured_cells(as_runs(rows), 2))
    assert "(3, 1 diverged, 1 at chance)" in page.body.to_string()


def test_cells_without_spread_forgive_only_the_rounding_of_the_print():
    sides = predicted(pd.Series([0.004, 0.006]), pd.Series([0.0, 0.0]))
    assert list(sides) == [INSIDE, OUTSIDE] and cells_module.ROUNDING_PCT == 0.005
