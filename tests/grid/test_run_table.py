"""Tables of runs against rows written out by hand."""

import json
import math

import pandas as pd
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.training_job import TrainingJob

CELLS = ({"epsilon": 2.0, "rounds": None}, {"epsilon": math.inf, "rounds": 3})
JOB = TrainingJob("smith2026", "pnsgd", "toy_seed1", {"dataset": "toy", "rate": 0.1, "steps": [1, 2]}, CELLS, (1, 5))
NOISE = [
    {"epsilon": 2.0, "rounds": math.nan, "noise_std": 0.7, "privacy_note": "a", "other": 1},
    {"epsilon": math.inf, "rounds": 3, "noise_std": 0.0, "privacy_note": "b", "other": 2},
]
RESULTS = {(cell, seed): {"risk": 10.0 * cell + seed} for cell in (0, 1) for seed in (1, 5)}
COMMON = {
    "paper": "smith2026", "job": "toy_seed1", "experiment": "pnsgd", "dataset": "toy", "stand_in_for": "",
    "data_note": "n", "rate": 0.1,
}  # fmt: skip


def test_settings_become_columns():
    found = as_columns({"a": [1, 2.5], "b": {"x": [None]}, "c": (1,), "d": Sampling.POISSON, "e": True, "f": None})
    assert math.isnan(found.pop("f"))
    assert found == {"a": "[1, 2.5]", "b": '{"x": [null]}', "c": "[1]", "d": "poisson", "e": True}


def test_a_row_a_cell_and_seed():
    results = RESULTS | {(1, 5): {"status": "diverged", "risk": math.inf}}
    table = run_table(JOB, {"stand_in_for": None, "note": "n"}, NOISE, results)
    rows = [
        {**COMMON, "epsilon": 2.0, "rounds": math.nan, "seed": 1, "status": "finished", "risk": 1.0},
        {**COMMON, "epsilon": 2.0, "rounds": math.nan, "seed": 5, "status": "finished", "risk": 5.0},
        {**COMMON, "epsilon": math.inf, "rounds": 3, "seed": 1, "status": "finished", "risk": 11.0},
        {**COMMON, "epsilon": math.inf, "rounds": 3, "seed": 5, "status": "diverged", "risk": math.inf},
    ]
    accounted = [{"noise_std": 0.7, "privacy_note": "a"}] * 2 + [{"noise_std": 0.0, "privacy_note": "b"}] * 2
    expected = pd.DataFrame([row | noise for row, noise in zip(rows, accounted, strict=True)])
    pd.testing.assert_frame_equal(table, expected)


def test_runs_may_be_described_otherwise_and_stand_in_for_other_data():
    described = [{"users": [3, 4]}, {"users": None}]
    table = run_table(JOB, {"stand_in_for": "mnist", "note": ""}, NOISE, RESULTS, described)
    assert set(table["stand_in_for"]) == {"mnist"}
    assert json.loads(table["users"][1]) == [3, 4] and table["users"][2:].isna().all()
    assert {"epsilon", "rate"}.isdisjoint(table.columns)


def test_the_calibration_of_cells_is_found_in_their_order():
    found = calibrated(pd.DataFrame(NOISE), CELLS)  # nan, where a cell has None, is nan
    assert [(row["noise_std"], row["privacy_note"], row["other"]) for row in found] == [(0.7, "a", 1), (0.0, "b", 2)]
    listed = pd.DataFrame([{"steps": "[1, 2]", "noise_std": 1.0}])
    assert calibrated(listed, [{"steps": [1, 2]}])[0]["noise_std"] == 1.0


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (CELLS[:1], "the calibration has 2 rows for 1 cells; run `dpfl calibrate` again"),
        (CELLS[::-1], "the calibration has epsilon 2.0, not inf; run `dpfl calibrate` again"),
        (
            ({"epsilon": 2.0, "rounds": 1}, CELLS[1]),
            "the calibration has rounds nan, not 1; run `dpfl calibrate` again",
        ),
        (({"size": 4}, CELLS[1]), "the calibration has size None, not 4; run `dpfl calibrate` again"),
    ],
)
def test_another_calibration_is_one_line(cells, message):
    with pytest.raises(InputError) as refused:
        calibrated(pd.DataFrame(NOISE), cells)
    assert str(refused.value) == message
