"""Functions of single numbers (a root search, a convolution) offered over arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def elementwise(function: Callable[..., float], **arguments: ArrayLike) -> float | NDArray[np.float64]:
    """Call `function` with keywords on every element of the broadcast `arguments`.

    Returns a float for scalar arguments, else a float64 array of the broadcast shape. `function` names and
    checks its own arguments. Raises ValueError naming them all when their shapes do not broadcast.
    """
    arrays = [np.asarray(value, dtype=object) for value in arguments.values()]
    try:
        cells = np.broadcast(*arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(arguments, arrays, strict=True))
        raise ValueError(f"the shapes do not broadcast: {shapes}") from None
    values = [function(**dict(zip(arguments, cell, strict=True))) for cell in cells]
    return values[0] if cells.shape == () else np.array(values, dtype=np.float64).reshape(cells.shape)
