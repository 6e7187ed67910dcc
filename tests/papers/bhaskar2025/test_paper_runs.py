"""Published cells against the paper's print, and which runs belong to a cell."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.paper_runs import all_runs, each_once, published_cells, table_settings, with_settings
from dpfl.reporting.results import Results


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


def test_tables_2_to_4_and_5_agree_where_they_overlap_but_for_one_known_cell():
    cells = published_cells()
    key = ["dataset", "model", "epsilon", "local_epochs", "clients"]
    both = cells.query("table < 5").merge(cells.query("table == 5"), on=key, suffixes=("", "_5"))
    assert len(both) == 12
    differ = both[both["published_accuracy_pct"] != both["published_accuracy_pct_5"]]
    assert differ[["dataset", "model"]].values.tolist() == [["mnist", "cnn_relu"]]


def test_uneven_rounds_are_no_cell_of_the_paper(as_runs, rows_of_runs):
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 1.2 and local_epochs < 4", [0])
    uneven = rows.assign(local_epochs=0, rounds=2, local_epochs_by_round=["[1, 3]", "[3, 1]"])
    assert len(all_runs(as_runs(rows.assign(local_epochs_by_round="[1]"), uneven))) == 2


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


def test_the_settings_of_a_table_are_its_own():
    assert [table_settings(table).get("dataset") for table in (2, 3, 4, 5)] == [
        "mnist",
        "fashion_mnist",
        "cifar10",
        None,
    ]
    assert table_settings(5)["split"] == [1, 20] and table_settings(2)["clients"] == 10


def test_runs_that_belong_to_no_cell_are_left_out(as_runs, rows_of_runs):
    """Canaries, and references that clip without noise; clipping with noise and neither are what a cell trains."""
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh' and local_epochs == 1", [0]).assign(
        experiment="fedavg_images"
    )
    both = pd.concat([rows.assign(clip=True), rows.assign(clip=False)])
    canary = rows.head(1).assign(experiment="canaries", clip=True)
    kept = all_runs(as_runs(both, canary))
    assert kept.groupby(["epsilon", "clip"]).size().to_dict() == {
        (1.2, False): 1, (1.2, True): 1, (2.93, False): 1, (2.93, True): 1, (math.inf, False): 1,
    }  # fmt: skip
    assert "experiment" not in kept


def test_a_stand_in_is_filed_under_the_data_that_it_stands_for(as_runs, rows_of_runs, as_stand_in):
    rows = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs == 1", [0])
    runs = all_runs(as_runs(rows, as_stand_in(rows)))
    assert runs.groupby("stand_in")[["dataset", "ran_on"]].agg(set).to_dict("index") == {
        False: {"dataset": {"fashion_mnist"}, "ran_on": {"fashion_mnist"}},
        True: {"dataset": {"fashion_mnist"}, "ran_on": {"digits"}},
    }
    before = all_runs(as_runs(rows.drop(columns="local_accuracy_pct")))
    assert len(before) == len(rows) and before["local_accuracy_pct"].isna().all()


def test_where_nothing_ran_there_are_columns_and_no_rows(tmp_path):
    empty = all_runs(Results(tmp_path))
    assert empty.empty and {"dataset", "ran_on", "stand_in", "seed", "batch_size", "sampling", "origin"} <= set(empty)


def test_settings_choose_runs_and_what_no_table_names_is_passed_over():
    runs = pd.DataFrame({"batch_size": [64, 32, 64], "tempered_sigmoid": ["[2, 2, 1]", "[2, 2, 1]", "[1, 1, 0]"]})
    runs["measure"] = ["a", "b", "c"]
    settings = {"batch_size": 64, "measure": "other", "unknown": 1}
    chosen = with_settings(runs, settings)
    assert chosen.index.tolist() == [0, 2]
    assert with_settings(runs, {**settings, "tempered_sigmoid": [2, 2, 1]}).index.tolist() == [0]
    chosen.loc[0, "batch_size"] = 1
    assert runs["batch_size"].tolist() == [64, 32, 64]


def test_a_run_is_known_by_settings_cell_and_seed(rows_of_runs):
    rows = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0, 1])
    again = pd.concat([rows, rows.assign(study="other"), rows.assign(batch_size=32)])
    assert len(each_once(again)) == len(rows) == 36
    assert each_once(again, "batch_size")["batch_size"].value_counts().to_dict() == {64: 36, 32: 36}
    assert np.isinf(each_once(again)["epsilon"]).sum() == 12
