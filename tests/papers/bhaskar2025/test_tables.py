import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.tables import (
    NOT_REPRODUCED,
    REPRODUCED,
    ROUNDING_PCT,
    TABLES,
    UNDECIDED,
    distance_page,
    distance_summary,
    each_once,
    last_column,
    measured_cells,
    predicted,
    prediction_half_width,
    published_cells,
    runs_of,
    split_page,
)
from dpfl.reporting.results import Results
from dpfl.reporting.tables import html_page, latex, markdown

# Published cells against the paper's print, which runs belong to a cell, and what they give for it.

LINEAR = "table == 2 and model == 'scatter_linear'"
OTHERWISE = {"learning_rate": 0.1, "batch_size": 640, "pixels": "unit_interval", "sampling": "balls_in_bins"}
"""Settings that no published cell of ScatterNet + linear has."""


def test_there_are_276_published_cells_and_the_text_numbers_are_among_them():
    cells = published_cells()
    assert cells.groupby("table").size().to_dict() == {2: 72, 3: 72, 4: 72, 5: 60}
    assert cells["published_accuracy_pct"].between(0, 100).all()
    assert not cells.duplicated(["table", "dataset", "model", "epsilon", "local_epochs", "clients"]).any()
    [best] = cells.query("table == 2 and model == 'scatter_linear' and epsilon == 2.93 and local_epochs == 1")[
        "published_accuracy_pct"
    ]
    assert best == 97.52
    assert (cells["local_epochs"] * cells["rounds"] == 20).all()


def test_uneven_rounds_are_no_cell_of_the_paper(as_runs, rows_of_runs):
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 1.2 and local_epochs < 4", [0])
    uneven = rows.assign(local_epochs=0, rounds=2, local_epochs_by_round=["[1, 3]", "[3, 1]"])
    assert len(runs_of(as_runs(rows.assign(local_epochs_by_round="[1]"), uneven))) == 2


@pytest.mark.parametrize(
    ("table", "dataset", "model", "epsilon", "split", "clients", "accuracy"),
    [
        (2, "mnist", "scatter_cnn", 1.2, (20, 1), 10, 16.79),
        (3, "fashion_mnist", "cnn_tanh", math.inf, (2, 10), 10, 86.69),
        (4, "cifar10", "cnn_relu", 7.53, (4, 5), 10, 18.07),
        (5, "cifar10", "scatter_linear", 7.53, (1, 20), 1, 63.01),
        (5, "fashion_mnist", "cnn_relu", 2.7, (1, 20), 100, 78.89),
    ],
)
def test_a_number_of_the_print_is_in_its_cell(table, dataset, model, epsilon, split, clients, accuracy):
    """Copied from the tables of the paper: the last of a row, the second, the third, and of the last columns."""
    cells = published_cells().set_index(["table", "dataset", "model", "epsilon", "local_epochs", "rounds", "clients"])
    assert cells.loc[(table, dataset, model, epsilon, *split, clients), "published_accuracy_pct"] == accuracy


def test_runs_that_belong_to_no_cell_are_left_out(as_runs, rows_of_runs):
    """Canaries, and references that clip without noise; clipping with noise and neither are what a cell trains."""
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh' and local_epochs == 1", [0]).assign(
        experiment="fedavg_images"
    )
    both = pd.concat([rows.assign(clip=True), rows.assign(clip=False)])
    canary = rows.head(1).assign(experiment="canaries", clip=True)
    kept = runs_of(as_runs(both, canary))
    assert kept.groupby(["epsilon", "clip"]).size().to_dict() == {
        (1.2, False): 1, (1.2, True): 1, (2.93, False): 1, (2.93, True): 1, (math.inf, False): 1,
    }  # fmt: skip
    assert "experiment" not in kept


def test_a_stand_in_is_filed_under_the_data_that_it_stands_for(as_runs, rows_of_runs, as_stand_in):
    rows = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs == 1", [0])
    runs = runs_of(as_runs(rows, as_stand_in(rows)))
    assert runs.groupby("stand_in")[["dataset", "ran_on"]].agg(set).to_dict("index") == {
        False: {"dataset": {"fashion_mnist"}, "ran_on": {"fashion_mnist"}},
        True: {"dataset": {"fashion_mnist"}, "ran_on": {"digits"}},
    }
    before = runs_of(as_runs(rows.drop(columns="local_accuracy_pct")))
    assert len(before) == len(rows) and before["local_accuracy_pct"].isna().all()


