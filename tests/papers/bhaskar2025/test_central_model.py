from dataclasses import replace

import numpy as np
import pytest

from dpfl.papers.bhaskar2025.central_model import (
    LAST,
    SEEN,
    CentralReading,
    central_cells,
    central_page,
    decide,
    verdict,
)
from dpfl.papers.bhaskar2025.published_cells import measured_cells
from dpfl.papers.bhaskar2025.tables import TABLES

CENTRAL = "table == 5 and clients == 1"
REQUIRED = 8


def both(rows_of_runs, batch_offset, rate_offset, query=CENTRAL, seeds=(0,)):
    """Runs of the central model with the clients' batch and with their sampling rate, so far from the print."""
    return (
        rows_of_runs(query, seeds, offset_pct=batch_offset),
        rows_of_runs(query, seeds, offset_pct=rate_offset, batch_size=640),
    )


def test_seen_cells_do_not_count_and_distances_are_to_the_print(as_runs, rows_of_runs):
    cells = central_cells(as_runs(*both(rows_of_runs, -2.0, 0.5, seeds=range(3))))
    assert len(cells) == 12 and cells["counted"].sum() == 10 and (cells["runs"] == 3).all()
    assert cells["batch_distance_pct"].to_numpy() == pytest.approx(2.0)
    assert cells["rate_distance_pct"].to_numpy() == pytest.approx(0.5)
    unseen = cells.loc[~cells["counted"], ["dataset", "model"]]
    assert set(unseen.itertuples(index=False, name=None)) == SEEN


def test_the_nearer_reading_is_chosen_and_fills_table_5(as_runs, rows_of_runs):
    results = as_runs(*both(rows_of_runs, -2.0, 0.5), rows_of_runs("table == 5 and clients == 25", [0]))
    decision = decide(central_cells(results))
    assert (decision.reading, decision.nearer, decision.counted) == (CentralReading.RATE, 10, 10)
    assert decision.probability == pytest.approx(2**-10) and not decision.missing
    cells = measured_cells(results, 5)
    central, others = cells[cells["clients"] == 1], cells[cells["clients"] == 25]
    assert central["difference_pct"].to_numpy() == pytest.approx(0.5) and (central["batch_size"] == 640).all()
    assert others["difference_pct"].to_numpy() == pytest.approx(0.0) and (others["batch_size"] == 64).all()
    assert set(central["central_reading"]) == {"rate"} and set(others["central_reading"]) == {""}
    assert any("a batch of 640: so decides the rule" in note for note in TABLES["table_5"].page(cells).notes)
    assert "keeps the sampling rate" in central_page(central_cells(results)).notes[0]


def test_the_batch_stays_where_it_is_as_near(as_runs, rows_of_runs):
    results = as_runs(*both(rows_of_runs, 0.5, -2.0))
    assert decide(central_cells(results)).reading is CentralReading.BATCH
    cells = measured_cells(results, 5).query("clients == 1")
    assert cells["difference_pct"].to_numpy() == pytest.approx(0.5) and (cells["batch_size"] == 64).all()
    assert "keeps the batch of 64" in central_page(central_cells(results)).notes[0]


def test_nothing_is_decided_before_the_cells_ran(as_runs, rows_of_runs):
    results = as_runs(*both(rows_of_runs, -2.0, 0.5, query=f"{CENTRAL} and dataset != 'fashion_mnist'"))
    decision = decide(central_cells(results))
    assert decision.reading is CentralReading.UNDECIDED and len(decision.missing) == 3
    assert (measured_cells(results, 5).query("clients == 1 and runs > 0")["batch_size"] == 64).all()
    note = central_page(central_cells(results)).notes[0]
    assert note.startswith("Undecided: 3 counted cells") and "So far nearer with the sampling rate in 7 of 7" in note
    notes = TABLES["table_5"].page(measured_cells(results, 5)).notes
    assert any("is undecided until all its cells ran" in note for note in notes)


