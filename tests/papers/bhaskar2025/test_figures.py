import math

import matplotlib.pyplot as plt

from dpfl.papers.bhaskar2025.figures import FIGURES
from dpfl.reporting.results import Results


def test_the_published_values_are_drawn_even_without_runs(tmp_path):
    recipe = FIGURES["splits"]
    data = recipe.data(Results(tmp_path))
    assert len(data) == 216
    figure = recipe.draw(data)
    assert len(figure.axes) == 9 and "Nothing was run" in figure.get_supxlabel()
    plt.close(figure)


def test_only_datasets_that_ran_are_drawn_and_the_runs_are_counted(tmp_path):
    recipe = FIGURES["splits"]
    data = recipe.data(Results(tmp_path)).query("dataset == 'mnist'").copy()
    data["runs"], data["accuracy_pct"], data["interval_pct"] = 2, data["published_accuracy_pct"] - 1, 0.5
    figure = recipe.draw(data)
    assert len(figure.axes) == 3 and "mean of 2 runs" in figure.get_supxlabel()
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["mnist, no privacy", "mnist, ε = 2.93", "mnist, ε = 1.2"]
    assert not math.isnan(figure.axes[0].get_ylim()[0])
    plt.close(figure)


def test_candidates_are_drawn_against_the_chosen_settings(as_runs, rows_of_runs, as_stand_in):
    recipe, query = FIGURES["identification"], "table == 2 and model == 'scatter_linear'"
    chosen, other = rows_of_runs(query, [0, 1], offset_pct=0.5), rows_of_runs(query, [0], batch_size=32)
    figure = recipe.draw(recipe.data(as_runs(chosen, other)))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["published", "batch size 32"] and len(figure.axes[0].texts) == 36
    assert {text.get_text() for text in figure.axes[0].texts} == {"-0.5"}  # both lie half a point below ours
    assert "1 to 2 runs a cell" in figure.get_supxlabel()
    plt.close(figure)
    figure = recipe.draw(recipe.data(as_runs(as_stand_in(chosen), as_stand_in(other))))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["batch size 32"]
    assert "Stand-in data (digits)" in figure.get_supxlabel()
    plt.close(figure)


def test_distances_are_drawn_below_the_bounds(as_runs, rows_of_runs):
    recipe = FIGURES["distances"]
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0, 1])
    for kind in ("noiseless", "plain"):
        runs[f"local_distance_to_{kind}"], runs[f"distance_to_{kind}"] = "[3.0, 4.0]", "[1.0, 1.5]"
    runs = runs.assign(privacy_records=6000)
    more = runs.query("local_epochs == 1").assign(clients=25)
    figure = recipe.draw(recipe.data(as_runs(runs, more)))
    left, right = figure.axes
    assert {line.get_label() for line in left.get_lines()} >= {
        "bound, E in steps",
        "with momentum",
        "bound, E in passes",
    }
    assert "falling as 1/√k" in {line.get_label() for line in right.get_lines()}
    assert "2 runs a point" in figure.get_supxlabel()
    plt.close(figure)
