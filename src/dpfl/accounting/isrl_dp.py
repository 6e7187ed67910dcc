"""Noise that each client adds in lowy2021, where no server is trusted, and the epsilon that it spends.

Everywhere n = `records` of one client, L = `lipschitz` bounds a record's gradient, and two data sets of a client
are neighbours when one record is replaced. The noise is added to the mean of a batch's K gradients.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

from dpfl.accounting import gaussian_dp, poisson_gaussian
from dpfl.accounting.arguments import integer, integers, real, reals
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.gaussian_divergence import theta
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.privacy_profiles import composed_epsilon, pair_epsilon_below
from dpfl.accounting.roots import least_noise
from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError

Array = NDArray[np.float64]
_LOST = 1e-6
"""Share of delta that cutting the privacy loss at its upper end may cost."""
_REACH, _OUTCOMES = 12.0, 100_001


def advanced_composition_variance(
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    lipschitz: ArrayLike,
    rounds: ArrayLike,
    records: ArrayLike,
    batch_share: ArrayLike = 1.0,
) -> Array:
    """Return sigma^2 = 256 L^2 R ln(2.5 R/delta) ln(2/delta) / (n^2 epsilon^2) per coordinate; arrays broadcast.

    Guarantee: R = `rounds` steps on batches of at least `least_batch_advanced` records drawn with replacement
    are (epsilon, delta)-LDP. Source: lowy2021 Theorems 2.1 and 2.3, under epsilon <= ln(2/delta). The authors'
    scripts put R K/n for R in the first logarithm: their `batch_share` is K/n, in (0, 1]; the guarantee is stated for
    1. Raises ValueError naming the argument.
    """
    epsilon, delta, lipschitz, rounds, records = _run(epsilon, delta, lipschitz, rounds, records)
    if np.any(epsilon > np.log(2 / delta)):
        raise ValueError("epsilon must be at most ln(2/delta) (lowy2021 Theorem 2.1)")
    logarithms = np.log(2.5 * rounds * reals("batch_share", batch_share, above=0, at_most=1) / delta) * np.log(
        2 / delta
    )
    return 256 * lipschitz**2 * rounds * logarithms / (records * epsilon) ** 2


def moments_variance(
    *, epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike, rounds: ArrayLike, records: ArrayLike
) -> Array:
    """Return sigma^2 = 8 L^2 R ln(1/delta) / (n^2 epsilon^2), of the authors' later script; arrays broadcast.

    No guarantee of its own: it is meant for epsilon <= `largest_moments_epsilon`, and even there `epsilon`
    below shows more spent than asked for. `rounds` counts noisy steps: K R of them for local SGD.
    Raises ValueError naming the argument. Source: the lowy2021 scripts.
    """
    epsilon, delta, lipschitz, rounds, records = _run(epsilon, delta, lipschitz, rounds, records)
    return 8 * lipschitz**2 * rounds * np.log(1 / delta) / (records * epsilon) ** 2


def one_pass_variance(*, epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike) -> Array:
    """Return sigma^2 = 8 L^2 ln(1.25/delta) / epsilon^2: each record used once, alone; arrays broadcast.

    Guarantee: (epsilon, delta)-LDP, by the Gaussian mechanism of sensitivity 2L and parallel composition.
    0 < `epsilon` <= 1, `delta` in (0, 1). Source: lowy2021, one-pass Algorithm 2. Raises ValueError naming
    the argument.
    """
    epsilon, delta = reals("epsilon", epsilon, above=0, at_most=1), reals("delta", delta, above=0, below=1)
    return 8 * reals("lipschitz", lipschitz, above=0) ** 2 * np.log(1.25 / delta) / epsilon**2


def least_batch_advanced(*, epsilon: ArrayLike, delta: ArrayLike, rounds: ArrayLike, records: ArrayLike) -> Array:
    """Return n epsilon / (4 sqrt(2 R ln(2/delta))), the batch size that Theorem 2.1 of lowy2021 asks for at least.

    A real number: the theorem's K is its ceiling, the authors' scripts take its floor. Arrays broadcast.
    Raises ValueError naming the argument.
    Source: lowy2021 Theorem 2.1.
    """
    epsilon, delta, _, rounds, records = _run(epsilon, delta, 1.0, rounds, records)
    return records * epsilon / (4 * np.sqrt(2 * rounds * np.log(2 / delta)))


def least_batch_moments(*, epsilon: ArrayLike, rounds: ArrayLike, records: ArrayLike) -> Array:
    """Return n sqrt(epsilon / (4 R)), the batch size that moments_variance is meant for; else as above.

    Source: the lowy2021 scripts, after abadi2016, Theorem 1.
    """
    epsilon, _, _, rounds, records = _run(epsilon, 0.5, 1.0, rounds, records)
    return records * np.sqrt(epsilon / (4 * rounds))


def largest_moments_epsilon(*, batch_size: ArrayLike, steps: ArrayLike, records: ArrayLike) -> Array:
    """Return 4 T B^2 / n^2, up to which moments_variance is meant for T = `steps` on batches of B records.

    Local SGD with K local steps on single records has B = 1 and T = K R, so 4 K R / n^2. Arrays broadcast.
    Raises ValueError naming the argument.
    Source: the lowy2021 scripts, after abadi2016, Theorem 1.
    """
    batch, steps = integers("batch_size", batch_size, at_least=1), integers("steps", steps, at_least=1)
    return 4 * steps * (batch / integers("records", records, at_least=1)) ** 2


def epsilon(
    *,
    noise_multiplier: ArrayLike,
    batch_size: ArrayLike,
    records: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    sampling: Sampling,
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `steps` noisy steps with per-record clipping, under replace_one; arrays broadcast.

    `noise_multiplier` > 0 is sigma K / L: replacing a record in j of the K = `batch_size` slots moves the
    step by 2 j / noise_multiplier deviations. Guarantee: (epsilon, delta)-LDP, an upper bound on what is spent.
    FULL (K = n) is exact. FIXED composes the profile of sampling without replacement, the same in both orders.
    WITH_REPLACEMENT composes the profile of balle2018, Theorem 10: j ~ Bin(K, 1/n), an upper
    bound, often a loose one: see `with_replacement_known_epsilon`.
    Raises ValueError naming the argument; other samplings are refused.
    Sources: balle2018, Theorem 9 (FIXED) and 10; zhu2022, Theorem 10 (composition); vandijk2023 (6) (FULL).
    """
    if not any(sampling is known for known in (Sampling.FULL, Sampling.FIXED, Sampling.WITH_REPLACEMENT)):
        raise ValueError(f"sampling must be FULL, FIXED or WITH_REPLACEMENT here, got {sampling!r}")

    def one(noise_multiplier: float, batch_size: float, records: float, steps: float, delta: float) -> float:
        move = 2 / real("noise_multiplier", noise_multiplier, above=0)
        batch, n, count, failure = _steps(batch_size, records, steps, delta)
        if sampling is Sampling.WITH_REPLACEMENT:
            return _sampled_epsilon(_Multiplicity(batch, n, _LOST * failure / count), move, count, failure)
        if batch > n or (sampling is Sampling.FULL and batch != n):
            raise ValueError(f"batch_size {batch} does not fit {n} records under sampling {sampling.value!r}")
        if batch == n:
            return float(gaussian_dp.epsilon(failure, move * math.sqrt(count)))
        return _sampled_epsilon(_Once(batch / n), move, count, failure)

    return elementwise(
        one, noise_multiplier=noise_multiplier, batch_size=batch_size, records=records, steps=steps, delta=delta
    )


