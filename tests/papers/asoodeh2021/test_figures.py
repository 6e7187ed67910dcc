"""The figures of asoodeh2021: closed forms by other routes, and what is drawn of the runs."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.papers.asoodeh2021 import figures
from dpfl.papers.asoodeh2021.figures import (
    CLOSED_FORM,
    FIGURES,
    ONE_ROUND,
    RUN_FIGURES,
    WHOLE_ROUNDS,
    frontier_message,
    hiding_message,
    price_message,
    sampling_message,
    theorem_message,
)
from dpfl.reporting import style
from dpfl.reporting.results import read_csv

KEY = "asoodeh2021"


def theta(epsilon: float, r: float) -> float:
    return norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)


def figure_2(epsilon: float, m: int, rounds: float) -> float:
    head, link = theta(epsilon, 2 / (math.sqrt(m) * 1.5)), theta(epsilon, 2 * math.sqrt(m) / (0.5 * 1.5))
    return m / 100 * head * ((1 - link**rounds) / (1 - link) if link < 1 - 1e-6 else rounds)


def at(data, epsilon, **where):
    for column, value in where.items():
        data = data[data[column] == value]
    return data[np.isclose(data["epsilon"], epsilon)]["delta"].item()


def test_data_are_complete(results):
    data = results.figure(KEY, "figure_2")
    assert list(data.columns) == ["panel", "form", "q", "users", "rounds", "epsilon", "delta"]
    assert not data.isna().any(axis=None)
    assert data["delta"].between(0, 1).all()
    assert sorted(data[data["panel"] == "published"]["q"].unique()) == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("m", "rounds"), [(10, 10), (20, 5), (30, 10 / 3)])
def test_published_curves(results, m, rounds):
    published = results.figure(KEY, "figure_2").query("panel == 'published'")
    assert at(published, 0.5, form=CLOSED_FORM, users=m) == pytest.approx(figure_2(0.5, m, rounds), rel=1e-6)
    assert at(published, 0.5, form=ONE_ROUND, users=m) == pytest.approx(theta(0.5, 2 / (1.5 * m**0.5)), rel=1e-9)


def test_whole_rounds_at_q_030(results):
    data = results.figure(KEY, "figure_2")
    assert set(data[data["form"] == WHOLE_ROUNDS]["rounds"]) == {3}
    assert at(data, 0.5, form=WHOLE_ROUNDS) == pytest.approx(0.9 * at(data, 0.5, form=CLOSED_FORM, users=30), rel=1e-6)


@pytest.mark.parametrize(("m", "delta"), [(1, 0.016), (2, 0.056), (5, 0.081), (10, 0.031)])
def test_small_shares(results, m, delta):
    data = results.figure(KEY, "figure_2").query("panel == 'other shares'")
    assert at(data, 0.5, users=m) == pytest.approx(delta, abs=5e-4)
    assert at(data, 0.5, users=m) == pytest.approx(figure_2(0.5, m, 100 / m), rel=1e-6)


def test_the_picture_has_named_axes(results):
    figure = FIGURES["figure_2"].draw(results.figure(KEY, "figure_2"))
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)


def test_a_change_without_replacement_is_a_share_of_the_risk_with_it(results):
    data = results.figure(KEY, "sampling")
    figure = RUN_FIGURES["sampling"].draw(data)
    rows = data[(data["noise_std"] == data["noise_std"].min()) & (data["batch_size"] == data["batch_size"].min())]
    drawn = figure.axes[0].containers[0].lines[0].get_xdata()
    assert list(drawn) == pytest.approx(list(100 * (rows["one_pass"] / rows["with_replacement"] - 1)))
    assert {axis.get_xlabel() for axis in figure.axes} == {"change of the excess risk (%)"}
    assert len({axis.get_xlim() for axis in figure.axes}) == 1
    plt.close(figure)


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


def made_up(power_users=-1.0, power_sigma=2.0, seeds=6) -> pd.DataFrame:
    """A run table whose excess risk is a known power law, with a factor a seed that no exponent sees."""
    rows = []
    for seed in range(seeds):
        for users in (1000, 2000, 4000):
            for sigma in (0.0, 0.1, 0.2, 0.4):
                share = (1 + seed / 10) * sigma**power_sigma * (users / 1000) ** power_users
                task = {"dataset": "mnist", "stand_in_for": "", "batch_size": 10, "study": "price", "seed": seed}
                theory = {"regularisation": 0.1, "dimension": 50, "idle_excess_risk": 0.5, "excess_bound": 9.0}
                rows.append({**task, **theory, "users": users, "noise_std": sigma, "excess_risk": 0.01 + share})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("users", "sigma"), [(-1.0, 2.0), (-0.5, 1.0)])
def test_slopes_are_the_exponents_of_the_noise_alone(as_runs, users, sigma):
    table = figures.slopes(as_runs(made_up(users, sigma)))
    fitted = table.groupby("against")["slope"].agg(["min", "max"])
    np.testing.assert_allclose(fitted.loc["users"], users, atol=1e-9)
    np.testing.assert_allclose(fitted.loc["sigma^2"], sigma / 2, atol=1e-9)
    assert (table["interval"] < 1e-9).all() and (table["runs"] == 6).all() and (table["points"] == 3).all()


def test_points_that_the_ball_holds_are_not_fitted(as_runs):
    fitted = figures.slopes(as_runs(made_up().assign(idle_excess_risk=0.07)))
    kept, limited = fitted[~fitted["limited"]], fitted[fitted["limited"]]
    assert len(kept) == 3 and len(fitted) == 6 and (limited["points"] == 3).all()
    assert set(kept[kept["against"] == "users"]["fixed"]) == {"sigma = 0.1", "sigma = 0.2"}
    assert set(limited[limited["against"] == "users"]["fixed"]) == {"sigma = 0.4"}


@pytest.mark.parametrize(("study", "power"), [("example", -0.5), ("convex", -0.5), ("convex", -1.0)])
def test_rates_are_the_exponents_of_the_whole_risk_and_the_examples_is_over_the_logarithm(as_runs, study, power):
    rows = []
    for seed in range(4):
        for users in (1000, 4000, 16000):
            risk = (1 + seed) * users**power * (np.log(users) if study == "example" else 1)
            noise = {"noise_std": users**0.25 if study == "example" else 0.5, "rounds": users, "excess_risk": risk}
            task = {"dataset": "synthetic", "stand_in_for": "", "batch_size": 1, "study": study, "seed": seed}
            rows.append({**task, **noise, "users": users})
    [row] = figures.slopes(as_runs(pd.DataFrame(rows))).to_dict("records")
    assert row["slope"] == pytest.approx(power, abs=1e-9) and (row["study"], row["expected"]) == (study, -0.5)
    assert (row["points"], row["runs"]) == (3, 4) and ("ln T" in row["fixed"]) == (study == "example")


def test_tables_of_nothing_have_their_columns(without_runs):
    for maker in (
        figures.mean_risks,
        figures.slopes,
        figures.replacement,
        figures.frontier,
    ):
        table = maker(without_runs)
        assert table.empty and len(table.columns) > 5


def test_replacement_is_paired(results):
    table = figures.replacement(results)
    every = results.runs(KEY).query("study == 'sampling' and release == 'last' and noise_std == 0.5")
    wide = every.pivot(index="seed", columns="draw", values="excess_risk")
    row = table.query("release == 'last' and noise_std == 0.5").iloc[0]
    assert row["difference"] == pytest.approx((wide["one_pass"] - wide["with_replacement"]).mean(), rel=1e-12)
    assert row["runs"] == 3 and len(table) == 10


def test_the_frontier_takes_the_best_point_of_each_way(results):
    table = figures.frontier(results)
    every = results.runs(KEY).query("study == 'frontier'")
    assert set(table["way"]) == {"hidden", "shown", "composed"}
    for row in table.itertuples():
        pair = next(pair for pair, way in figures.WAYS.items() if way == row.way)
        own = every[(every["draw"] == pair[0]) & (every["release"] == pair[1]) & (every["epsilon"] == row.epsilon)]
        assert row.excess_risk == pytest.approx(own.groupby("step")["excess_risk"].mean().min(), rel=1e-12)
        assert (row.most_step, row.most_batch_size) == (own["step"].max(), own["batch_size"].max())


def test_every_run_carries_a_complete_statement(run_table):
    table = read_csv(run_table)
    privacy = [name for name in table if name.startswith("privacy_")]
    assert {"privacy_released", "privacy_epsilon_contraction", "privacy_epsilon_proven", "privacy_note"} <= set(privacy)
    assert not table[privacy].isna().any(axis=None)


# Messages: the sentence above a picture follows the numbers; each case turns one around.


@pytest.mark.parametrize(("factor", "words"), [(1.0, "contraction changes nothing"), (1.3, "by up to 30 %")])
def test_the_published_curves_are_compared_with_one_round(factor, words):
    rows = [{"panel": "published", "form": form, "q": 0.1, "epsilon": 0.5, "delta": 0.01 * ratio}
            for form, ratio in (("closed", factor), ("alone", 1.0))]  # fmt: skip
    assert words in theorem_message(pd.DataFrame(rows), closed_form="closed", one_round="alone")


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_cost_of_noise_has_the_powers_that_were_planted(power):
    rows = [
        {"study": "price", "dataset": "mnist", "batch_size": 1, "users": n, "noise_std": sigma}
        | {"excess_risk": 1e-4 + (sigma**2) ** power / n, "idle_excess_risk": 1.0}
        for n in (1000, 4000, 16000)
        for sigma in (0.0, 0.5, 1.0, 2.0)
    ]
    text = price_message(pd.DataFrame(rows))
    assert text == f"The cost of noise grows as σ² to the power {power:.2f} and falls as n to the power -1.00"
    assert price_message(pd.DataFrame(rows).query("noise_std == 0")) == ""


def test_changes_without_replacement_are_told_with_and_without_noise():
    data = pd.DataFrame(
        {"noise_std": [0.0, 0.0, 0.5], "difference": [-0.4, -0.1, 0.01], "with_replacement": [1.0, 1.0, 1.0],
         "interval": [0.1, 0.2, 0.1]}
    )  # fmt: skip
    text = sampling_message(data)
    assert "no noise -40.0 to -10.0 % (1 of 2 beyond chance)" in text and "with noise +1.0 % (0 of 1" in text


def test_hiding_gains_what_its_risk_is_below_the_shown_one():
    rows = [
        {"dataset": "mnist", "users": 10, "epsilon": epsilon, "way": way, "excess_risk": risk}
        for epsilon in (1.0, 2.0, math.inf)
        for way, risk in (("hidden", 0.2), ("shown", 0.201), ("composed", 0.1 if epsilon < 2 else 0.3))
    ]
    data = pd.DataFrame(rows)
    text = frontier_message(data)
    assert "models gains nothing; fresh batches" in text and text.endswith("have less mean risk at 1 of 2 points")
    apart = data.assign(excess_risk=data["excess_risk"].where(data["way"] != "shown", 0.4))
    assert "changes the risk by up to 50 %" in frontier_message(apart)
    assert frontier_message(data.query("way == 'hidden'")) == ""


def test_settings_in_which_hiding_lowers_epsilon_are_counted_by_users_a_round():
    data = pd.DataFrame({"m": [1, 1, 100], "gain": [1.5, 1.0, 1.0]})
    assert "in 1 of 2 settings with m = 1 and in 0 of 1 settings with m = 100" in hiding_message(data)
