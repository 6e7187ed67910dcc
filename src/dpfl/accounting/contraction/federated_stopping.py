"""Algorithm 1 of asoodeh2021 stopped after a random round; arguments as in `federated`, m must divide n."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from dpfl.accounting.arguments import real
from dpfl.accounting.contraction.rounds import Rounds, non_negative, read_rounds, stopped_model
from dpfl.accounting.contraction.stable_arithmetic import Array, probability


def federated_random_stop_delta(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta when the algorithm stops after tau ~ uniform{1..T} rounds and releases that model.

    The double sum (1/T^2) sum_tau sum_{t<=tau} theta(head_t) prod_{t<j<=tau} theta(link_j), exactly; assumptions and
    errors are those of `federated_delta`, and m must divide n. Formal guarantee: (epsilon, delta)-DP of that model, one
    user's data replaced, while the stopping round stays secret. Source: asoodeh2021 Corollary 3.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(stopped_model(epsilon, rounds, lipschitz, 2.0 * radius, first=1))


def federated_random_stop_bound(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return the upper bound of `federated_random_stop_delta` from the smallest step size and the smallest noise.

    Equal to it for constant schedules. Formal guarantee: that of `federated_random_stop_delta`. Source: asoodeh2021 eq.
    (12).
    """
    rounds = read_rounds(n, m, eta, sigma)
    worst = Rounds(rounds.n, rounds.m, rounds.eta.min(), rounds.sigma.min())
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(stopped_model(epsilon, worst, lipschitz, 2.0 * radius, first=1))


def federated_suffix_stop_delta(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: float,
    radius: float,
    alpha: float,
) -> Array:
    """Return delta when tau is uniform on {ceil(alpha T)..T}, 0 < alpha < 1.

    alpha T <= 1 gives `federated_random_stop_delta`, T(1 - alpha) < 1 gives `federated_delta`. For constant
    schedules delta grows with alpha: later models have seen more records, so the suffix costs privacy there. Formal
    guarantee: that of `federated_random_stop_delta`. Source: asoodeh2021, end of section IV (derived: Corollary 3 with
    the mean over the suffix).
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    alpha = real("alpha", alpha, above=0.0, below=1.0)
    # 0.1 * 30 is 3.0000000000000004: the rounding of the product must not skip a round
    first = max(1, math.ceil(alpha * rounds.whole_count() * (1.0 - 1e-12)))
    return probability(stopped_model(epsilon, rounds, lipschitz, 2.0 * radius, first=first))
