import math
from decimal import Decimal
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import integer, integers, member, real, reals


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
