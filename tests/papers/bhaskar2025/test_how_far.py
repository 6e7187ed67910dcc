import pytest

from dpfl.papers.bhaskar2025.how_far import how_far, how_far_page
from dpfl.papers.bhaskar2025.published_cells import measured_cells
from dpfl.reporting.results import Results


@pytest.fixture
def data(as_runs, rows_of_runs):
    """All of one model on one dataset by three seeds and off by 0.3, half of another by one seed."""
    exact = rows_of_runs("dataset == 'mnist' and model == 'scatter_linear'", range(3), offset_pct=0.3, noise_pct=0.2)
    single = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs < 5", [0], offset_pct=-4)
    return how_far(as_runs(exact, single))


def row(data, dataset, model):
    [found] = data[(data["dataset"] == dataset) & (data["model"] == model)].to_dict("records")
    return found


def test_every_cell_is_counted_once_a_row_and_the_rows_add_up(data):
    models, sums = data[data["model"] != "all"], data[(data["model"] == "all") & (data["dataset"] != "all")]
    assert len(models) == 12 and len(sums) == 3 and (models["cells"] == 23).all()
    counts = [name for name in data.columns if name.startswith(("inside", "outside", "wide"))]
    for name in ("cells", "not_run", "compared", "no_interval", "above", *counts):
        assert models[name].sum() == sums[name].sum() == row(data, "all", "all")[name], name
    for reading in ("ten", "single"):
        judged = sum(data[f"{word}_{reading}"] for word in ("inside", "outside", "wide")) + data["no_interval"]
        assert (judged == data["compared"]).all() and (data["compared"] + data["not_run"] == data["cells"]).all()
    assert row(data, "all", "all")["cells"] == 276


def test_cells_at_chance_are_counted_where_the_print_is_not(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu'", [0, 1])
    runs["accuracy_pct"] = 10.0
    found = row(how_far(as_runs(runs)), "mnist", "cnn_relu")
    # 9.74 is printed in one cell; Table 5 shares another.
    assert found["at_chance"] == 18 - 1 + 1 and found["compared"] == 19
    assert found["runs_at_chance"] == 2 * found["at_chance"]


def test_a_run_at_chance_counts_where_the_mean_of_its_cell_is_above(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon > 100 and local_epochs < 10", [0, 1])
    runs.loc[(runs["seed"] == 1) & (runs["local_epochs"] > 1), "accuracy_pct"] = 11.35
    data = how_far(as_runs(runs))
    found = row(data, "mnist", "cnn_relu")
    assert (found["compared"], found["at_chance"], found["runs_at_chance"]) == (4, 0, 3)
    shown = how_far_page(data).body.iloc[0]
    assert (shown["Cells whose mean is at chance"], shown["Runs at chance"]) == ("0", "3")


def test_a_cell_whose_mean_is_at_chance_counts_with_the_run_that_is_not(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon > 100 and local_epochs == 1", [0, 1])
    runs["accuracy_pct"] = [9.74, 14.0]
    found = row(how_far(as_runs(runs)), "mnist", "cnn_relu")
    assert (found["at_chance"], found["runs_at_chance"]) == (1, 1)


def test_differences_and_sides_are_those_of_the_tables(as_runs, rows_of_runs):
    results = as_runs(rows_of_runs("table == 2 and model == 'scatter_linear'", range(4), offset_pct=0.4, noise_pct=0.3))
    cells, found = measured_cells(results, 2).query("runs > 0"), row(how_far(results), "mnist", "scatter_linear")
    # The 18 cells of Table 2 and the one of Table 5 that they share.
    assert found["compared"] == 19 and found["not_run"] == 4 and found["no_interval"] == 0
    both = [
        *cells["difference_pct"].abs(),
        abs(cells.query("epsilon == 2.93 and rounds == 20")["difference_pct"].iloc[0]),
    ]
    assert found["largest_difference_pct"] == pytest.approx(max(both))
    assert found["median_difference_pct"] == pytest.approx(sorted(both)[9])
    assert found["above"] == sum(value > 0 for value in cells["difference_pct"]) + 1
    assert found["outside_single"] < found["outside_ten"] and found["inside_single"] > found["inside_ten"]


def test_one_seed_has_no_interval(data):
    found = row(data, "fashion_mnist", "cnn_tanh")
    # Splits (1, 20), (2, 10), (4, 5) at three budgets, and the cell of Table 5 with ten clients.
    assert (found["compared"], found["no_interval"], found["seeds_most"]) == (10, 10, 1)
    assert found["mean_difference_pct"] == pytest.approx(-4) and found["above"] == 0
    assert found["median_difference_pct"] == pytest.approx(4) and found["inside_ten"] + found["outside_ten"] == 0


def test_the_page_names_data_and_sums_up(data):
    page = how_far_page(data)
    assert len(page.body) == 16 and page.body["Data"].iloc[0] == "MNIST" and page.body["Seeds"].iloc[2] == "3"
    assert page.notes[0].startswith("33 of 276 cells are compared, 243 were not run")
    assert not page.body.map(lambda cell: "|" in cell or "nan" in cell).any(axis=None)


def test_stand_ins_are_counted_and_not_compared(as_runs, rows_of_runs, as_stand_in):
    data = how_far(as_runs(as_stand_in(rows_of_runs("table == 2 and model == 'scatter_linear'", range(2)))))
    found = row(data, "all", "all")
    assert (found["stand_in"], found["compared"], found["not_run"]) == (19, 0, 257)
    assert "19 cells ran on stand-in data" in how_far_page(data).notes[-1]


def test_without_runs_nothing_is_compared(tmp_path):
    found = row(how_far(Results(tmp_path)), "all", "all")
    assert found["not_run"] == 276 and found["compared"] == 0 and found["seeds_most"] == 0