def test_the_cells_that_run_last_are_not_waited_for_but_count(as_runs, rows_of_runs):
    waited = f"{CENTRAL} and not (dataset == 'cifar10' and model in ['cnn_relu', 'cnn_tanh'])"
    decision = decide(central_cells(as_runs(*both(rows_of_runs, -2.0, 0.5, query=waited))))
    assert (decision.reading, decision.counted) == (CentralReading.RATE, REQUIRED)
    # 9 of 10 by a fair coin: (10 + 1) / 1024, below 5 %; 8 of 10 above.
    assert (decision.to_come, decision.overturned_by) == (2, 2)
    said = "2 counted cells have yet to run; the choice would be undone if the batch of 64 were nearer in 2 of them, or"
    assert said in verdict(decision)
    # Every counted cell is 2 points off with the batch and 0.5 with the rate: the mean turns where the others take back
    # 1.5 points for each.
    assert decision.lead_points == pytest.approx(1.5 * REQUIRED) and "nearer by 12.0 points in all" in verdict(decision)
    assert replace(decision, nearer=40, counted=40).overturned_by is None
    pixels = [pair for model in LAST for pair in both(rows_of_runs, 0.1, -3, f"{CENTRAL} and model == '{model[1]}'")]
    pixels = [runs[runs["dataset"] == "cifar10"] for runs in pixels]
    decision = decide(central_cells(as_runs(*both(rows_of_runs, -2.0, 0.5, query=waited), *pixels)))
    # 8 of 10 by a fair coin: (45 + 10 + 1) / 1024, above 5 %.
    assert (decision.reading, decision.nearer, decision.counted) == (CentralReading.BATCH, 8, 10)
    assert decision.probability == pytest.approx(56 / 1024)


@pytest.mark.parametrize(("nearer", "reading"), [(9, CentralReading.RATE), (8, CentralReading.BATCH)])
def test_nine_of_ten_are_needed(as_runs, rows_of_runs, nearer, reading):
    cells = central_cells(as_runs(*both(rows_of_runs, -2.0, 0.5)))
    counted = np.flatnonzero(cells["counted"])
    cells.loc[counted[nearer:], ["batch_distance_pct", "rate_distance_pct"]] = [0.5, 0.6]
    assert decide(cells).reading is reading


def test_more_cells_but_a_larger_mean_distance_choose_nothing(as_runs, rows_of_runs):
    cells = central_cells(as_runs(*both(rows_of_runs, -2.0, 0.5)))
    cells.loc[np.flatnonzero(cells["counted"])[0], "rate_distance_pct"] = 40.0
    decision = decide(cells)
    assert decision.nearer == 9 and decision.rate_distance_pct > decision.batch_distance_pct
    assert decision.reading is CentralReading.BATCH


def test_only_shared_seeds_are_compared(as_runs, rows_of_runs):
    batch = rows_of_runs(CENTRAL, [0, 1])
    batch.loc[batch["seed"] == 1, "accuracy_pct"] -= 10
    cells = central_cells(as_runs(batch, rows_of_runs(CENTRAL, [0], batch_size=640)))
    assert (cells["runs"] == 1).all() and cells["batch_distance_pct"].to_numpy() == pytest.approx(0)


def test_stand_ins_decide_nothing(as_runs, rows_of_runs, as_stand_in):
    results = as_runs(
        *map(as_stand_in, both(rows_of_runs, -2.0, 0.5, "table == 5 and clients == 1 and epsilon == 2.93"))
    )
    cells = central_cells(results)
    assert cells["rate_distance_pct"].isna().all() and decide(cells).reading is CentralReading.UNDECIDED
    page = central_page(cells)
    assert "Stand-in data (digits)" in page.notes[-1] and "So far" not in page.notes[0]
    assert set(page.body.loc[page.body["Data"] == "Digits (stand-in for MNIST)", "Published"]) == {"–"}
