"""Project models on a ball, where the constants of a loss hold: contraction needs it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def project(weights: Array, radius: Array | float) -> Array:
    """Return `weights` (..., features, models), every model moved to the nearest point of the ball around 0.

    `radius` > 0, a number or one a model, inf for no projection. A model inside the ball is returned bit for bit.
    Raises ValueError for a radius that is not above 0.
    Formal guarantee: it depends on no record, so it is post-processing; and it is 1-Lipschitz.
    """
    bound = np.asarray(radius, dtype=np.float64)
    if not np.all(bound > 0):
        raise ValueError(f"radius is {radius}; it must be above 0 (inf: no projection)")
    norms = np.linalg.norm(weights, axis=-2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norms > bound, weights * (bound / norms), weights)
