"""Checked arguments, functions over arrays, root searches and stable ratios, each against what it should be."""

import math
from decimal import Decimal
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import (
    binned,
    by_element,
    exponential,
    falling_zero,
    integer,
    integers,
    least_noise,
    member,
    place,
    power,
    probability,
    ratio,
    real,
    reals,
    require_at_most,
    root,
    zero_between,
)

pytestmark = pytest.mark.filterwarnings("error")


# Checks of arguments.


@pytest.mark.parametrize(
    ("value", "bounds", "words"),
    [
        (math.nan, {}, "not NaN"),
        (math.inf, {}, "finite"),
        (-math.inf, {"infinite": True}, "finite"),
        ([1.0, -2.0, -3.0], {"at_least": 0}, "at least 0, got -2.0"),
        (0.0, {"above": 0}, "above 0"),
        (1.5, {"at_most": 1}, "at most 1"),
        (1.0, {"below": 1}, "below 1"),
        ("one", {}, "'one'"),
        ([[1], [1, 2]], {}, "real number"),
        pytest.param(10**400, {}, "range of float64", id="10**400"),
        ([1.0, -(10**400)], {}, "range of float64"),
        (None, {}, "not NaN"),
        *[(value, {}, "real number") for value in (True, np.array([True, False]), "1", ["1", "2"], 1j, b"1", object)],
    ],
)
def test_the_argument_and_its_first_wrong_element_are_named(value, bounds, words):
    with pytest.raises(ValueError, match=r"^sigma must be") as caught:
        reals("sigma", value, **bounds)
    assert words in str(caught.value)


def test_the_first_element_above_its_limit_is_named_with_the_limit():
    require_at_most("m", [1, 2, 3], "n", [1, 2, 3])
    for values, limits in (([1, 5, 6], 4), (5, [6, 4]), ([[1], [5]], [4, 6])):
        with pytest.raises(ValueError, match=r"^m must be at most n = 4, got 5$"):
            require_at_most("m", values, "n", limits)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_what_is_in_range_comes_back_unchanged(values):
    assert reals("x", values).tolist() == values


def test_other_kinds_of_real_numbers_are_taken():
    for value in (Fraction(1, 4), Decimal("0.25"), mp.mpf("0.25"), np.float32(0.25), np.array(0.25)):
        assert real("x", value) == 0.25
    assert integer("n", np.int8(3)) == integer("n", 3) == 3
    assert reals("x", 10**25) == 1e25


def test_one_number_and_whole_numbers():
    assert real("delta", np.float32(0.5), above=0, below=1) == 0.5
    assert reals("r", math.inf, infinite=True) == math.inf
    assert integer("n", 3.0) == 3
    for call in (lambda: real("delta", [0.1, 0.2]), lambda: integer("n", 10 / 3), lambda: integer("n", -1)):
        with pytest.raises(ValueError, match="must be"):
            call()


def test_arrays_of_whole_numbers():
    assert integers("rounds", [1, 2.0, 1e9]).tolist() == [1.0, 2.0, 1e9]
    with pytest.raises(ValueError, match=r"^rounds must be a whole number, got 2\.5"):
        integers("rounds", [1, 2.5, 3.5])
    with pytest.raises(ValueError, match="at least 1"):
        integers("rounds", [1, 0], at_least=1)


@pytest.mark.parametrize("each", list(Neighbouring))
def test_a_choice_is_found_by_itself_and_by_its_text(each):
    assert member("neighbouring", Neighbouring, each) is each
    assert member("neighbouring", Neighbouring, each.value) is each


def test_an_unknown_choice_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"^neighbouring must be one of 'add_or_remove', 'replace_one', 'zero_out'"):
        member("neighbouring", Neighbouring, "add")


# Functions of single numbers over arrays.


def difference(a, b):
    return a - b


def test_scalars_give_a_float_and_arrays_broadcast():
    assert by_element(difference, a=3.0, b=1.0) == 2.0
    assert isinstance(by_element(difference, a=3.0, b=1.0), float)
    result = by_element(difference, a=[[1.0], [2.0]], b=[0.0, 1.0, 2.0])
    np.testing.assert_array_equal(result, [[1, 0, -1], [2, 1, 0]])
    assert result.dtype == np.float64


