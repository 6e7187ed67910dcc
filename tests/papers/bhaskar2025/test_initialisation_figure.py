"""The figure of where clients start: own models, average, runs and print on their line, and where the axis begins."""

import json

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.initialisation import COMMON, PER_CLIENT, initialisation_cells
from dpfl.papers.bhaskar2025.initialisation_figure import draw_initialisation

CELLS = "table == 2 and model == 'scatter_cnn' and epsilon > 2 and local_epochs in [1, 5, 20]"


@pytest.fixture
def cells(as_runs, rows_of_runs):
    """Both starts on six cells; a third seed and a third budget with the common one alone."""
    common = rows_of_runs("table == 2 and model == 'scatter_cnn'", range(3), noise_pct=0.1)
    apart = rows_of_runs(CELLS, [0, 1], offset_pct=-20, initialisation=PER_CLIENT)
    return initialisation_cells(as_runs(common, apart))


def test_a_panel_a_split_is_drawn_with_a_line_a_budget_and_start(cells):
    figure = draw_initialisation(cells)
    assert [axis.get_title() for axis in figure.axes] == ["E = 1, R = 20", "E = 5, R = 4", "E = 20, R = 1"]
    assert figure.axes[0].get_ylabel() == "MNIST,\nScatterNet + CNN" and "Means over 2 runs" in figure.get_supxlabel()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["ε = 2.93, each", "ε = 2.93, common", "no noise, each", "no noise, common"]
    # A line, the runs, the clients alone, their average and the published value of each.
    assert len(figure.axes[0].get_lines()) == 4 * 5
    assert "published" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_footer_names_strokes_where_they_are_seen_and_says_where_the_average_fails(cells):
    footer = draw_initialisation(cells).get_supxlabel().replace("\n", " ")
    assert "strokes" not in footer and "the average's runs lie within 0." in footer
    worse = (cells["accuracy_pct"] < cells["local_accuracy_pct"]).sum()
    assert 0 < worse < 12 and f"worse than the clients alone on {worse} of 12 lines" in footer
    runs = [json.dumps({"0": mean - 2, "1": mean + 2}) for mean in cells["accuracy_pct"]]
    footer = draw_initialisation(cells.assign(run_accuracies_pct=runs)).get_supxlabel()
    assert "strokes: the runs of the average" in footer and "lie within" not in footer


def test_stand_ins_are_said_to_be_no_print(as_runs, rows_of_runs, as_stand_in):
    both = [rows_of_runs(CELLS, [0], initialisation=start) for start in (COMMON, PER_CLIENT)]
    figure = draw_initialisation(initialisation_cells(as_runs(*map(as_stand_in, both))))
    assert "Stand-in data" in figure.get_supxlabel() and "Means over 1 run." in figure.get_supxlabel()
    assert "published" not in [text.get_text() for text in figure.legends[0].get_texts()]
    plt.close(figure)


@pytest.mark.parametrize(("lowest", "start"), [(91.2, 90.0), (9.8, 0.0)])
def test_the_axis_of_starts_leaves_out_what_no_model_comes_near(as_runs, rows_of_runs, lowest, start):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear'", [0, 1])
    runs = runs.assign(local_accuracy_pct=lowest, accuracy_pct=runs["accuracy_pct"].clip(lower=92))
    figure = draw_initialisation(initialisation_cells(as_runs(runs, runs.assign(initialisation="per_client"))))
    assert {axis.get_xlim()[0] for axis in figure.axes} == {start}
    assert (f"The axis begins at {start:g}" in figure.get_supxlabel().replace("\n", " ")) == (start > 0)
    plt.close(figure)


def test_each_mark_stands_at_its_number(as_runs, rows_of_runs):
    """At (20, 1) with a common start: 80 alone, 92.24 as printed without noise; a start each loses 20 points."""
    common = rows_of_runs(CELLS, [0, 1])
    apart = rows_of_runs(CELLS, [0, 1], offset_pct=-20, initialisation=PER_CLIENT).assign(local_accuracy_pct=70.0)
    common.loc[common["seed"] == 1, "accuracy_pct"] += 2
    figure = draw_initialisation(initialisation_cells(as_runs(common, apart)))
    last = figure.axes[2]
    assert last.get_title() == "E = 20, R = 1"
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    marks = {name: {} for name in names}
    for line in last.get_lines():
        kind = line.get_marker() + ("" if line.get_markerfacecolor() not in ("white", "none") else " hollow")
        marks[names[round(line.get_ydata()[0])]][kind] = list(line.get_xdata())
    free, each = marks["no noise, common"], marks["no noise, each"]
    assert free["o hollow"] == [80.0] and free["o"] == pytest.approx([93.24]) and free["D hollow"] == [92.24]
    assert free["|"] == pytest.approx([92.24, 94.24])
    assert each["o hollow"] == [70.0] and each["o"] == pytest.approx([72.24])
    noisy = marks["ε = 2.93, common"]
    assert noisy["D hollow"] == [36.22] and noisy["o"] == pytest.approx([37.22])
    plt.close(figure)


def test_only_splits_that_all_models_ran_are_shown(as_runs, rows_of_runs):
    queries = (
        "table == 2 and model == 'scatter_cnn' and local_epochs in [1, 5]",
        "table == 3 and model == 'cnn_tanh' and local_epochs in [1, 20]",
    )
    tables = [rows_of_runs(query, [0], initialisation=start) for query in queries for start in (COMMON, PER_CLIENT)]
    figure = draw_initialisation(initialisation_cells(as_runs(*tables)))
    assert [axis.get_title() for axis in figure.axes] == ["E = 1, R = 20", ""]
    plt.close(figure)
