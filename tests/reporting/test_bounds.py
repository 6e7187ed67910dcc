import math
from decimal import Decimal

import numpy as np
import pytest

from dpfl.reporting.bounds import at_least, at_most


def test_a_proven_bound_is_rounded_up_and_an_exceeded_one_down():
    assert (at_most(2.504832), at_most(2.504832, 3), at_most(2.504832, places=2)) == ("2.505", "2.51", "2.51")
    assert (at_least(12.771544), at_least(12.771544, 3), at_least(12.771544, places=1)) == ("12.77", "12.7", "12.7")


def test_no_bound_becomes_false_and_none_moves_by_more_than_its_last_digit():
    values = np.exp(np.random.default_rng(0).uniform(-6, 6, 2000))
    for value in map(float, values):
        for digits in (1, 2, 3, 4):
            above, below = Decimal(at_most(value, digits)), Decimal(at_least(value, digits))
            assert below <= Decimal(value) <= above
            assert float(above - below) <= 10.0 ** (math.floor(math.log10(value)) - digits + 1) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(2.0, 3, "2.00"), (1.23, 3, "1.23"), (0.1 + 0.2, 2, "0.30"), (9.996, 3, "10.0"), (0.0, 3, "0"), (6161, 2, "6200")],
)
def test_an_exact_number_stays_and_every_digit_is_shown(value, digits, text):
    assert at_most(value, digits) == text


def test_infinity_has_a_sign_and_what_is_no_number_is_refused():
    assert at_most(math.inf) == "∞" and at_least(math.inf, places=2) == "∞"
    with pytest.raises(ValueError, match="value = nan"):
        at_most(math.nan)
    with pytest.raises(ValueError, match="digits = 0"):
        at_least(1.0, 0)
