import pytest

from dpfl.papers.bhaskar2025.single_average import last_column
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results

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
    assert "In 2 of them the clients alone are" in page.notes[1] and "and in 1 rows they are" in page.notes[1]
    assert "In 1 the average is more accurate" in page.notes[1] and "3 published values lie inside" in page.notes[2]


def test_values_above_and_below_the_print_are_counted(as_runs, rows_of_runs):
    above = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0], offset_pct=2)
    below = rows_of_runs("table == 3 and model == 'cnn_tanh' and epsilon == 2.7", [0], offset_pct=-2)
    notes = PAGE(last_column(as_runs(above, below))).notes
    assert "above the published value in 3 of 4 rows and more than a point below in 1" in notes[2]


def test_stand_ins_and_missing_measurements(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_tanh' and rounds == 1", [0]))
    cells = last_column(as_runs(runs.drop(columns="local_accuracy_pct")))
    page = PAGE(cells)
    assert set(page.body["Published"]) == set(page.body["Clients alone"]) == set(page.body["(1, 20)"]) == {"–"}
    assert "In 0 of 0 rows" in page.notes[1] and "not comparable" in page.notes[-1]


def test_without_runs_the_page_says_so(tmp_path):
    assert PAGE(last_column(Results(tmp_path))).notes[0].startswith("Nothing was run")
