"""Formulas of asoodeh2021 as printed, where they are wrong: for the table of errata and comparisons only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.contraction.federated_harmonic import _harmonic_rounds
from dpfl.accounting.contraction.rounds import last_model, non_negative
from dpfl.accounting.contraction.stable_arithmetic import Array, probability


def federated_harmonic_delta_as_printed(
    epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float, radius: float, strong_convexity: float
) -> Array:
    """Return the first line of eq. (11) as printed, link_j = 2 radius sqrt(lambda m j)/sigma. Not a guarantee.

    It does not follow from Theorem 2 and falls below it where lambda j > 1. Source: asoodeh2021 Corollary 1.
    """
    steps = _harmonic_rounds(n, m, sigma, strong_convexity)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    # link_j = diameter sqrt(m)/(eta_j sigma) with eta_j = 1/(lambda j): the root of eta_j gives the printed argument
    with np.errstate(over="ignore"):
        diameter = 2.0 * radius * np.sqrt(steps.eta)
    return probability(last_model(epsilon, steps, lipschitz, diameter))
