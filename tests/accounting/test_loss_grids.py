"""Laws on a grid, against the exact profile of their atoms and profiles that are written out."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.loss_grids import (
    ATOM_ERROR,
    Cells,
    GridLaw,
    LossGrid,
    fitting_grid,
    from_atoms,
    from_points,
    from_tangents,
    grid_between,
    optimistic,
    pessimistic,
    regrid,
    step_of_sum,
)


def profile(losses: np.ndarray, masses: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """E[(1 - e^(epsilon - loss))_+], term by term."""
    return (masses * np.maximum(0.0, -np.expm1(epsilon[:, None] - losses))).sum(axis=1)


def cells_of(losses: np.ndarray, masses: np.ndarray, step: float, count: int) -> Cells:
    """Atoms cut into cells from -1 on: the shares that keep the mass and the mean of e^-loss."""
    owner = np.floor((losses + 1) / step).astype(int)
    above = masses * np.expm1(-(losses + 1 - owner * step)) / math.expm1(-step)
    return Cells(-1.0, step, np.bincount(owner, masses - above, count), np.bincount(owner, above, count), 0.0)


@settings(max_examples=100, deadline=None)
@given(
    atoms=st.lists(st.tuples(st.floats(-0.99, 0.99), st.floats(1e-6, 1.0)), min_size=1, max_size=12),
    count=st.integers(3, 60),
)
@example(atoms=[(0.09090909090909073, 0.00040167570662703487), (-0.6363636363636364, 0.999598324293373)], count=11)
def test_the_grid_laws_lie_on_their_sides_of_the_truth(atoms, count):
    losses, masses = np.array(atoms).T
    masses = masses / masses.sum()
    cells = cells_of(losses, masses, 2.0 / count, count)
    above, below = pessimistic(cells), optimistic(cells)
    assert np.all(below.masses >= 0)
    epsilon = np.linspace(-2, 1.5, 701)
    truth = profile(losses, masses, epsilon)
    assert np.all(profile(above.losses, above.masses, epsilon) >= truth - 1e-12)
    assert np.all(profile(below.losses, below.masses, epsilon) <= truth + 1e-12)


def test_steps_whose_exponential_is_no_float_are_rounded_down():
    cells = Cells(-2000.0, 1000.0, np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.1, 0.0]), 0.0, (0.0, 0.1, 0.1), 2)
    below = optimistic(cells)
    assert below.masses == pytest.approx([0.2, 0.3, 0.5, 0.0]) and below.losses == pytest.approx(
        [-2000, -1000, 0, 1000]
    )


def test_both_sides_come_near_a_smooth_law_with_the_square_of_the_step():
    losses = np.linspace(-0.9, 0.9, 4001)
    masses = np.exp(-((losses - 0.1) ** 2) / 0.02)
    masses /= masses.sum()
    epsilon = np.linspace(-0.3, 0.6, 91)
    truth, errors = profile(losses, masses, epsilon), []
    for count in (100, 200):
        cells = cells_of(losses, masses, 2.0 / count, count)
        sides = [profile(law.losses, law.masses, epsilon) for law in (pessimistic(cells), optimistic(cells))]
        errors.append([np.max(np.abs(side - truth)) for side in sides])
    assert np.all(np.array(errors[1]) < np.array(errors[0]) / 3)


def test_a_law_on_the_same_grid_stays_as_it_is():
    """A loss that floats put beside its place would be cut in two, and the largest lost what it adds."""
    grid = LossGrid(-6303, 2, 0.004139658782040611)
    masses = np.zeros(6306)
    masses[[0, 3000, -3, -2, -1]] = 1e-9, 1e-4, 0.003, 0.04, 0.9
    law = GridLaw(grid.first * grid.step, grid.step, masses)
    for rounding in (pessimistic, optimistic):
        kept = rounding(regrid(law, grid.step))
        support = kept.masses > 0
        assert kept.masses[support] == pytest.approx(masses[masses > 0], rel=1e-12)
        assert kept.losses[support] == pytest.approx(law.losses[masses > 0], rel=1e-12)


# Losses on a grid from profiles whose laws are written out: randomised response, and one Gaussian step.

MU = 1.3
EPSILONS = np.linspace(-6, 6, 97)
GRID = LossGrid(-120, 120, 0.05)


def stated_profile(law: GridLaw, epsilon) -> np.ndarray:
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
        np.testing.assert_allclose(stated_profile(law, losses[1:-1]), gaussian(losses[1:-1]), rtol=1e-9, atol=1e-12)
        gap = stated_profile(law, EPSILONS) - gaussian(EPSILONS)
        assert gap.min() > -1e-12 and gap.max() < 0.05**2 / 8
        assert law.masses.min() >= 0 and law.masses.sum() + law.lost == pytest.approx(1, abs=1e-9)


def test_tangents_stay_below_and_near():
    """Events of a Gaussian pair: the loss above the middle of each cell, or below it where that is below zero."""
    place = GRID.middles() / MU + MU / 2
    sign = np.where(GRID.middles() > 0, 1.0, -1.0)
    for law in from_tangents(GRID, norm.sf(sign * (place - MU)), norm.sf(sign * place)):
        gap = gaussian(EPSILONS) - stated_profile(law, EPSILONS)
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
        found, exact = stated_profile(law, EPSILONS), np.maximum(a - np.exp(EPSILONS)[:, None] * b, 0).sum(axis=1)
        assert (found <= exact + 1e-11).all()
        if beyond == 0:
            assert (found >= exact - 2.2 * GRID.step).all()


def test_randomised_response_on_the_grid_is_kept():
    """(3/4, 1/4) against (1/4, 3/4), losses +- ln 3: masses 3/4 and 1/4, but for the error allowed to atoms."""
    grid = LossGrid(-60, 60, math.log(3) / 50)
    for law in from_atoms(grid, np.array([0.25, 0.75]), np.array([0.75, 0.25])):
        kept = law.losses[law.masses > 1e-6]
        assert stated_profile(law, [0.0])[0] == pytest.approx(0.5, rel=0.02)
        assert stated_profile(law, [0.0])[0] <= 0.5 * (1 - ATOM_ERROR)
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
def test_the_steps_of_a_sum_move_its_mean_by_about_5e_6(variance, steps):
    """A loss moved to the ends of its cell has step^2/12 more mean; epsilon is about steps variance / 2, or 1."""
    step = step_of_sum(variance, steps)
    moved = steps * step**2 / 12 / (1 + steps * variance / 2)
    assert moved <= 1e-5
    assert moved >= 4e-6 or step >= 1e-3  # finer would cost time
