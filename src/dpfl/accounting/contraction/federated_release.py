"""Algorithm 1 of asoodeh2021 on regularised losses, released after a drawn round; arguments as in `federated`.

The losses are l(w, x) + strong_convexity |w|^2/2 with l convex, `lipschitz` and smooth; `smoothness` > 0 is that of the
sum, and its strong convexity is at least `strong_convexity` > 0. m must divide n, T = n/m.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.contraction.contraction_factor import contraction_factor
from dpfl.accounting.contraction.rounds import non_negative, read_rounds, stopped_model
from dpfl.accounting.contraction.stable_arithmetic import Array, probability

_LEAST = 1e-300
_LOG_SIGMA_RANGE = 60.0


def step_diameter(
    eta: ArrayLike, *, radius: float, lipschitz: float, smoothness: float, strong_convexity: float
) -> Array:
    """Return a bound on the diameter of what a step of size eta > 0 makes of the ball, in the shape of `eta`.

    The least of those that hold: 2 radius M with M of asoodeh2020 eq. (14) for eta <= 2/(smoothness +
    strong_convexity); 2 radius for eta <= 2/smoothness; and 2 (|1 - eta strong_convexity| radius + eta lipschitz) for
    every eta, the paper's relaxed form with the regulariser's share, which is linear, put in.
    Raises ValueError naming the argument. Source: asoodeh2021, text after Theorem 2.
    """
    eta = reals("eta", eta, above=0.0)
    radius, lipschitz = non_negative(radius=radius, lipschitz=lipschitz)
    smoothness = real("smoothness", smoothness, above=0.0)
    curvature = real("strong_convexity", strong_convexity, at_least=0.0)
    any_step = 2.0 * (np.abs(1.0 - eta * curvature) * radius + eta * lipschitz)
    convex = np.where(eta <= 2.0 / smoothness, 2.0 * radius, math.inf)
    shortest = np.minimum(eta, 2.0 / (smoothness + curvature))
    shrunk = 2.0 * radius * contraction_factor(shortest, smoothness, curvature)
    strong = np.where(eta <= 2.0 / (smoothness + curvature), shrunk, math.inf)
    return np.minimum(np.minimum(any_step, convex), strong)


def federated_release_delta(
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
    first_stop: int,
) -> Array:
    """Return delta at `epsilon` of the model after tau ~ uniform{first_stop..T} rounds; first_stop = T is the last.

    Formal guarantee: (epsilon, delta)-DP for one user's data replaced, for every step size: see `step_diameter`.
    Raises ValueError naming the argument. Source: asoodeh2021 Theorem 2, Corollary 3 and the remarks after them.
    """
    rounds = read_rounds(n, m, eta, sigma)
    first = integer("first_stop", first_stop, at_least=1)
    if first > rounds.whole_count():
        raise ValueError(f"first_stop must be at most n/m = {rounds.whole_count()}, got {first}")
    constants = {"radius": radius, "lipschitz": lipschitz, "smoothness": smoothness}
    diameter = step_diameter(rounds.eta, strong_convexity=strong_convexity, **constants)
    return probability(stopped_model(epsilon, rounds, lipschitz, diameter, first=first))


def release_epsilon(delta: float, *, n: int, m: int, sigma: float, lipschitz: float, **release) -> float:
    """Return the least epsilon at which `federated_release_delta` is at most `delta` in (0, 1), constant sigma.

    Never above that of one round alone. Other arguments as in `federated_release_delta`. Raises ValueError naming the
    argument. Formal guarantee: that of `federated_release_delta`. Source: asoodeh2021 Theorem 2 and Corollary 3, solved
    for epsilon.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    values = {"n": n, "m": m, "sigma": sigma, "lipschitz": lipschitz} | release
    alone = round_epsilon(delta, m=m, sigma=sigma, lipschitz=lipschitz)

    def excess(epsilon: float) -> float:
        return math.log(max(float(federated_release_delta(epsilon, **values)), _LEAST)) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    return alone if excess(alone) >= 0.0 else _safe(excess, brentq(excess, 0.0, alone, xtol=1e-12))


def round_epsilon(delta: float, *, m: int, sigma: float, lipschitz: float) -> float:
    """Return epsilon at `delta` where every round's model is published: the Gaussian mechanism, once a user.

    Each user is in one round, whose noise hides it with mu = 2 L/(sqrt(m) sigma); other rounds only process what was
    released. Exact for the worst case. 0 < delta < 1, m >= 1, sigma > 0, lipschitz > 0. Formal guarantee: (epsilon,
    `delta`)-DP of all models, one user's data replaced. Raises ValueError naming the argument. Source: asoodeh2021, the
    bound named after eq. (11).
    """
    sigma = real("sigma", sigma, above=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    return float(gaussian_dp.epsilon(delta, _move(m, lipschitz) / sigma))


def release_sigma(epsilon: float, delta: float, *, n: int, m: int, lipschitz: float, **release) -> float:
    """Return the least constant sigma at which `federated_release_delta`(epsilon) is at most `delta`.

    epsilon >= 0, 0 < delta < 1, lipschitz > 0; other arguments as there. On the safe side of the root. Formal
    guarantee: with that noise the release is (epsilon, `delta`)-DP, as `federated_release_delta` has it. Raises
    ValueError naming the argument. Source: asoodeh2021 Theorem 2 and Corollary 3, solved for sigma.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    values = {"n": n, "m": m, "lipschitz": real("lipschitz", lipschitz, above=0.0)} | release
    upper = math.log(round_sigma(epsilon, delta, m=m, lipschitz=lipschitz))

    def excess(log_sigma: float) -> float:
        spent = float(federated_release_delta(epsilon, sigma=math.exp(log_sigma), **values))
        return math.log(max(spent, _LEAST)) - math.log(delta)

    if excess(upper) >= 0.0:
        return math.exp(_safe(excess, upper))
    lower = upper - 1.0
    while excess(lower) <= 0.0:
        lower -= 1.0
        if lower < upper - _LOG_SIGMA_RANGE:
            raise ValueError(f"delta: any sigma attains {delta} at epsilon {epsilon}")
    return math.exp(_safe(excess, brentq(excess, lower, upper, xtol=1e-12)))


def round_sigma(epsilon: float, delta: float, *, m: int, lipschitz: float) -> float:
    """Return the sigma at which `round_epsilon` is `epsilon` >= 0: analytic calibration of the Gaussian mechanism.

    Other arguments as there. Formal guarantee: with that noise all models are (epsilon, `delta`)-DP. Raises ValueError
    naming the argument. Source: as `round_epsilon`, solved for sigma; balle2018gaussian, Theorem 8, is the same curve.
    """
    epsilon = real("epsilon", epsilon, at_least=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    return _move(m, lipschitz) / float(gaussian_dp.mu(epsilon, delta))


def _move(m: int, lipschitz: float) -> float:
    """Return 2 L / sqrt(m): how far a user moves a round's model, in units of the step times the noise's scale."""
    return 2.0 * real("lipschitz", lipschitz, above=0.0) / math.sqrt(integer("m", m, at_least=1))


def _safe(excess: Callable[[float], float], root: float) -> float:
    """Return the first point from `root` upwards where the falling function is not above 0."""
    step = 1e-13
    while excess(root) > 0.0:
        root += step
        step *= 2.0
    return root
