"""When a run is stopped: a uniform round, drawn in strata so that few draws tell the mean over its law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfl.engine.randomness import generator


def stratified_stops(seed: int, first: int, last: int, draws: int) -> NDArray[np.int64]:
    """Return `draws` rounds of {first..last} in ascending order, one alone where first = last.

    Draw k is at the quantile (k + u_k)/draws of the uniform law, u_k uniform on [0, 1): any one of them, taken at
    random, is uniform on {first..last}, so that a mean over them has the mean over the law, with less variance.
    """
    if first == last:
        return np.array([last])
    quantiles = (np.arange(draws) + generator(seed, "split").random(draws)) / draws
    return first + np.floor(quantiles * (last - first + 1)).astype(np.int64)
