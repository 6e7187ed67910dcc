import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021.comparisons import mnist_pairs
from dpfl.papers.lowy2021.figures import FIGURES
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
    data = recipe.data(results())
    figure = recipe.draw(data[data["algorithm"] == "minibatch"])
    assert len(figure.axes[0].collections) == 1
    below = figure.axes[2]
    assert not below.containers and [text.get_text() for text in below.texts] == ["not run"]
    plt.close(figure)


def test_the_mnist_figure_shows_errors_and_their_difference_for_each_split(results):
    recipe = FIGURES["mnist"]
    data = recipe.data(results())
    assert len(data) == 2 * (2 * 3 + 1)
    figure = recipe.draw(pd.concat([data, data.assign(rounds=50)]))
    titles = [axis.get_title() for axis in figure.axes]
    assert len(titles) == 4 and "published split" in titles[0] and "disjoint split" in titles[1]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["R = 35 rounds", "R = 50 rounds"] and "MNIST" in figure.get_supxlabel()
    assert figure.axes[2].get_ylabel().startswith("M = 12\n")
    algorithms = {line.get_color() for line in figure.axes[0].get_lines()}
    gaps = {container.lines[0].get_color() for container in figure.axes[2].containers}
    assert len(gaps) == 2 and not algorithms & gaps
    own = (
        data[data["split"] == "published"].query("epsilon < inf").set_index(["algorithm", "epsilon"])["test_error_pct"]
    )
    drawn = figure.axes[2].containers[0].lines[0]
    assert drawn.get_ydata() == pytest.approx(list(own["local"] - own["minibatch"]))
    bars = figure.axes[2].containers[0].lines[2][0].get_segments()
    paired = mnist_pairs(results()).query("split == 'published' and epsilon < inf").sort_values("epsilon")["interval"]
    assert [(high - low) / 2 for (_, low), (_, high) in bars] == pytest.approx(paired.tolist())
    noisy = data.query("split == 'published' and epsilon < inf")
    apart = noisy.groupby("epsilon")["interval"].agg(np.linalg.norm)
    assert (paired.to_numpy() < 0.9 * apart.to_numpy()).all()
    plt.close(figure)


def test_the_band_of_an_algorithm_spans_its_errors(results):
    data = FIGURES["mnist"].data(results())
    wide = pd.concat([data, data.assign(rounds=50, test_error_pct=data["test_error_pct"] + 3)])
    figure = FIGURES["mnist"].draw(wide)
    own = data.query("split == 'published' and epsilon < inf and algorithm == 'minibatch'")["test_error_pct"]
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((own.min(), own.max() + 3))
    plt.close(figure)
