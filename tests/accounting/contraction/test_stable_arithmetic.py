"""Ratios, powers and exponentials against 60 digits and at the ends of float64, and the record's place."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.accounting.numerics import exponential, place, power, probability, ratio

pytestmark = pytest.mark.filterwarnings("error")


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