def test_a_run_is_known_by_settings_cell_and_seed(rows_of_runs):
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0, 1])
    again = pd.concat([rows, rows.assign(study="other"), rows.assign(batch_size=32)])
    assert len(each_once(again)) == len(rows) == 36
    assert each_once(again, "batch_size")["batch_size"].value_counts().to_dict() == {64: 36, 32: 36}
    assert np.isinf(each_once(again)["epsilon"]).sum() == 12


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
        accuracies = [tables[int(job[-1])]["accuracy_pct"].iloc[int(place)] for job, place in places]
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
    assert row["prediction"] == REPRODUCED and (measured["prediction"] != "").sum() == 1


def test_a_single_run_has_no_prediction_and_a_value_far_off_is_outside(as_runs, rows_of_runs):
    single = measured_cells(as_runs(rows_of_runs(LINEAR, [0])), 2)
    assert (single["prediction"] == "").all() and single["prediction_pct"].isna().all()
    far = measured_cells(as_runs(rows_of_runs(LINEAR, range(5), offset_pct=3.0, noise_pct=0.1)), 2)
    assert (far.query("runs > 0")["prediction"] == NOT_REPRODUCED).all()


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


def test_a_run_of_a_study_counts_for_a_published_cell_if_it_has_all_its_settings_and_a_seed_of_its_own(
    as_runs, rows_of_runs
):
    published, study = rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0, 1], offset_pct=-5, study="readings")
    measured = measured_cells(as_runs(study, published), 2)
    # Seed 0 is that of the published cells; seed 1 is the study's, 5 points below.
    assert measured["runs"].max() == 2 and measured["difference_pct"].dropna().to_numpy() == pytest.approx(-2.5)
    assert measured["variant_runs"].max() == 0
    others = [study.assign(**{name: value}) for name, value in OTHERWISE.items()]
    measured = measured_cells(as_runs(published, *others), 2)
    assert measured["runs"].max() == 1 and (measured["difference_pct"].dropna().abs() < 1e-9).all()
    assert measured["variant_runs"].max() == 2 * len(others)


def test_repeats_of_a_seed_are_counted_and_their_distance_is_said(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, [0, 1], noise_pct=0.0)
    repeats = published.assign(study="open_settings")
    first = repeats.index[0]
    repeats["accuracy_pct"] += 0.25
    repeats.loc[first, "accuracy_pct"], repeats.loc[first, "status"] = 10.0, "diverged"
    measured = measured_cells(as_runs(published, repeats), 2).query("runs > 0")
    assert set(measured["repeats"]) == {2} and measured["repeats_lost"].sum() == 1
    own = measured[measured["repeats_lost"] == 1].iloc[0]
    assert own["repeats_apart_pct"] == pytest.approx(own["accuracy_pct"] - 10.0)
    others = measured[measured["repeats_lost"] == 0]
    assert others["repeats_apart_pct"].to_numpy() == pytest.approx(0.25) and own["diverged"] == 0
    [note] = [note for note in split_page(measured).notes if note.startswith("Studies ran seeds")]
    assert f"({2 * len(measured)} runs)" in note and f"{own['repeats_apart_pct']:.2f} points (MNIST ScatterNet" in note
    assert note.endswith("diverged or ended at chance.")
    alone = split_page(measured_cells(as_runs(published), 2)).notes
    assert not any(note.startswith("Studies ran seeds") for note in alone)


def test_the_order_of_plain_batches_matters_without_privacy_alone(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, [0])
    study = rows_of_runs(LINEAR, [1], study="readings", plain_batches="shuffled")
    runs = measured_cells(as_runs(published, study), 2).query("model == 'scatter_linear'").set_index("epsilon")["runs"]
    assert set(runs[math.inf]) == {1} and set(runs[2.93]) == set(runs[1.2]) == {2}
    # Where private cells alone were published, a study's plain run counts if it has their order.
    private = published.query("epsilon < inf")
    for order, count in (("fixed", 1), ("shuffled", 0)):
        plain = rows_of_runs(f"{LINEAR} and epsilon == inf", [1], study="readings", plain_batches=order)
        cells = measured_cells(as_runs(private, plain), 2).query("model == 'scatter_linear' and epsilon == inf")
        assert set(cells["runs"]) == {count}


