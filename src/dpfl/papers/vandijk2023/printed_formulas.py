"""Formulas of vandijk2023 as printed in our copy of the text: for the table of errata and comparisons only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import reals
from dpfl.accounting.conversions import _group, _grown
from dpfl.accounting.tradeoff.curves import _two_lines


def group_delta_as_printed(delta: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """Return g e^{g - 1} delta, as printed in vandijk2023 section 3.2: too small once epsilon exceeds about 1.

    Kept for comparison with `group_delta`; arguments and errors as there.
    """
    _, delta, g = _group(0.0, delta, g)
    return _grown(delta * g, g - 1)


def renyi_as_printed(order: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """Return the expression before (5) of vandijk2023 as printed, ln E[e^{(1 - order) Z}]/(1 - order).

    Equals (2 - order) mu^2 / 2, negative from order 2 on: no divergence. Kept for comparison with `renyi`.
    """
    return ((2 - reals("order", order, above=0)) * reals("mu", mu, at_least=0) ** 2 / 2)[()]


def epsilon_delta_as_printed(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """Return min{0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)}, never above 0: no trade-off curve.

    The line of vandijk2023 section 4 as printed, for comparison with `epsilon_delta`. e^epsilon alpha counts as
    e^(epsilon/2) at most, so that the steep line stays finite.
    """
    steep, flat = _two_lines(alpha, epsilon, delta)
    return np.minimum(0.0, np.minimum(steep, flat))[()]