def test_an_empty_array_gives_an_empty_array():
    assert by_element(difference, a=[], b=1.0).shape == (0,)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"a \(2,\), b \(3,\)"):
        by_element(difference, a=[1, 2], b=[1, 2, 3])


# The root searches against roots known in closed form.


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
    jump = least_noise(lambda x: 1.0 - 2 * (x > 1), 0.0, slope=-1.0, room=1e-6, high=5.0, tries=9)
    assert 1 < jump <= 1 + 1e-6
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
    looks = []
    found = zero_between(lambda x: looks.append(x) or math.exp(x) - 2, 0.0, 5.0, looks=5, settled=False)
    assert found == looks[-1] and len(looks) == 2 + 5  # both ends first
    assert 0 < abs(found - math.log(2)) < 1e-3  # near, and not settled


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


# Ratios, powers and exponentials against 60 digits and at the ends of float64, and the record's place.


@given(st.floats(-300, 300), st.floats(0, 300), st.floats(0, 300), st.sampled_from([-1, 1]))
def test_a_ratio_has_all_digits_wherever_it_is_a_float(a, b, c, sign):
    """Divisors on one side of 1: their product may be beyond float64 where the ratio is not."""
    numerator, first, second = 10.0**a, 10.0 ** (sign * b), 10.0 ** (sign * c)
    with mp.workdps(60):
        exact = mp.mpf(numerator) / first / second
    found = ratio(numerator, first, second)
    if exact > mp.mpf("1.8e308"):
        assert found == np.inf
    elif exact < mp.mpf("1e-307"):
        assert found <= 1e-307
    else:
        assert found == pytest.approx(float(exact), rel=1e-15, abs=0)


def test_a_ratio_whose_divisors_multiply_beyond_floats():
    assert ratio(1e300, 1e200, 1e200) == pytest.approx(1e-100, rel=1e-15, abs=0)
    assert ratio(1e-200, 1e-300, 1e-300) == np.inf
    np.testing.assert_array_equal(ratio([1.0, 3.0], [[2.0], [4.0]]), [[0.5, 1.5], [0.25, 0.75]])


def test_an_empty_product_is_one_even_of_zeros():
    found = np.exp(power(np.array([-np.inf, -np.inf, np.log(0.5), 0.0]), np.array([0.0, 3.0, 10.0, 1e308])))
    np.testing.assert_allclose(found, [1.0, 0.0, 2.0**-10, 1.0], rtol=1e-15)
    assert power(np.array([[-1.0], [-2.0]]), np.array([1.0, 2.0, 3.0])).tolist() == [[-1, -2, -3], [-2, -4, -6]]
    assert power(np.array(-1e300), np.array(1e300)) == -np.inf


def test_exponentials_beyond_floats_are_silent_and_probabilities_end_at_one():
    logs = np.array([-np.inf, -800.0, -1.0, 0.0, 1e-9, 800.0])
    np.testing.assert_allclose(exponential(logs), [0, 0, 0.36787944117144233, 1, 1 + 1e-9, np.inf], rtol=1e-15)
    np.testing.assert_allclose(probability(logs), [0, 0, 0.36787944117144233, 1, 1, 1], rtol=1e-15)


def test_a_place_is_one_of_the_records():
    i, n = place([1, 4], 4)
    assert i.tolist() == [1, 4] and n == 4


@pytest.mark.parametrize(
    ("i", "n", "message"),
    [
        (5, 4, "i must be at most n, the number of records"),
        ([1, 3], [3, 2], "i must be at most n, the number of records"),
        (0, 4, "i must be at least 1, got 0.0"),
        (1.5, 4, "i must be a whole number, got 1.5"),
        (1, 0, "n must be at least 1, got 0.0"),
    ],
)
def test_a_wrong_place_is_one_line(i, n, message):
    with pytest.raises(ValueError) as refused:
        place(i, n)
    assert str(refused.value) == message
