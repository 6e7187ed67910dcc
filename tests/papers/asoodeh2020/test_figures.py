import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import norm

from dpfl.catalog import load
from dpfl.papers.asoodeh2020.figures import FIGURES, ROUTES

KEY = "asoodeh2020"


def theta(epsilon: float, r: float) -> float:
    return norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)


def at(data, i, route, epsilon):
    row = data[(data["i"] == i) & (data["route"] == route) & np.isclose(data["epsilon"], epsilon)]
    return row["delta"].item()


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
