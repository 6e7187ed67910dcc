import numpy as np
import pytest

from dpfl.accounting import contraction, gaussian_dp
from dpfl.papers.asoodeh2020.figures import BOUNDS, bound_map, one_pass_epsilons

DELTA = 1e-5


@pytest.fixture(scope="module")
def table():
    """The map, of a thousand settings."""
    return bound_map(delta=DELTA)


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
