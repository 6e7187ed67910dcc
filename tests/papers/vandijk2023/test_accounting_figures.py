"""Figures of guarantees by epoch and by sampling, at numbers by hand."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpfl.papers.vandijk2023.accounting_figures import (
    CURVES,
    DRAWN,
    SAMPLERS,
    draw_groups,
    group_data,
    guarantee_of,
    last_epoch_data,
    sampler_data,
    tradeoff_data,
)

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


@pytest.fixture(scope="module")
def curves():
    return tradeoff_data(None)


def test_trade_off_curves_fall_from_one_to_zero(curves):
    assert list(curves.columns) == ["curve", "alpha", "beta"]
    assert set(curves["curve"]) == set(CURVES)
    for _, rows in curves.groupby("curve"):
        assert (rows["beta"].diff().dropna() <= 1e-12).all()
        assert (rows["beta"] <= 1 - rows["alpha"] + 1e-12).all()
        assert rows["beta"].iloc[-1] == 0


def test_the_simple_curve_by_scipy(curves):
    rows = curves[curves["curve"] == "shuffled"]
    expected = norm.cdf(norm.ppf(1 - rows["alpha"]) - math.sqrt(20) / 2.5)
    np.testing.assert_allclose(rows["beta"], expected, atol=1e-12)


def test_a1_learns_more_than_a0(curves):
    wide = curves.pivot(index="alpha", columns="curve", values="beta")
    assert (wide["A1"] <= wide["A0"] + 1e-9).all()
    assert (wide["A0"] - wide["clt"]).abs().max() < 0.01


@pytest.mark.slow
def test_samplers(results):
    data = results.figure(KEY, "fixed_against_poisson")
    assert list(data.columns) == ["sampler", "noise_multiplier", "epsilon", "noise_over_poisson"]
    assert set(data["sampler"]) == set(SAMPLERS)
    wide = data.pivot(index="noise_multiplier", columns="sampler", values="epsilon")
    assert (wide["poisson"] < wide["poisson_replace"]).all()
    assert (wide["poisson_replace"] < wide["fixed"]).all() and (wide["fixed_pair"] < wide["fixed"]).all()
    # sigma = 1.6 sensitivities of 2C are a noise of 3.2 C.
    assert wide.loc[3.2, "fixed"] == pytest.approx(3.18, abs=0.01)
    assert wide.loc[1.6, "poisson"] == pytest.approx(2.75, abs=0.01)
    own = data[data["sampler"] == "poisson"]["noise_over_poisson"]
    np.testing.assert_allclose(own, 1.0, rtol=1e-9)
    fixed = data[data["sampler"] == "fixed"]["noise_over_poisson"]
    assert fixed.between(2.0, 2.4).all()
    # The pair is Poisson's with half the noise.
    assert wide.loc[3.2, "fixed_pair"] == pytest.approx(wide.loc[1.6, "poisson"], rel=1e-4)
    needed = data[data["sampler"] == "fixed_pair"]["noise_over_poisson"]
    np.testing.assert_allclose(needed, 2.0, rtol=1e-3)


def test_fixed_batches_need_twice_the_noise_of_poisson_ones():
    """By the pair that replaces a record; what C_p proves lies above it."""
    data = sampler_data(None)
    assert list(data["sampler"].unique()) == list(SAMPLERS)
    epsilon = data.pivot(index="noise_multiplier", columns="sampler", values="epsilon")
    for noise in (1.6, 2.4, 3.2):
        assert epsilon["fixed_pair"][2 * noise] == pytest.approx(epsilon["poisson"][noise], rel=1e-4)
    assert (epsilon["fixed"] > epsilon["fixed_pair"]).all()
    assert (epsilon["fixed_pair"] > epsilon["poisson_replace"]).all()
