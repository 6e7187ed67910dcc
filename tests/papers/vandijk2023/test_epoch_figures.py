import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpfl.papers.vandijk2023.accounting_figures import DRAWN, draw_groups, group_data, guarantee_of, last_epoch_data

KEY = "vandijk2023"


def test_a1_is_the_mixture_over_the_rounds_that_use_the_record():
    exact = guarantee_of("A1", m=250, epochs=5, sigma=8.0)
    k, epsilon = np.arange(1, 121), 0.7
    r = np.sqrt(k) / 8.0
    thetas = norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)
    assert float(exact.delta(epsilon)) == pytest.approx(binom.pmf(k, 120, 250 / 6000) @ thetas, rel=1e-9)


def test_full_batches_leave_nothing_to_chance():
    for name in ("A0", "A1"):
        full = guarantee_of(name, m=6000, epochs=20, sigma=8.0)
        simple = guarantee_of("shuffled", m=6000, epochs=20, sigma=8.0)
        assert float(full.epsilon(1e-5)) == pytest.approx(float(simple.epsilon(1e-5)), rel=1e-4)


def test_groups_grow_between_the_root_and_the_size():
    data = group_data(None)
    assert list(data.columns) == ["panel", "batch", "group", "mu_ratio", "alpha", "beta"]
    assert not data.isna().any(axis=None)
    growth = data[(data["panel"] == "growth") & (data["group"] > 1)]
    assert (growth["mu_ratio"] < growth["group"]).all()
    small = growth[growth["batch"] == growth["batch"].min()]
    np.testing.assert_allclose(small["mu_ratio"], np.sqrt(small["group"]), rtol=0.05)
    simple = data[(data["panel"] == "simple") & (data["group"] == 4)]
    expected = norm.cdf(norm.ppf(1 - simple["alpha"]) - math.sqrt(80) / 8)
    np.testing.assert_allclose(simple["beta"], expected, atol=1e-12)


def test_each_trade_off_curve_has_its_name_on_it():
    data = group_data(None)
    figure = draw_groups(data)
    exact = data[data["panel"] == "exact"]
    for group, text in zip(sorted(exact["group"].unique()), figure.axes[1].texts, strict=True):
        curve = exact[exact["group"] == group]
        assert text.get_text() == f"g = {group}"
        assert text.xy[1] == pytest.approx(np.interp(text.xy[0], curve["alpha"], curve["beta"]))
    plt.close(figure)


def test_the_last_epoch_costs_the_root_of_two():
    data = last_epoch_data(None)
    assert not data.isna().any(axis=None)
    chapter = data[data["panel"] == "chapter"]
    np.testing.assert_allclose(chapter["mu_ratio"], math.sqrt(2), rtol=1e-12)
    np.testing.assert_allclose(data[data["panel"] == "unchanged"]["mu_ratio"], 1.0, rtol=1e-12)

    def excess(epsilon: float, mu: float) -> float:
        return norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2) - 1e-5

    row = chapter[chapter["epochs"] == 20].iloc[0]
    assert row["epsilon"] == pytest.approx(brentq(excess, 0.1, 20, args=(math.sqrt(40) / 8,)), rel=1e-9)


@pytest.mark.slow
def test_epochs_not_rounds(results):
    data = results.figure(KEY, "epochs_not_rounds")
    assert list(data.columns) == ["panel", "curve", "batch", "epochs", "epsilon", "mu_over_simple"]
    assert set(data["curve"]) == set(DRAWN)
    assert (data["epsilon"] > 0).all()
    simple = data[data["curve"] == "shuffled"]["mu_over_simple"]
    np.testing.assert_allclose(simple, 1.0, rtol=1e-6)
    h = data[(data["curve"] == "h") & (data["panel"] == "epochs")]
    np.testing.assert_allclose(h["mu_over_simple"], np.sqrt(1 + 1 / np.sqrt(2 * h["epochs"])), rtol=1e-6)
