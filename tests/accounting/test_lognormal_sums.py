"""Terms on the grid keep the order that they promise; sums of two agree with an integral."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from dpfl.accounting.balls_in_bins import Grid, Rounding, law_of_sum, lowest, one_term


def _call(x: float, spread: float) -> float:
    """E (Y - x)+ of one term, Black and Scholes's closed form."""
    cut = math.log(x) / spread
    return float(ndtr(spread / 2 - cut) - x * ndtr(-spread / 2 - cut))


@pytest.mark.parametrize(("spread", "step"), [(0.02, 2e-4), (0.5, 0.01), (1.0, 0.01), (1.5, 0.02)])
def test_terms_bracket_calls_and_puts(spread, step):
    grid = Grid(lowest(spread), step, 60_000)
    spread_out, reduced, raised = (one_term(grid, spread, rounding) for rounding in Rounding)
    y = grid.points()
    for x in np.exp(spread * np.linspace(-2, 3, 23) - spread**2 / 2):
        exact_call = _call(x, spread)
        exact_put = exact_call - 1 + x
        room = 1e-7 + 2 * (1 - float(spread_out @ y))  # terms above the grid are left out
        assert spread_out @ np.maximum(y - x, 0) >= exact_call - room
        assert reduced @ np.maximum(y - x, 0) <= exact_call + 1e-12
        assert spread_out @ np.maximum(x - y, 0) >= exact_put - 1e-12
        assert raised @ np.maximum(x - y, 0) <= exact_put + 1e-12
        assert reduced @ np.maximum(y - x, 0) == pytest.approx(exact_call, abs=step / 100 + room)
        assert raised @ np.maximum(x - y, 0) == pytest.approx(exact_put, abs=step / 100)
    for masses in (spread_out, reduced, raised):
        assert masses.min() >= 0
        assert masses.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("tilt", [0.5, -0.5])
def test_a_sum_of_two_agrees_with_an_integral(tilt):
    spread, grid = 0.8, Grid(lowest(0.8), 0.005, 8000)
    law = law_of_sum(one_term(grid, spread, Rounding.SPREAD), grid, 2, 1 << 15, 0, tilt)
    for x in (0.5, 1.0, 2.0, 4.0):

        def below(z: float, x: float = x) -> float:
            rest = x - math.exp(spread * z - spread**2 / 2)
            share = ndtr(math.log(rest) / spread + spread / 2) if rest > 0 else 0.0
            return share * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

        end = math.log(x) / spread + spread / 2
        exact = quad(below, -10, end, epsabs=1e-12, limit=200)[0]
        assert float(np.sum((law.masses * law.units())[law.values < x])) == pytest.approx(exact, abs=3e-3)


def test_the_transforms_noise_covers_a_direct_sum():
    """Each mass on its own, and the root of the sum of squares, which is less than that of as many of the largest."""
    grid = Grid(lowest(0.7), 0.05, 120)
    masses = one_term(grid, 0.7, Rounding.SPREAD)
    direct = np.convolve(np.convolve(masses, masses), masses)
    law = law_of_sum(masses, grid, 3, 512, 0, 1.5)
    size = min(direct.size, 512)
    errors = law.masses[:size] - direct[:size] / law.units()[:size]
    assert np.all(np.abs(errors) <= law.noise + 1e-13 * law.masses[:size])
    assert float(np.linalg.norm(errors)) <= law.noise_norm <= law.noise * math.sqrt(512)
