import math

import numpy as np
import pytest
from scipy.stats import norm

from dpfl.papers.vandijk2023.accounting_figures import CURVES, SAMPLERS, sampler_data, tradeoff_data

KEY = "vandijk2023"


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
