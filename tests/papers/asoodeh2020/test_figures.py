"""The figures of asoodeh2020: bounds by other routes, and what is drawn of the runs."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dpfl.accounting import contraction, gaussian_dp
from dpfl.accounting.contraction import pnsgd_gaussian_delta
from dpfl.catalog import load
from dpfl.papers.asoodeh2020.figures import (
    BOUNDS,
    FIGURES,
    HIDDEN_STATE_FIGURES,
    LEAST,
    LOOKS,
    ROUTES,
    RUN_FIGURES,
    SHOWN_EPSILON,
    WAYS,
    _roomiest,
    bounds,
    bounds_message,
    curves_message,
    one_pass_epsilons,
    places_message,
    stopping_message,
    utility_message,
)
from dpfl.reporting import style

KEY = "asoodeh2020"


def theta(epsilon: float, r: float) -> float:
    return norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)


def at(data, i, route, epsilon):
    row = data[(data["i"] == i) & (data["route"] == route) & np.isclose(data["epsilon"], epsilon)]
    return row["delta"].item()


@pytest.mark.parametrize(
    ("region", "place"),
    [
        (["1111111", "1111110", "1111000", "1100000"], (1, 2)),
        (["0000000", "0000011", "0000111", "0000111"], (2, 5)),
        (["0100000", "0000000", "0000000", "0001110"], (3, 4)),
    ],
)
def test_a_region_is_named_where_it_has_most_room(region, place):
    assert _roomiest(np.array([[int(each) for each in row] for row in region]) == 1) == place


@pytest.mark.parametrize("name", ["figure_2", "figure_3"])
def test_curves_are_complete_finite_and_fall(results, name):
    data = results.figure(KEY, name)
    assert list(data.columns) == ["i", "route", "epsilon", "delta"]
    assert not data.isna().any(axis=None)
    assert data["delta"].between(0, 1).all()
    for _, rows in data.groupby(["i", "route"]):
        assert len(rows) == load(KEY).settings["epsilon_axis"]["points"]
        assert (rows.sort_values("epsilon")["delta"].diff().dropna() <= 0).all()
    assert set(data["route"]) == set(ROUTES)
    assert sorted(data["i"].unique()) == load(KEY).settings[name]["i"]


def test_figure_2_spot_values(results):
    data = results.figure(KEY, "figure_2")
    assert at(data, 39, "theorem_4", 1.0) == pytest.approx(theta(1.0, 1.0) ** 2, rel=1e-9)
    assert at(data, 20, "theorem_4", 0.5) == pytest.approx(theta(0.5, 1.0) ** 21, rel=1e-9)
    assert at(data, 39, "proposition_1", 2.0) == pytest.approx(math.exp(-((2.0 - 0.5) ** 2) / 2), rel=1e-9)
    assert at(data, 39, "optimal_shift", 2.0) == pytest.approx(math.exp(-((2.0 - 0.25) ** 2)), rel=1e-9)
    assert at(data, 39, "shifted_gdp", 1.0) == pytest.approx(theta(1.0, math.sqrt(0.5)), rel=1e-9)


def test_figure_3_spot_values(results):
    data, squared = results.figure(KEY, "figure_3"), 1 - 2 * 0.7 * 0.5 * 0.2 / 0.7
    expected = theta(1.0, 2.0) * theta(1.0, math.sqrt(squared) / 0.7)
    assert at(data, 39, "theorem_4", 1.0) == pytest.approx(expected, rel=1e-9)
    kappa = 2 * squared
    assert at(data, 39, "proposition_1", 4.0) == pytest.approx(math.exp(-((4 - kappa) ** 2) / (4 * kappa)), rel=1e-9)


def test_random_stopping_orders_its_routes(results):
    data = results.figure(KEY, "random_stopping")
    wide = data.pivot(index=["contraction", "i"], columns="route", values="delta")
    assert not wide.isna().any(axis=None)
    assert (wide["sum"] <= wide["bound"] * (1 + 1e-12)).all()
    assert (wide["sum"] <= theta(0.5, 1.0) * (1 + 1e-9)).all()
    assert wide.loc[("figure_2", 40), "sum"] == pytest.approx(theta(0.5, 1.0) / 40, rel=1e-9)
    assert (wide.loc["weak", "bound"] > 1).all()


@pytest.mark.parametrize("name", ["figure_2", "figure_3", "random_stopping"])
def test_each_picture_has_named_axes(results, name):
    figure = FIGURES[name].draw(results.figure(KEY, name))
    assert all(axis.get_xlabel() for axis in figure.axes)
    assert figure.axes[0].get_ylabel()
    assert all(axis.get_yscale() == "log" for axis in figure.axes)
    plt.close(figure)


DELTA = 1e-5


@pytest.fixture(scope="module")
def table():
    """The map, of a thousand settings."""
    return bounds(None)


def test_every_row_has_four_epsilons_and_the_name_of_the_least(table):
    assert len(table) == 1000
    assert not table.isna().any(axis=None)
    assert not table.duplicated(["later_steps", "strong_convexity", "sigma", "diameter"]).any()
    least = table[list(BOUNDS)].min(axis=1)
    chosen = table.apply(lambda row: row[row["smallest"]], axis=1)
    np.testing.assert_allclose(chosen, least, rtol=2e-9)


@pytest.mark.parametrize("later", [0, 1, 20])
@pytest.mark.parametrize("convexity", [0.0, 0.5])
def test_epsilons_spend_delta_by_their_theorems(table, later, convexity):
    rows = table[(table["later_steps"] == later) & (table["strong_convexity"] == convexity)].iloc[::7]
    theory = {"i": 1, "n": later + 1, "eta": 0.5, "lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": convexity}
    sigma, diameter = rows["sigma"].to_numpy(), rows["diameter"].to_numpy()
    fourth = contraction.pnsgd_gaussian_delta(rows["theorem_4"].to_numpy(), sigma=sigma, diameter=diameter, **theory)
    positive = rows["theorem_4"] > 0
    np.testing.assert_allclose(fourth[positive], DELTA, rtol=1e-6)
    assert (fourth[~positive] <= DELTA).all()
    renyi = contraction.pnsgd_renyi_delta(rows["proposition_1"].to_numpy(), sigma=sigma, conversion="tight", **theory)
    np.testing.assert_allclose(renyi, DELTA, rtol=1e-6)
    np.testing.assert_allclose(gaussian_dp.delta(rows["composition"], 2 / sigma), DELTA, rtol=1e-9)
    shifted = contraction.pnsgd_shifted_gdp_delta(rows["shifted_interpolation"].to_numpy(), sigma=sigma, **theory)
    assert (shifted >= DELTA * (1 - 1e-9)).all()  # without the set, and with the contraction factor of asoodeh2020
    if later and not convexity:
        wide = diameter > 2
        np.testing.assert_allclose(shifted[wide], DELTA, rtol=1e-9)


def test_order_of_the_bounds(table):
    assert (table["theorem_4"] <= table["composition"] * (1 + 1e-12)).all()
    assert (table["shifted_interpolation"] <= table["composition"] * (1 + 1e-12)).all()
    assert (table["shifted_interpolation"] <= table["proposition_1"] * (1 + 1e-9)).all()
    assert (table.loc[table["later_steps"] == 0, "smallest"] == "composition").all()
    assert set(table.loc[table["later_steps"] > 0, "smallest"]) == {"theorem_4", "shifted_interpolation"}


def test_a_small_set_is_for_theorem_4_and_a_wide_one_for_shifts(table):
    rows = table[(table["later_steps"] > 0) & (table["strong_convexity"] == 0)]
    assert (rows.loc[rows["diameter"] / rows["sigma"] < 0.1, "smallest"] == "theorem_4").all()
    assert (rows.loc[rows["diameter"] / rows["sigma"] > 4, "smallest"] == "shifted_interpolation").all()


@pytest.mark.parametrize(
    ("name", "value"), [("later_steps", 0.5), ("sigma", 0), ("diameter", 0), ("delta", 1), ("eta", 3), ("lipschitz", 0)]
)
def test_a_wrong_argument_is_named(name, value):
    setting = {"later_steps": 3, "sigma": 1.0, "diameter": 1.0, "eta": 0.5, "smoothness": 1.0} | {
        "strong_convexity": 0.0,
        "delta": DELTA,
    }
    with pytest.raises(ValueError, match=name):
        one_pass_epsilons(**setting | {name: value})


def test_the_map_has_a_tile_for_each_setting_and_names_its_regions(results):
    recipe = HIDDEN_STATE_FIGURES["hidden_state_map"]
    data = results.figure("asoodeh2020", "hidden_state_map")
    assert len(data) == 1000 and set(data["smallest"]) <= set(BOUNDS) == set(LOOKS)
    figure = recipe.draw(data)
    assert len(figure.axes) == 8
    assert sum(axis.collections[0].get_array().size for axis in figure.axes) == 800
    for axis in figure.axes:
        shown = {BOUNDS[int(kind)] for kind in axis.collections[0].get_array().ravel()}
        written = {text.get_text() for text in axis.texts}
        assert written and written <= {LOOKS[name][0] for name in shown}
    footer = figure.get_supxlabel().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
    assert footer.startswith("800 settings") and "Not drawn: 200 settings without a later step" in footer
    plt.close(figure)


@pytest.mark.parametrize("name", sorted(RUN_FIGURES))
def test_each_picture_is_drawn_from_its_data(results, name):
    figure = RUN_FIGURES[name].draw(results.figure(KEY, name))
    assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)


def test_places_are_theorem_4_and_its_means(results):
    data = results.figure(KEY, "places").query("law == 'gaussian'")
    n, step, scale = (data[name].iloc[0] for name in ("n", "step", "scale"))
    theory = {"eta": step, "sigma": scale, "lipschitz": 1, "smoothness": 1, "strong_convexity": 1, "diameter": 1}
    every = pnsgd_gaussian_delta(1.0, i=np.arange(1, n + 1), n=n, **theory)
    at = {name: rows[np.isclose(rows["epsilon"], 1.0)] for name, rows in data.groupby("variant")}
    np.testing.assert_allclose(at["last"]["delta"], every[-1 - at["last"]["later"]], rtol=1e-12)
    np.testing.assert_allclose(at["permuted"]["delta"], every.mean(), rtol=1e-12)
    stopped = [every[-1 - later :].sum() / n for later in at["random"]["later"]]
    np.testing.assert_allclose(at["random"]["delta"], stopped, rtol=1e-9)


def test_the_last_record_spends_the_budget_and_no_record_more(results):
    data = results.figure(KEY, "places").query("variant == 'last' and epsilon == 1")
    assert (data["delta"] <= 1e-5).all()
    assert data.groupby("law")["delta"].max().min() > 0.999e-5


def test_utility_takes_the_best_step(results):
    data = results.figure(KEY, "utility")
    runs = results.runs(KEY)
    for row in data.itertuples():
        own = runs.query("model == @row.model and law == @row.law and order == @row.order and release == @row.release")
        means = own[own["epsilon"] == row.epsilon].groupby("step")["excess_risk"].mean()
        assert row.excess_risk == pytest.approx(means.min(), rel=1e-12) and row.step == means.idxmin()
        assert (row.least_step, row.most_step) == (means.index.min(), means.index.max())


def test_runs_without_noise_stand_at_the_right_end_and_steps_at_an_end_are_hollow_and_counted(results):
    data = results.figure(KEY, "utility")
    figure = RUN_FIGURES["utility"].draw(data)
    panels = data.groupby(["dataset", "model", "law"], sort=False)
    for axis, (_, rows) in zip(figure.axes, panels, strict=True):
        assert axis.get_xticklabels()[-1].get_text() == "no\nnoise"
        end = axis.get_xticks()[-1]
        marks = [line for line in axis.get_lines() if line.get_linestyle() == "None" and line.get_marker() in "os^D"]
        drawn = {
            (x, y, line.get_markerfacecolor() == style.WHITE)
            for line in marks
            for x, y in zip(*line.get_data(), strict=True)
        }
        at_an_end = (rows["step"] == rows["least_step"]) | (rows["step"] == rows["most_step"])
        places = rows["epsilon"].replace(float("inf"), end)
        assert drawn == set(zip(places, rows["excess_risk"], at_an_end, strict=True))
    private = data.query("epsilon < inf")
    least, most = (private["step"] == private["least_step"]).sum(), (private["step"] == private["most_step"]).sum()
    at = f"the smallest of its grid at {least} and the largest at {most}."
    words = f"Of the {len(private)} points with noise, the best step is {at}"
    assert words in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_places_name_the_records_they_are_of(results):
    data = results.figure(KEY, "places")
    figure = RUN_FIGURES["places"].draw(data)
    footer = figure.get_supxlabel().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
    assert f"n = {data['n'].iloc[0]:,} records" in footer
    plt.close(figure)


# Messages: the sentence above a picture follows the numbers; each case turns one around.


def deltas(**routes: float) -> pd.DataFrame:
    rows = [
        {"i": i, "epsilon": epsilon, "route": route, "delta": delta * (1 if i == 1 or epsilon < 1 else 0.01)}
        for i in (1, 20)
        for epsilon in (0.5, 1.0)
        for route, delta in routes.items()
    ]
    return pd.DataFrame(rows)


def test_a_bound_below_theorem_4_is_named_with_its_record_and_epsilon():
    data = deltas(theorem_4=0.1, proposition_1=0.4, optimal_shift=0.3, shifted_gdp=0.2)
    assert curves_message(data).startswith("Theorem 4 proves the smallest δ of the four bounds")
    late = (data["i"] == 20) & (data["epsilon"] == 1.0) & (data["route"] == "shifted_gdp")
    text = curves_message(data.assign(delta=data["delta"].where(~late, 1e-9)))
    assert "always for record 1;" in text and "record 20 from ε = 1 on (shifted interpolation)" in text


def test_a_stop_that_bounds_nothing_is_said_so():
    rows = [
        {"contraction": contraction, "route": route, "delta": delta}
        for contraction, bound in (("figure_2", 0.01), ("weak", 8000.4))
        for route, delta in (("theorem_4", 0.25), ("bound", bound))
    ]
    text = stopping_message(pd.DataFrame(rows))
    assert "by 0.01 instead of 0.25" in text and "weak contraction it gives 8,000, which says nothing" in text
    fine = stopping_message(pd.DataFrame(rows).assign(delta=lambda data: data["delta"].clip(upper=0.25)))
    assert "says nothing" not in fine


def test_bounds_are_counted_where_later_steps_hide_a_record():
    data = pd.DataFrame(
        {"later_steps": [0, 1, 4, 4], "smallest": ["composition", "theorem_4", "theorem_4", "shifted_interpolation"]}
    )
    assert (
        bounds_message(data)
        == "Smallest of four bounds on ε, in 3 settings: Theorem 4 in 2 and shifted interpolation in 1"
    )


def test_places_say_how_fast_delta_falls_from_the_last_record_and_what_evens_it_out():
    rows = [
        {"law": "gaussian", "epsilon": 1.0, "variant": variant, "n": 1000, "later": later, "delta": delta}
        for variant, values in (("last", (1e-5, 1e-8, 1e-20)), ("permuted", (1e-10,) * 3), ("random", (2e-10,) * 3))
        for later, delta in zip((0, 9, 99), values, strict=True)
    ]
    data, given = pd.DataFrame(rows), {"shown_epsilon": SHOWN_EPSILON, "least_delta": LEAST}
    text = places_message(data, **given)
    assert "the last of 1,000 records has δ = 1e-05, number 10 from the end 1e-08 at ε = 1" in text
    assert "at most 2e-10" in text
    worse = data.assign(delta=data["delta"].where(data["variant"] != "random", 1e-3))
    assert "spreads" not in places_message(worse, **given)
    assert places_message(data.assign(delta=1e-30), **given) == ""


def test_the_way_with_the_least_risk_is_that_of_the_most_panels():
    rows = [
        {"dataset": "mnist", "model": "m", "law": law, "order": order, "release": release, "epsilon": epsilon}
        | {"excess_risk": 1.0 if (order, release) == best else 10.0 if release == "last" else 20.0}
        for law, best in (("a", ("permuted", "last")), ("b", ("permuted", "last")), ("c", ("sorted", "random")))
        for order, release in WAYS
        for epsilon in (1.0, math.inf)
    ]
    text = utility_message(pd.DataFrame(rows), WAYS)
    assert "the last model of a secret order has the least excess risk in 2 of 3 panels, 20 times below" in text
    assert utility_message(pd.DataFrame(rows).query("epsilon == inf"), WAYS) == ""
