import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpfl.papers.vandijk2023 import training_figures
from dpfl.papers.vandijk2023.figures import FIGURES

TRAINED = (
    "asynchrony", "batch_scaling", "samplers", "strategies", "settings_grid", "preparation", "delay_loop", "mixing",
)  # fmt: skip


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
    rows = data[data["epsilon"] == 2.0].set_index(["panel", "scenario"])
    names = {"late_4": 4, "late_16": 16, "late_16_near": 16, "late_64": 64, "reordered_16": 16, "synchronous": 0}
    assert rows.loc["delay", "x"].to_dict() == names
    assert rows.loc["delay", "line"].to_dict() == dict.fromkeys(names, "") | {
        "reordered_16": "reordered", "late_16_near": "near"
    }  # fmt: skip
    assert rows.loc[("delay", "late_64"), "difference_pct"] == -10
    lost = {"dropped_90": 90, "dropped_98": 98, "dropped_98_guarded": 98, "dropped_98_near": 98, "synchronous": 0}
    assert rows.loc["broadcast_loss", "x"].to_dict() == pytest.approx(lost)
    assert rows.loc[("broadcast_loss", "dropped_98_guarded"), "line"] == "waits"
    assert rows.loc["participation", "x"].to_dict() == {"synchronous": 100, "asked_50": 50, "asked_20": 20}
    assert set(data["rounds"]) == {240} and "4 seeds" in text and "7 clients." in text


def test_a_delayed_run_is_compared_with_the_synchronous_one_of_its_steps_epoch_by_epoch(trained):
    steps = {"epochs": 2, "learning_rate": 4.0, "epsilon": 2.0}
    runs = [
        ("delay_loop", {"scenario": "synchronous", **steps}, 80.0, 2.0, 1.0),
        ("delay_loop", {"scenario": "late_16", **steps}, 70.0, 2.0, 1.0),
        ("delay_loop", {"scenario": "synchronous", **steps, "epochs": 3}, 95.0, 2.0, 1.0),
        ("delay_loop", {"scenario": "synchronous", **steps, "learning_rate": 1.0}, 99.0, 2.0, 1.0),
    ]
    data, text = drawn("delay_loop", trained(runs))
    late = data[data["scenario"] == "late_16"].set_index("epoch")
    assert late["difference_pct"].to_dict() == pytest.approx({1: 0, 2: -10}, abs=1e-9)
    assert late["closings"].tolist() == [48 / 32] * 2 and "delay 16, 2 epochs, step 4" in text


def test_mixing_names_weights_and_labels(trained):
    cells = [
        {"mixing": mixing, "mislabelled": share, "epsilon": 2.0}
        for mixing in ("uniform", "judged")
        for share in (0, 0.3)
    ]
    data, text = drawn("mixing", trained([("mixing", cell, 80 + 10 * cell["mislabelled"], 2.0, 1.0) for cell in cells]))
    assert "judged weights, some clients mislabelled" in text and "30% of the clients" in text
    assert data["difference_pct"].abs().max() == pytest.approx(0, abs=0.01)  # paired within a share


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
