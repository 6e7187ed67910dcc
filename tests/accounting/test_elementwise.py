import numpy as np
import pytest

from dpfl.accounting.numerics import by_element


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
