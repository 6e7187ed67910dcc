"""Losses on a grid from profiles whose laws are written out: randomised response, and one Gaussian step."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfl.accounting.composition import (
    ATOM_ERROR,
    GridLaw,
    LossGrid,
    fitting_grid,
    from_atoms,
    from_points,
    from_tangents,
    grid_between,
    regrid,
    step_of_sum,
)
from dpfl.accounting.gaussian_dp import theta

MU = 1.3
EPSILONS = np.linspace(-6, 6, 97)
GRID = LossGrid(-120, 120, 0.05)


def profile(law: GridLaw, epsilon) -> np.ndarray:
    """The hockey stick of a law on a grid by its definition: E (1 - e^(epsilon - loss))+, and what is lost."""
    excess = np.maximum(law.losses - np.asarray(epsilon)[..., None], 0.0)
    return -np.expm1(-excess) @ law.masses + law.lost


def gaussian(epsilon) -> np.ndarray:
    """The hockey stick of N(MU, 1) against N(0, 1) at any epsilon: the loss is MU x - MU^2/2."""
    place = np.asarray(epsilon) / MU + MU / 2
    return norm.sf(place - MU) - np.exp(epsilon) * norm.sf(place)


def test_a_grid_lists_its_losses_and_middles():
    grid = LossGrid(-2, 3, 0.5)
    assert grid.losses.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5]
    assert grid.middles().tolist() == [-0.75, -0.25, 0.25, 0.75, 1.25]


def test_points_on_a_profile_are_met_and_chords_lie_above():
    """Second differences of a step of h in epsilon: chords are within h^2/8 of a profile whose slope is below 1."""
    losses = GRID.losses
    values = np.where(losses < 0, gaussian(losses) - 1 + np.exp(losses), theta(np.maximum(losses, 0), MU))
    for law in from_points(GRID, values):  # both orders of a Gaussian pair are alike
        np.testing.assert_allclose(profile(law, losses[1:-1]), gaussian(losses[1:-1]), rtol=1e-9, atol=1e-12)
        gap = profile(law, EPSILONS) - gaussian(EPSILONS)
        assert gap.min() > -1e-12 and gap.max() < 0.05**2 / 8
        assert law.masses.min() >= 0 and law.masses.sum() + law.lost == pytest.approx(1, abs=1e-9)


def test_tangents_stay_below_and_near():
    """Events of a Gaussian pair: the loss above the middle of each cell, or below it where that is below zero."""
    place = GRID.middles() / MU + MU / 2
    sign = np.where(GRID.middles() > 0, 1.0, -1.0)
    for law in from_tangents(GRID, norm.sf(sign * (place - MU)), norm.sf(sign * place)):
        gap = gaussian(EPSILONS) - profile(law, EPSILONS)
        assert gap.min() > -1e-12 and gap.max() < 0.05**2
        assert law.lost == 0 and law.masses.min() >= 0


ATOMS = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=6)


@settings(max_examples=20)
@given(ATOMS, st.floats(0, 0.1), st.integers(0, 6), st.integers(0, 6))
def test_atoms_dominate_their_laws_wherever_more_mass_is(pairs, beyond, p_place, q_place):
    """By the hockey stick written out, sum of (p - e^epsilon q)+; a kink between grid points costs two steps."""
    p, q = (np.array(side) / sum(side) * (1 - beyond) for side in zip(*pairs, strict=True))
    laws = from_atoms(GRID, p, q, beyond)
    p, q = np.append(p, 0.0), np.append(q, 0.0)
    p[min(p_place, len(pairs))] += beyond
    q[min(q_place, len(pairs))] += beyond
    for law, (a, b) in zip(laws, ((p, q), (q, p)), strict=True):
        found, exact = profile(law, EPSILONS), np.maximum(a - np.exp(EPSILONS)[:, None] * b, 0).sum(axis=1)
        assert (found <= exact + 1e-11).all()
        if beyond == 0:
            assert (found >= exact - 2.2 * GRID.step).all()


def test_randomised_response_on_the_grid_is_kept():
    """(3/4, 1/4) against (1/4, 3/4), losses +- ln 3: masses 3/4 and 1/4, but for the error allowed to atoms."""
    grid = LossGrid(-60, 60, math.log(3) / 50)
    for law in from_atoms(grid, np.array([0.25, 0.75]), np.array([0.75, 0.25])):
        kept = law.losses[law.masses > 1e-6]
        assert profile(law, [0.0])[0] == pytest.approx(0.5, rel=0.02)
        assert profile(law, [0.0])[0] <= 0.5 * (1 - ATOM_ERROR)
        np.testing.assert_allclose([kept.min(), kept.max()], [-math.log(3), math.log(3)], atol=2.01 * grid.step)


def test_a_law_cut_into_other_cells_keeps_the_mass_of_both_sides():
    law = GridLaw(-0.37, 0.1, np.array([0.1, 0.0, 0.2, 0.3, 0.25, 0.1]), 0.05)
    for step in (0.03, 0.1, 0.27):
        cells = regrid(law, step)
        ends = cells.origin + np.arange(cells.below.size + 1) * step
        np.testing.assert_allclose(ends / step, np.round(ends / step), atol=1e-9)
        masses = np.append(cells.below, 0.0) + np.append(0.0, cells.above)
        assert masses.sum() == pytest.approx(0.95, rel=1e-12) and cells.lost == 0.05
        assert masses @ np.exp(-ends) == pytest.approx(law.masses @ np.exp(-law.losses), rel=1e-12)
        assert masses @ ends == pytest.approx(law.masses @ law.losses, abs=step**2 / 8)


def test_grids_reach_their_ends_and_are_as_fine_as_they_say():
    grid = grid_between(1.0, 3.0, 0.04, 100)
    assert grid.losses[0] <= -1.0 and grid.losses[-1] >= 3.0 and grid.losses[-grid.first] == 0.0
    assert grid.step <= 0.2 / 30 and grid.step == step_of_sum(0.04, 100)
    assert grid_between(1.0, 3.0, 0.04, 100, places=50).step == 4 / 50
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.2, 0.3, 0.4, 0.1])
    fitted = fitting_grid(np.repeat(p, 300), np.repeat(q, 300), 1)
    assert fitted.losses[0] <= math.log(0.5) and math.log(2.5) <= fitted.losses[-1] < math.log(2.5) + fitted.step


@given(st.floats(1e-6, 1), st.integers(1, 250_000))
def test_the_steps_of_a_sum_move_its_mean_by_less_than_1e_5(variance, steps):
    """A loss moved to the ends of its cell has step^2/12 more mean; epsilon is about steps variance / 2, or 1."""
    moved = steps * step_of_sum(variance, steps) ** 2 / 12
    assert moved <= 1e-5 * (1 + steps * variance / 2)
