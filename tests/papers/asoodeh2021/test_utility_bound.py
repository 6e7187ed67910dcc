import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpfl.catalog import load
from dpfl.papers.asoodeh2021 import errata, utility_bound
from dpfl.papers.asoodeh2021.utility_bound import bounds, counterexample_message, draw_counterexamples, simulated_excess

DECIDING = {"dimension": utility_bound.DIMENSION, "rounds": utility_bound.ROUNDS, "repeats": utility_bound.REPEATS}


@pytest.fixture(scope="module")
def small():
    """The figure's data for few rounds, one of its dimensions left as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utility_bound, "ROUNDS", 200)
        return utility_bound.counterexamples(None)


def test_the_deciding_case_is_that_of_the_errata():
    assert load("asoodeh2021").errata["corollary_utility"]["arguments"] == [DECIDING]


def test_bounds_are_corollary_1_without_and_with_the_dimension():
    """2 beta (m D^2 + G^2 + d sigma^2)/(lambda^2 n) with all constants 1 but G = 0, by hand."""
    assert bounds(100, 20_000) == pytest.approx((2 * 2 / 20_000, 2 * 101 / 20_000), rel=1e-12)
    assert bounds(1, 50) == pytest.approx((0.08, 0.08), rel=1e-12)


def test_the_simulation_is_the_mean_of_the_noise_while_the_ball_does_not_limit_it():
    """With steps 1/t the model is the mean of the noise, but for projections of the first rounds: d/(2T) on average."""
    risks = [simulated_excess(seed, 4, 2000) for seed in range(60)]
    assert np.mean(risks) == pytest.approx(4 / (2 * 2000), rel=5 * math.sqrt(2 / 4 / 60))
    assert simulated_excess(0, 3, 1) <= 0.5 + 1e-12


def test_rows_are_the_erratum_at_every_dimension(small):
    numbers = errata.corollary_utility(dimension=100, rounds=200, repeats=utility_bound.REPEATS)
    row = small.set_index("features").loc[100]
    assert (row["bound_as_printed"], row["excess_bound"]) == (numbers.printed, numbers.corrected)
    assert (row["excess_risk"], row["interval"]) == (numbers.independent, numbers.interval)
    assert list(small["features"]) == list(utility_bound.DIMENSIONS) and (small["runs"] == 5).all()


def test_the_picture_circles_the_counterexample_and_says_its_number_and_the_bound(small):
    figure = draw_counterexamples(small)
    [axis], row = figure.axes, small.set_index("features").loc[100]
    [label] = axis.texts
    assert label.get_text() == (
        f"counterexample, d = 100:\n{row['excess_risk']:.2g}, published bound {row['bound_as_printed']:.2g}"
    )
    assert label.xy == (100, row["excess_risk"])
    assert [line.get_xydata().tolist() for line in axis.get_lines() if line.get_markersize() == 13] == [
        [[100, row["excess_risk"]]]
    ]
    plt.close(figure)


def test_the_message_has_the_factor_of_the_data(small):
    doubled = small.assign(excess_risk=2 * small["bound_as_printed"])
    assert counterexample_message(doubled) == (
        "At d = 100 the excess risk is 2 times Corollary 1's bound, which has no d"
    )
    assert counterexample_message(small[small["features"] != 100]) == ""
