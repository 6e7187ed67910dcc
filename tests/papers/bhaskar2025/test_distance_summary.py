import math

import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.cells import (
    measured_cells,
)
from dpfl.papers.bhaskar2025.distance_summary import distance_page, distance_summary
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results


def row(data, dataset, model):
    [found] = data[(data["dataset"] == dataset) & (data["model"] == model)].to_dict("records")
    return found


def test_every_cell_is_counted_once_a_row_and_the_rows_add_up(as_runs, rows_of_runs):
    exact = rows_of_runs("dataset == 'mnist' and model == 'scatter_linear'", range(3), offset_pct=0.3, noise_pct=0.2)
    single = rows_of_runs("table == 3 and model == 'cnn_tanh' and local_epochs < 5", [0], offset_pct=-4)
    data = distance_summary(as_runs(exact, single))
    datasets, models = data["dataset"] != "all", data["model"] != "all"
    rows, *sums = data[datasets & models], data[datasets & ~models], data[~datasets & models]
    assert [len(rows), *map(len, sums)] == [12, 3, 4] and (rows["cells"] == 23).all()
    for name in ("cells", "compared", "stand_in", "judged", "bimodal"):
        assert {each[name].sum() for each in (rows, *sums)} == {row(data, "all", "all")[name]}, name
    assert row(data, "all", "all")["cells"] == 276 and row(data, "all", "all")["compared"] == 33
    one = row(data, "fashion_mnist", "cnn_tanh")
    assert (one["compared"], one["judged"], one["seeds_most"]) == (10, 0, 1)
    assert one["median_distance_pct"] == one["largest_distance_pct"] == pytest.approx(4)
    assert math.isnan(one["reproduced_as_ten"])
    shown = distance_page(data).body.iloc[5]
    assert (shown["Cells compared"], shown["Distance, median"], shown["Reproduced, as means of ten"]) == (
        "10 of 23",
        "4.00",
        "–",
    )
    missed = "Median too large in 2 of 2: MNIST ScatterNet + linear (0.32), Fashion-MNIST CNN + tanh (4.00)"
    assert distance_page(data).notes[1].endswith(f"{missed}. Fewer reproduced in 0 of the 1 with an interval: none.")


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
    for name, share in (("prediction", "reproduced_as_ten"), ("prediction_single", "reproduced_as_single")):
        reproduced = (cells[name] == "reproduced").sum() + (shared[name] == "reproduced")
        assert found[share] == pytest.approx(reproduced / 19) and 0 < found[share] <= 1
    assert found["reproduced_as_ten"] < found["reproduced_as_single"]


@pytest.mark.parametrize(("order", "said"), [("fixed", "fixed_order"), ("shuffled", "shuffled_epochs")])
def test_batches_without_privacy_are_said_to_come_as_they_did(as_runs, rows_of_runs, order, said):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and local_epochs == 1", [0])
    runs["plain_batches"] = order
    runs["privacy_sampling"] = ["shuffled_epochs" if math.isinf(each) else "poisson" for each in runs["epsilon"]]
    cells = measured_cells(as_runs(runs), 2).query("runs > 0").set_index("epsilon")
    assert cells["sampling"].to_dict() == {math.inf: said, 2.93: "poisson", 1.2: "poisson"}


def test_cells_with_runs_far_apart_are_counted(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs < 4", range(2))
    runs.loc[(runs["seed"] == 0) & (runs["local_epochs"] == 1), "accuracy_pct"] = 10.0
    found = row(distance_summary(as_runs(runs)), "mnist", "cnn_relu")
    assert found["bimodal"] == 1
    assert "published 98.20, ours 10.00 to 98.20. 1 of our 2 runs ended at chance" in found["why_largest"]


def test_a_cell_whose_run_collapsed_says_why_it_is_far_and_what_other_runs_give(as_runs, rows_of_runs):
    query = "table == 2 and model == 'cnn_relu' and epsilon == inf"
    own = rows_of_runs(query, [0], offset_pct=0.5)
    own.loc[own["local_epochs"] == 10, "accuracy_pct"] = 7.8
    others = pd.concat([rows_of_runs(f"{query} and local_epochs == 10", [seed], study="readings") for seed in (0, 1)])
    others["pixels"] = "unit_interval"
    others["accuracy_pct"] = [26.31, 98.02]
    results = as_runs(own, others)
    found = row(data := distance_summary(results), "mnist", "cnn_relu")
    # The published (20, 1), 9.74, is at chance too, so ours half a point above it collapsed as well.
    assert (found["largest_distance_pct"], found["collapsed"]) == (pytest.approx(96.55 - 7.8), 2)
    assert found["largest_of_others_pct"] == pytest.approx(0.5)
    why = (
        "MNIST, CNN + ReLU, no privacy, (E, R) = (10, 2), 10 clients: published 96.55, ours 7.80. Our only run "
        "ended at chance (below 12 %). 2 runs of this cell with other settings end between 26.31 "
        "and 98.02 %."
    )
    assert found["why_largest"] == why and distance_page(data).notes[2:] == [why]
    notes = TABLES["table_2"].page(measured_cells(results, 2)).notes
    assert [note for note in notes if "published 9" in note] == [f"Far from the published value: {why}"]
    own.loc[own["local_epochs"] == 10, "accuracy_pct"] = 50.0  # far, but no run collapsed: nothing is known of why
    assert row(distance_summary(as_runs(own, others)), "mnist", "cnn_relu")["why_largest"] == ""
    again = rows_of_runs(f"{query} and local_epochs == 10", [0], study="readings").assign(accuracy_pct=96.0)
    unsteady = row(distance_summary(as_runs(own, again)), "mnist", "cnn_relu")["why_largest"]
    assert unsteady.endswith("ours 50.00. With the same settings and seed a repeat ended 46.00 points from our run.")


def test_stand_ins_and_no_runs(as_runs, rows_of_runs, as_stand_in, tmp_path):
    data = distance_summary(as_runs(as_stand_in(rows_of_runs("table == 2 and model == 'scatter_linear'", range(2)))))
    found = row(data, "all", "all")
    assert (found["stand_in"], found["compared"]) == (19, 0)
    assert "19 cells ran on stand-in data" in distance_page(data).notes[-1]
    nothing = distance_page(distance_summary(Results(tmp_path)))
    assert set(nothing.body["Seeds"]) == {"–"} and len(nothing.notes) == 1
    assert not nothing.body.map(lambda cell: "|" in cell or "nan" in cell).any(axis=None)
