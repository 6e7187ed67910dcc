"""The elementwise root search against roots known in closed form."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.roots import root


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
