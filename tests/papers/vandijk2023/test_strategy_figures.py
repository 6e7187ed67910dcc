"""Ways to spend one budget, prepared inputs and the grid of settings: dots, maps and frames at their numbers."""

import math

import matplotlib.pyplot as plt
import pytest
from scipy import stats

from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.papers.vandijk2023.training_figures import (
    PREPARATIONS,
    STRATEGIES,
    draw_grid,
    draw_preparation,
    draw_strategies,
    grid_data,
    preparation_data,
    strategies_data,
)


def drawn(draw, data) -> str:
    """All texts of a figure."""
    figure = draw(data)
    texts = [text.get_text() for text in figure.findobj(plt.Text)]
    plt.close(figure)
    return " ".join(texts).replace("\n", " ")


def test_strategies_say_what_the_unpaid_one_spends(trained):
    spends = {"constant": 2.0, "arsinh_2": 2.0, "last_epoch_unpaid": 5.241}
    runs = [("strategies", {"strategy": name, "epsilon": 2.0}, 80.0, spent, 1.5) for name, spent in spends.items()]
    text = drawn(draw_strategies, strategies_data(trained(runs)))
    assert "5.25 instead of 2" in text and STRATEGIES["arsinh_2"] in text


def test_the_grid_has_a_cell_for_every_setting(trained):
    cells = [{"batch_size": m, "clip_norm": c, "sigma": s} for m in (16, 32) for c in (0.1, 1.0) for s in (1.0, 2.0)]
    runs = [("settings_grid", cell, 60.0 + cell["batch_size"], cell["batch_size"] / 8, 2.0) for cell in cells]
    data = grid_data(trained(runs))
    text = drawn(draw_grid, data)
    assert len(data) == 8 and "92.4" in text and "standard deviation: " in text
    spread = data["interval_pct"] / (stats.t.ppf(0.975, 3) / 2)  # of four seeds
    assert f"{spread.max():.1f} at most" in text


def test_preparation_shows_every_input(trained):
    runs = [("preparation", {"preparation": name, "epsilon": 2.0}, 80.0, 2.0, 1.5) for name in PREPARATIONS]
    data = preparation_data(trained(runs))
    text = drawn(draw_preparation, data)
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
        columns, rows = (
            [label.get_text() for label in labels] for labels in (axis.get_xticklabels(), axis.get_yticklabels())
        )
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
    assert "One run a cell." in drawn(draw_grid, data.assign(runs=1)) and math.isfinite(data["interval_pct"].iloc[0])
