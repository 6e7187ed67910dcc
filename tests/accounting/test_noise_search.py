"""Searches for the least noise against curves whose root is known: powers, Gaussian DP, jumps."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.guarantees import LEAST_NOISE, TOLERANCE, corrected_search, no_less, search

FIRST_LOOK = st.floats(-2.3, 2.3)  # ln of the first look over the root
POWERS = st.floats(0.6, 8)  # the steepest: a record whose chance of use is just above delta


class Curve:
    """The curve target (root/noise)^power, which counts how often it is asked; rough answers are `off` by a factor."""

    def __init__(self, root, power, target=1.0, off=1.0):
        self.root, self.power, self.target, self.off = root, power, target, off
        self.looks = self.rough_looks = 0

    def __call__(self, noise, *, rough=False):
        self.rough_looks += rough
        self.looks += not rough
        return self.target * (self.root / noise) ** self.power * (self.off if rough else 1.0)

    def found_by(self, noise):
        """True where the noise is on the safe side of the root, and spends all but TOLERANCE of the target."""
        return 1 - 1e-12 <= noise / self.root <= (1 - TOLERANCE) ** (-1 / self.power) * (1 + 1e-12)


@given(st.floats(-4, 4), POWERS, FIRST_LOOK, st.floats(0.01, 5), st.floats(-3, 3))
def test_powers_are_solved_on_the_safe_side(log_root, power, look, room, log_target):
    curve = Curve(math.exp(log_root), power, math.exp(log_target))
    noise = search(curve, curve.target, curve.root * math.exp(room), curve.root * math.exp(look))
    assert curve.found_by(noise) and curve.looks <= 12


@given(st.floats(-2, 4), POWERS, FIRST_LOOK, st.floats(0.9, 1.1))
def test_a_corrected_search_needs_few_looks_that_are_not_rough(log_root, power, look, off):
    curve = Curve(math.exp(log_root), power, off=off)
    noise = corrected_search(curve, 1.0, 20 * curve.root, curve.root * math.exp(look))
    assert curve.found_by(noise) and curve.looks <= 6 and curve.rough_looks > 0


@settings(max_examples=15)
@given(st.floats(0.05, 20), st.floats(-9, -2), FIRST_LOOK)
def test_full_batches_have_their_closed_form(target, exponent, look):
    """One step of noise z is 1/z-Gaussian DP, so the root is 1/mu, found independently by `gaussian_dp.mu`."""
    delta = 10**exponent
    root = 1 / float(gaussian_dp.mu(target, delta))
    noise = search(lambda z: float(gaussian_dp.epsilon(delta, 1 / z)), target, 3 * root, root * math.exp(look))
    assert root * (1 - 1e-9) <= noise <= root * (1 + 2e-5)


@pytest.mark.parametrize("find", [search, corrected_search])
def test_at_a_jump_over_the_target_the_noise_is_that_of_the_jump(find):
    noise = find(lambda z, rough=False: 5.0 if z < 0.37 else 0.2, 1.0, 10.0, 1.0)
    assert 0.37 <= noise <= 0.37 * (1 + 1e-4)


@pytest.mark.parametrize("find", [search, corrected_search])
def test_no_noise_is_needed_where_nothing_is_ever_spent(find):
    assert find(lambda z, rough=False: 0.0, 1.0, 10.0, 1.0) == 0.0


@pytest.mark.parametrize("find", [search, corrected_search])
def test_the_least_noise_is_the_answer_where_less_would_do(find):
    assert find(lambda z, rough=False: 1e-4 / z, 1.0, 10.0, 1.0) == LEAST_NOISE


def test_where_only_enough_is_enough_that_is_the_answer():
    assert search(lambda z: 1.0 if z >= 10.0 else 2.0, 1.0, 10.0, 1.0) == pytest.approx(10.0, rel=1e-4)
    assert search(lambda z: 1.0 if z >= 10.0 else 2.0, 1.0, 10.0, 1.0) >= 10.0 * (1 - 1e-15)


def test_no_less_adds_only_what_rounding_takes():
    assert no_less(lambda z: 1 / z, 1.0, 1.0) == 1.0
    found = no_less(lambda z: 1 / z, 1.0, 1.0 - 5e-11)
    assert 1.0 <= found <= 1.0 + 1e-11
