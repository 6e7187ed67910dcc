"""The cost of noise by the number of features: the corollaries by other routes, and what is drawn."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.accounting.contraction import average_iterate_rate, last_iterate_rate
from dpfl.papers.asoodeh2021.dimension import PANELS, dimension_message, draw_dimensions

KEY = "asoodeh2021"


def test_rows_cover_both_corollaries_and_every_dimension(results):
    data = results.figure(KEY, "dimension")
    assert len(data) == 2 * 3 * 3 and (data["runs"] == 3).all() and (data["stand_in_for"] == "").all()
    assert set(zip(data["draw"], data["release"], strict=True)) == set(PANELS)
    assert data["exponent"].isna().equals(data["noise_std"] == 0)
    assert (data["exponent_runs"].dropna() <= data["runs"].max()).all() and (data["exponent_runs"] >= 2).any()


def test_the_noise_of_the_last_model_grows_as_the_dimension(results):
    rows = results.figure(KEY, "dimension").query("release == 'last' and noise_std > 0")
    assert (rows["exponent"] - 1).abs().max() < 0.2
    fitted = rows.drop_duplicates("noise_std").set_index("noise_std")["exponent"]
    runs = results.runs(KEY).query("study == 'dimension' and release == 'last'")
    shares = runs.pivot(index="features", columns=["seed", "noise_std"], values="excess_risk")
    fits = [
        np.polyfit(np.log([16, 64, 256]), np.log(shares[seed][0.25] - shares[seed][0.0]), 1)[0] for seed in range(3)
    ]
    assert fitted[0.25] == pytest.approx(np.mean(fits), rel=1e-9)


def test_bounds_are_the_corollaries_with_and_without_the_dimension(results):
    data = results.figure(KEY, "dimension").query("features == 64 and noise_std == 0.25")
    run = {"n": 4000, "m": 10, "sigma": 0.25, "gradient_bound": 1.2, "strong_convexity": 0.1}
    constants = {"smoothness": 0.35, "gradient_variance": 1.0}
    last = data.query("release == 'last'").iloc[0]
    for bound, dimension in (("bound_as_printed", 1), ("excess_bound", 64)):
        expected = last_iterate_rate(dimension=dimension, **run, **constants)
        assert last[bound] == pytest.approx(float(expected), rel=1e-9)
    stopped = data.query("release == 'random'").iloc[0]
    loss = {"lipschitz": 1.0, "smoothness": 0.25, "radius": 2.0}
    printed = average_iterate_rate(dimension=1, **run, **loss, eta=10 / np.arange(1, 401))
    assert stopped["bound_as_printed"] == pytest.approx(printed, rel=1e-9)
    assert stopped["excess_bound"] > printed


def test_the_picture_names_the_exponents(results):
    data = results.figure(KEY, "dimension")
    figure = draw_dimensions(data)
    assert [axis.get_xlabel() for axis in figure.axes] == ["features d"] * 2
    rows = data[(data["draw"] == "new_users") & (data["noise_std"] > 0)].drop_duplicates("noise_std")
    powers = {f"{row.exponent:.2f} ± {row.exponent_interval:.2f}" for row in rows.itertuples()}
    assert {text.get_text() for text in figure.axes[0].texts} == powers
    assert "has no fit" not in figure.get_supxlabel()
    fewer = draw_dimensions(data.assign(exponent_runs=2))
    assert "A run in which noise costs nothing at some d has no fit." in fewer.get_supxlabel().replace("\n", " ")
    assert all(text.get_text().endswith("\n(2 of 3 runs)") for text in fewer.axes[0].texts)
    assert "3 runs a point on synthetic convex problems" in figure.get_supxlabel().replace("\n", " ")
    plt.close("all")


def test_risks_beyond_the_published_bound_are_counted():
    data = pd.DataFrame({"exponent": [math.nan, 0.9, 1.1], "excess_risk": [0.1, 0.2, 0.3], "bound_as_printed": 0.25})
    data["features"] = [0, 32, 512]
    assert "power 0.90 to 1.10" in dimension_message(data) and "no d: 1 of 3 risks exceed it" in dimension_message(data)
    assert "no d: none of 3 risks with a bound exceeds it, up to d = 512" in dimension_message(
        data.assign(bound_as_printed=1.0)
    )
    assert dimension_message(data.assign(exponent=math.nan)) == ""