def clipped_mean_epsilon(
    *,
    sigma_over_lipschitz: float,
    batch_size: int,
    records: int,
    steps: int,
    delta: float,
    sampling: Sampling = Sampling.WITH_REPLACEMENT,
) -> float:
    """Return epsilon at `delta` where the batch's MEAN gradient is clipped to L, as the lowy2021 scripts do.

    Then a record that is drawn at all (into K = `batch_size` slots, WITH_REPLACEMENT or FIXED) may turn the mean
    around: it moves by 2L however small its share. `sigma_over_lipschitz` > 0. Relation: replace_one. An upper bound
    that a batch of gradients in balance comes near. Raises ValueError naming the argument; other samplings are refused.
    Source: derived, with balle2018, Theorems 9 and 10, at a move of 2L for any number of draws.
    """
    if not any(sampling is known for known in (Sampling.FIXED, Sampling.WITH_REPLACEMENT)):
        raise ValueError(f"sampling must be FIXED or WITH_REPLACEMENT here, got {sampling!r}")
    move = 2 / real("sigma_over_lipschitz", sigma_over_lipschitz, above=0)
    batch, n, count, failure = _steps(batch_size, records, steps, delta)
    if sampling is Sampling.FIXED and batch > n:
        raise ValueError(f"batch_size {batch} does not fit {n} records under sampling {sampling.value!r}")
    chance = batch / n if sampling is Sampling.FIXED else _chance(batch, n)
    return _sampled_epsilon(_Once(chance), move, count, failure)


