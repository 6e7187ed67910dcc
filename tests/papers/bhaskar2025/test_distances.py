import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.distances import (
    FIRST,
    LAST,
    NOISELESS,
    PLAIN,
    distance_cells,
    drift_bound,
    noise_norm,
    parameters,
)
from dpfl.reporting.statistics import slope

ONE = "table == 2 and model == 'scatter_linear' and epsilon == 2.93"
RUN = {"records": 6000, "batch_size": 64, "learning_rate": 0.3, "clip_norm": 1.0}


def test_the_mean_norm_of_noise_is_that_of_draws():
    draws = np.linalg.norm(np.random.default_rng(0).standard_normal((4000, 50)), axis=1)
    # Deviation of the mean: 0.71 / sqrt(4000) = 0.011; five of them.
    assert noise_norm(50) == pytest.approx(draws.mean(), abs=0.056)
    assert noise_norm(1) == pytest.approx(math.sqrt(2 / math.pi))
    assert noise_norm(39_700) == pytest.approx(math.sqrt(39_700), rel=1e-4)


def test_the_bound_is_the_printed_form_for_every_step_where_batches_are_whole():
    # 6400 records in 100 batches of 64: records / L is the number of steps.
    bound = drift_bound(epochs=3, **{**RUN, "records": 6400}, noise_multiplier=1.1, parameters=100)
    assert bound == pytest.approx(300 * (0.3 + 0.3 + 0.3 * 1.1 * noise_norm(100) / 64))


def test_no_run_within_the_bounds_assumptions_leaves_it():
    """Clipped SGD without momentum, the noisy run and the silent one driven apart by gradients as large as allowed."""
    draw, size, steps, divisor = np.random.default_rng(1), 20, 94, 63
    bound = drift_bound(epochs=1, **RUN, noise_multiplier=2.0, parameters=size)
    unit = np.ones(size) / math.sqrt(size)
    batches = [64] * 93 + [48]
    norms = []
    for _ in range(400):
        noise = 2.0 * draw.standard_normal((steps, size))
        apart = sum(2 * count * unit + kick for count, kick in zip(batches, noise, strict=True))
        norms.append(np.linalg.norm(0.3 / divisor * apart))
    assert max(norms) <= bound and np.mean(norms) > 0.7 * bound


@pytest.fixture
def measured(as_runs, rows_of_runs):
    """Two seeds with distances that grow as the root of E and fall as the root of k, and runs that have none."""
    runs = rows_of_runs(ONE, [0, 1])
    for kind, factor in (("noiseless", 1.0), ("plain", 3.0)):
        local = [
            [factor * math.sqrt(epochs * (1 + round)) for round in range(rounds)]
            for epochs, rounds in zip(runs["local_epochs"], runs["rounds"], strict=True)
        ]
        runs[f"local_distance_to_{kind}"] = [json.dumps(each) for each in local]
        runs[f"distance_to_{kind}"] = [json.dumps([value / 3 for value in each]) for each in local]
    runs["privacy_records"], runs["clip"] = 6000, True
    reference = runs.assign(epsilon=math.inf)
    return as_runs(pd.concat([runs, reference]), rows_of_runs("table == 2", [2]))


def test_distances_of_the_first_and_last_round_are_averaged_over_seeds(measured):
    cells = distance_cells(measured)
    assert set(cells["reference"]) == {NOISELESS, PLAIN} and (cells["runs"] == 2).all()
    assert (cells["epsilon"] == 2.93).all()
    first = cells.query(
        "reference == @NOISELESS and round == @FIRST", local_dict={"NOISELESS": NOISELESS, "FIRST": FIRST}
    )
    assert first["local_distance"].tolist() == pytest.approx(np.sqrt(first["local_epochs"]).tolist())
    assert first["local_distance_interval"].to_numpy() == pytest.approx(0, abs=1e-12)
    assert first[["bound_steps", "bound_momentum", "bound_epochs"]].notna().all(axis=None)
    assert (first["bound_momentum"] == 2 * first["bound_steps"]).all()
    assert (first["bound_epochs"] < first["bound_steps"] / 90).all()
    assert slope(first["local_epochs"], first["local_distance"]) == pytest.approx(0.5)
    assert slope(first["local_epochs"], first["bound_steps"]) == pytest.approx(1.0)
    rest = cells.drop(first.index)
    assert rest[["bound_steps", "bound_epochs"]].isna().all(axis=None)
    last = cells[(cells["round"] == LAST) & (cells["reference"] == PLAIN) & (cells["local_epochs"] == 1)]
    assert last["distance"].tolist() == pytest.approx([math.sqrt(20)])
    assert not (cells["round"].eq(LAST) & cells["rounds"].eq(1)).any()


def test_runs_that_measured_nothing_give_no_rows(as_runs, rows_of_runs):
    assert distance_cells(as_runs(rows_of_runs(ONE, [0]))).empty
    empty = rows_of_runs(ONE, [0]).assign(
        distance_to_noiseless="[]", local_distance_to_noiseless="[]", privacy_records=1
    )
    assert distance_cells(as_runs(empty)).empty


def test_the_models_have_as_many_parameters_as_the_paper_says():
    assert parameters("cnn_tanh", "mnist") == 26_010
    assert parameters("scatter_linear", "mnist") == 81 * 49 * 10 + 10
    assert parameters("scatter_linear", "cifar10") == 243 * 64 * 10 + 10
