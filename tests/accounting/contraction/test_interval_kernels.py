"""The law of a projected noisy step on cells: its mass, its ends, its moments, and the draw itself."""

import numpy as np
import pytest
from scipy.stats import chisquare, laplace, norm

from dpfl.accounting.contraction.kernels import DiscretisedInterval


def test_a_projected_law_has_mass_one_and_piles_up_at_the_ends():
    masses = DiscretisedInterval(-1.0, 2.0, cells=50).projected(np.array([0.0, 5.0]), norm(scale=1.5))
    assert masses.shape == (2, 52)
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(masses[:, 0], norm.cdf([-1.0, -6.0], scale=1.5), rtol=1e-12)
    np.testing.assert_allclose(masses[:, -1], norm.sf([2.0, -3.0], scale=1.5), rtol=1e-12)


def test_masses_sit_at_the_ends_and_at_the_middles_of_equal_cells():
    interval = DiscretisedInterval(-1.0, 2.0, cells=6)
    np.testing.assert_allclose(interval.edges, [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(interval.points, [-1.0, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 2.0])


@pytest.mark.parametrize("noise", [norm(scale=0.1), laplace(scale=0.05)])
def test_well_inside_mean_and_variance_are_those_of_the_noise(noise):
    """Rounding to the middles of cells of width h adds h^2/12 to the variance (Sheppard)."""
    interval = DiscretisedInterval(-2.0, 2.0, cells=800)
    [masses] = interval.projected(np.array([0.3]), noise)
    mean = masses @ interval.points
    assert mean == pytest.approx(0.3, abs=1e-9)
    assert masses @ (interval.points - mean) ** 2 == pytest.approx(noise.var() + 0.005**2 / 12, rel=1e-3)


def test_the_far_upper_tail_keeps_its_digits():
    """1 - cdf would be 0 there: Phi(-12) = 1.776e-33."""
    [masses] = DiscretisedInterval(-1.0, 12.0, cells=4).projected(np.array([0.0]), norm())
    assert masses[-1] == pytest.approx(1.776482112077679e-33, rel=1e-12, abs=0)


def test_draws_have_the_masses():
    """Counts of 50,000 projected draws; a correct law is refused once in 1e6 seeds."""
    interval = DiscretisedInterval(-0.5, 1.0, cells=8)
    [masses] = interval.projected(np.array([0.2]), laplace(scale=0.6))
    draws = np.clip(0.2 + np.random.default_rng(3).laplace(scale=0.6, size=50_000), -0.5, 1.0)
    inside = draws[(draws > -0.5) & (draws < 1.0)]
    counts = [np.sum(draws == -0.5), *np.histogram(inside, np.linspace(-0.5, 1.0, 9))[0], np.sum(draws == 1.0)]
    assert chisquare(counts, 50_000 * masses).pvalue > 1e-6
