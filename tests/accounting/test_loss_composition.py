"""Losses on a grid against the exact profile of their atoms, and sums of them against plain convolution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dpfl.accounting import composition
from dpfl.accounting.composition import Cells, Composition, GridLaw, optimistic, pessimistic


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


def test_an_epsilon_beyond_all_places_has_no_gain():
    law = GridLaw(-1e-290, 1e-300, np.array([0.5, 0.5]))
    assert Composition([(law, 10)], 1.0).log_delta_above(1e20) < -1e10


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


@pytest.mark.parametrize(("epsilon", "tilt"), [(0.5, 0.5), (2.0, 2.0), (4.0, 20.0), (5.0, 20.0)])
def test_a_sum_keeps_its_digits_where_delta_is_tiny(epsilon, tilt):
    law = GridLaw(-0.4, 0.1, np.array([0.1, 0.1, 0.15, 0.2, 0.2, 0.1, 0.08, 0.05, 0.019, 0.001]))
    other = GridLaw(-0.1, 0.1, np.array([0.5, 0.3, 0.2]), lost=1e-40)
    plain, start = np.ones(1), 0.0
    for each, times in ((law, 12), (other, 5)):
        for _ in range(times):  # sums of products of positive numbers: each keeps its digits
            plain, start = np.convolve(plain, each.masses), start + each.origin
    exact = profile(start + 0.1 * np.arange(plain.size), plain, np.array([epsilon]))[0]
    composition = Composition([(law, 12), (other, 5)], tilt=tilt)
    lower, upper = composition.log_delta_below(epsilon), composition.log_delta_above(epsilon)
    assert lower <= math.log(exact + 5e-40) + 1e-9
    assert math.log(exact) <= upper + 1e-9
    assert upper - lower < 1e-6
    assert composition.doubt(epsilon) < 1e-6


@pytest.mark.parametrize("tilt", [0.0, 1.0, 50.0])
def test_a_tilt_that_does_not_fit_widens_the_bounds_only(tilt):
    law = GridLaw(-0.4, 0.1, np.array([0.1, 0.1, 0.15, 0.2, 0.2, 0.1, 0.08, 0.05, 0.019, 0.001]))
    plain = np.ones(1)
    for _ in range(12):
        plain = np.convolve(plain, law.masses)
    composition = Composition([(law, 12)], tilt=tilt)
    for epsilon in (0.5, 2.0, 4.5):
        exact = math.log(profile(-4.8 + 0.1 * np.arange(plain.size), plain, np.array([epsilon]))[0])
        assert composition.log_delta_below(epsilon) <= exact + 1e-9
        assert exact <= composition.log_delta_above(epsilon) + 1e-9


def test_grids_of_different_steps_are_refused():
    laws = [(GridLaw(0.0, step, np.array([0.5, 0.5])), 2) for step in (0.1, 0.2)]
    with pytest.raises(ValueError, match="phases"):
        Composition(laws, 1.0)


@pytest.mark.parametrize("jump", [0, 40, 100])
@pytest.mark.parametrize("tilt", [0.05, 0.3, 2.0])
def test_a_sum_that_the_places_do_not_reach_across_is_bounded(tilt, jump, monkeypatch):
    """What wraps around the ends may be above epsilon, below the grid as well: against the law of the sum itself."""
    monkeypatch.setattr(composition, "MOST_PLACES", 1 << 10)
    steps, chance, rare = 60, 0.7, 1e-6
    often, once = np.zeros(201), np.zeros(100 * jump + 1)
    often[[0, 200]] = 1 - chance, chance
    once[0], once[-1] = 1 - rare, once[-1] + rare
    sums = Composition([(GridLaw(-1.0, 0.01, often), steps), (GridLaw(0.0, 0.01, once / once.sum()), 1)], tilt)
    epsilon = np.linspace(0, 59 + jump, 119)
    uses = np.arange(steps + 1)
    chances = binom.pmf(uses, steps, chance)
    losses, masses = 2.0 * uses - steps, np.append((1 - rare) * chances, rare * chances)
    truth = profile(np.append(losses, losses + jump), masses, epsilon)
    above, below = (np.array([bound(e) for e in epsilon]) for bound in (sums.log_delta_above, sums.log_delta_below))
    assert np.all(above >= np.log(truth) - 1e-9)
    assert np.all(below <= np.log(truth) + 1e-9)
