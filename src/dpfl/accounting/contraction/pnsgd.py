"""Projected noisy SGD by contraction (asoodeh2020): orders, stopping, Renyi comparators, and excess risk.

Comparators of Theorem 4 of asoodeh2020: Renyi and Gaussian-DP amplification by iteration. None of these needs a bounded
set: they carry the record's influence forward by shifting the two processes towards each other over the remaining n - i
steps.

Projected noisy SGD that takes its n records in a fixed order and releases only the last model (asoodeh2020). Common
arguments, all broadcasting: `i` the place (1..n) of the record in which neighbours differ (replace one); `eta` > 0 the
step size; `sigma` (Gaussian, a coordinate) or `scale` (Laplace, variance 2 scale^2) > 0 the noise added to each
gradient; `lipschitz` >= 0; `smoothness` > 0; `strong_convexity` in [0, smoothness]; `diameter` >= 0 of the compact
convex set projected on. All functions raise ValueError naming the argument, also for eta > 2/(smoothness +
strong_convexity), where the theorems do not hold.

Projected noisy SGD with Gaussian noise, stopped after tau ~ uniform{1..n} steps. Theorem 5 of asoodeh2020 needs a
bounded set; the Renyi route of feldman2018, its comparator, does not.

Projected noisy SGD by place of the record, and what a secret order or a random stop makes of it (asoodeh2020). A record
that differs at place j contributes delta_j = first * kept^(n - j) to the last model. A stop after tau ~ uniform{1..n}
steps averages over the later steps that are left; a secret uniform permutation of the records averages over places, by
joint convexity of the divergence (the variant that the paper names and leaves open).

Excess risk of asoodeh2021's Algorithm 1: what the noise costs in convergence. The noise of a round is an average of m
vectors of `dimension` coordinates with standard deviation sigma each, so its squared norm is dimension sigma^2/m on
average. The printed bounds have sigma^2/m, right for one coordinate only. Every function raises ValueError naming the
argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma

from dpfl.accounting import gaussian_dp
from dpfl.accounting.contraction import kernels
from dpfl.accounting.contraction.federated import read_rounds, read_users, whole_rounds
from dpfl.accounting.contraction.kernels import contraction_factor, contraction_loss, geometric, log_contraction_factor
from dpfl.accounting.numerics import (
    Array,
    exponential,
    falling_zero,
    integer,
    integers,
    member,
    place,
    power,
    probability,
    ratio,
    real,
    reals,
    zero_between,
)

# From a Renyi divergence that is linear in its order, D_alpha <= alpha kappa, to delta.

_LOG_RANGE = 700.0  # order - 1 is sought between e^-700 and e^700
_HALVINGS = 62  # of an interval of 1400 in log(order - 1): down to the spacing of float64


class Conversion(StrEnum):
    """Conversion of a Renyi bound to delta."""

    MIRONOV = "mironov"
    TIGHT = "tight"


def linear_renyi_delta(epsilon: Array, kappa: Array, conversion: str) -> Array:
    """delta at `epsilon` from D_alpha <= alpha kappa for every order alpha > 1.

    "mironov": exp(-(epsilon - kappa)^2/(4 kappa)), 1 where epsilon <= kappa. "tight": the minimum over alpha of
    e^((alpha-1)(alpha kappa - epsilon)) (1 - 1/alpha)^alpha/(alpha - 1). 0 at kappa = 0, where the two laws are one, by
    either. Arguments are not checked but `conversion` (ValueError). Formal guarantee: (epsilon, delta)-DP where the
    divergences are bounded so in both orders of the neighbours. Source: asoodeh2020 eq. (15); tight: canonne2020,
    Proposition 12.
    """
    conversion = member("conversion", Conversion, conversion)
    epsilon, kappa = np.broadcast_arrays(epsilon, kappa)
    positive = np.where(kappa > 0.0, kappa, 1.0)
    if conversion is Conversion.TIGHT:
        return np.where(kappa > 0.0, _tight(epsilon, positive), 0.0)[()]
    excess = np.maximum(epsilon - positive, 0.0)
    with np.errstate(over="ignore"):
        return np.where(kappa > 0.0, exponential(-(0.25 * excess / positive) * excess), 0.0)[()]


def _tight(epsilon: Array, kappa: Array) -> Array:
    """Bisect for the order: the logarithm of the objective is convex in x = alpha - 1."""
    low = np.full(epsilon.shape, -_LOG_RANGE)
    high = np.full(epsilon.shape, _LOG_RANGE)
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            rising = (2.0 * np.exp(middle) + 1.0) * kappa - epsilon - np.logaddexp(0.0, -middle) > 0.0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        x = np.exp(0.5 * (low + high))
        exponent = x * ((x + 1.0) * kappa - epsilon) - x * np.log1p(1.0 / x) - np.log1p(x)
    return exponential(np.minimum(exponent, 0.0))


# Comparators of Theorem 4 of asoodeh2020: Renyi and Gaussian-DP amplification by iteration.

_LOG_2 = np.log(2.0)


def pnsgd_renyi_coefficient(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return kappa with D_alpha <= alpha kappa: 2L^2 M^(n-i+1)/((n-i) sigma^2), and 2L^2/sigma^2 at i = n.

    Formal guarantee: (alpha, alpha kappa)-Renyi DP for replacing record i, at every alpha > 1. Source: asoodeh2020
    Proposition 1.
    """
    i, n = place(i, n)
    later = n - i
    log_factor = log_contraction_factor(eta, smoothness, strong_convexity)
    log_decay = np.where(later > 0, power(log_factor, later + 1.0) - np.log(np.maximum(later, 1.0)), 0.0)
    return exponential(_log_first(lipschitz, sigma) + log_decay)