def test_a_named_study_keeps_its_runs(as_runs, rows_of_runs):
    published, study = rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0, 1], study="readings")
    results = as_runs(published, study)
    assert runs_of(results, "readings", "")["study"].value_counts().to_dict() == {"readings": 36, "": 18}
    assert runs_of(results, "")["study"].value_counts().to_dict() == {"": 36}


def test_a_configuration_with_studies_alone_or_without_any_has_its_cells(as_runs, rows_of_runs):
    published, study = rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0, 1], study="readings")
    assert measured_cells(as_runs(published.drop(columns="study")), 2)["runs"].sum() == 18  # no such column
    assert measured_cells(as_runs(study), 2)["runs"].sum() == 36
    own = measured_cells(as_runs(published.assign(precision="bfloat16")), 2)  # as the configuration says
    assert (own["runs"].sum(), own["variant_runs"].max()) == (18, 0)
    other = measured_cells(as_runs(study.assign(batch_size=640)), 2)
    assert (other["runs"].max(), other["diverged"].max()) == (0, 0)


def test_one_central_client_counts_with_batches_of_640_whoever_trained_it(as_runs, rows_of_runs):
    central = "table == 5 and clients == 1 and dataset == 'mnist'"
    study = {"study": "central_model"}
    program = rows_of_runs(central, [0, 1], offset_pct=-9, **study)
    rate = rows_of_runs(central, [0, 1], offset_pct=1, **study, batch_size=640)
    published = rows_of_runs(central, [3], offset_pct=4, batch_size=640)
    measured = measured_cells(as_runs(program, rate, published), 5).query("runs > 0")
    assert set(measured["runs"]) == {3} and set(measured["batch_size"]) == {640} and len(measured) == 4
    assert measured["difference_pct"].to_numpy() == pytest.approx(2.0)
    assert set(measured["variant_runs"]) == {2}


def test_studies_choose_runs(as_runs, rows_of_runs):
    studies = {"": 0.3, "a": 0.2, "b": 0.1}
    results = as_runs(*(rows_of_runs(LINEAR, [0], study=study, learning_rate=rate) for study, rate in studies.items()))
    assert len(runs_of(results)) == 54 and len(runs_of(results, "a", "")) == 36
    assert set(runs_of(results, "b")["study"]) == {"b"}


def test_epsilon_under_add_or_remove_is_that_of_the_steps_that_ran(as_runs, rows_of_runs):
    runs = rows_of_runs(LINEAR, [0]).assign(privacy_noise_multiplier=1.0072, privacy_steps=1880)
    cells = measured_cells(as_runs(runs), 2).query("runs > 0")
    # Opacus's Renyi accountant gives 2.93 for this noise, PLD 2.6423 (the reference of the accounting tests).
    assert cells.query("epsilon < inf")["epsilon_add_remove"].to_numpy() == pytest.approx(2.6423, abs=1e-3)
    assert cells.query("epsilon == inf")["epsilon_add_remove"].isna().all()
    shuffled = measured_cells(as_runs(runs.assign(privacy_sampling="shuffled_epochs")), 2)
    assert shuffled["epsilon_add_remove"].isna().all()


def test_stand_in_data_are_named_and_never_compared(as_runs, rows_of_runs, as_stand_in):
    cells = measured_cells(as_runs(as_stand_in(rows_of_runs(LINEAR, range(3), noise_pct=1.0))), 2)
    ran = cells[cells["runs"] > 0]
    assert ran["stand_in"].all() and (ran["ran_on"] == "digits").all() and ran["difference_pct"].isna().all()
    assert ran["prediction_pct"].isna().all() and (ran["prediction"] == "").all() and ran["interval_pct"].notna().all()


def test_the_prediction_interval_holds_the_mean_of_ten_in_95_percent_of_all_cases():
    # 4000 trials: a share outside of 0.95 +- 0.0125 has probability below 3e-4 where the formula is right.
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(90, 0.2, (4000, 3)), draw.normal(90, 0.2, (4000, 10)).mean(1)
    half = prediction_half_width(pd.Series(ours.std(1, ddof=1)), pd.Series(np.full(4000, 3)))
    sides = predicted(pd.Series(ours.mean(1) - theirs), half)
    assert abs((sides == REPRODUCED).mean() - 0.95) < 0.0125
    assert ((sides == REPRODUCED) | (sides == NOT_REPRODUCED)).all()


