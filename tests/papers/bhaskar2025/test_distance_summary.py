import math

import pytest

from dpfl.papers.bhaskar2025.published_cells import distance_page, distance_summary, measured_cells
from dpfl.reporting.results import Results


def row(data, dataset, model):
    [found] = data[(data["dataset"] == dataset) & (data["model"] == model)].to_dict("records")
    return found


def test_every_cell_is_counted_once_a_row_and_the_rows_add_up(as_runs, rows_of_runs):
    exact = rows_of_runs("dataset == 'mnist' and model == 'scatter_linear'", range(3), offset_pct=0.3, noise_pct=0.2)
    single = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs < 5", [0], offset_pct=-4)
    data = distance_summary(as_runs(exact, single))
    models, sums = data[data["model"] != "all"], data[(data["model"] == "all") & (data["dataset"] != "all")]
    assert len(models) == 12 and len(sums) == 3 and (models["cells"] == 23).all()
    for name in ("cells", "compared", "stand_in", "judged", "bimodal"):
        assert models[name].sum() == sums[name].sum() == row(data, "all", "all")[name], name
    assert row(data, "all", "all")["cells"] == 276 and row(data, "all", "all")["compared"] == 33
    one = row(data, "fashion_mnist", "cnn_tanh")
    assert (one["compared"], one["judged"], one["seeds_most"]) == (10, 0, 1)
    assert one["median_distance_pct"] == one["largest_distance_pct"] == pytest.approx(4)
    assert math.isnan(one["inside_ten"])
    shown = distance_page(data).body.iloc[5]
    assert (shown["Cells compared"], shown["Distance, median"], shown["Inside, means of ten"]) == (
        "10 of 23",
        "4.00",
        "–",
    )


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
    for name, share in (("prediction", "inside_ten"), ("prediction_single", "inside_single")):
        inside = (cells[name] == "inside").sum() + (shared[name] == "inside")
        assert found[share] == pytest.approx(inside / 19) and 0 < found[share] <= 1
    assert found["inside_ten"] < found["inside_single"]


def test_cells_with_runs_far_apart_are_counted(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs < 4", range(2))
    runs.loc[(runs["seed"] == 0) & (runs["local_epochs"] == 1), "accuracy_pct"] = 10.0
    assert row(distance_summary(as_runs(runs)), "mnist", "cnn_relu")["bimodal"] == 1


def test_stand_ins_and_no_runs(as_runs, rows_of_runs, as_stand_in, tmp_path):
    data = distance_summary(as_runs(as_stand_in(rows_of_runs("table == 2 and model == 'scatter_linear'", range(2)))))
    found = row(data, "all", "all")
    assert (found["stand_in"], found["compared"]) == (19, 0)
    assert "19 cells ran on stand-in data" in distance_page(data).notes[-1]
    nothing = distance_page(distance_summary(Results(tmp_path)))
    assert set(nothing.body["Seeds"]) == {"–"} and len(nothing.notes) == 1
    assert not nothing.body.map(lambda cell: "|" in cell or "nan" in cell).any(axis=None)
