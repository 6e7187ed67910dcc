"""Zeros of monotone functions, element by element over arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import elementwise


def root(
    function: Callable[..., NDArray[np.float64]], lower: ArrayLike, upper: ArrayLike, *arguments: ArrayLike
) -> NDArray[np.float64]:
    """Where the monotone `function(x, *arguments)` is zero for x between `lower` and `upper`.

    Everything broadcasts; `function` is called with 1-D arrays and answers element by element. Bracketing
    (Chandrupatla's method) to the last bits of x. Where rounding leaves both ends on one side of zero, the
    end with the smaller value is returned, so the answer is never NaN.
    """
    arrays = np.broadcast_arrays(lower, upper, *arguments)
    shape = arrays[0].shape
    low, high, *rest = (np.asarray(array, dtype=np.float64).ravel() for array in arrays)
    at_low, at_high = function(low, *rest), function(high, *rest)
    zero = np.where(np.abs(at_low) <= np.abs(at_high), low, high)
    crossed = np.sign(at_low) * np.sign(at_high) < 0
    if np.any(crossed):
        ends = (low[crossed], high[crossed])
        zero[crossed] = elementwise.find_root(function, ends, args=tuple(array[crossed] for array in rest)).x
    return zero.reshape(shape)
