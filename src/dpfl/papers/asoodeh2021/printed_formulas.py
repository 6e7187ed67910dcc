"""Formulas of asoodeh2021 as printed, where they are wrong: for the table of errata and comparisons only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.contraction.excess_risk import average_iterate_rate, last_iterate_rate
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


def last_iterate_rate_as_printed(
    *,
    n: int,
    m: int,
    sigma: ArrayLike,
    smoothness: float,
    strong_convexity: float,
    gradient_bound: float,
    gradient_variance: float,
) -> Array:
    """Return asoodeh2021 Corollary 1 as printed, without the dimension. No bound for models of d > 1 coordinates."""
    return last_iterate_rate(
        n=n,
        m=m,
        sigma=sigma,
        dimension=1,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        gradient_bound=gradient_bound,
        gradient_variance=gradient_variance,
    )


def average_iterate_rate_as_printed(
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: float,
    smoothness: float,
    radius: float,
    gradient_bound: float,
    strong_convexity: float,
    constant: float = 1.0,
) -> float:
    """Return asoodeh2021 Corollary 2 as printed, without the dimension; arguments as in `average_iterate_rate`."""
    return average_iterate_rate(
        n=n,
        m=m,
        eta=eta,
        sigma=sigma,
        dimension=1,
        lipschitz=lipschitz,
        smoothness=smoothness,
        radius=radius,
        gradient_bound=gradient_bound,
        strong_convexity=strong_convexity,
        constant=constant,
    )
