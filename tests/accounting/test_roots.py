"""The root searches against roots known in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.numerics import binned, falling_zero, least_noise, root, zero_between


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-12, 1e12), st.sampled_from([2, 3, 7]))
def test_root_is_exact_to_the_last_bits(target, power):
    found = root(lambda x, y: x**power / y - 1, 0.0, 1 + target, target)
    assert np.isclose(found, target ** (1 / power), rtol=1e-14, atol=0)


def test_root_broadcasts_and_keeps_the_shape():
    targets = np.array([[1.0, 4.0], [9.0, 16.0]])
    assert np.allclose(root(lambda x, y: y - x**2, 0.0, 100.0, targets), np.sqrt(targets), rtol=1e-14)
    assert root(lambda x: x - 1, 0.0, np.empty((0,))).shape == (0,)


def test_without_a_change_of_sign_the_nearer_end_is_returned():
    assert root(lambda x: x + 1, 0.0, 2.0) == 0.0
    assert root(lambda x: x - 3, 0.0, 2.0) == 2.0
    assert root(lambda x: x - 2, 0.0, 2.0) == 2.0


@settings(max_examples=50, deadline=None)
@given(st.floats(-20, 20), st.floats(0.3, 4), st.floats(-20, 20))
def test_the_least_noise_is_found_in_few_looks(zero, power, start):
    looks = []

    def excess(x: float) -> float:
        looks.append(x)
        return power * (zero - x) + 0.1 * math.tanh(zero - x)

    found = least_noise(excess, start, slope=-1.0, room=1e-6, longest=3.0, tries=60)
    assert -1e-6 <= excess(found) <= 0
    assert len(looks) < 30


def test_where_the_least_noise_is_at_an_end_or_nowhere():
    assert least_noise(lambda x: -math.inf, 3.0, slope=-1.0, room=1e-6, longest=1.0, low=-2.0, high=5.0) == -2.0
    assert least_noise(lambda x: 1.0, 3.0, slope=-1.0, room=1e-6, low=-2.0, high=5.0) is None
    assert least_noise(lambda x: 1.0 - 2 * (x > 1), 0.0, slope=-1.0, room=1e-6, high=5.0, tries=9) == pytest.approx(
        1, abs=1
    )
    assert least_noise(lambda x: 1.0, 0.0, slope=-1.0, room=1e-6, high=5.0, known=True, tries=1) == 5.0


def test_a_jump_is_halved_to_its_last_bit():
    assert least_noise(lambda x: 1.0 - 2 * (x >= 0.3), 0.0, slope=-1.0, room=1e-6, tries=200) == 0.3


def test_an_infinite_excess_is_left_by_finite_steps():
    def excess(x: float) -> float:
        return math.inf if x < 2 else -math.inf if x > 6 else 4 - x

    for start in (-3.0, 9.0):
        assert least_noise(excess, start, slope=-1.0, room=1e-6, tries=60) == pytest.approx(4, abs=1e-6)


def test_a_zero_between_two_ends_is_found_or_refused():
    assert math.isclose(zero_between(lambda x: math.exp(x) - 2, 0.0, 5.0), math.log(2), rel_tol=1e-14)
    with pytest.raises(ArithmeticError, match="no zero was found"):
        zero_between(lambda x: math.exp(x) - 2, 0.0, 5.0, looks=2)
    assert 0 < zero_between(lambda x: math.exp(x) - 2, 0.0, 5.0, looks=2, settled=False) < 5


@given(st.floats(1e-6, 1e3), st.floats(0.1, 10))
def test_a_falling_zero_is_on_the_side_that_is_not_exceeded(zero, slope):
    def excess(x):
        return slope * (zero - x) ** 3

    found = falling_zero(excess, 2 * zero, xtol=1e-10)
    assert excess(found) <= 0 or found == 2 * zero
    assert found <= zero + 1e-8
    assert falling_zero(excess, zero / 2, xtol=1e-10) == zero / 2
    assert falling_zero(lambda x: -1.0, 3.0, xtol=1e-10) == 0


def test_masses_are_summed_by_their_index():
    index, masses = np.array([3, 0, 3, 1]), np.array([0.5, 0.25, 1.0, 2.0])
    assert binned(index, masses, 5).tolist() == [masses[index == each].sum() for each in range(5)]
