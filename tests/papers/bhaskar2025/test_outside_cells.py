import pytest

from dpfl.papers.bhaskar2025.outside_cells import outside_cells, outside_page
from dpfl.papers.bhaskar2025.published_cells import OUTSIDE, UNDECIDED, measured_cells
from dpfl.papers.bhaskar2025.tables import TABLES

LINEAR = "table == 2 and model == 'scatter_linear' and epsilon == 2.93"


def test_cells_outside_are_listed_once_with_the_nearest_of_what_was_tried(as_runs, rows_of_runs):
    chosen = rows_of_runs(LINEAR, range(3), offset_pct=2.0, noise_pct=0.05)
    chosen.loc[chosen["rounds"] == 1, "accuracy_pct"] += 1.0
    near, far = (
        rows_of_runs(LINEAR, range(3), offset, 0.05, batch_size=size) for offset, size in ((-0.5, 32), (4, 128))
    )
    results = as_runs(chosen, near, far)
    cells = outside_cells(results)
    assert len(cells) == (measured_cells(results, 2)["prediction"] == OUTSIDE).sum() == 6
    assert cells["local_epochs"].iloc[0] == 20 and (cells["tried"] == 2).all()
    assert set(cells["nearest"]) == {"batch size 32"}
    assert cells["nearest_difference_pct"].to_numpy() == pytest.approx(-0.5, abs=0.2)
    page = outside_page(cells)
    assert (
        page.notes[0].startswith("6 published values are outside")
        and "Other settings were tried on 6 of all these." in page.notes[0]
    )


def test_a_single_run_is_listed_where_it_is_far_from_the_print(as_runs, rows_of_runs):
    runs = rows_of_runs(LINEAR, [0], offset_pct=2.0)
    runs.loc[runs["rounds"] == 1, "accuracy_pct"] -= 30.0
    cells = outside_cells(as_runs(runs))
    assert set(cells["rounds"]) == {1} and cells["difference_pct"].to_numpy() == pytest.approx(-28.0)
    page = outside_page(cells)
    assert set(page.headings) == {"One run, more than 10 points from the print"}
    assert (
        f"tried on 0 of all these, and none on {len(cells)}: MNIST ScatterNet + linear {len(cells)}." in page.notes[0]
    )
    assert "0 more whose interval is too wide" in page.notes[0] and f"and {len(cells)} with one run" in page.notes[0]


def test_a_cell_that_trains_in_some_runs_only_is_listed_though_its_interval_takes_in_anything(as_runs, rows_of_runs):
    runs = rows_of_runs(LINEAR, range(2), offset_pct=0.0, noise_pct=0.05)
    runs.loc[(runs["rounds"] == 4) & (runs["seed"] == 1), "accuracy_pct"] = 11.35
    cells = outside_cells(as_runs(runs))
    wide = cells[cells["prediction"] == UNDECIDED]
    assert set(wide["rounds"]) == {4} and (wide["difference_pct"] < -40).all()
    page = outside_page(cells)
    assert "An interval that takes in nearly anything" in " ".join(page.headings)
    assert f"{len(wide)} more whose interval is too wide" in page.notes[0]


def test_the_other_reading_of_the_central_model_was_tried(as_runs, rows_of_runs):
    query = "table == 5 and clients == 1 and dataset == 'mnist'"
    batch = rows_of_runs(query, range(3), offset_pct=-3, noise_pct=0.05)
    cells = outside_cells(as_runs(batch, rows_of_runs(query, range(3), offset_pct=0.2, batch_size=640)))
    assert len(cells) == 4 and set(cells["nearest"]) == {"batch size 640"}
    assert cells["nearest_difference_pct"].to_numpy() == pytest.approx(0.2)


def test_nothing_outside_and_nothing_tried(as_runs, rows_of_runs):
    assert outside_cells(as_runs(rows_of_runs(LINEAR, [0]))).empty
    cells = outside_cells(as_runs(rows_of_runs(LINEAR, range(3), offset_pct=3, noise_pct=0.1)))
    assert (cells["tried"] == 0).all() and set(outside_page(cells).body["Nearest of these"]) == {"–"}
    assert TABLES["outside"].page(outside_cells(as_runs())).body.empty