def pnsgd_renyi_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    conversion: str = "mironov",
) -> Array:
    """Return delta at `epsilon` from `pnsgd_renyi_coefficient` kappa.

    conversion "mironov" is eq. (15), exp(-(eps - kappa)^2/(4 kappa)), and 1 where eps <= kappa; "tight" minimises over
    the order a better bound for one order (canonne2020, Proposition 12). Formal guarantee: (epsilon, delta)-DP for
    replacing record i. Source: asoodeh2020 Proposition 1.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    kappa = pnsgd_renyi_coefficient(
        i=i, n=n, eta=eta, sigma=sigma, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity
    )
    return linear_renyi_delta(epsilon, kappa, conversion)


def pnsgd_renyi_optimal_shift_coefficient(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return the kappa of the best split of the shift over the steps: (2L^2/sigma^2)/sum_{k=0}^{n-i} M^(-2k).

    Never above `pnsgd_renyi_coefficient`. Raises ValueError naming the argument. Formal guarantee: (alpha, alpha
    kappa)-Renyi DP for replacing record i, at every alpha > 1. Source: derived, the shifts of least sum of squares in
    the argument of feldman2018.
    """
    return exponential(_log_optimal(i, n, eta, sigma, lipschitz, smoothness, strong_convexity))


def pnsgd_renyi_optimal_shift_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    conversion: str = "mironov",
) -> Array:
    """Return delta at `epsilon` from `pnsgd_renyi_optimal_shift_coefficient`; conversions as in `pnsgd_renyi_delta`.

    Formal guarantee: (epsilon, delta)-DP for replacing record i. Raises ValueError naming the argument. Source:
    `pnsgd_renyi_optimal_shift_coefficient`.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    kappa = pnsgd_renyi_optimal_shift_coefficient(
        i=i, n=n, eta=eta, sigma=sigma, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity
    )
    return linear_renyi_delta(epsilon, kappa, conversion)


def pnsgd_shifted_gdp_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """Return theta(mu) with mu = (2L/sigma)/sqrt(sum_{k=0}^{n-i} M^(-2k)): shifted interpolation, mu-Gaussian DP.

    mu^2/2 is `pnsgd_renyi_optimal_shift_coefficient`, so this is below its two conversions at every epsilon. Formal
    guarantee: mu-Gaussian DP, so (epsilon, delta)-DP, for replacing record i. Raises ValueError naming the argument.
    Source: bok2024, section 3, for one use.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    log_kappa = _log_optimal(i, n, eta, sigma, lipschitz, smoothness, strong_convexity)
    return gaussian_dp.divergence(epsilon, exponential(0.5 * (log_kappa + _LOG_2)))


