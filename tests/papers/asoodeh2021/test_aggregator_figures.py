import math

import matplotlib.pyplot as plt
import pytest

from dpfl.accounting import gaussian_dp
from dpfl.accounting.contraction import theta
from dpfl.papers.asoodeh2021.figures import RUN_FIGURES
from dpfl.reporting import style

KEY = "asoodeh2021"


@pytest.mark.parametrize("name", sorted(RUN_FIGURES))
def test_each_picture_is_drawn_from_its_data(results, name):
    figure = RUN_FIGURES[name].draw(results.figure(KEY, name))
    assert any(axis.get_xlabel() for axis in figure.axes) and any(axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)


def test_hiding_never_costs_and_helps_where_a_step_crosses_the_ball(results):
    data = results.figure(KEY, "hiding")
    assert (data["gain"] >= 1 - 1e-9).all()
    assert data.query("step == 0.3 and m == 100")["gain"].max() < 1.001
    assert data.query("step == 3 and m == 1 and n == 10000 and noise_multiplier == 4")["gain"].item() > 5
    assert (
        data.groupby(["step", "m", "noise_multiplier"])["gain"].apply(lambda gain: gain.is_monotonic_increasing).all()
    )


def test_hiding_by_the_formulas(results):
    row = results.figure(KEY, "hiding").query("step == 3 and m == 1 and n == 1000 and noise_multiplier == 4").iloc[0]
    assert row["epsilon_all_models"] == pytest.approx(float(gaussian_dp.epsilon(1e-5, 2 / 4)), rel=1e-9)
    # eta = 3 <= 2/(beta + lambda): factor M, link = 2 rho M/(eta sigma).
    beta, rho = 0.26, 0.01
    factor = math.sqrt(1 - 2 * 3 * beta * rho / (beta + rho))
    kept = theta(row["epsilon_last_model"], 2 * 2 * factor / (3 * 4))
    delta = theta(row["epsilon_last_model"], 2 / 4) * (1 - kept**1000) / (1 - kept) / 1000
    assert delta == pytest.approx(1e-5, rel=1e-6)


def test_each_way_has_its_line_without_noise_in_its_colour(results):
    data = results.figure(KEY, "frontier")
    figure = RUN_FIGURES["frontier"].draw(data)
    lines = {line.get_label(): line for line in figure.axes[1].get_lines()}
    names = {container.get_label(): container.lines[0] for container in figure.axes[1].containers}
    for way, name, private in (("hidden", "Algorithm 1", "Algorithm 1,"), ("composed", "fresh batches", "fresh")):
        line = lines[f"{name} without noise"]
        silent = data[(data["way"] == way) & (data["epsilon"] == math.inf)]["excess_risk"].item()
        assert list(line.get_ydata()) == [silent] * 2
        assert {names[each].get_color() for each in names if each.startswith(private)} >= {line.get_color()}
    plt.close(figure)


def test_a_colour_means_a_noise_or_a_number_of_users_a_round_but_not_both(results):
    figure = RUN_FIGURES["price"].draw(results.figure(KEY, "price"))
    noises = {line.get_color() for axis in figure.axes[::2] for line in axis.get_lines()} - {style.BLACK}
    sizes = {line.get_color() for line in figure.axes[1].get_lines()} - {style.BLACK}
    assert sizes and not noises & sizes
    plt.close(figure)


@pytest.mark.parametrize(("left", "drawn"), [("price", [True, True, False]), ("curvature", [False, False, True])])
def test_a_study_that_was_not_run_leaves_its_panels_to_the_other(results, left, drawn):
    data = results.figure(KEY, "price")
    figure = RUN_FIGURES["price"].draw(data[data["study"] == left])
    assert [axis.has_data() for axis in figure.axes] == drawn
    assert [[text.get_text() for text in axis.texts] == ["not run"] for axis in figure.axes] == [not d for d in drawn]
    plt.close(figure)
