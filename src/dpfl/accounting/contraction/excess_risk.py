"""Excess risk of asoodeh2021's Algorithm 1: what the noise costs in convergence.

The noise of a round is an average of m vectors of `dimension` coordinates with standard deviation sigma each, so its
squared norm is dimension sigma^2/m on average. The printed bounds have sigma^2/m, right for one coordinate only.
Every function raises ValueError naming the argument.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.contraction.rounds import read_rounds, read_users, whole_rounds
from dpfl.accounting.contraction.stable_arithmetic import Array


def last_iterate_rate(
    *,
    n: int,
    m: int,
    sigma: ArrayLike,
    dimension: int,
    smoothness: float,
    strong_convexity: float,
    gradient_bound: float,
    gradient_variance: float,
) -> Array:
    """Return the bound on E F(W_T) - min F: 2 beta (m D^2 + G^2 + d sigma^2)/(lambda^2 n).

    F = population risk, `strong_convexity` lambda and `smoothness` beta > 0 its constants, ||grad F|| <=
    `gradient_bound` D, variance of one user's gradient <= `gradient_variance` G^2, eta_t = 1/(lambda t), T = n/m
    rounds; sigma >= 0, an array gives an array. Source: asoodeh2021 Corollary 1 with the dimension d put in.
    """
    n, m = read_users(n, m)
    noise = integer("dimension", dimension, at_least=1) * reals("sigma", sigma, at_least=0.0) ** 2
    smoothness = real("smoothness", smoothness, above=0.0)
    strong_convexity = real("strong_convexity", strong_convexity, above=0.0)
    bound = real("gradient_bound", gradient_bound, at_least=0.0)
    variance = real("gradient_variance", gradient_variance, at_least=0.0)
    return 2.0 * smoothness * (m * bound**2 + variance + noise) / (strong_convexity**2 * n)


def average_iterate_rate(
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    dimension: int,
    lipschitz: float,
    smoothness: float,
    radius: float,
    gradient_bound: float,
    strong_convexity: float,
    constant: float = 1.0,
) -> float:
    """Return c m ((L + beta rho)^2 + G^2) log(n/m)/(lambda n) + d sum_t eta_t sigma_t^2/n.

    Bounds the mean over t of E F(W_t), less min F, for losses of linear predictors under users drawn without
    replacement: `lipschitz` L and `smoothness` beta of the scalar loss, `radius` rho of the ball, ||grad f_i|| <=
    `gradient_bound` G, `strong_convexity` lambda > 0; `constant` is the paper's unnamed universal c. The paper writes
    (L + mu B)^2 and defines neither mu nor B: read as beta and rho, which its source calls so. m divides n, and n/m >=
    2, for log(1) = 0 bounds nothing. Source: asoodeh2021 Corollary 2 with batches, the dimension d put in.
    """
    rounds = read_rounds(n, m, eta, sigma)
    count = rounds.whole_count()
    if count < 2:
        raise ValueError(f"m must be at most n/2, for log(n/m) is 0 with one round, got n = {n} and m = {m}")
    dimension = integer("dimension", dimension, at_least=1)
    slope = real("lipschitz", lipschitz, at_least=0.0)
    slope += real("smoothness", smoothness, at_least=0.0) * real("radius", radius, at_least=0.0)
    square = slope**2 + real("gradient_bound", gradient_bound, at_least=0.0) ** 2
    optimisation = real("constant", constant, above=0.0) * square * math.log(count)
    optimisation /= real("strong_convexity", strong_convexity, above=0.0) * count
    noise = np.broadcast_to(rounds.eta * rounds.sigma**2, count).sum()
    return float(optimisation + dimension * noise / rounds.n)


def convex_iterate_rate(
    *, n: int, m: int, eta: float, sigma: float, dimension: int, lipschitz: float, radius: float
) -> float:
    """Return rho^2/(2 eta T) + (1 + 1/T) eta (L^2 + d sigma^2/m)/2: the rate without strong convexity.

    Bounds the mean over t = 1..T of E F(W_t), less min F in the ball, for a convex F whose users' losses have gradients
    of at most `lipschitz` L, users drawn independently, W_0 in the centre of the ball of `radius` rho, constant `eta` >
    0 and `sigma` >= 0, T = n/m rounds; m divides n. With eta = rho/(G sqrt(T)), G^2 = L^2 + d sigma^2/m, it is rho
    G/sqrt(T) but for 1/T of its half. Raises ValueError naming the argument. Source: shalevshwartz2014, Theorem 14.8,
    for W_1..W_T; the rate that asoodeh2021 names at the end of its section IV.
    """
    count = whole_rounds(n, m)
    step, noise = real("eta", eta, above=0.0), real("sigma", sigma, at_least=0.0)
    square = real("lipschitz", lipschitz, at_least=0.0) ** 2
    square += integer("dimension", dimension, at_least=1) * noise**2 / m
    return real("radius", radius, at_least=0.0) ** 2 / (2 * step * count) + (1 + 1 / count) * step * square / 2
