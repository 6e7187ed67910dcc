import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpfl.papers.vandijk2023 import training_figures
from dpfl.papers.vandijk2023.figures import FIGURES

TRAINED = ("asynchrony", "batch_scaling", "samplers", "strategies", "settings_grid", "preparation")


def drawn(name, results):
    data = FIGURES[name].data(results)
    figure = FIGURES[name].draw(data)
    assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
    texts = [text.get_text() for text in figure.findobj(plt.Text)]
    plt.close(figure)
    return data, " ".join(texts)


@pytest.mark.parametrize("name", TRAINED)
def test_an_experiment_that_was_left_out_has_an_empty_table(trained, name):
    data = FIGURES[name].data(trained([("other", {}, 80.0, 2.0, 1.5)]))
    assert data.empty and len(data.columns) > 5


def test_asynchrony_puts_each_scenario_into_its_panel(trained, asynchrony_runs):
    data, text = drawn("asynchrony", trained(asynchrony_runs({"late_64": 10.0})))
    delay = data[(data["panel"] == "delay") & (data["epsilon"] == 2.0)].set_index("scenario")
    assert delay["x"].to_dict() == {"synchronous": 0.0, "late_4": 4.0, "late_64": 64.0, "reordered_16": 16.0}
    assert delay["line"].to_dict()["reordered_16"] == "reordered" and delay.loc["late_64", "difference_pct"] == -10
    broadcasts = data[data["panel"] == "broadcast_loss"].drop_duplicates("scenario").set_index("scenario")
    assert broadcasts["x"].to_dict() == pytest.approx({"synchronous": 0, "dropped_90": 90, "dropped_98_guarded": 98})
    assert broadcasts.loc["dropped_98_guarded", "line"] == "waits"
    assert set(data["rounds"]) == {240} and "4 seeds" in text and "7 clients." in text


def test_the_axis_of_delays_has_a_tick_at_each_delay_that_was_run(trained, asynchrony_runs):
    figure = FIGURES["asynchrony"].draw(FIGURES["asynchrony"].data(trained(asynchrony_runs({}))))
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "4", "16", "64"]
    plt.close(figure)


def test_larger_batches_are_compared_with_the_smallest(trained):
    cells = [
        (scaling, factor, private) for scaling in training_figures.SCALINGS for factor in (1, 4) for private in (0, 1)
    ]
    runs = [
        ("batch_scaling", {"scaling": scaling, "batch_factor": factor}, 80 - factor, 2.0 if private else math.inf, 1.0)
        for scaling, factor, private in cells
    ]
    data, text = drawn("batch_scaling", trained(runs, "mnist"))
    assert "ε from 2.00 down to 2.00" in text.replace("\n", " ")
    figure = FIGURES["batch_scaling"].draw(data)
    places = [container.lines[0].get_xdata() for container in figure.axes[1].containers]
    assert len({tuple(each) for each in places}) == 3 and places[1] == pytest.approx([1, 4])
    plt.close(figure)
    assert len(data) == 12 and "(stand-in for MNIST)" in text
    np.testing.assert_allclose(data.loc[data["batch_factor"] == 4, "difference_pct"], -3.0)


def test_samplers_are_told_apart_by_sampling_and_relation(trained):
    pairs = (("fixed_without_replacement", "replace_one"), ("poisson", "zero_out"), ("poisson", "replace_one"))
    runs = [
        (
            "samplers",
            {"sampling": sampling, "neighbouring": relation, "epsilon": epsilon},
            80.0 + place,
            epsilon,
            3 - place,
        )
        for epsilon in (1.0, 2.0)
        for place, (sampling, relation) in enumerate(pairs)
    ]
    data, _ = drawn("samplers", trained(runs))
    one = data[data["epsilon"] == 1.0].set_index("sampler")
    assert one["difference_pct"].to_dict() == pytest.approx({"fixed": 0, "poisson": 1, "poisson_replace": 2})
    assert one["noise_multiplier"].to_dict() == {"fixed": 3, "poisson": 2, "poisson_replace": 1}
