"""One noisy gradient step as seen by the accountant: how far it contracts, and its noise and set in units of the shift.

The step is w <- project(w - (step_size/batch_size) (sum over the batch of grad f_i(w) + lipschitz noise_multiplier Z)).
A record moves that sum by at most `sensitivity` times lipschitz. In units of that shift the noise of a step has
standard deviation noise_multiplier/sensitivity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integers, member, reals
from dpfl.accounting.neighbouring import Neighbouring

Array = NDArray[np.float64]

REPLACEMENT = 2.0
"""By how many Lipschitz constants replacing a record moves a sum of gradients."""
SENSITIVITIES = {Neighbouring.ZERO_OUT: 1.0, Neighbouring.ADD_OR_REMOVE: 1.0, Neighbouring.REPLACE_ONE: REPLACEMENT}
"""By how many clip norms (or Lipschitz constants) a neighbour moves a sum of gradients."""


def step_contraction(step_size: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Return c = max(|1 - eta m|, |1 - eta M|), the Lipschitz constant of w -> w - eta grad f(w); shapes broadcast.

    eta = `step_size` in (0, 2/M], M = `smoothness` > 0, m = `strong_convexity` in [0, M]. c is in [0, 1], is 1 for a
    convex loss (m = 0) and at eta = 2/M, and is attained by a quadratic. Never above `contraction.contraction_factor`
    where both are defined. Raises ValueError naming the argument. Source: bok2024,
    section 4, NoisyGD.
    """
    eta = reals("step_size", step_size, above=0)
    smoothness = reals("smoothness", smoothness, above=0)
    strong_convexity = reals("strong_convexity", strong_convexity, at_least=0)
    if np.any(strong_convexity > smoothness):
        raise ValueError("strong_convexity must be at most smoothness")
    if np.any(eta * smoothness > 2 * (1 + 1e-15)):
        raise ValueError(f"step_size must be at most 2/smoothness = {np.min(2 / smoothness):g}")
    return np.clip(np.maximum(1 - eta * strong_convexity, eta * smoothness - 1), 0.0, 1.0)[()]


def diameter_in_shifts(
    diameter: ArrayLike, *, step_size: ArrayLike, lipschitz: ArrayLike, batch_size: ArrayLike, neighbouring: str
) -> Array:
    """Return D batch_size/(step_size lipschitz sensitivity): the set's diameter over the shift of one step.

    `diameter` > 0 or inf (no projection), `step_size` and `lipschitz` > 0, integer `batch_size` >= 1 (the divisor of
    the sum); shapes broadcast. Sensitivity 1 for zero_out and add_or_remove, 2 for replace_one. Raises ValueError
    naming the argument. Source: the ratio D b/(eta L) of bok2024, section 4, constrained theorems.
    """
    shift = reals("step_size", step_size, above=0) * reals("lipschitz", lipschitz, above=0)
    shift = shift * SENSITIVITIES[member("neighbouring", Neighbouring, neighbouring)]
    return (
        reals("diameter", diameter, above=0, infinite=True) * integers("batch_size", batch_size, at_least=1) / shift
    )[()]
