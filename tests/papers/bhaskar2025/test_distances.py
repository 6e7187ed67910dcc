import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.distances import (
    FIRST,
    LAST,
    NOISELESS,
    PLAIN,
    distance_cells,
    draw_distances,
    drift_bound,
    noise_norm,
    parameters,
)
from dpfl.reporting import style
from dpfl.reporting.results import NotRunError
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
    size = parameters("scatter_linear", "mnist")
    law = math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))  # Appendix A: Gamma((N+1)/2) / Gamma(N/2)
    for cell in first.itertuples():
        printed = 0.3 * 1.0 + 0.3 * 1.0 + math.sqrt(2) * 0.3 * cell.noise_multiplier * 1.0 / 64 * law
        assert cell.bound_epochs == pytest.approx(cell.local_epochs * printed, rel=1e-9)
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


def test_the_models_have_as_many_parameters_as_the_authors_code():
    """A scale and a shift for each feature beside the weights of the linear model."""
    assert parameters("cnn_tanh", "mnist") == 10_650
    assert parameters("scatter_linear", "mnist") == 81 * 49 * (10 + 2) + 10
    assert parameters("scatter_linear", "cifar10") == 243 * 64 * (10 + 2) + 10


"""The figure of the distances: measured lines below their bounds, and 1/sqrt(k) through the first point."""


def distance_runs(rows_of_runs):
    """Runs of ten clients that measured distances in their first and their last round."""
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0, 1])
    for kind in ("noiseless", "plain"):
        runs[f"local_distance_to_{kind}"], runs[f"distance_to_{kind}"] = "[3.0, 4.0]", "[1.0, 1.5]"
    return runs.assign(privacy_records=6000)


@pytest.mark.parametrize(
    ("kept", "clients", "not_run"), [("local_epochs == 1", 25, [True, False]), ("local_epochs == 5", 10, [False, True])]
)
def test_distances_say_which_side_was_not_run(as_runs, rows_of_runs, kept, clients, not_run):
    figure = draw_distances(distance_cells(as_runs(distance_runs(rows_of_runs).query(kept).assign(clients=clients))))
    assert ["not run" in {text.get_text() for text in axis.texts} for axis in figure.axes] == not_run
    figure.canvas.draw()
    plt.close(figure)


def test_distances_are_drawn_below_the_bounds(as_runs, rows_of_runs):
    runs = distance_runs(rows_of_runs)
    more = runs.query("local_epochs == 1").assign(clients=25)
    figure = draw_distances(distance_cells(as_runs(runs, more)))
    left, right = figure.axes
    names = {text.get_text().replace("\n", " ") for text in left.texts}
    assert names >= {"bound, E in steps", "with momentum, E in steps", "bound, E in passes", "clients' models"}
    assert {"average, first round", "average, last round"} <= {
        text.get_text().replace("\n", " ") for text in right.texts
    }
    footer = figure.get_supxlabel().replace("\n", " ")
    assert all(words in footer for words in ("falling as 1/√k", "2 runs a point. Bars: ", "hollow on the left"))
    plt.close(figure)
    footer = draw_distances(distance_cells(as_runs(runs.query("seed == 0")))).get_supxlabel()
    assert "1 run a point" in footer.replace("\n", " ") and "Bars" not in footer


def lines(axis) -> dict[tuple, list[float]]:
    """Heights of the lines by colour, dashes and whether their marks are hollow."""
    return {
        (line.get_color(), line.get_linestyle(), line.get_markerfacecolor() == style.WHITE): list(line.get_ydata())
        for line in axis.get_lines()
    }


def test_the_lines_are_the_means_and_the_bound_that_holds_for_the_run(rows_of_runs, as_runs):
    runs = distance_runs(rows_of_runs).query("local_epochs in [1, 5]")
    far = runs["local_epochs"] == 5
    runs.loc[far & (runs["seed"] == 0), "local_distance_to_noiseless"] = "[5.0, 9.0]"
    runs.loc[far, "distance_to_plain"] = runs.loc[far, "local_distance_to_plain"] = "[20.0, 20.0]"
    axis = draw_distances(distance_cells(as_runs(runs))).axes[0]
    drawn = list(lines(axis).values())
    assert [3.0, 4.0] in drawn and [1.0, 1.0] in drawn  # the mean of 5 and 3 over two seeds; the average
    assert [3.0, 20.0] in drawn  # without clipping
    settings = {"records": 6000, "batch_size": 64, "learning_rate": 0.3, "clip_norm": 1.0, "noise_multiplier": 1.007}
    size = parameters("scatter_linear", "mnist")
    bound = [drift_bound(epochs=epochs, **settings, parameters=size) for epochs in (1, 5)]
    momentum = [pytest.approx(2 * each) for each in bound]  # 1/(1 - 0.5)
    assert any(line == pytest.approx(bound) for line in drawn) and any(line == momentum for line in drawn)
    plt.close(axis.figure)


def test_the_law_falls_as_the_root_of_k_from_the_fewest_clients(rows_of_runs, as_runs):
    """From 1 with ten clients: 0.5 with forty, 0.25 with 160; what is measured stays at 1."""
    runs = distance_runs(rows_of_runs).query("local_epochs == 1")
    figure = draw_distances(distance_cells(as_runs(*(runs.assign(clients=k) for k in (160, 10, 40)))))
    drawn = [line for line in figure.axes[1].get_lines() if line.get_linestyle() == ":"]
    assert [line.get_ydata() for line in drawn] == [pytest.approx([f, f / 2, f / 4]) for f in (1.0, 1.5)]
    assert all(line.get_xdata().tolist() == [10, 40, 160] for line in drawn)
    plt.close(figure)


def test_only_the_largest_private_budget_is_drawn(rows_of_runs, as_runs):
    runs = distance_runs(rows_of_runs)
    less = runs.assign(epsilon=1.2, local_distance_to_noiseless=json.dumps([70.0, 70.0]))
    figure = draw_distances(distance_cells(as_runs(runs, less)))
    assert "ε = 2.93" in figure.axes[0].get_ylabel() and not any(
        70.0 in line for line in lines(figure.axes[0]).values()
    )
    plt.close(figure)


def test_without_distances_there_is_no_figure(rows_of_runs, as_runs):
    plain = distance_runs(rows_of_runs).drop(columns=["distance_to_noiseless", "local_distance_to_noiseless"])
    with pytest.raises(NotRunError, match="distances to noise-free runs were not measured"):
        draw_distances(distance_cells(as_runs(plain)))
