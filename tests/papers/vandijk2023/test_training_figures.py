"""Ways to spend one budget, prepared inputs and the grid of settings: dots, maps and frames at their numbers."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.catalog import load, recipe
from dpfl.papers.vandijk2023 import training_figures
from dpfl.papers.vandijk2023.accounting_figures import (
    epochs_message,
    groups_message,
    last_epoch_message,
    samplers_message,
    tradeoff_message,
)
from dpfl.papers.vandijk2023.claims import _differences
from dpfl.papers.vandijk2023.training_figures import (
    FIGURES,
    MEASURES,
    PREPARATIONS,
    STRATEGIES,
    asynchrony_message,
    counted_runs,
    delay_message,
    draw_grid,
    draw_preparation,
    draw_strategies,
    grid_data,
    grid_message,
    mixing_message,
    preparation_data,
    preparation_message,
    samplers_trained_message,
    scaling_message,
    strategies_data,
    strategies_message,
    summarise,
)

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
    assert "judged weights, some clients mislabelled" in text and "30\N{NO-BREAK SPACE}% of the clients" in text
    assert data["difference_pct"].abs().max() == pytest.approx(0, abs=0.01)  # paired within a share


def test_the_axis_of_delays_has_a_tick_at_each_delay_that_was_run(trained, asynchrony_runs):
    figure = FIGURES["asynchrony"].draw(FIGURES["asynchrony"].data(trained(asynchrony_runs({}))))
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "4", "16", "64"]
    places = [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() in ("o", "D")]
    beside = {round(place, 6) for line in places for place in np.asarray(line, float) if 12 < place < 24}
    assert len(beside) > 1  # marks of one delay stand side by side
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
    assert one["difference_pct"].to_dict() == pytest.approx({"fixed": 0, "poisson_zero_out": 1, "poisson_replace": 2})
    assert one["noise_multiplier"].to_dict() == {"fixed": 3, "poisson_zero_out": 2, "poisson_replace": 1}


# Ways to spend one budget, prepared inputs and the grid of settings: dots, maps and frames at their numbers.


def strategies_drawn(draw, data) -> str:
    """All texts of a figure."""
    figure = draw(data)
    texts = [text.get_text() for text in figure.findobj(plt.Text)]
    plt.close(figure)
    return " ".join(texts).replace("\n", " ")


def test_strategies_say_what_the_unpaid_one_spends(trained):
    spends = {"constant": 2.0, "arsinh_2": 2.0, "last_epoch_unpaid": 5.241}
    runs = [("strategies", {"strategy": name, "epsilon": 2.0}, 80.0, spent, 1.5) for name, spent in spends.items()]
    text = strategies_drawn(draw_strategies, strategies_data(trained(runs)))
    assert "5.25 instead of 2" in text and STRATEGIES["arsinh_2"] in text


def test_the_grid_has_a_cell_for_every_setting(trained):
    cells = [{"batch_size": m, "clip_norm": c, "sigma": s} for m in (16, 32) for c in (0.1, 1.0) for s in (1.0, 2.0)]
    runs = [("settings_grid", cell, 60.0 + cell["batch_size"], cell["batch_size"] / 8, 2.0) for cell in cells]
    data = grid_data(trained(runs))
    text = strategies_drawn(draw_grid, data)
    assert len(data) == 8 and "92.4" in text and "standard deviation: " in text
    spread = data["interval_pct"] / (stats.t.ppf(0.975, 3) / 2)  # of four seeds
    assert f"{spread.max():.1f} at most" in text


def test_preparation_shows_every_input(trained):
    runs = [("preparation", {"preparation": name, "epsilon": 2.0}, 80.0, 2.0, 1.5) for name in PREPARATIONS]
    data = preparation_data(trained(runs))
    text = strategies_drawn(draw_preparation, data)
    assert len(data) == 7 and "leaks" in text and "layer normalisation" in text


def dots(axis) -> dict[tuple[str, str], float]:
    """The place of each dot by the name of its line and its budget."""
    names = [label.get_text() for label in axis.get_yticklabels()]
    return {
        (names[round(y)], container.get_label()): x
        for container in axis.containers
        for x, y in zip(*container.lines[0].get_data(), strict=True)
    }


def test_a_dot_is_the_difference_to_the_constant_strategy_of_its_own_budget(trained):
    levels = {("constant", 1.0): 70, ("constant", 4.0): 80, ("sparse_1", 1.0): 65, ("sparse_1", 4.0): 81}
    levels |= {("falling_clip", 1.0): 72}
    runs = [
        ("strategies", {"strategy": name, "epsilon": epsilon}, level, epsilon, 1.5)
        for (name, epsilon), level in levels.items()
    ]
    figure = draw_strategies(strategies_data(trained(runs)))
    [axis] = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "constant", "clip norm 1, 1/2, 1/4", "1 % of entries sent"
    ]  # fmt: skip
    assert dots(axis) == pytest.approx(
        {
            ("constant", "ε = 1"): 0, ("constant", "ε = 4"): 0, ("clip norm 1, 1/2, 1/4", "ε = 1"): 2,
            ("1 % of entries sent", "ε = 1"): -5, ("1 % of entries sent", "ε = 4"): 1,
        }
    )  # fmt: skip
    assert "instead of" not in figure.get_supxlabel()
    plt.close(figure)


def test_prepared_inputs_are_shown_by_their_own_accuracy(trained):
    levels = {"none": 80.0, "dp_pca": 84.0, "exact_pca": 86.0}
    runs = [("preparation", {"preparation": name, "epsilon": 2.0}, level, 2.0, 1.5) for name, level in levels.items()]
    data = preparation_data(trained(runs))
    figure = draw_preparation(data)
    # The seeds add 0.45 on average.
    expected = {(PREPARATIONS[name], "ε = 2"): level + 0.45 for name, level in levels.items()}
    assert dots(figure.axes[0]) == pytest.approx(expected)
    assert data.set_index("preparation")["difference_pct"].to_dict() == pytest.approx(
        {"none": 0, "dp_pca": 4, "exact_pca": 6}
    )
    plt.close(figure)


def test_the_best_cell_of_each_map_is_framed_and_a_column_has_its_epsilon(trained):
    best = {1.0: (16, 1.0), 2.0: (32, 0.1)}
    cells = [{"batch_size": m, "clip_norm": c, "sigma": s} for s in best for m in (16, 32) for c in (0.1, 1.0)]
    runs = [
        ("settings_grid", cell, 90.0 if best[cell["sigma"]] == (cell["batch_size"], cell["clip_norm"]) else 60.0,
         cell["batch_size"] / 8 + 0.001, 2.0)
        for cell in cells
    ]  # fmt: skip
    data = grid_data(trained(runs))
    figure = draw_grid(data)
    for axis, (size, clip) in zip(figure.axes, best.values(), strict=False):
        [frame] = [patch for patch in axis.patches if not patch.get_fill()]
        columns = [label.get_text() for label in axis.get_xticklabels()]
        rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]  # the maps of a row share them
        assert rows[round(frame.get_y() + 0.5)] == f"{clip:g}, η = 4"
        # rounded up, as a bound is; then at delta = 1/(10 N)
        assert [label.split("\n")[:2] for label in columns] == [["16", "2.1"], ["32", "4.1"]]
        assert all(float(label.split("\n")[2]) > 0 for label in columns)
        assert columns[round(frame.get_x() + 0.5)].startswith(f"{size}\n")
    plt.close(figure)
    framed = data[data["accuracy_pct"] > 80].set_index(["sigma", "batch_size", "clip_norm"])
    assert framed["difference_pct"].to_dict() == pytest.approx({(1.0, 16, 1.0): 0, (2.0, 32, 0.1): 30}, abs=0.01)


def test_the_other_delta_of_the_grid_is_that_of_its_own_rounds(trained):
    cell = {"batch_size": 250, "clip_norm": 1.0, "sigma": 2.0, "epochs": 5}
    data = grid_data(trained([("settings_grid", cell, 60.0, 2.0, 2.0)]))
    expected = segments_epsilon([Segment(120, 2.0, 250 / 6000)], 1 / 60_000)
    assert data["epsilon_tenth"].item() == pytest.approx(expected, rel=1e-9)


def test_one_seed_has_no_standard_deviation(trained):
    cell = {"batch_size": 16, "clip_norm": 1.0, "sigma": 1.0}
    data = grid_data(trained([("settings_grid", cell, 60.0, 2.0, 2.0)]))
    assert "One run a cell." in strategies_drawn(draw_grid, data.assign(runs=1)) and math.isfinite(
        data["interval_pct"].iloc[0]
    )


def test_differences_are_taken_within_a_seed(trained):
    runs = [("strategies", {"strategy": name, "epsilon": 2.0}, level, 2.0, 1.5) for name, level in
            (("constant", 80.0), ("arsinh_2", 77.0))]  # fmt: skip
    rows = trained(runs).runs("vandijk2023", study="strategies")
    data = summarise(rows, ["strategy", "epsilon"], {"strategy": "constant"}, ["epsilon"]).set_index("strategy")
    assert data.loc["arsinh_2", "difference_pct"] == pytest.approx(-3.0)
    # Seeds differ almost alike in both, so the paired interval is small where that of each mean is not.
    assert 0 < data.loc["arsinh_2", "difference_interval_pct"] < 0.01
    assert data.loc["arsinh_2", "interval_pct"] > 0.3
    assert data["runs"].tolist() == [4, 4] and data["accuracy_pct"]["constant"] == pytest.approx(80.45)


def test_a_seed_that_the_baseline_lacks_gives_no_difference(trained):
    runs = [("strategies", {"strategy": name}, 80.0, 2.0, 1.5) for name in ("constant", "arsinh_2")]
    rows = trained(runs).runs("vandijk2023", study="strategies")
    rows = rows[(rows["strategy"] != "constant") | (rows["seed"] != 3)]
    data = summarise(rows, ["strategy"], {"strategy": "constant"}, []).set_index("strategy")
    assert data.loc["arsinh_2", ["runs", "difference_runs"]].tolist() == [4, 3]
    (case,) = _differences(data.loc[["arsinh_2"]].reset_index(), "{strategy}")
    assert (case.n, case.freedom) == (3, 2)


def test_nothing_in_nothing_out(trained):
    runs = [("strategies", {"strategy": "constant"}, 80.0, 2.0, 1.5)]
    data = summarise(trained(runs).runs("vandijk2023", study="samplers"), ["sampler"], {}, [])
    assert data.empty and list(data.columns) == ["dataset", "stand_in_for", "sampler", *MEASURES]


def test_the_footer_says_how_many_runs():
    assert "4 seeds" in counted_runs(pd.DataFrame({"runs": [4, 4]}))
    assert "2 to 4 seeds" in counted_runs(pd.DataFrame({"runs": [4, 2]}))
    assert "no intervals" in counted_runs(pd.DataFrame({"runs": np.array([1])}))


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
def test_an_approximation_understates_by_the_power_that_it_lacks_at_small_errors(factor):
    powers = {"A0": 1.0, "A1": 20.0, "h": 30.0, "shuffled": 20.0 * factor}
    rows = [
        {"curve": curve, "alpha": alpha, "beta": 1 - power * alpha}
        for curve, power in powers.items()
        for alpha in (1e-4, 1e-3, 1e-2)
    ]
    text = tradeoff_message(pd.DataFrame(rows), {"h": "h", "shuffled": "the Gaussian"})
    assert "power 0.02, not 0.001 (A0), at a type I error of 0.001" in text
    assert ("; at small errors the Gaussian grants up to 50 % less" in text) == (factor < 1)


def test_epsilons_of_both_adversaries_span_the_batches_that_both_have():
    curves = {"A1": {1: 2.5, 10: 2.4, 6000: 2.2}, "A0": {10: 0.1, 6000: 2.2}}
    rows = [{"panel": "batches", "curve": curve, "batch": batch, "epsilon": epsilon}
            for curve, own in curves.items() for batch, epsilon in own.items()]  # fmt: skip
    text = epochs_message(pd.DataFrame(rows))
    assert "(A1) ε is 2.20 to 2.40 over batches of 10 to 6000" in text and text.endswith("it is 0.10 to 2.20")


def test_groups_are_compared_with_the_root_of_their_size():
    data = pd.DataFrame(
        {"panel": "growth", "batch": [60, 3000, 60], "group": [16, 16, 1], "mu_ratio": [4.0, 12.0, 1.0]}
    )
    assert groups_message(data).endswith(
        "the exact μ is 1.0 times the claim for batches of 60 and 3.0 times the claim for batches of 3000"
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
        == "Beyond chance, accuracy falls with DELAY (up to 37 points); every other kind changes mean accuracy by 0.3 "
        "points at most"
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
        | {"difference_pct": -30.0 * (epoch == 2) if step > 1 else -0.5, "difference_interval_pct": 0.6}
        for scenario, step, closings in (
            ("late_16", 4.0, 7.5), ("late_16", 0.25, 7.5), ("late_64", 8.0, 1.5), ("synchronous", 4.0, 0)
        )
        for epoch in (1, 2)
    ]  # fmt: skip
    text = delay_message(pd.DataFrame(rows))
    few, many = "with step 0.25 by 0.5 points (0 of 1", "with step 4 by 30.0 points (1 of 1"
    assert text.endswith(f"{few} beyond chance), {many} beyond chance)")
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
        == "Batches 8 times as large change accuracy by +0.1 points in as many rounds, and by -7.0 in as many epochs "
        "with the same step"
    )
    assert scaling_message(pd.DataFrame(rows).query("batch_factor == 1")) == ""


def test_poisson_batches_are_compared_at_the_least_epsilon():
    data = pd.DataFrame(
        {"sampler": ["fixed", "poisson_zero_out", "poisson_replace", "poisson_zero_out"],
         "epsilon": [0.25, 0.25, 0.25, 2.0], "difference_pct": [0.0, 4.0, -0.5, 99.0]}
    )  # fmt: skip
    text = samplers_trained_message(data)
    assert text.startswith("At ε = 0.25, Poisson batches change the accuracy")
    assert text.endswith("by +4.0 points if a record is zeroed out, by -0.5 points if one is replaced")
    assert samplers_trained_message(data.query("sampler == 'fixed'")) == ""


@pytest.mark.parametrize(("change", "beat"), [(1.0, True), (0.1, False)])
def test_a_strategy_beats_constant_settings_beyond_chance_and_within_the_budget(change, beat):
    data = pd.DataFrame(
        {"strategy": ["constant", "a", "a", "b", "unpaid", "unproven"],
         "difference_pct": [0.0, change, -5.0, -1.0, 9.0, 9.0], "difference_interval_pct": 0.5, "epsilon": 2.0,
         "privacy_epsilon_proven": [2.0, 2.0, 1.999, 2.0, 3.0, math.inf]}
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
        {**DATA, "sigma": sigma, "clip_norm": clip, "learning_rate": 4.0,
         "accuracy_pct": 80.0 - sigma + 5 * (clip == best)}
        for sigma, best in ((1.0, 1.0), (2.0, 1.0), (4.0, 0.1))
        for clip in (0.1, 1.0)
    ]  # fmt: skip
    text = grid_message(pd.DataFrame(rows))
    best = "C = 1 with step 4 has the best mean accuracy in 2 of 3 maps"
    assert text == f"{best}; the best cells have 84.0 % on MNIST with σ = 1"


def test_a_case_without_an_interval_is_never_beyond_chance():
    data = pd.DataFrame({"strategy": ["a"], "difference_pct": [9.0], "difference_interval_pct": [np.nan],
                         "epsilon": 2.0, "privacy_epsilon_proven": 2.0})  # fmt: skip
    assert strategies_message(data, {"a": "A"}).startswith("None of 1")
    assert asynchrony_message(asynchronous(-37.0, 0).assign(difference_interval_pct=math.nan), {}).startswith("No kind")