def test_a_single_printed_run_has_the_wider_interval(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", range(10))
    runs["accuracy_pct"] = 97.0 + 0.1 * np.arange(10)
    row = cell(measured_cells(as_runs(runs), 2))
    sd, quantile = runs["accuracy_pct"].std(), stats.t.ppf(0.975, 9)
    assert row["prediction_pct"] == pytest.approx(quantile * sd * math.sqrt(0.1 + 0.1))
    assert row["prediction_single_pct"] == pytest.approx(quantile * sd * math.sqrt(0.1 + 1))
    runs["accuracy_pct"] += 0.6
    moved = cell(measured_cells(as_runs(runs), 2))
    assert (moved["prediction"], moved["prediction_single"]) == (NOT_REPRODUCED, REPRODUCED)
    assert "+0.53*" in TABLES["table_2"].page(measured_cells(as_runs(runs), 2)).body.to_string()


def test_a_difference_that_rounds_to_nothing_has_no_minus(as_runs, rows_of_runs):
    runs = rows_of_runs(f"{LINEAR} and epsilon == 2.93 and local_epochs == 1", [0], offset_pct=-0.001)
    text = TABLES["table_2"].page(measured_cells(as_runs(runs), 2)).body.to_string()
    assert "+0.00" in text and "-0.00" not in text


def test_an_interval_that_takes_in_nearly_anything_decides_nothing_but_what_lies_outside():
    sides = predicted(pd.Series([-57.7, -57.7, 3.0]), pd.Series([124.7, 20.0, 9.9]))
    assert list(sides) == [UNDECIDED, NOT_REPRODUCED, REPRODUCED]


def test_constant_models_are_counted_and_stay_in_the_mean(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs == 2", range(3))
    runs["accuracy_pct"] = [11.35, 98.28, 11.35]
    (cell,) = measured_cells(as_runs(runs), 2).query("runs > 0").to_dict("records")
    assert (cell["at_chance"], cell["diverged"], cell["prediction"]) == (2, 0, UNDECIDED)
    assert cell["accuracy_pct"] == pytest.approx(40.327, abs=1e-3)
    page = TABLES["table_2"].page(measured_cells(as_runs(runs), 2))
    text = page.body.to_string()
    assert "11.35 to 98.28 (n = 3, 2 at chance)" in text and "40.3" not in text and "-57" not in text
    assert any("no better than a constant answer" in note for note in page.notes)


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
    assert "(n = 3, 1 diverged, 1 at chance)" in page.body.to_string()


def test_cells_without_spread_forgive_only_the_rounding_of_the_print():
    sides = predicted(pd.Series([0.004, 0.006]), pd.Series([0.0, 0.0]))
    assert list(sides) == [REPRODUCED, NOT_REPRODUCED] and ROUNDING_PCT == 0.005


def test_the_lead_of_one_local_epoch_is_over_the_best_other_split_of_each_seed(as_runs, rows_of_runs):
    query = "table == 2 and model == 'scatter_linear' and epsilon == 1.2 and local_epochs in [1, 2, 4]"
    runs = rows_of_runs(query, range(3))
    runs["accuracy_pct"] = [96.0, 95.0, 95.5, 96.0, 96.5, 95.0, 96.0, 95.0, 95.2]  # leads 0.5, -0.5, 0.8
    more = rows_of_runs(f"{query} and local_epochs == 1", [3])  # a seed without the other splits
    cells = measured_cells(as_runs(runs, more), 2).query("runs > 0").set_index("local_epochs")
    first = cells.loc[1]
    leads = np.array([0.5, -0.5, 0.8])
    assert first["lead_pct"] == pytest.approx(leads.mean()) and first["lead_runs"] == 3 and first["lead_splits"] == 2
    half = stats.t.ppf(0.975, 2) * leads.std(ddof=1) / math.sqrt(3)
    assert first["lead_interval_pct"] == pytest.approx(half)
    assert cells.loc[[2, 4], "lead_pct"].isna().all()


def row(data, dataset, model):
    [found] = data[(data["dataset"] == dataset) & (data["model"] == model)].to_dict("records")
    return found


def test_every_cell_is_counted_once_a_row_and_the_rows_add_up(as_runs, rows_of_runs):
    exact = rows_of_runs("dataset == 'mnist' and model == 'scatter_linear'", range(3), offset_pct=0.3, noise_pct=0.2)
    single = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs < 5", [0], offset_pct=-4)
    data = distance_summary(as_runs(exact, single))
    datasets, models = data["dataset"] != "all", data["model"] != "all"
    rows, *sums = data[datasets & models], data[datasets & ~models], data[~datasets & models]
    assert [len(rows), *map(len, sums)] == [12, 3, 4] and (rows["cells"] == 23).all()
    for name in ("cells", "compared", "stand_in", "judged", "bimodal"):
        assert {each[name].sum() for each in (rows, *sums)} == {row(data, "all", "all")[name]}, name
    assert row(data, "all", "all")["cells"] == 276 and row(data, "all", "all")["compared"] == 33
    one = row(data, "fashion_mnist", "cnn_tanh")
    assert (one["compared"], one["judged"], one["seeds_most"]) == (10, 0, 1)
    assert one["median_distance_pct"] == one["largest_distance_pct"] == pytest.approx(4)
    assert math.isnan(one["reproduced_as_ten"])
    shown = distance_page(data).body.iloc[5]
    assert (shown["Cells compared"], shown["Distance, median"], shown["Reproduced, as means of ten"]) == (
        "10 of 23",
        "4.00",
        "–",
    )
    missed = "Median too large in 2 of 2: MNIST ScatterNet + linear (0.32), Fashion-MNIST CNN + tanh (4.00)"
    assert distance_page(data).notes[1].endswith(f"{missed}. Fewer reproduced in 0 of the 1 with an interval: none.")


def test_distances_and_shares_are_those_of_the_tables(as_runs, rows_of_runs):
    results = as_runs(rows_of_runs("table == 2 and model == 'scatter_linear'", range(4), offset_pct=0.4, noise_pct=0.3))
    cells, found = (
        measured_cells(results, 2).query("runs > 0"),
        row(distance_summary(results), "mnist", "scatter_linear"),
    )
    # The 18 cells of Table 2 and the one of Table 5 that they share.
    shared = cells.query("epsilon == 2.93 and rounds == 20").iloc[0]
    distances = sorted([*cells["difference_pct"].abs(), abs(shared["difference_pct"])])
    assert found["compared"] == found["judged"] == 19
    assert found["largest_distance_pct"] == pytest.approx(distances[-1])
    assert found["median_distance_pct"] == pytest.approx(distances[9])
    for name, share in (("prediction", "reproduced_as_ten"), ("prediction_single", "reproduced_as_single")):
        reproduced = (cells[name] == "reproduced").sum() + (shared[name] == "reproduced")
        assert found[share] == pytest.approx(reproduced / 19) and 0 < found[share] <= 1
    assert found["reproduced_as_ten"] < found["reproduced_as_single"]


@pytest.mark.parametrize(("order", "said"), [("fixed", "fixed_order"), ("shuffled", "shuffled_epochs")])
def test_batches_without_privacy_are_said_to_come_as_they_did(as_runs, rows_of_runs, order, said):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and local_epochs == 1", [0])
    runs["plain_batches"] = order
    runs["privacy_sampling"] = ["shuffled_epochs" if math.isinf(each) else "poisson" for each in runs["epsilon"]]
    cells = measured_cells(as_runs(runs), 2).query("runs > 0").set_index("epsilon")
    assert cells["sampling"].to_dict() == {math.inf: said, 2.93: "poisson", 1.2: "poisson"}


def test_cells_with_runs_far_apart_are_counted(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs < 4", range(2))
    runs.loc[(runs["seed"] == 0) & (runs["local_epochs"] == 1), "accuracy_pct"] = 10.0
    found = row(distance_summary(as_runs(runs)), "mnist", "cnn_relu")
    assert found["bimodal"] == 1
    assert "published 98.20, ours 10.00 to 98.20. 1 of our 2 runs ended at chance" in found["why_largest"]


def test_a_cell_whose_run_collapsed_says_why_it_is_far_and_what_other_runs_give(as_runs, rows_of_runs):
    query = "table == 2 and model == 'cnn_relu' and epsilon == inf"
    own = rows_of_runs(query, [0], offset_pct=0.5)
    own.loc[own["local_epochs"] == 10, "accuracy_pct"] = 7.8
    others = pd.concat([rows_of_runs(f"{query} and local_epochs == 10", [seed], study="readings") for seed in (0, 1)])
    others["pixels"] = "unit_interval"
    others["accuracy_pct"] = [26.31, 98.02]
    results = as_runs(own, others)
    found = row(data := distance_summary(results), "mnist", "cnn_relu")
    # The published (20, 1), 9.74, is at chance too, so ours half a point above it collapsed as well.
    assert (found["largest_distance_pct"], found["collapsed"]) == (pytest.approx(96.55 - 7.8), 2)
    assert found["largest_of_others_pct"] == pytest.approx(0.5)
    why = (
        "MNIST, CNN + ReLU, no privacy, (E, R) = (10, 2), 10 clients: published 96.55, ours 7.80. Our only run "
        "ended at chance (below 12 %). 2 runs of this cell with other settings end between 26.31 "
        "and 98.02 %."
    )
    assert found["why_largest"] == why and distance_page(data).notes[2:] == [why]
    notes = TABLES["table_2"].page(measured_cells(results, 2)).notes
    assert [note for note in notes if "published 9" in note] == [f"Far from the published value: {why}"]
    own.loc[own["local_epochs"] == 10, "accuracy_pct"] = 50.0  # far, but no run collapsed: nothing is known of why
    assert row(distance_summary(as_runs(own, others)), "mnist", "cnn_relu")["why_largest"] == ""
    again = rows_of_runs(f"{query} and local_epochs == 10", [0], study="readings").assign(accuracy_pct=96.0)
    unsteady = row(distance_summary(as_runs(own, again)), "mnist", "cnn_relu")["why_largest"]
    assert unsteady.endswith("ours 50.00. With the same settings and seed a repeat ended 46.00 points from our run.")


def test_stand_ins_and_no_runs(as_runs, rows_of_runs, as_stand_in, tmp_path):
    data = distance_summary(as_runs(as_stand_in(rows_of_runs("table == 2 and model == 'scatter_linear'", range(2)))))
    found = row(data, "all", "all")
    assert (found["stand_in"], found["compared"]) == (19, 0)
    assert "19 cells ran on stand-in data" in distance_page(data).notes[-1]
    nothing = distance_page(distance_summary(Results(tmp_path)))
    assert set(nothing.body["Seeds"]) == {"–"} and len(nothing.notes) == 1
    assert not nothing.body.map(lambda cell: "|" in cell or "nan" in cell).any(axis=None)


def page_of(name, results):
    return TABLES[name].page(TABLES[name].data(results))


def lines(page, kind):
    """The lines of one kind, by the name of their row."""
    return page.body[page.body[""] == kind].set_index(page.body.columns[0]).drop(columns="")


def test_pages_say_what_was_not_run(tmp_path):
    for name in [f"table_{number}" for number in (2, 3, 4, 5)]:
        page = page_of(name, Results(tmp_path))
        assert (lines(page, "ours") == "not run").all(axis=None), name
        assert any("cells were not run" in note for note in page.notes)


def test_the_layout_is_that_of_the_paper(as_runs, rows_of_runs):
    page = page_of("table_2", as_runs(rows_of_runs("table == 2", range(10), offset_pct=0.25)))
    models = ["CNN + ReLU", "CNN + tanh", "ScatterNet + linear", "ScatterNet + CNN"]
    budgets = ["FedAvg", "ε = 2.93", "ε = 1.2"]
    assert list(page.body.columns[2:]) == [f"{budget}: {model}" for budget in budgets for model in models]
    assert page.body["(E, R)"].unique().tolist() == ["(1, 20)", "(2, 10)", "(4, 5)", "(5, 4)", "(10, 2)", "(20, 1)"]
    # The third line of the printed Table 2 (E = 4), and what the runs above are.
    third = [
        96.89, 98.04, 99.04, 98.23, 91.39, 91.79, 97.59, 94.00, 77.89, 88.09, 96.71, 87.65,
    ]  # fmt: skip
    assert lines(page, "published").loc["(4, 5)"].tolist() == [f"{value:.2f}" for value in third]
    assert lines(page, "ours").loc["(4, 5)"].tolist() == [f"{value + 0.25:.2f}" for value in third]
    assert set(lines(page, "difference").loc["(4, 5)"]) == {"+0.25*"}  # no scatter: outside

    fifth = page_of("table_5", as_runs(rows_of_runs("table == 5", [0])))
    assert fifth.body["k"].unique().tolist() == ["10", "25", "50", "100", "1 (central)"]
    assert list(fifth.body.columns[2:7:4]) == ["MNIST, ε = 2.93: CNN + ReLU", "Fashion-MNIST, ε = 2.7: CNN + ReLU"]
    row = lines(fifth, "published").loc["1 (central)"].tolist()
    assert row[:4] == ["95.28", "95.63", "98.42", "96.81"] and row[-1] == "61.86"
    assert lines(fifth, "ours").loc["25"].iloc[1] == "94.61 (n = 1)"


def test_runs_that_lie_far_apart_have_no_mean(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs < 4", range(10))
    first = runs["local_epochs"] == 1
    runs.loc[first, "accuracy_pct"] = [11.35, *[98.0] * 9]
    runs.loc[~first, "accuracy_pct"] = [78.0, *[98.0] * 9]
    page = page_of("table_2", as_runs(runs))
    ours, difference = (lines(page, kind)["FedAvg: CNN + ReLU"] for kind in ("ours", "difference"))
    assert ours["(1, 20)"] == "11.35 to 98.00 (1 at chance)" and difference["(1, 20)"] == "–"
    assert ours["(2, 10)"] == "96.00" and difference["(2, 10)"] == "-1.99"  # 20 points are not more than 20


def test_table_5_says_where_the_central_model_is_below_ten_clients_and_names_each_noise_once(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 5 and dataset == 'cifar10'", [0])
    assert "less accurate than ten clients" not in " ".join(page_of("table_5", as_runs(runs)).notes)
    runs.loc[(runs["clients"] == 1) & (runs["model"] == "cnn_relu"), "accuracy_pct"] = 35.0
    notes = page_of("table_5", as_runs(runs)).notes
    assert (
        "It is less accurate than ten clients for CIFAR-10 CNN + ReLU (35.00 against 38.98 %; published 55.86 against "
        "38.98 %); we do not know why."
    ) in notes[1]
    noise = "CIFAR-10, each of 10, 25, 50 and 100 clients, one central client, published ε = 7.53: noise multiplier"
    assert sum(note.startswith(noise) for note in notes) == 1
    assert sum("noise multiplier" in note for note in notes) == 1


def test_a_page_names_stand_in_noise_and_number_of_runs(as_runs, rows_of_runs, as_stand_in):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear'", range(2), noise_pct=1.0)
    page = page_of("table_2", as_runs(as_stand_in(runs)))
    assert "(n = 2)" in page.body.to_string() and "stand-in" in page.body.to_string()
    notes = " ".join(page.notes)
    for words in (
        "digits stands in for mnist",
        "A note.",
        "1.0070",
        "zero out at most 2.637, at least 2.344; add or remove at most 2.64",
        "Poisson batches",
        "of 10 runs",
        "Batch size 64, learning rate 0.3, momentum 0.5: all cells.",
        "The published ε is proven.",
    ):
        assert words in notes, words
    assert "*" not in page.body.to_string()


def test_a_page_names_the_cells_that_were_trained_in_bfloat16(as_runs, rows_of_runs):
    one = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0], precision="bfloat16")
    other = rows_of_runs("table == 2 and model == 'cnn_relu'", [0], precision="float32")
    said = [note for note in page_of("table_2", as_runs(one, other)).notes if note.startswith("Trained in")]
    assert said == ["Trained in bfloat16 instead of float32: MNIST CNN + tanh. See the table of precision."]


@pytest.mark.parametrize(
    ("proven", "refuted", "words"),
    [
        (2.931, 2.90, "The published ε is unproven."),
        (2.931, 2.9305, "The published ε is refuted: a lower bound exceeds it by 0.0005."),
        (2.93, 2.9, "The published ε is proven."),
    ],
)
def test_a_page_says_whether_the_printed_epsilon_holds(as_runs, rows_of_runs, proven, refuted, words):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0])
    runs = runs.assign(privacy_epsilon_proven=proven, privacy_epsilon_refuted=refuted)
    assert page_of("table_2", as_runs(runs)).notes[-1].endswith(words)


def test_a_page_counts_cells_by_runs_and_by_side(as_runs, rows_of_runs):
    several = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon < 3", range(4), noise_pct=0.5)
    off = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 2.93", range(3), offset_pct=9, noise_pct=0.5)
    single = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == 2.93 and local_epochs == 1", [0])
    results = as_runs(several, off, single)
    data, page = TABLES["table_2"].data(results), page_of("table_2", results)
    inside = (data["prediction"] == REPRODUCED).sum()
    assert 0 < inside <= 12
    notes, text = " ".join(page.notes), page.body.to_string()
    single_inside = (data["prediction_single"] == REPRODUCED).sum()
    assert inside <= single_inside < 18
    assert (
        f"As means of 10 runs: {inside} reproduced, {18 - inside} not reproduced; "
        f"as single runs: {single_inside} reproduced" in notes
    )
    assert "0.9 would not be reproduced, by chance" in notes
    assert "12 cells have 4 runs, 6 cells have 3 runs, 1 cell has 1 run" in notes
    assert text.count("*") == 18 - inside
    assert "1 cell has a single run and no such interval" in notes and "+0.00 " in text
    assert "53 of 72 cells were not run" in notes


@pytest.mark.parametrize(
    "form",
    [
        lambda page, title: markdown(page, title, "caption"),
        html_page,
        lambda page, title: latex(page, title, "label"),
    ],
)
def test_every_format_carries_the_marks(as_runs, rows_of_runs, form):
    runs = rows_of_runs("table == 5 and dataset == 'cifar10'", range(3), offset_pct=5, noise_pct=0.5)
    assert "*" in form(page_of("table_5", as_runs(runs)), "title")


PAGE = TABLES["last_column"].page


def test_the_last_column_has_clients_average_and_print(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'scatter_cnn'", range(3), noise_pct=0.01)
    cells = last_column(as_runs(runs)).set_index("epsilon")
    # Printed at (20, 1): 92.24, 36.22 and 16.79; the clients alone are at 80 throughout.
    assert cells.loc[2.93, "accuracy_pct"] == pytest.approx(36.22, abs=0.05)
    assert cells.loc[2.93, "many_rounds_pct"] == pytest.approx(95.34, abs=0.05)
    assert (cells["local_accuracy_pct"] == 80).all() and (cells["runs"] == 3).all()
    page = PAGE(cells.reset_index())
    assert "In 2 of 3 rows the average is more than 10 points less" in page.notes[1]
    assert (
        "In 2 of them the clients alone are" in page.notes[1]
        and "In 1 other rows they are that far below" in page.notes[1]
    )
    assert "In 1 rows the average is more accurate" in page.notes[1] and "3 reproduced, 0 not" in page.notes[2]


def test_a_last_column_whose_runs_lie_far_apart_shows_their_range(as_runs, rows_of_runs):
    runs = [
        rows_of_runs("table == 2 and model == 'scatter_cnn' and epsilon == 2.93", [seed], offset_pct=off)
        for seed, off in ((0, 0), (1, 40))
    ]
    row = PAGE(last_column(as_runs(*runs))).body.iloc[0]
    assert (row["(20, 1)"], row["Difference"], row["Published"]) == ("36.22 to 76.22", "–", "36.22")


def test_clients_alone_are_compared_with_the_runs_that_measured_them(as_runs, rows_of_runs):
    query = "table == 2 and model == 'cnn_tanh' and epsilon == 1.2 and rounds == 1"  # published: 21.65
    measured = rows_of_runs(query, [0], offset_pct=55)  # clients alone: 80
    others = rows_of_runs(query, [1, 2], offset_pct=40).assign(local_accuracy_pct=math.nan)
    page = PAGE(cells := last_column(as_runs(measured, others)))
    assert page.body["Clients alone"].tolist() == ["80.00 (n = 1)"]
    assert cells["average_of_local_pct"].tolist() == pytest.approx([76.65]) and cells["local_runs"].tolist() == [1]
    assert page.notes[1].startswith("In 0 of 1 rows the average is more than 10 points less accurate"), "not 66.65 - 80"


def test_values_above_and_below_the_print_are_counted(as_runs, rows_of_runs):
    above = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0], offset_pct=2)
    below = rows_of_runs("table == 3 and model == 'cnn_tanh' and epsilon == 2.7", [0], offset_pct=-2)
    notes = PAGE(last_column(as_runs(above, below))).notes
    assert "4 rows have a difference. Ours is more than a point above the published value in 3 and more" in notes[2]


def test_stand_ins_and_missing_measurements(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_tanh' and rounds == 1", [0]))
    cells = last_column(as_runs(runs.drop(columns="local_accuracy_pct")))
    page = PAGE(cells)
    assert set(page.body["Published"]) == set(page.body["Clients alone"]) == set(page.body["(1, 20)"]) == {"–"}
    assert "In 0 of 0 rows" in page.notes[1] and "Do not compare" in page.notes[-1]


def test_without_runs_the_page_says_so(tmp_path):
    assert PAGE(last_column(Results(tmp_path))).notes[0].startswith("Nothing was run")
