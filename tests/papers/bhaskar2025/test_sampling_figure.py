"""The figure of the samplers: spans of epsilon, paired differences at their places, and what leaves out 0."""

import math

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.sampling_figure import draw_sampling
from dpfl.papers.bhaskar2025.sampling_study import sampling_cells


def test_samplers_are_drawn_with_claim_bounds_and_differences(as_runs, rows_of_runs):
    tables = []
    for sampling, proven in (("shuffled_epochs", math.inf), ("poisson", 2.64), ("balls_in_bins", 2.5)):
        runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0, 1], sampling=sampling)
        tables.append(runs.assign(privacy_epsilon_proven=proven))
    figure = draw_sampling(sampling_cells(as_runs(*tables)))
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
    cells = sampling_cells(as_runs(*tables))
    cells["over_shuffled_pct"], cells["over_shuffled_interval_pct"] = 0.1, 0.2
    cells.loc[cells["split"] == "(2, 10)", "over_shuffled_interval_pct"] = 0.05
    figure = draw_sampling(cells)
    assert "2 of 14 leave out 0" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_spans_and_differences_are_those_of_each_sampler(as_runs, rows_of_runs):
    """Poisson batches lose 0.25 points and balls in bins gain 0.5, but at (20, 1), where both lose 1."""
    known = {"shuffled_epochs": (28.0, 12.0, 0.0), "poisson": (2.6, 2.5, -0.25), "balls_in_bins": (2.4, 2.3, 0.5)}
    tables = []
    for sampling, (proven, refuted, gain) in known.items():
        runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0, 1], sampling=sampling)
        runs["accuracy_pct"] += gain
        runs.loc[(runs["rounds"] == 1) & (sampling != "shuffled_epochs"), "accuracy_pct"] -= gain + 1
        tables.append(runs.assign(privacy_epsilon_proven=proven, privacy_epsilon_refuted=refuted))
    figure = draw_sampling(sampling_cells(as_runs(*tables)))
    left, right = figure.axes
    names = [label.get_text() for label in left.get_yticklabels()]
    spans = {names[round(line.get_ydata()[0])]: list(line.get_xdata()) for line in left.get_lines()[1:]}
    assert spans == {"shuffled epochs": [12.0, 28.0], "Poisson": [2.5, 2.6], "balls in bins": [2.3, 2.4]}
    words = {text.get_text() for text in left.texts}
    assert words == {"at least 12.00, proven 28.00", "proven 2.600", "proven 2.400"}
    splits = [label.get_text() for label in right.get_yticklabels()]
    assert splits == ["mean", "(20, 1)", "(10, 2)", "(5, 4)", "(4, 5)", "(2, 10)", "(1, 20)"]
    for container, gain in zip(right.containers, (-0.25, 0.5), strict=True):
        places, heights = container.lines[0].get_data()
        drawn = {splits[round(height)]: place for place, height in zip(places, heights, strict=True)}
        expected = dict.fromkeys(splits, gain) | {"(20, 1)": -1.0, "mean": (5 * gain - 1) / 6}
        assert drawn == pytest.approx(expected)
    plt.close(figure)


def test_one_seed_has_no_bars(as_runs, rows_of_runs):
    samplers = ("shuffled_epochs", "poisson", "balls_in_bins")
    query = "table == 2 and model == 'scatter_linear' and epsilon == 2.93"
    figure = draw_sampling(sampling_cells(as_runs(*(rows_of_runs(query, [3], sampling=each) for each in samplers))))
    footer = figure.get_supxlabel().replace("\n", " ")
    assert "1 run a sampler" in footer and "no bars for one run" in footer and "leave out 0" not in footer
    plt.close(figure)