def with_replacement_known_epsilon(
    *, noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float
) -> float:
    """Return epsilon at `delta` that WITH_REPLACEMENT sampling is known to spend; arguments as for `epsilon`.

    A data set whose other records all have the gradient opposite to the record's own attains the mixture of
    Gaussians sum_j Bin(j; K, 1/n) N(2 j / noise_multiplier, 1) against N(0, 1): what the worst data set spends
    is between this and `epsilon`. Guarantee: a lower bound of what is spent, so no privacy guarantee.
    Source: derived; the mixture is composed from below by privacy_profiles. Raises ValueError naming the argument.
    """
    move = 2 / real("noise_multiplier", noise_multiplier, above=0)
    batch, n, count, failure = _steps(batch_size, records, steps, delta)
    # Several draws counted as one are the pair of a Poisson step, which has a sharper accountant where draws are rare.
    rate = _chance(batch, n)
    run = {"noise_multiplier": 1 / move, "sample_rate": rate, "steps": count, "delta": failure}
    once = poisson_gaussian.epsilon_interval(**run, neighbouring=Neighbouring.ADD_OR_REMOVE)[0]
    if batch == 1:
        return once
    drawn = _Multiplicity(batch, n, _LOST * failure / count)
    shifts = np.concatenate([[0.0], drawn.times]) * move
    weights = np.concatenate([[1 - drawn.weights.sum()], drawn.weights])
    edges = np.linspace(-_REACH, shifts[-1] + _REACH, _OUTCOMES)
    logs = np.full(edges.size - 1, -np.inf)
    for weight, shift in zip(weights, shifts, strict=True):
        logs = np.logaddexp(logs, math.log(weight) + _log_masses(edges - shift))
    losses = np.maximum.accumulate(logs - _log_masses(edges))
    support = logs > -690
    return max(once, pair_epsilon_below(losses[support], np.exp(logs[support]), steps=count, delta=failure))


def _log_masses(edges: Array) -> Array:
    """The logarithm of the mass of N(0, 1) in each cell between the edges, with its digits in both tails."""
    sides = log_ndtr(-np.abs(edges))
    middle = edges[1:] + edges[:-1] > 0
    near, far = np.where(middle, sides[:-1], sides[1:]), np.where(middle, sides[1:], sides[:-1])
    inside = edges[1:] * edges[:-1] < 0  # 0 is in the cell: both tails are outside of it
    tails = np.log1p(-np.exp(np.where(inside, -1.0, np.minimum(far - near, -1e-300))))
    return np.where(inside, np.log1p(-np.exp(near) - np.exp(far)), near + tails)


class _Once:
    """The record is drawn with probability `rate`, and then moves the step by one unit."""

    def __init__(self, rate: float) -> None:
        self.rate, self.times, self.weights, self.ignored = rate, np.ones(1), np.array([rate]), 0.0


class _Multiplicity:
    """The record fills Bin(batch, 1/n) slots and moves the step by as many units; rarer numbers are `ignored`."""

    def __init__(self, batch: int, n: int, rarest: float) -> None:
        # Not by binom.isf, which looks at 1 - rarest. By Chernoff's bound, counts above the last one are rarer still.
        counts = np.arange(min(batch, int(7 * batch / n - math.log(rarest)) + 46) + 1)
        most = max(1, int(np.argmin(binom.sf(counts, batch, 1 / n) > 1e-3 * rarest)))
        self.times = np.arange(1.0, most + 1)
        self.weights = binom.pmf(self.times, batch, 1 / n)
        self.rate, self.ignored = float(binom.sf(0, batch, 1 / n)), float(binom.sf(most, batch, 1 / n))


