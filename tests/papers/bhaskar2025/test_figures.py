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
