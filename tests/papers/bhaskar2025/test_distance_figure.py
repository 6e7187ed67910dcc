"""The figure of the distances: measured lines below their bounds, and 1/sqrt(k) through the first point."""

import json

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.distance_figure import draw_distances
from dpfl.papers.bhaskar2025.distances import distance_cells, drift_bound, parameters
from dpfl.reporting.results import NotRunError


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
    names = {text.get_text() for text in left.texts}
    assert names >= {"bound, E in steps", "the same with momentum", "bound, E in passes", "clients' models"}
    assert {"average, first round", "average, last round"} <= {text.get_text() for text in right.texts}
    footer = figure.get_supxlabel().replace("\n", " ")
    assert all(words in footer for words in ("falling as 1/√k", "2 runs a point. Bars: ", "hollow on the left"))
    plt.close(figure)
    footer = draw_distances(distance_cells(as_runs(runs.query("seed == 0")))).get_supxlabel()
    assert "1 run a point" in footer.replace("\n", " ") and "Bars" not in footer


def lines(axis) -> dict[tuple, list[float]]:
    """Heights of the lines by colour, dashes and whether their marks are hollow."""
    return {
        (line.get_color(), line.get_linestyle(), line.get_markerfacecolor() == "white"): list(line.get_ydata())
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