def _sampled_epsilon(drawn: _Once | _Multiplicity, move: float, steps: int, delta: float) -> float:
    """Compose the privacy profile of one step: advanced joint convexity, then a group profile for each multiplicity."""

    def profile(epsilon: Array) -> Array:
        # e^epsilon = 1 + rate (e^inner - 1), solved for inner so that nothing overflows.
        inner = epsilon - math.log(drawn.rate) + np.log1p(-(1 - drawn.rate) * np.exp(-epsilon))
        inner = np.maximum(inner, 0.0)
        return drawn.weights @ theta(inner, drawn.times[:, None] * move) + drawn.ignored

    lost = 2 * _LOST * delta / steps
    largest = 1.0
    while profile(np.array([largest]))[0] > lost:
        largest *= 2
    if profile(np.zeros(1))[0] > lost:
        largest = (
            brentq(lambda x: math.log(max(profile(np.array([x]))[0], 1e-300) / lost), 0.0, largest, xtol=1e-4) + 1e-3
        )
    return composed_epsilon(profile, largest=largest, steps=steps, delta=delta)


def _run(
    epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike, rounds: ArrayLike, records: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """The arguments of a noise formula, each in its range."""
    return (
        reals("epsilon", epsilon, above=0),
        reals("delta", delta, above=0, below=1),
        reals("lipschitz", lipschitz, above=0),
        integers("rounds", rounds, at_least=1),
        integers("records", records, at_least=1),
    )


def _steps(batch_size: float, records: float, steps: float, delta: float) -> tuple[int, int, int, float]:
    """The arguments of an accountant, each in its range."""
    return (
        integer("batch_size", batch_size, at_least=1),
        integer("records", records, at_least=1),
        integer("steps", steps, at_least=1),
        real("delta", delta, above=0, below=1),
    )


def _chance(batch: int, records: int) -> float:
    """Return the chance that a record fills one of `batch` slots, each drawn from all records."""
    return -math.expm1(batch * math.log1p(-1 / records)) if records > 1 else 1.0


EPSILON_TOLERANCE = 2e-3
"""Most that epsilon at the calibrated noise of composed rounds may fall below the target, relative to it."""


@cache
def _rounds_epsilon(sigma: float, delta: float, users: int, size: int, rounds: int, sampling: Sampling) -> float:
    """Return epsilon of rounds with freshly drawn batches, once for every cell that shares it.

    Source: `epsilon` at the noise of a round of `size` users.
    """
    multiplier = math.sqrt(size) * sigma
    draws = {"batch_size": size, "records": users, "steps": rounds, "delta": delta, "sampling": sampling}
    return float(epsilon(noise_multiplier=multiplier, **draws))


@cache
def composed_sigma(epsilon: float, delta: float, users: int, size: int, rounds: int, sampling: Sampling) -> float:
    """Return a sigma that meets `epsilon` with freshly drawn batches, by at most EPSILON_TOLERANCE (relative) too much.

    `epsilon` > 0, `delta` in (0, 1), `size` the batch of the `users`. Secant steps in log-log coordinates, where the
    curve is nearly straight, from the central limit's answer: the accountant takes seconds per evaluation.
    Guarantee and source: `epsilon` of this module, solved for sigma. Raises ValueError naming the argument.
    """
    real("epsilon", epsilon, above=0)
    mu = float(gaussian_dp.mu(epsilon, delta)) / (size / users * math.sqrt(rounds))
    here = math.log(2.0 / math.sqrt(size * math.log1p(mu**2)))

    def excess(log_sigma: float) -> float:
        spent = _rounds_epsilon(math.exp(log_sigma), delta, users, size, rounds, sampling)
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    result = least_noise(excess, here, slope=-2.0, room=EPSILON_TOLERANCE, longest=0.7)
    if result is None:
        raise InputError(f"epsilon: no noise was found that meets {epsilon:g} with {rounds} rounds of {size} users")
    return math.exp(result)
