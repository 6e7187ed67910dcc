"""The figure of Tables 2 to 4: every run a point, medians by pandas, the print where it is comparable."""

import json
import math

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.figures import draw_splits, split_cells
from dpfl.reporting.results import Results


def test_the_published_values_are_drawn_even_without_runs(tmp_path):
    data = split_cells(Results(tmp_path))
    assert len(data) == 216
    figure = draw_splits(data)
    assert len(figure.axes) == 12 and "Nothing was run" in figure.get_supxlabel()
    plt.close(figure)


def test_only_datasets_that_ran_are_drawn_and_every_run_is_a_point(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu'", range(3))
    data = split_cells(as_runs(runs))
    assert len(data) == 72 and data["run_accuracies_pct"].map(json.loads).map(len).sum() == len(runs)
    figure = draw_splits(data)
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
    figure = draw_splits(split_cells(as_runs(runs)))
    middle = figure.axes[0].get_lines()[1].get_ydata()
    assert [math.isnan(value) for value in middle] == [False, True, False, False, False, False]
    plt.close(figure)


def test_nothing_published_is_drawn_beside_stand_ins(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_relu'", [0]))
    figure = draw_splits(split_cells(as_runs(runs)))
    assert len(figure.axes[0].get_lines()) == 6
    assert figure.axes[0].get_ylabel().startswith("Digits\n(stand-in for MNIST)")
    assert "published" not in [text.get_text() for text in figure.legends[0].get_texts()]
    plt.close(figure)


def test_points_line_and_print_are_the_runs_their_medians_and_the_published_values(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 2.93", range(3), offset_pct=-5, noise_pct=2)
    figure = draw_splits(split_cells(as_runs(runs, rows_of_runs("table == 2 and model == 'cnn_relu'", [0]))))
    [axis] = [axis for axis in figure.axes if axis.get_title().startswith("CNN + tanh")]
    points, line, published = axis.get_lines()[3:6]  # the larger budget; without privacy nothing ran
    by_split = runs.groupby("local_epochs")["accuracy_pct"]
    drawn = sorted(zip(points.get_xdata(), points.get_ydata(), strict=True))
    assert drawn == sorted(zip(runs["local_epochs"], runs["accuracy_pct"], strict=True))
    assert line.get_ydata() == pytest.approx(by_split.median().tolist())
    # Table 2, CNN + tanh at epsilon 2.93, as printed.
    assert published.get_ydata().tolist() == [93.56, 93.03, 91.79, 90.75, 85.38, 49.75]
    assert published.get_xdata().tolist() == [1, 2, 4, 5, 10, 20]
    plt.close(figure)


def test_another_dataset_is_left_out_of_cells_and_runs_alike(as_runs, rows_of_runs):
    cells = split_cells(as_runs(rows_of_runs("table == 3 and model == 'cnn_tanh' and epsilon == 1.2", [4, 2])))
    assert set(cells["dataset"]) == {"fashion_mnist"} and len(cells) == 72
    ran = cells[cells["runs"] > 0]
    assert len(ran) == 6 and (ran["epsilon"] == 1.2).all()
    assert [json.loads(text) for text in ran["run_accuracies_pct"]] == [
        [printed] * 2 for printed in ran["published_accuracy_pct"]
    ]
    assert set(cells.loc[cells["runs"] == 0, "run_accuracies_pct"]) == {"[]"}
