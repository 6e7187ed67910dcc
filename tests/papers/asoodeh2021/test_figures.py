import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import norm

from dpfl.papers.asoodeh2021.figures import CLOSED_FORM, FIGURES, ONE_ROUND, WHOLE_ROUNDS

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


@pytest.mark.parametrize(("rounds", "ratio"), [(3, 0.9), (4, 1.2)])
def test_whole_rounds_at_q_030(results, rounds, ratio):
    data = results.figure(KEY, "figure_2")
    whole = at(data, 0.5, form=WHOLE_ROUNDS, rounds=rounds)
    assert whole == pytest.approx(ratio * at(data, 0.5, form=CLOSED_FORM, users=30), rel=1e-6)


@pytest.mark.parametrize(("m", "delta"), [(1, 0.016), (2, 0.056), (5, 0.081), (10, 0.031)])
def test_small_shares(results, m, delta):
    data = results.figure(KEY, "figure_2").query("panel == 'other shares'")
    assert at(data, 0.5, users=m) == pytest.approx(delta, abs=5e-4)
    assert at(data, 0.5, users=m) == pytest.approx(figure_2(0.5, m, 100 / m), rel=1e-6)


def test_the_picture_has_named_axes(results):
    figure = FIGURES["figure_2"].draw(results.figure(KEY, "figure_2"))
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)
