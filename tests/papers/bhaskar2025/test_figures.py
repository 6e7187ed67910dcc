import json
import math

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.figures import FIGURES
from dpfl.reporting.results import Results


def test_the_published_values_are_drawn_even_without_runs(tmp_path):
    recipe = FIGURES["splits"]
    data = recipe.data(Results(tmp_path))
    assert len(data) == 216
    figure = recipe.draw(data)
    assert len(figure.axes) == 12 and "Nothing was run" in figure.get_supxlabel()
    plt.close(figure)


def test_only_datasets_that_ran_are_drawn_and_every_run_is_a_point(as_runs, rows_of_runs):
    recipe = FIGURES["splits"]
    runs = rows_of_runs("table == 2 and model == 'cnn_relu'", range(3))
    data = recipe.data(as_runs(runs))
    assert len(data) == 72 and data["run_accuracies_pct"].map(json.loads).map(len).sum() == len(runs)
    figure = recipe.draw(data)
    assert [axis.get_title() for axis in figure.axes][:2] == ["CNN + ReLU, n = 3", "CNN + tanh"] and len(
        figure.axes
    ) == 4
    assert "MNIST" in figure.axes[0].get_ylabel() and "our runs, n a cell" in figure.get_supxlabel()
    points, line, published = figure.axes[0].get_lines()[:3]
    assert len(points.get_xdata()) == 18 and len(line.get_xdata()) == len(published.get_xdata()) == 6
    assert [text.get_text() for text in figure.axes[1].texts] == ["not run"] and not figure.axes[0].texts
    assert not math.isnan(figure.axes[0].get_ylim()[0])
    plt.close(figure)


def test_no_line_is_drawn_through_runs_that_lie_apart(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf", range(3))
    runs.loc[(runs["seed"] == 0) & (runs["rounds"] == 10), "accuracy_pct"] = 11.35
    figure = FIGURES["splits"].draw(FIGURES["splits"].data(as_runs(runs)))
    middle = figure.axes[0].get_lines()[1].get_ydata()
    assert [math.isnan(value) for value in middle] == [False, True, False, False, False, False]
    plt.close(figure)


def test_nothing_published_is_drawn_beside_stand_ins(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_relu'", [0]))
    figure = FIGURES["splits"].draw(FIGURES["splits"].data(as_runs(runs)))
    assert len(figure.axes[0].get_lines()) == 6
    assert figure.axes[0].get_ylabel().startswith("Digits\n(stand-in for MNIST)")
    assert "published" not in [text.get_text() for text in figure.legends[0].get_texts()]
    plt.close(figure)


def test_candidates_are_drawn_against_the_chosen_settings(as_runs, rows_of_runs, as_stand_in):
    recipe, query = FIGURES["identification"], "table == 2 and model == 'scatter_linear'"
    chosen, other = rows_of_runs(query, [0, 1], offset_pct=0.5), rows_of_runs(query, [0], batch_size=32)
    figure = recipe.draw(recipe.data(as_runs(chosen, other)))
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["batch size 32", "published"]
    # Both lie half a point below ours, in each of 18 cells.
    points = [value for line in axis.get_lines() if line.get_marker() != "None" for value in line.get_xdata()]
    assert len(points) == 36 and points == pytest.approx([-0.5] * 36)
    assert axis.get_title(loc="left").endswith("n = 1; published 2") and "No interval" in figure.get_supxlabel()
    plt.close(figure)
    figure = recipe.draw(recipe.data(as_runs(as_stand_in(chosen), as_stand_in(other))))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["batch size 32"]
    assert "Digits (stand-in for MNIST)" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


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
    recipe = FIGURES["distances"]
    figure = recipe.draw(recipe.data(as_runs(distance_runs(rows_of_runs).query(kept).assign(clients=clients))))
    assert ["not run" in {text.get_text() for text in axis.texts} for axis in figure.axes] == not_run
    figure.canvas.draw()
    plt.close(figure)


def test_distances_are_drawn_below_the_bounds(as_runs, rows_of_runs):
    recipe = FIGURES["distances"]
    runs = distance_runs(rows_of_runs)
    more = runs.query("local_epochs == 1").assign(clients=25)
    figure = recipe.draw(recipe.data(as_runs(runs, more)))
    left, right = figure.axes
    names = {text.get_text() for text in left.texts}
    assert names >= {"bound, E in steps", "the same with momentum", "bound, E in passes", "clients' models"}
    assert {"average, first round", "average, last round"} <= {text.get_text() for text in right.texts}
    footer = figure.get_supxlabel().replace("\n", " ")
    assert all(words in footer for words in ("falling as 1/√k", "2 runs a point. Bars: ", "hollow on the left"))
    plt.close(figure)
    footer = recipe.draw(recipe.data(as_runs(runs.query("seed == 0")))).get_supxlabel()
    assert "1 run a point" in footer.replace("\n", " ") and "Bars" not in footer


def test_samplers_are_drawn_with_claim_bounds_and_differences(as_runs, rows_of_runs):
    recipe, tables = FIGURES["sampling"], []
    for sampling, proven in (("shuffled_epochs", math.inf), ("poisson", 2.64), ("balls_in_bins", 2.5)):
        runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0, 1], sampling=sampling)
        tables.append(runs.assign(privacy_epsilon_proven=proven))
    figure = recipe.draw(recipe.data(as_runs(*tables)))
    left, right = figure.axes
    assert left.get_title().startswith("MNIST") and left.get_lines()[0].get_xdata() == pytest.approx([2.93, 2.93])
    assert "at least 2.344, not proven" in {text.get_text() for text in left.texts}
    assert [label.get_text() for label in right.get_yticklabels()][:2] == ["mean", "(20, 1)"]
    figure.canvas.draw()
    claim = left.transData.transform((2.93, 0))[0]
    for text in left.texts:
        box = text.get_window_extent()
        assert not box.x0 < claim < box.x1, text.get_text()
    plt.close(figure)
    cells = recipe.data(as_runs(*tables))
    cells["over_shuffled_pct"], cells["over_shuffled_interval_pct"] = 0.1, 0.2
    cells.loc[cells["split"] == "(2, 10)", "over_shuffled_interval_pct"] = 0.05
    figure = recipe.draw(cells)
    assert "2 of 14 leave out 0" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


@pytest.mark.parametrize(("lowest", "start"), [(91.2, 90.0), (9.8, 0.0)])
def test_the_axis_of_starts_leaves_out_what_no_model_comes_near(as_runs, rows_of_runs, lowest, start):
    recipe = FIGURES["initialisation"]
    runs = rows_of_runs("table == 2 and model == 'scatter_linear'", [0, 1])
    runs = runs.assign(local_accuracy_pct=lowest, accuracy_pct=runs["accuracy_pct"].clip(lower=92))
    figure = recipe.draw(recipe.data(as_runs(runs, runs.assign(initialisation="per_client"))))
    assert {axis.get_xlim()[0] for axis in figure.axes} == {start}
    assert (f"The axis begins at {start:g}" in figure.get_supxlabel().replace("\n", " ")) == (start > 0)
    plt.close(figure)
