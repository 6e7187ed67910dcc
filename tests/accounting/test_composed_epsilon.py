"""Laws on a grid: Gaussian steps compose to a Gaussian, and grids that are brought together keep their side."""

import math

import numpy as np
import pytest

from dpfl.accounting import gaussian_dp
from dpfl.accounting.composition import (
    LossGrid,
    epsilon_above,
    epsilon_below,
    from_atoms,
    from_points,
    optimistic,
    pessimistic,
    regrid,
)
from dpfl.accounting.fixed_batches import law_above, pair_laws

ALWAYS = np.array([0.0, 1.0])


@pytest.mark.parametrize("steps", [1, 7, 300])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-25])
def test_gaussian_steps_compose_to_a_gaussian(steps, delta):
    mu = 0.3
    exact = float(gaussian_dp.epsilon(delta, mu * math.sqrt(steps)))
    above = epsilon_above([(law_above(2 / mu, ALWAYS, 0.0, steps, delta), steps)], delta)
    below = epsilon_below([(pair_laws(mu, ALWAYS, (1, 0), steps, delta)[0], steps)], delta)
    assert below <= exact <= above
    assert above == pytest.approx(exact, rel=2e-3, abs=2e-5)
    assert below == pytest.approx(exact, rel=2e-3, abs=2e-5)


def test_a_coarser_grid_keeps_its_side():
    exact = float(gaussian_dp.epsilon(1e-6, 0.5 * math.sqrt(20)))
    above, below = law_above(4.0, ALWAYS, 0.0, 20, 1e-6), pair_laws(0.5, ALWAYS, (1, 0), 20, 1e-6)[0]
    for step in (above.step / 3, 0.0123):
        assert epsilon_above([(pessimistic(regrid(above, step)), 20)], 1e-6) >= exact
        assert epsilon_below([(optimistic(regrid(below, step)), 20)], 1e-6) <= exact


def test_randomised_response_comes_out_exactly():
    """Atoms on the grid are kept: one step is (ln 3, 0)-DP, so at delta it is ln((3/4 - delta) / (1/4))."""
    step = math.log(3) / 50
    grid = LossGrid(-60, 60, step)
    laws = from_atoms(grid, np.array([0.25, 0.75]), np.array([0.75, 0.25]))
    assert epsilon_below([(laws[0], 1)], 0.1) <= math.log((0.75 - 0.1) / 0.25)
    x = np.exp(grid.losses)
    profile = np.maximum.reduce([np.zeros_like(x), 0.75 - 0.25 * x, 1 - x])
    values = np.where(grid.losses < 0, profile - 1 + x, profile)
    above = from_points(grid, values)
    assert epsilon_above([(above[0], 1)], 0.1) == pytest.approx(math.log((0.75 - 0.1) / 0.25), rel=1e-9)
    assert epsilon_above([(above[1], 1)], 0.1) == pytest.approx(math.log((0.75 - 0.1) / 0.25), rel=1e-9)


def test_lost_mass_above_delta_is_no_guarantee():
    grid = LossGrid(-3, 3, 0.1)
    laws = from_points(grid, np.full(7, 0.5))
    assert epsilon_above([(laws[0], 1)], 0.1) == math.inf
