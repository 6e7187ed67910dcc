import matplotlib.pyplot as plt
import pytest

from dpfl.papers.lowy2021.figures import FIGURES


def test_figure_2_has_every_curve_and_says_its_bars(results):
    recipe = FIGURES["figure_2"]
    data = recipe.data(results(stand_in_for="insurance"))
    assert set(data["algorithm"]) == {"minibatch", "local", "mean_predictor", "least_squares"}
    assert len(data) == 2 * 3 + 2 and data["test_loss"].notna().all()
    [loss] = data.query("algorithm == 'minibatch' and epsilon == 10")["test_loss"]
    assert loss == pytest.approx(6, abs=0.2)
    figure = recipe.draw(data)
    assert "20 trials" in figure.get_supxlabel() and "90 %" in figure.get_supxlabel()
    assert "stand-in for insurance" in figure.axes[0].get_title()
    plt.close(figure)
