"""Federated SGD with a trusted aggregator that releases only its last model (asoodeh2021, Algorithm 1).

n users; each round takes m of them without replacement, averages their gradients, each with noise of standard
deviation sigma_t per coordinate, steps by eta_t and projects on a ball of radius `radius`. Each user takes part once.
Neighbours differ in one user's data (replace one). Common arguments: integers n >= m >= 1; eta, sigma > 0 scalars or
schedules of T = n/m rounds; `lipschitz` >= 0 bounds every gradient's norm; `radius` >= 0 is in the model's unit.
All functions return delta in the shape of `epsilon` and raise ValueError naming the argument.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import reals
from dpfl.accounting.contraction.contraction_factor import contraction_factor
from dpfl.accounting.contraction.rounds import last_model, non_negative, read_rounds, read_users
from dpfl.accounting.contraction.stable_arithmetic import Array, probability, ratio


def federated_delta(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta at `epsilon` of the last model, losses convex and smooth.

    Formal guarantee: (epsilon, delta)-DP for convex, `lipschitz`-Lipschitz, beta-smooth losses when every eta_t <=
    2/beta and every round has m users: floor(n/m) rounds where m does not divide n. A scalar eta and sigma use the
    closed form at T = n/m, integer or not; schedules use the sum with T = floor(n/m). At n = m this is
    theta(2L/(sqrt(n) sigma)). Source: asoodeh2021 Theorem 2.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(last_model(epsilon, rounds, lipschitz, 2.0 * radius))


def federated_delta_relaxed(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta as `federated_delta` does, for losses neither convex nor smooth and any step size.

    A step maps the ball into a set of diameter 2 (radius + eta_t L). Formal guarantee: (epsilon, delta)-DP with one
    user's data replaced, for all `lipschitz`-Lipschitz losses. Source: asoodeh2021, text after Theorem 2.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    with np.errstate(over="ignore"):
        diameter = 2.0 * (radius + rounds.eta * lipschitz)
    return probability(last_model(epsilon, rounds, lipschitz, diameter))


def federated_delta_strongly_convex(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: float,
    radius: float,
    smoothness: float,
    strong_convexity: float,
) -> Array:
    """Return delta as `federated_delta` does, for strongly convex losses: each step shrinks the ball by M_t.

    M_t is `contraction_factor`(eta_t, smoothness, strong_convexity), which refuses eta_t > 2/(smoothness +
    strong_convexity). Formal guarantee: that of `federated_delta`, for smooth and strongly convex losses. Source:
    asoodeh2021, text after Theorem 2, with M of asoodeh2020 eq. (14).
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    shrink = contraction_factor(rounds.eta, smoothness, strong_convexity)
    return probability(last_model(epsilon, rounds, lipschitz, 2.0 * radius * shrink))


def federated_unamplified_delta(epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float) -> Array:
    """Return theta(2L/(sqrt(m) sigma)): delta of one round alone, without sampling or contraction.

    An upper bound of `federated_delta` at constant sigma whenever m divides n. Formal guarantee: (epsilon, delta)-DP
    with one user's data replaced, even if all models are published. Source: asoodeh2021, the bound named after eq.
    (11).
    """
    _, m = read_users(n, m)
    (lipschitz,) = non_negative(lipschitz=lipschitz)
    head = ratio(2.0 * lipschitz, np.sqrt(m), reals("sigma", sigma, above=0.0))
    return gaussian_divergence.divergence(reals("epsilon", epsilon, at_least=0.0), head)
