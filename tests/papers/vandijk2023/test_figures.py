import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import load, recipe
from dpfl.papers.vandijk2023.accounting_figures import (
    epochs_message,
    groups_message,
    last_epoch_message,
    samplers_message,
    tradeoff_message,
)
from dpfl.papers.vandijk2023.training_figures import (
    asynchrony_message,
    delay_message,
    grid_message,
    mixing_message,
    preparation_message,
    samplers_trained_message,
    scaling_message,
    strategies_message,
)

KEY = "vandijk2023"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(load(KEY).figures))
def test_data_are_complete_and_axes_are_named(results, name):
    data = results.figure(KEY, name)
    if data.empty:
        pytest.skip("is made of runs: test_training_figures draws it")
    assert not data.isna().any(axis=None)
    figure = recipe(KEY, "figures", name).draw(data)
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)


# Messages: the sentence above a picture follows the numbers; each case turns one around.


DATA = {"dataset": "mnist", "stand_in_for": ""}


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_an_approximation_understates_if_its_power_is_smaller_at_every_small_error(factor):
    powers = {"A0": 1.0, "A1": 20.0, "h": 30.0, "h_bar": 20.0 * factor}
    rows = [
        {"curve": curve, "alpha": alpha, "beta": 1 - power * alpha}
        for curve, power in powers.items()
        for alpha in (1e-4, 1e-3, 1e-2)
    ]
    text = tradeoff_message(pd.DataFrame(rows), {"h": "h", "h_bar": "h-bar"})
    assert "power 0.02, not 0.001 (A0), at a type I error of 0.001" in text
    assert ("h-bar understates" in text) == (factor < 1)


def test_epsilons_of_both_adversaries_span_the_batches():
    rows = [{"panel": "batches", "curve": curve, "epsilon": epsilon}
            for curve, ends in (("A1", (2.2, 2.4)), ("A0", (0.1, 2.2))) for epsilon in ends]  # fmt: skip
    text = epochs_message(pd.DataFrame(rows))
    assert "(A1) ε is 2.20 to 2.40" in text and text.endswith("it is 0.10 to 2.20")


def test_groups_are_compared_with_the_root_of_their_size():
    data = pd.DataFrame(
        {"panel": "growth", "batch": [60, 3000, 60], "group": [16, 16, 1], "mu_ratio": [4.0, 12.0, 1.0]}
    )
    assert groups_message(data).endswith(
        "the exact μ is 1.0 times that for batches of 60 and 3.0 times that for batches of 3000"
    )


def test_fixed_batches_need_a_range_of_noise():
    data = pd.DataFrame({"sampler": ["fixed_pair", "fixed", "fixed"], "noise_over_poisson": [2.0, 2.1, 2.3]})
    text = samplers_message(data)
    assert "(a record replaced) need at least 2.00 times" in text and text.endswith("2.10 to 2.30 times is enough")


def test_the_last_epoch_multiplies_mu_and_epsilon():
    data = pd.DataFrame({"panel": ["chapter", "unchanged"], "epochs": 5, "mu_ratio": [1.5, 1.0], "epsilon": [3.0, 1.5]})
    assert last_epoch_message(data).endswith("multiplies μ by 1.50 for every E, and ε by 2.00")


def asynchronous(delay: float, window: float) -> pd.DataFrame:
    return pd.DataFrame(
        {"panel": ["delay", "window", "delay"], "scenario": ["late", "window_4", "synchronous"], "line": "",
         "difference_pct": [delay, window, 0.0], "difference_interval_pct": [2.0, 0.5, 0.0]}
    )  # fmt: skip


def test_kinds_of_asynchrony_count_beyond_chance_and_over_a_point():
    names = {"delay": "DELAY", "window": "WINDOW"}
    text = asynchrony_message(asynchronous(-37.0, 0.3), names)
    assert (
        text
        == "Accuracy falls with DELAY (up to 37 points); every other kind changes mean accuracy by 0.3 points at most"
    )
    overtaken = asynchronous(-10.0, 0.3).query("panel == 'delay'").assign(line="reordered")
    both = pd.concat([asynchronous(-37.0, 0.3), overtaken])
    text = asynchrony_message(both, names | {"reordered": "OVERTAKING"})
    assert "DELAY (up to 37 points) and OVERTAKING (up to 10 points); every other" in text
    assert asynchrony_message(asynchronous(-1.5, -0.3), names).startswith("No kind of asynchrony costs")
    assert "WINDOW (up to 4 points)" in asynchrony_message(asynchronous(-37.0, -4.0), names)
    assert asynchrony_message(asynchronous(0, 0).query("scenario == 'synchronous'"), names) == ""


