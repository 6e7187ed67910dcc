"""Shifted interpolation: the step, the cheapest shifts, and mu against exact quadratics."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.contraction import contraction_factor
from dpfl.accounting.hidden_state import (
    best_restart,
    diameter_in_shifts,
    least_energy,
    shifted_interpolation_mu,
    step_contraction,
)

# One noisy gradient step.

SHARE = st.floats(0.01, 1.0)


@given(smoothness=st.floats(0.01, 100), convex_share=st.floats(0, 1), step=SHARE)
def test_contraction_is_the_largest_slope_of_a_quadratic_step(smoothness, convex_share, step):
    eta, convexity = 2 * step / smoothness, convex_share * smoothness
    curvatures = np.linspace(convexity, smoothness, 50)
    factor = step_contraction(eta, smoothness, convexity)
    assert factor == pytest.approx(np.max(np.abs(1 - eta * curvatures)), abs=1e-12)
    assert 0 <= factor <= 1


@given(smoothness=st.floats(0.01, 100), convex_share=st.floats(0, 1), step=SHARE)
def test_contraction_is_never_above_that_of_asoodeh2020(smoothness, convex_share, step):
    convexity = convex_share * smoothness
    eta = step * 2 / (smoothness + convexity)
    published = contraction_factor(eta, smoothness, convexity)
    assert step_contraction(eta, smoothness, convexity) <= published + 1e-9


def test_convex_losses_do_not_contract():
    assert step_contraction(0.5, 1.0, 0.0) == 1.0
    assert step_contraction(2.0, 1.0, 0.5) == 1.0


def test_diameter_is_counted_in_shifts_of_one_step():
    keywords = {"step_size": 0.5, "lipschitz": 2.0, "batch_size": 10}
    assert diameter_in_shifts(3.0, neighbouring="zero_out", **keywords) == 30.0
    assert diameter_in_shifts(3.0, neighbouring="replace_one", **keywords) == 15.0
    assert diameter_in_shifts(np.inf, neighbouring="zero_out", **keywords) == np.inf


# The cheapest way to absorb a record's shifts.

FACTOR = st.one_of(st.just(1.0), st.just(0.0), st.floats(0.05, 1.0))


def schedule(uses, period, gap, tail):
    """0 or 1 for each step after a restart, as `least_energy` counts them."""
    steps = max(uses - 1, 0) * period + (gap if uses else 0) + tail
    marks = np.zeros(steps)
    for i in range(1, uses):
        marks[i * period - 1] = 1
    if uses:
        marks[(uses - 1) * period + gap - 1] = 1
    return marks


@settings(max_examples=100)
@given(data=st.data(), factor=FACTOR, uses=st.integers(0, 4), period=st.integers(1, 4), tail=st.integers(0, 3))
def test_energy_is_that_of_a_numerical_least_squares_solution(exact, data, factor, uses, period, tail):
    gap = data.draw(st.integers(1, period))
    start = data.draw(st.one_of(st.just(0.0), st.floats(0.01, 20)))
    found = least_energy(factor, uses, period=period, gap=gap, tail=tail, start=start)
    if uses == 0 and tail == 0:
        assert found == (np.inf if start else 0.0)
        return
    assert found == pytest.approx(exact.least_energy(factor, schedule(uses, period, gap, tail), start), rel=1e-8)


@settings(max_examples=100)
@given(data=st.data(), factor=FACTOR, epochs=st.integers(1, 4), period=st.integers(1, 4), start=st.floats(0, 5))
def test_no_order_of_shuffled_epochs_costs_more_than_last_places(exact, data, factor, epochs, period, start):
    places = [data.draw(st.integers(1, period)) for _ in range(epochs)]
    marks = np.zeros(epochs * period)
    for epoch, place in enumerate(places):
        marks[epoch * period + place - 1] = 1
    worst = least_energy(factor, epochs, period=period, gap=period, tail=0, start=start)
    assert exact.least_energy(factor, marks, start) <= worst * (1 + 1e-9) + 1e-12
    known = least_energy(factor, epochs, period=period, gap=places[-1], tail=period - places[-1], start=start)
    assert exact.least_energy(factor, marks, start) <= known * (1 + 1e-9) + 1e-12


@settings(max_examples=60)
@given(factor=FACTOR, uses=st.integers(1, 3000), period=st.integers(1, 30), diameter=st.floats(0.1, 3000))
def test_the_restart_is_the_best_of_all(factor, uses, period, diameter):
    energies = least_energy(factor, np.arange(uses), period=period, gap=period, tail=0, start=diameter)
    found = best_restart(factor, uses, period=period, gap=period, tail=0, diameter=diameter)
    assert energies[found] == pytest.approx(energies.min(), rel=1e-12)


def test_far_steps_do_not_overflow():
    energy = least_energy(0.5, np.array([10.0, 1e7]), period=3, gap=np.array([3.0, 1.0]), tail=0, start=1e6)
    assert np.all(np.isfinite(energy)) and np.all(energy >= 1)


# Shifted interpolation: the step, the cheapest shifts, and mu against exact quadratics.

# Reference values worked out by two routes: (contraction, steps, noise, diameter, upper bound, attained mu or None).
PROJECTED = [
    (0.99, 300, 3.0, 20.0, 2.82137634808705, 1.546876379507955),
    (0.95, 100, 4.0, 10.0, 1.35226136891582, 0.5475677957616459),
    (1.0, 80, 8.0, 20.0, 1.11803398874989, 0.28688076391095396),
    (0.999, 400, 5.0, 15.0, 1.54299661585334, 0.5193013448423043),
    (0.9, 50, 1.5, 5.0, None, 1.6200951213431949),
]
STEP_FACTOR = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
NOISE = st.floats(0.3, 10)


@pytest.mark.parametrize(("factor", "steps", "noise", "diameter", "upper", "attained"), PROJECTED)
def test_projected_reference_values(factor, steps, noise, diameter, upper, attained):
    run = {"contraction": factor, "steps": steps, "noise_over_shift": noise}
    mu = shifted_interpolation_mu(**run, diameter_over_shift=diameter)
    if upper is not None:
        assert mu == pytest.approx(upper, abs=1e-9)
    assert attained <= mu <= shifted_interpolation_mu(**run) + 1e-12


@given(factor=STEP_FACTOR, steps=st.integers(1, 500), noise=NOISE)
def test_full_batches_without_projection_are_exact_for_a_quadratic(factor, steps, noise):
    mu = shifted_interpolation_mu(steps=steps, contraction=factor, noise_over_shift=noise)
    powers = factor ** np.arange(steps)
    assert mu == pytest.approx(powers.sum() / math.sqrt((powers**2).sum()) / noise, rel=1e-10)
    if factor < 0.999:  # the closed form of the theorem
        closed = (1 - factor**steps) / (1 + factor**steps) * (1 + factor) / (1 - factor)
        assert mu == pytest.approx(math.sqrt(closed) / noise, rel=1e-9)


@settings(max_examples=60)
@given(
    curvatures=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=5),
    eta=st.floats(0.05, 1.9),
    steps=st.integers(1, 60),
    period=st.integers(1, 8),
    data=st.data(),
)
def test_no_diagonal_quadratic_violates_the_bound(curvatures, eta, steps, period, data):
    direction = np.array([data.draw(st.floats(0.01, 1)) for _ in curvatures])
    direction /= np.linalg.norm(direction)
    offset = data.draw(st.integers(0, period - 1))
    maps = 1 - eta * np.array(curvatures)
    left = steps - 1 - np.arange(steps)
    uses = (np.arange(steps) % period == offset).astype(float)
    means = np.array([np.sum(uses * factor**left) for factor in maps]) * direction
    spread = np.sqrt([np.sum(factor ** (2.0 * left)) for factor in maps])
    bound = shifted_interpolation_mu(
        steps=steps, contraction=np.max(np.abs(maps)), noise_over_shift=1.0, steps_per_epoch=period
    )
    assert np.linalg.norm(means / spread) <= bound * (1 + 1e-10)


@settings(max_examples=12, deadline=None)
@given(
    factor=STEP_FACTOR,
    sign=st.sampled_from([-1, 1]),
    steps=st.integers(1, 40),
    period=st.integers(1, 5),
    diameter=st.floats(0.5, 12),
    noise_share=st.floats(0.05, 1.0),
    drift=st.floats(-1, 1),
    start=st.floats(-0.5, 0.5),
)
def test_no_projected_quadratic_violates_the_bound(
    exact, factor, sign, steps, period, diameter, noise_share, drift, start
):
    noise = max(noise_share * diameter, 0.15)
    bound = shifted_interpolation_mu(
        steps=steps,
        contraction=factor,
        noise_over_shift=noise,
        diameter_over_shift=diameter,
        steps_per_epoch=period,
    )
    uses = ((steps - 1 - np.arange(steps)) % period == 0).astype(float)
    thresholds = np.linspace(-diameter / 2, diameter / 2, 41)[1:-1]
    law = {"noise": noise, "thresholds": thresholds, "diameter": diameter, "start": start * diameter}
    one = exact.half_line(sign * factor, np.full(steps, drift), **law)
    two = exact.half_line(sign * factor, drift + uses, **law)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        assert exact.half_line_delta(epsilon, one, two) <= gaussian_dp.delta(epsilon, bound) + 1e-11


def test_the_kernel_iteration_reproduces_an_attained_reference_value(exact):
    law = {"noise": 4.0, "thresholds": np.array([-0.004686035613870487]), "diameter": 10.0, "start": -5.0}
    one = exact.half_line(0.95, np.full(100, -0.5), **law)
    two = exact.half_line(0.95, np.full(100, 0.5), **law)
    assert ndtri(two[0]) - ndtri(one[0]) == pytest.approx(0.5475677957616459, abs=2e-4)


@given(factor=STEP_FACTOR, epochs=st.integers(1, 80), period=st.integers(2, 40), noise=NOISE)
def test_cyclic_batches_give_the_published_closed_form(factor, epochs, period, noise):
    mu = shifted_interpolation_mu(
        steps=epochs * period, contraction=factor, noise_over_shift=noise, steps_per_epoch=period
    )
    if factor < 0.999:
        power = factor ** (period * (epochs - 1))
        later = factor ** (2 * period - 2) * (1 - factor**2) / (1 - factor**period) ** 2 * (1 - power) / (1 + power)
        assert mu == pytest.approx(math.sqrt(1 + later) / noise, rel=1e-8)
    elif factor == 1.0:
        assert mu == pytest.approx(math.sqrt(1 + (epochs - 1) / period) / noise, rel=1e-12)


@given(period=st.integers(1, 40), diameter=st.floats(1, 200), spare=st.integers(0, 50), noise=NOISE)
def test_constrained_batches_never_exceed_the_published_closed_form(period, diameter, spare, noise):
    epochs = math.ceil(diameter) + 1 + spare
    mu = shifted_interpolation_mu(
        steps=epochs * period,
        contraction=1.0,
        noise_over_shift=noise,
        diameter_over_shift=diameter,
        steps_per_epoch=period,
    )
    moved = 3 * diameter + math.ceil(diameter)
    published = math.sqrt(moved) if period == 1 else math.sqrt(1 + moved / period)
    assert mu <= published / noise * (1 + 1e-12)


@settings(max_examples=100)
@example(factor=1.0, steps=10, period=2, diameter=1.0)
@given(factor=STEP_FACTOR, steps=st.integers(1, 18), period=st.integers(1, 5), diameter=st.floats(0.1, 30))
def test_no_restart_at_any_step_is_better(exact, factor, steps, period, diameter):
    uses = ((steps - 1 - np.arange(steps)) % period == 0).astype(float)
    every = [exact.least_energy(factor, uses, 0.0)]
    every += [exact.least_energy(factor, uses[tau:], diameter) for tau in range(1, steps)]
    mu = shifted_interpolation_mu(
        steps=steps,
        contraction=factor,
        noise_over_shift=1.0,
        diameter_over_shift=diameter,
        steps_per_epoch=period,
    )
    assert mu**2 == pytest.approx(min(every), rel=1e-7)


@given(factor=STEP_FACTOR, steps=st.integers(1, 300), period=st.integers(1, 20), diameter=st.floats(0.1, 100))
def test_bound_never_exceeds_composition_and_grows_with_the_set(factor, steps, period, diameter):
    run = {"steps": steps, "contraction": factor, "noise_over_shift": 1.0, "steps_per_epoch": period}
    small = shifted_interpolation_mu(**run, diameter_over_shift=diameter)
    wide = shifted_interpolation_mu(**run, diameter_over_shift=2 * diameter)
    free = shifted_interpolation_mu(**run)
    assert small <= wide * (1 + 1e-12) and wide <= free * (1 + 1e-12)
    assert free <= math.sqrt(-(-steps // period)) * (1 + 1e-12)


def test_edges():
    run = {"contraction": 0.9, "noise_over_shift": 2.0}
    assert shifted_interpolation_mu(steps=0, **run) == 0.0
    assert shifted_interpolation_mu(steps=1, **run) == pytest.approx(0.5, rel=1e-14)
    assert shifted_interpolation_mu(steps=10**7, contraction=1.0, noise_over_shift=1.0) == pytest.approx(math.sqrt(1e7))
    assert shifted_interpolation_mu(steps=9, contraction=0.0, noise_over_shift=1.0) == pytest.approx(1.0)
    assert shifted_interpolation_mu(steps=[1, 2], **run).shape == (2,)