def iteration_renyi(order: ArrayLike, *, n: ArrayLike, distance: ArrayLike, sigma: ArrayLike) -> Array:
    """Return alpha distance^2/(2 n sigma^2): Renyi divergence after n contractive noisy steps from two points.

    order alpha > 1, integer n >= 1, distance >= 0 between the starts, sigma > 0 per coordinate. Raises ValueError
    naming the argument. Exact for translations. Source: asoodeh2020 eq. (3) with the square that its print lacks.
    """
    order, n = reals("order", order, above=1.0), integers("n", n, at_least=1)
    distance, sigma = reals("distance", distance, at_least=0.0), reals("sigma", sigma, above=0.0)
    with np.errstate(over="ignore"):
        return order * (distance / sigma) ** 2 / (2.0 * n)


def _log_optimal(
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
) -> Array:
    """log of `pnsgd_renyi_optimal_shift_coefficient`."""
    i, n = place(i, n)
    log_squared = 2.0 * log_contraction_factor(eta, smoothness, strong_convexity)
    loss = contraction_loss(eta, smoothness, strong_convexity)
    # sum_k M^-2k = M^-2(n-i) (1 + M^2 + ... + M^2(n-i)): powers below 1 cannot overflow
    log_decay = power(log_squared, n - i) - np.log(geometric(log_squared, loss, n - i + 1.0))
    return _log_first(lipschitz, sigma) + log_decay


def _log_first(lipschitz: ArrayLike, sigma: ArrayLike) -> Array:
    """log(2 L^2/sigma^2), half the squared shift of the differing step."""
    lipschitz = reals("lipschitz", lipschitz, at_least=0.0)
    with np.errstate(divide="ignore"):
        return 2.0 * (np.log(lipschitz) - np.log(reals("sigma", sigma, above=0.0))) + _LOG_2


# Projected noisy SGD that takes its n records in a fixed order and releases only the last model (asoodeh2020).


def pnsgd_gaussian_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return delta at `epsilon` >= 0 for the i-th record under Gaussian noise.

    Formal guarantee: theta(2L/sigma) theta(M diameter/(eta sigma))^(n-i); at i = n the Gaussian mechanism.
    Source: asoodeh2020 Theorem 4.
    """
    sigma = reals("sigma", sigma, above=0.0)
    later = later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    return _last_model_delta(gaussian_dp.log_divergence, epsilon, i, n, first_shift(lipschitz, sigma), later)


def pnsgd_laplace_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return delta at `epsilon` >= 0 for the i-th record under Laplace noise, one-dimensional model on [a, b].

    Formal guarantee: (1 - e^(eps/2 - L/v))_+ ((1 - e^(eps/2 - M (b-a)/(2 eta v)))_+)^(n-i) with v = `scale` and
    b - a = `diameter`; the empty product at i = n is 1. Source: asoodeh2020 Theorem 3.
    """
    scale = reals("scale", scale, above=0.0)
    later = later_shift(eta, scale, smoothness, strong_convexity, diameter)
    return _last_model_delta(kernels.log_divergence, epsilon, i, n, first_shift(lipschitz, scale), later)


