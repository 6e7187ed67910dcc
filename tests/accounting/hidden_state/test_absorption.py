import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.hidden_state import best_restart, least_energy

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
