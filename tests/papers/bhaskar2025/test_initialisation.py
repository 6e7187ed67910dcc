import json
import math

import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.initialisation import COMMON, PER_CLIENT, initialisation_cells
from dpfl.reporting.results import Results

CELLS = "table == 2 and model == 'scatter_cnn' and epsilon > 2 and local_epochs in [1, 5, 20]"


@pytest.fixture
def cells(as_runs, rows_of_runs):
    """Both starts on six cells; a third seed and a third budget with the common one alone."""
    common = rows_of_runs("table == 2 and model == 'scatter_cnn'", range(3), noise_pct=0.1)
    apart = rows_of_runs(CELLS, [0, 1], offset_pct=-20, initialisation=PER_CLIENT)
    return initialisation_cells(as_runs(common, apart))


def test_only_cells_and_seeds_with_both_starts_are_kept(cells):
    assert len(cells) == 12 and set(cells["epsilon"]) == {math.inf, 2.93}
    counts = cells.groupby("initialisation")["runs"].unique()
    assert counts[COMMON].tolist() == [2] and counts[PER_CLIENT].tolist() == [2]
    apart = cells[cells["initialisation"] == PER_CLIENT]
    assert (apart["accuracy_pct"] - apart["published_accuracy_pct"]).to_numpy() == pytest.approx(-20)
    assert (cells["local_accuracy_pct"] == 80).all() and cells["interval_pct"].notna().all()
    runs = [json.loads(text) for text in cells["run_accuracies_pct"]]
    assert all(list(run) == ["0", "1"] for run in runs)
    means = [sum(run.values()) / 2 for run in runs]
    assert means == pytest.approx(cells["accuracy_pct"].tolist())


def test_stand_ins_have_no_print_beside_them(as_runs, rows_of_runs, as_stand_in):
    both = [rows_of_runs(CELLS, [0], initialisation=start) for start in (COMMON, PER_CLIENT)]
    cells = initialisation_cells(as_runs(*map(as_stand_in, both)))
    assert len(cells) == 12 and cells["published_accuracy_pct"].isna().all()


def test_runs_before_local_accuracy_was_measured_are_read(as_runs, rows_of_runs):
    both = [rows_of_runs(CELLS, [0], initialisation=start) for start in (COMMON, PER_CLIENT)]
    cells = initialisation_cells(as_runs(*(runs.drop(columns="local_accuracy_pct") for runs in both)))
    assert len(cells) == 12 and cells["local_accuracy_pct"].isna().all()


def test_without_runs_there_are_no_cells(tmp_path):
    cells = initialisation_cells(Results(tmp_path))
    assert isinstance(cells, pd.DataFrame) and cells.empty