def pnsgd_laplace_pure_epsilon(
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return the smallest epsilon at which `pnsgd_laplace_delta` is 0.

    min(2L/v, M (b-a)/(eta v)) for i < n, but 2L/v for the last record, whom no later step protects. Formal guarantee:
    (epsilon, 0)-DP for replacing record i. Source: asoodeh2020 Theorem 3, its consequence with the case i = n set
    right.
    """
    i, n = place(i, n)
    scale = reals("scale", scale, above=0.0)
    first = first_shift(lipschitz, scale)
    later = later_shift(eta, scale, smoothness, strong_convexity, diameter)
    return np.where(i < n, np.minimum(first, later), first)[()]


def _last_model_delta(
    log_divergence: Callable[[Array, Array], Array],
    epsilon: ArrayLike,
    i: ArrayLike,
    n: ArrayLike,
    first: Array,
    later: Array,
) -> Array:
    """The divergence that step i opens, times that of each of the n - i later ones."""
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    i, n = place(i, n)
    return probability(log_divergence(epsilon, first) + power(log_divergence(epsilon, later), n - i))


def first_shift(lipschitz: ArrayLike, noise: Array) -> Array:
    """Ratio 2L/noise: how far apart the differing record may push its own step, in units of the noise.

    Raises ValueError naming lipschitz. Source: asoodeh2020 Theorems 3 and 4, first factor.
    """
    return ratio(reals("lipschitz", lipschitz, at_least=0.0), noise, 0.5)


def later_shift(
    eta: ArrayLike, noise: Array, smoothness: ArrayLike, strong_convexity: ArrayLike, diameter: ArrayLike
) -> Array:
    """Ratio M diameter/(eta noise): how far apart a later step may leave two models, in units of its noise.

    Raises ValueError naming the argument. Source: asoodeh2020 Theorems 3 and 4, the power's base.
    """
    factor = contraction_factor(eta, smoothness, strong_convexity)
    return ratio(factor * reals("diameter", diameter, at_least=0.0), reals("eta", eta), noise)


# Projected noisy SGD with Gaussian noise, stopped after tau ~ uniform{1..n} steps.


def pnsgd_random_stop_delta(
    epsilon: ArrayLike,
    *,
    i: ArrayLike,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return delta at `epsilon` for the i-th record: (1/n) theta(2L/sigma) (1 - c^(n-i+1))/(1 - c).

    c = theta(M diameter/(eta sigma)). The record is untouched when tau < i. Never above theta(2L/sigma), unlike
    `pnsgd_random_stop_bound`. Formal guarantee: (epsilon, delta)-DP for replacing record i while the stopping time
    stays secret. Source: asoodeh2020 Theorem 5 before its last step (mean of Theorem 4 over tau).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    i, n = place(i, n)
    sigma = reals("sigma", sigma, above=0.0)
    link = later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    kept = geometric(gaussian_dp.log_divergence(epsilon, link), gaussian_dp.complement(epsilon, link), n - i + 1.0)
    log_first = gaussian_dp.log_divergence(epsilon, first_shift(lipschitz, sigma))
    return probability(log_first + np.log(kept) - np.log(n))


def pnsgd_random_stop_bound(
    epsilon: ArrayLike,
    *,
    n: ArrayLike,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return (1/n) theta(2L/sigma)/(1 - c), the same for every record; may exceed 1, up to inf.

    c = theta(M diameter/(eta sigma)); vacuous where contraction is weak. Formal guarantee: that of
    `pnsgd_random_stop_delta`. Source: asoodeh2020 Theorem 5, eq. (16).
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    n = integers("n", n, at_least=1)
    sigma = reals("sigma", sigma, above=0.0)
    link = later_shift(eta, sigma, smoothness, strong_convexity, diameter)
    log_first = gaussian_dp.log_divergence(epsilon, first_shift(lipschitz, sigma))
    no_signal = np.isneginf(log_first)
    log_gap = np.where(no_signal, 0.0, gaussian_dp.log_complement(epsilon, link))
    return exponential(log_first - log_gap - np.log(n))


def pnsgd_random_stop_renyi_delta(epsilon: ArrayLike, *, n: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> Array:
    """Return delta at `epsilon` from D_alpha <= alpha kappa, kappa = 4 L^2 H_n/(n sigma^2), at the best order allowed.

    H_n is the harmonic number. An order alpha is allowed where alpha (alpha - 1) <= sigma^2/(2 L^2): there the
    divergence of every model is at most 1/(alpha - 1), and that of their mixture at most twice the mean, (2/n) sum_k 2
    alpha L^2/(k sigma^2). delta is the least e^((alpha-1)(alpha kappa - epsilon)), 1 if none is smaller. Convex
    losses, steps of at most 2/beta, any convex set, bounded or not. Raises ValueError naming the argument. Formal
    guarantee: (epsilon, delta)-DP for replacing any record while the stopping time stays secret. Source: feldman2018
    Theorem 26, which asoodeh2020 names after its Theorem 5 (derived here from the bound for each model and the weak
    convexity of the divergence, with H_n; the printed constant is not among our sources); mironov2017, Proposition 3.
    """
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    n = integers("n", n, at_least=1)
    gain = ratio(reals("lipschitz", lipschitz, at_least=0.0), reals("sigma", sigma, above=0.0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = gain**2
        kappa = 4.0 * square * (digamma(n + 1.0) + np.euler_gamma) / n
        most = 0.5 + np.sqrt(0.25 + 0.5 / square)
        order = np.minimum(most, np.maximum(0.5 + 0.5 * epsilon / kappa, 1.0))
        exponent = np.where(order > 1.0, (order - 1.0) * (order * kappa - epsilon), 0.0)
    # without a gradient the two laws are one
    return np.where(square > 0.0, exponential(np.minimum(exponent, 0.0)), 0.0)[()]


# Projected noisy SGD by place of the record, and what a secret order or a random stop makes of it (asoodeh2020).

_LEAST = 1e-300
_LOG_SCALE_RANGE = 60.0


class Law(StrEnum):
    """The law of the noise on every gradient."""

    GAUSSIAN = "gaussian"
    """Standard deviation `scale` in every coordinate."""
    LAPLACE = "laplace"
    """Scale `scale`, one-dimensional models only."""


@dataclass(frozen=True)
class NoisyPass:
    """One pass over `n` records with noise of that `law` on every gradient, and its release.

    `eta`, `lipschitz`, `smoothness`, `strong_convexity` and `diameter` are those of `pnsgd_gaussian_delta`, one each.
    `permuted`: the order of the records is drawn and secret. `random_stop`: the pass stops after tau ~ uniform{1..n}
    steps, secret too. Raises ValueError naming the field.
    """

    n: int
    law: Law
    eta: float
    lipschitz: float
    smoothness: float
    strong_convexity: float
    diameter: float
    permuted: bool = False
    random_stop: bool = False

    def __post_init__(self) -> None:
        integer("n", self.n, at_least=1)
        member("law", Law, self.law)
        real("lipschitz", self.lipschitz, at_least=0.0)
        real("diameter", self.diameter, at_least=0.0)
        names = ("eta", "smoothness", "strong_convexity")
        contraction_factor(*(real(name, getattr(self, name)) for name in names))


def place_deltas(epsilon: float, run: NoisyPass, *, scale: float) -> Array:
    """Return delta at `epsilon` of the record at each place 1..n of the data set, shape (n,), noise of that `scale`.

    In a public order, of the last model: Theorem 4 (Gaussian) or 3 (Laplace); a random stop gives (1/n) sum of those
    from the record's place on, Theorem 5 before its last step; a permutation gives every record the mean over places.
    Formal guarantee: (epsilon, delta_i)-DP for replacing record i, while a drawn order or stopping time stays secret.
    Raises ValueError naming the argument. Source: asoodeh2020 Theorems 3, 4 and 5; the mean over places is derived
    (joint convexity of the divergence).
    """
    count, scale = int(run.n), real("scale", scale, above=0.0)
    place = {"i": np.arange(1.0, count + 1.0), "n": count}
    constants = {"eta": run.eta, "lipschitz": run.lipschitz, "smoothness": run.smoothness}
    kernel = {**constants, "strong_convexity": run.strong_convexity, "diameter": run.diameter}
    if run.law == Law.GAUSSIAN:
        deltas = pnsgd_gaussian_delta(epsilon, sigma=scale, **place, **kernel)
    else:
        deltas = pnsgd_laplace_delta(epsilon, scale=scale, **place, **kernel)
    if run.random_stop:
        deltas = np.cumsum(deltas[::-1])[::-1] / count
    return np.full(count, deltas.mean()) if run.permuted else deltas


def worst_epsilon(delta: float, run: NoisyPass, *, scale: float) -> float:
    """Return the least epsilon at which no place has a delta above `delta` in (0, 1), noise of that `scale`.

    Within 1e-9 above it; lipschitz > 0. Formal guarantee: (epsilon, `delta`)-DP for replacing any one record, as
    `place_deltas` has it. Raises ValueError naming the argument. Source: `place_deltas`, solved for epsilon.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    alone = step_epsilon(delta, law=run.law, scale=scale, lipschitz=run.lipschitz)

    def excess(epsilon: float) -> float:
        return _log(place_deltas(epsilon, run, scale=scale).max()) - math.log(delta)

    return falling_zero(excess, alone, xtol=1e-10)


def calibrated_scale(epsilon: float, delta: float, run: NoisyPass) -> float:
    """Return the least scale at which every place's delta at `epsilon` > 0 is at most `delta` in (0, 1).

    Within 1e-9 of the root, on its safe side; lipschitz > 0. Raises ValueError naming the argument. Formal guarantee:
    with that noise (epsilon, `delta`)-DP for replacing any one record, as `place_deltas` has it. Source:
    `place_deltas`, solved for the scale.
    """
    target = math.log(real("delta", delta, above=0.0, below=1.0))
    real("epsilon", epsilon, above=0.0)
    upper = math.log(_step_scale(epsilon, delta, run.law, run.lipschitz))

    def excess(log_scale: float) -> float:
        return _log(place_deltas(epsilon, run, scale=math.exp(log_scale)).max()) - target

    lower = upper - 1.0
    while excess(lower) <= 0.0:
        upper, lower = lower, lower - 1.0
        if lower < -_LOG_SCALE_RANGE:
            raise ValueError(f"delta: any scale attains {delta} at epsilon {epsilon}")
    root = upper if excess(upper) >= 0.0 else zero_between(excess, lower, upper, xtol=1e-10)
    return math.exp(root + 1e-9)


def step_epsilon(delta: float, *, law: Law, scale: float, lipschitz: float) -> float:
    """Return epsilon at `delta` in [0, 1) with every model published: one noisy gradient of sensitivity 2 lipschitz.

    Exact, for Laplace noise rounded up; `lipschitz` > 0, `scale` > 0. Formal guarantee: (epsilon, `delta`)-DP of all
    models for replacing one record. Raises ValueError naming the argument. Source: for Gaussian noise the inverse in
    epsilon of asoodeh2020 eq. (10), for Laplace of its eq. (9).
    """
    shift = 2.0 * real("lipschitz", lipschitz, above=0.0) / real("scale", scale, above=0.0)
    delta = real("delta", delta, at_least=0.0, below=1.0)
    if member("law", Law, law) is Law.GAUSSIAN:
        return float(gaussian_dp.epsilon(delta, shift))
    # Near a tiny delta one unit in the last place of epsilon is more than all of delta.
    return max(0.0, (shift * (1.0 + 2.0**-51) + 2.0 * math.log1p(-delta)) * (1.0 + 2.0**-51))


def _step_scale(epsilon: float, delta: float, law: Law, lipschitz: float) -> float:
    """Return the scale at which `step_epsilon` is `epsilon`. Raises ValueError naming lipschitz or law."""
    move = 2.0 * real("lipschitz", lipschitz, above=0.0)
    if member("law", Law, law) is Law.GAUSSIAN:
        return move / float(gaussian_dp.mu(epsilon, delta))
    return move / (epsilon - 2.0 * math.log1p(-delta))


def _log(value: float) -> float:
    """Return the logarithm of a probability that may have underflowed."""
    return math.log(max(float(value), _LEAST))


# Excess risk of asoodeh2021's Algorithm 1: what the noise costs in convergence.


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


def average_iterate_rate(  # noqa: PLR0913
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