def test_delays_are_told_by_step_once_the_loop_has_closed_twice():
    rows = [
        {**DATA, "scenario": scenario, "epochs": 2, "learning_rate": step, "closings": closings, "epoch": epoch}
        | {"difference_pct": -30.0 * (epoch == 2) if step > 1 else -0.5}
        for scenario, step, closings in (
            ("late_16", 4.0, 7.5), ("late_16", 0.25, 7.5), ("late_64", 8.0, 1.5), ("synchronous", 4.0, 0)
        )
        for epoch in (1, 2)
    ]  # fmt: skip
    text = delay_message(pd.DataFrame(rows))
    assert text.endswith("with step 0.25 by 0.5 points, with step 4 by 30.0 points")
    assert delay_message(pd.DataFrame(rows).query("closings < 2")) == ""


def test_judged_weights_are_told_by_labels():
    data = pd.DataFrame(
        {"mixing": ["judged", "judged", "uniform"], "mislabelled": [0.3, 0.0, 0.0], "difference_pct": [1.0, 0.1, 0.0],
         "difference_interval_pct": 0.5}
    )  # fmt: skip
    text = mixing_message(data)
    assert (
        "+1.0 points with mislabelled clients (1 of 1 beyond" in text
        and "+0.1 points if all labels are true (0 of 1" in text
    )
    assert mixing_message(data.query("mixing == 'uniform'")) == ""


def test_the_largest_batches_are_told_by_what_is_kept():
    rows = [
        {"scaling": scaling, "batch_factor": factor, "difference_pct": change * (factor > 1)}
        for scaling, change in (("epochs", -7.0), ("rounds", 0.1), ("step_size", -9.0))
        for factor in (1, 8)
    ]
    text = scaling_message(pd.DataFrame(rows))
    assert (
        text
        == "Batches 8 times as large change accuracy by +0.1 points in as many rounds, and by -7.0 in as many epochs"
    )
    assert scaling_message(pd.DataFrame(rows).query("batch_factor == 1")) == ""


def test_poisson_batches_are_compared_at_the_least_epsilon():
    data = pd.DataFrame(
        {"sampler": ["fixed", "poisson", "poisson_replace", "poisson"], "epsilon": [0.25, 0.25, 0.25, 2.0],
         "difference_pct": [0.0, 4.0, -0.5, 99.0]}
    )  # fmt: skip
    text = samplers_trained_message(data)
    assert text.startswith("At ε = 0.25, Poisson batches change the accuracy")
    assert text.endswith("by +4.0 points if a record is added or removed, by -0.5 points if one is replaced")
    assert samplers_trained_message(data.query("sampler == 'fixed'")) == ""


@pytest.mark.parametrize(("change", "beat"), [(1.0, True), (0.1, False)])
def test_a_strategy_beats_constant_settings_beyond_chance_and_within_the_budget(change, beat):
    data = pd.DataFrame(
        {"strategy": ["constant", "a", "a", "b", "last_epoch_unpaid"], "difference_pct": [0.0, change, -5.0, -1.0, 9.0],
         "difference_interval_pct": 0.5}
    )  # fmt: skip
    text = strategies_message(data, {"a": "A", "b": "B"})
    assert text.endswith("1 beats constant settings beyond chance: A (1 of 2 cases, worse in 1)") == beat
    assert text.startswith("None of 2 strategies") != beat
    assert strategies_message(data.query("strategy == 'constant'"), {}) == ""


def test_preparations_with_a_guarantee_are_counted():
    data = pd.DataFrame(
        {"preparation": ["none", "pca", "pca", "leaks"], "difference_pct": [0.0, 2.0, -2.0, 9.0],
         "difference_interval_pct": 1.0}
    )  # fmt: skip
    text = preparation_message(data, {"pca": "PCA"}, ["pca"])
    assert text.endswith("beyond chance in 1 of 2 cases (PCA) and are worse in 1")
    assert preparation_message(data, {}, ["other"]) == ""


def test_the_best_clip_norm_is_that_of_the_most_maps():
    rows = [
        {**DATA, "sigma": sigma, "clip_norm": clip, "accuracy_pct": 80.0 - sigma + 5 * (clip == best)}
        for sigma, best in ((1.0, 1.0), (2.0, 1.0), (4.0, 0.1))
        for clip in (0.1, 1.0)
    ]
    text = grid_message(pd.DataFrame(rows))
    assert text == "C = 1 is the best clip norm in 2 of 3 maps; the best cells have 84.0 % on MNIST with σ = 1"


def test_a_case_without_an_interval_is_never_beyond_chance():
    data = pd.DataFrame({"strategy": ["a"], "difference_pct": [9.0], "difference_interval_pct": [np.nan]})
    assert strategies_message(data, {"a": "A"}).startswith("None of 1")
    assert asynchrony_message(asynchronous(-37.0, 0).assign(difference_interval_pct=math.nan), {}).startswith("No kind")
