import math

import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.cells import interval_half_width, measured_cells, published_cells
from dpfl.reporting.results import Results, write_csv


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


@pytest.fixture
def results(tmp_path):
    """Three runs of one private cell and one of a cell without privacy, on real MNIST by name."""

    def write(stand_in_for="", dataset="mnist", accuracies=(97.0, 97.5, 98.0)):
        cell = {"model": "scatter_linear", "epsilon": 2.93, "local_epochs": 1, "rounds": 20, "clients": 10}
        data = {"dataset": dataset, "stand_in_for": stand_in_for, "data_note": "note" if stand_in_for else ""}
        privacy = {"noise_multiplier": 1.007, "delta": 1e-5, "epsilon_rdp": 2.93, "epsilon_pld": 2.6, "sampling": "s"}
        privacy = {f"privacy_{name}": value for name, value in privacy.items()}
        rows = [{**data, **cell, **privacy, "accuracy_pct": a, "status": "finished"} for a in accuracies]
        rows.append({**rows[0], "epsilon": math.inf, "accuracy_pct": 99.0, "status": "diverged"})
        write_csv(pd.DataFrame(rows), tmp_path / "runs.csv")
        return Results(tmp_path, {"bhaskar2025": (tmp_path / "runs.csv",)})

    return write


def test_a_cell_has_mean_interval_count_and_difference(results):
    cells = measured_cells(results(), 2)
    assert len(cells) == 72 and (cells["runs"] > 0).sum() == 2
    [cell] = cells.query("model == 'scatter_linear' and epsilon == 2.93 and local_epochs == 1").to_dict("records")
    assert cell["runs"] == 3 and cell["accuracy_pct"] == 97.5 and not cell["stand_in"]
    low, high = stats.t.interval(0.95, 2, loc=97.5, scale=0.5 / math.sqrt(3))
    assert cell["interval_pct"] == pytest.approx((high - low) / 2, rel=1e-12)
    assert cell["difference_pct"] == pytest.approx(97.5 - 97.52)
    assert cells["diverged"].sum() == 1


def test_stand_in_data_are_named_and_never_compared(results):
    cells = measured_cells(results("mnist", "digits"), 2)
    ran = cells[cells["runs"] > 0]
    assert ran["stand_in"].all() and (ran["ran_on"] == "digits").all() and ran["difference_pct"].isna().all()


def test_without_any_run_every_cell_says_so(tmp_path):
    cells = measured_cells(Results(tmp_path), 5)
    assert len(cells) == 60 and (cells["runs"] == 0).all() and cells["accuracy_pct"].isna().all()


def test_one_run_has_no_interval():
    half = interval_half_width(pd.Series([math.nan, 1.0]), pd.Series([1, 2]))
    assert math.isnan(half[0]) and half[1] == pytest.approx(12.7062 / math.sqrt(2), rel=1e-4)
