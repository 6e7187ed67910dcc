"""The rule for the central model, on run tables in which the nearest reading is known."""

import math

import pytest

from dpfl.papers.bhaskar2025.central_model import COUNTED, READINGS, SEEDS, central_cells, central_page, decide
from dpfl.reporting.results import Results

CENTRAL = "table == 5 and clients == 1"
SCATTER = f"{CENTRAL} and model in ['scatter_linear', 'scatter_cnn']"
OLDER = {"learning_rate": 0.1, "momentum": 0.9, "clip_norm": 0.1, "local_epochs": 20, "rounds": 1}


@pytest.fixture
def tried(as_runs, rows_of_runs):
    """A function (offsets by reading, ...) that stores the runs of all three readings."""

    def make(offsets, query=SCATTER, seeds=range(SEEDS), change=lambda rows, reading: rows):
        study = {"study": "central_model"}
        settings = {"program": study, "older": {**study, **OLDER}, "rate": {**study, "batch_size": 640}}
        tables = [
            change(rows_of_runs(query, seeds, offset_pct=offset, **settings[reading]), reading)
            for reading, offset in offsets.items()
        ]
        return central_cells(as_runs(*tables))

    return make


def test_five_cells_count(tmp_path):
    cells = central_cells(Results(tmp_path))
    assert len(cells) == 12 and cells["counted"].sum() == len(COUNTED) == 5
    assert not cells.loc[cells["model"].isin(["cnn_relu", "cnn_tanh"]), "counted"].any()
    assert not cells[(cells["dataset"] == "mnist") & (cells["model"] == "scatter_linear")]["counted"].any()
    decision = decide(cells)
    assert len(decision.missing) == 5 and decision.shipped == "program"
    notes = central_page(cells).notes
    assert notes[0].startswith("Undecided: 5 of 5 counted cells have yet to run all ways with 3 seeds (MNIST, ")
    assert notes[0].endswith("Without a decision the rule keeps its default: batch 64, federated program.")


@pytest.mark.parametrize(
    ("offsets", "shipped"),
    [
        ({"program": -3, "older": 0.2, "rate": -1}, "older"),
        ({"program": 0.1, "older": 2.0, "rate": -1}, "program"),
        ({"program": -3, "older": 2.0, "rate": 0.5}, "rate"),
    ],
)
def test_the_nearest_reading_is_chosen(tried, offsets, shipped):
    cells = tried(offsets)
    decision = decide(cells)
    assert decision.chosen and decision.shipped == shipped and decision.nearest[shipped] == decision.counted == 5
    assert decision.medians_pct == pytest.approx({reading: abs(offset) for reading, offset in offsets.items()})
    assert READINGS[shipped] in central_page(cells).notes[0]


@pytest.mark.parametrize(("nearest", "shipped"), [(3, "rate"), (2, "program")])
def test_the_smallest_median_has_to_be_nearest_in_more_than_half(tried, nearest, shipped):
    """The rate is 1 point off in all cells; each other reading is far off in some and nearer in others."""

    def change(rows, reading):
        off = {"program": [9.0] * 5, "older": [9.0] * 5, "rate": [1.0] * 5}[reading]
        others = 5 - nearest
        if reading == "older":
            off = [0.5] * (others - others // 2) + off[: 5 - (others - others // 2)]
        if reading == "program":
            off = off[: 5 - others // 2] + [0.5] * (others // 2)
        by_cell = dict(zip(COUNTED, off, strict=True))
        keys = zip(rows["dataset"], rows["model"], strict=True)
        return rows.assign(accuracy_pct=rows["accuracy_pct"] + [by_cell.get(key, 0.0) for key in keys])

    decision = decide(tried(dict.fromkeys(READINGS, 0), change=change))
    assert min(decision.medians_pct, key=decision.medians_pct.get) == "rate" and decision.nearest["rate"] == nearest
    assert decision.shipped == shipped and decision.chosen is (shipped == "rate")


def test_a_seed_counts_where_all_readings_ran_it(tried):
    def change(rows, reading):
        return rows[rows["seed"] < 2] if reading == "older" else rows

    cells = tried({"program": 0, "older": 1, "rate": 2}, seeds=range(4), change=change)
    assert set(cells.loc[cells["counted"], "runs"]) == {2}
    decision = decide(cells)
    assert len(decision.missing) == 5 and not decision.chosen and decision.shipped == "program"
    assert "So far: batch 64, federated program: median 0.00 points, nearest in 5;" in central_page(cells).notes[0]


def test_pixel_cnns_are_shown_and_do_not_count(tried):
    cells = tried({"program": 0.5, "older": 0.2, "rate": -1}, CENTRAL)
    assert (cells["runs"] == SEEDS).all() and decide(cells).counted == 5
    body = central_page(cells).body
    assert body.loc[body["Model"] == "CNN + ReLU", "Counts"].unique().tolist() == ["no"]
    assert body["Batch 64, older program's defaults"].iloc[0] == "95.48 (0.20)"


def test_stand_ins_are_not_comparable(as_runs, rows_of_runs, as_stand_in):
    query = f"{CENTRAL} and dataset == 'mnist' and model == 'scatter_cnn'"
    tables = [{}, {"study": "central_model", "batch_size": 640}, {"study": "central_model", **OLDER}]
    cells = central_cells(as_runs(*(as_stand_in(rows_of_runs(query, [0], **each)) for each in tables)))
    [row] = cells[cells["runs"] > 0].to_dict("records")
    assert row["stand_in"] and math.isnan(row["rate_distance_pct"]) and row["rate_pct"] == 96.81
    assert len(decide(cells).missing) == 5 and "digits" in central_page(cells).notes[-1]
