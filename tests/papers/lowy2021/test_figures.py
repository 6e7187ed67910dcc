import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021.comparisons import mnist_pairs
from dpfl.papers.lowy2021.figures import FIGURES
from dpfl.reporting import style
from dpfl.reporting.results import NotRunError


@pytest.mark.parametrize("name", ["figure_2", "figure_2_spent"])
def test_figure_2_has_every_curve_and_says_its_bars(results, name):
    recipe = FIGURES[name]
    data = recipe.data(results(stand_in_for="insurance"))
    assert set(data["algorithm"]) == {"minibatch", "local", "mean_predictor", "least_squares"}
    panels = 4 if name == "figure_2" else 3  # the authors' protocol clips means and is in Fig. 2 alone
    assert len(data) == panels * (2 * 3 + 2) and data["test_loss"].notna().all()
    losses = data.query("algorithm == 'minibatch' and epsilon == 18")["test_loss"]
    assert losses.tolist() == pytest.approx([5 + 10 / 18] * panels, abs=0.2)
    figure = recipe.draw(data)
    assert "20 trials" in figure.get_supxlabel() and "90\N{NO-BREAK SPACE}%" in figure.get_supxlabel()
    assert "stand-in for medical insurance" in figure.axes[0].get_title().lower()
    if name == "figure_2":
        titles = [axis.get_title().splitlines()[-1] for axis in figure.axes]
        assert titles == ["authors' protocol", "noise of Theorem 2.1", "noise of the later script", "tight noise"]
        assert [text.get_text() for text in figure.axes[0].texts] == ["v*² = 6.5e+07"]
        assert not figure.axes[1].texts
        assert "noise of Theorem 2.1 0.0056 to 0.10;" in figure.get_supxlabel().replace("\n", " ")  # rounded up
    plt.close(figure)


def test_the_points_of_one_budget_stand_side_by_side(results):
    data = FIGURES["mnist"].data(results())
    figure = FIGURES["mnist"].draw(pd.concat([data, data.assign(rounds=50)]))
    one, other = (container.lines[0].get_xdata() for container in figure.axes[2].containers)
    assert (one < other).all() and one * other == pytest.approx([1.0, 18.0**2])
    plt.close(figure)


def test_the_spent_figure_places_runs_at_what_they_spend(results):
    recipe = FIGURES["figure_2_spent"]
    figure = recipe.draw(recipe.data(results(epsilon_proven=0.25)))
    drawn = [line.get_xdata() for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2]
    assert any(list(places) == [0.25, 0.25] for places in drawn)
    plt.close(figure)


def test_the_spent_figure_needs_a_private_run(results):
    recipe = FIGURES["figure_2_spent"]
    data = recipe.data(results())
    with pytest.raises(NotRunError, match="no private run"):
        recipe.draw(data[data["epsilon"] == float("inf")])


def test_the_mnist_figure_is_drawn_where_one_algorithm_was_run(results):
    recipe = FIGURES["mnist"]
    runs = results()
    data = recipe.data(runs)
    figure = recipe.draw(data[data["algorithm"] == "minibatch"])
    assert figure.axes[0].get_lines() and not np.size(figure.axes[2].get_lines()[0].get_xdata())
    plt.close(figure)


def test_the_mnist_figure_shows_errors_and_their_difference_for_each_split(results):
    recipe = FIGURES["mnist"]
    data = recipe.data(results())
    assert len(data) == 2 * (2 * 3 + 1)
    figure = recipe.draw(data)
    titles = [axis.get_title() for axis in figure.axes]
    assert len(titles) == 4 and "published split" in titles[0] and "disjoint split" in titles[1]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[-1] == "M = 12, R = 35" and "MNIST" in figure.get_supxlabel()
    algorithms = {line.get_color() for line in figure.axes[0].get_lines()}
    assert not algorithms & {line.get_color() for line in figure.axes[2].get_lines()} - {style.BLACK}
    gap = (
        data[data["split"] == "published"].query("epsilon < inf").set_index(["algorithm", "epsilon"])["test_error_pct"]
    )
    drawn = figure.axes[2].get_lines()[0]
    assert drawn.get_ydata() == pytest.approx(list(gap["local"] - gap["minibatch"]))
    bars = figure.axes[2].containers[0].lines[2][0].get_segments()
    paired = mnist_pairs(results()).query("split == 'published' and epsilon < inf").sort_values("epsilon")["interval"]
    assert [(high - low) / 2 for (_, low), (_, high) in bars] == pytest.approx(paired.tolist())
    noisy = data.query("split == 'published' and epsilon < inf")
    apart = noisy.groupby("epsilon")["interval"].agg(np.linalg.norm)
    assert (paired.to_numpy() < 0.9 * apart.to_numpy()).all()
    plt.close(figure)
