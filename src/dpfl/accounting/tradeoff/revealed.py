"""Adversary A1, who sees how many differing records each round used: a mixture of Gaussians with a known label."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb, log_ndtr, logsumexp, ndtr, ndtri
from scipy.stats import hypergeom

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.gaussian_divergence import theta
from dpfl.accounting.roots import root

_LEAST_WEIGHT = 1e-200
_TINY = 5e-324  # the smallest float64 above zero: keeps logarithms finite


@dataclass(frozen=True)
class RevealedMixture:
    """Draw mu from `mus` with `weights`, reveal it to the adversary, who tests G_mu. Both shape (k,), mus >= 0.

    His best test equalises the slopes of the components: one likelihood threshold s for all of them.
    Source: vandijk2023 sections 4.5 and 4.7.
    """

    weights: NDArray[np.float64]
    mus: NDArray[np.float64]

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """sum_k w_k theta(epsilon, mu_k) at epsilon >= 0, any shape."""
        epsilon = reals("epsilon", epsilon, at_least=0)
        return (theta(epsilon[..., None], self.mus) @ self.weights)[()]

    def epsilon(self, delta: ArrayLike) -> NDArray[np.float64]:
        """The smallest epsilon >= 0 at which `delta` in [0, 1] is kept; inf at delta = 0."""
        delta = reals("delta", delta, at_least=0, at_most=1)
        at_zero = self.delta(0.0)
        result = np.where((delta == 0) & (at_zero > 0), np.inf, 0.0)
        open_ = (delta > 0) & (delta < at_zero)
        highest = gaussian_dp.epsilon(delta[open_], np.max(self.mus))

        def gap(epsilon: NDArray, target: NDArray) -> NDArray[np.float64]:
            return np.log(np.maximum(self.delta(epsilon), _TINY)) - np.log(target)

        result[open_] = root(gap, 0.0, highest, delta[open_])
        return result[()]

    def tradeoff(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """The least type II error at type I error `alpha` in [0, 1], any shape."""
        alpha = reals("alpha", alpha, at_least=0, at_most=1)
        used = self.mus > 0
        unused = float(np.sum(self.weights[~used]))  # rounds without a trace of the record: pure guessing, slope -1
        at_zero = float(self.weights[used] @ ndtr(-self.mus[used] / 2))
        value = np.maximum(2 * at_zero + unused - alpha, 0.0)
        small_alpha, large_alpha = (alpha > 0) & (alpha < at_zero), (alpha < 1) & (alpha > at_zero + unused)
        value = np.where(alpha == 0, 1.0, np.where(alpha == 1, 0.0, value))
        if np.any(used):
            value[small_alpha] = self._early(alpha[small_alpha], unused)
            value[large_alpha] = self._late(alpha[large_alpha], unused)
        return np.clip(value, 0.0, 1 - alpha)[()]

    def _early(self, alpha: NDArray, unused: float) -> NDArray[np.float64]:
        """Steeper than -1: the threshold s > 0 with sum_k w_k Q(s/mu_k + mu_k/2) = alpha."""
        log_w, mus = self._used()

        def gap(s: NDArray, alpha: NDArray) -> NDArray[np.float64]:
            return logsumexp(log_w + log_ndtr(-s[..., None] / mus - mus / 2), axis=-1) - np.log(alpha)

        s = root(gap, 0.0, -np.max(mus) * ndtri(np.minimum(alpha, 0.5)), alpha)
        return unused + ndtr(s[..., None] / mus - mus / 2) @ np.exp(log_w)

    def _late(self, alpha: NDArray, unused: float) -> NDArray[np.float64]:
        """Flatter than -1: the threshold -t < 0 with sum_k w_k Q(t/mu_k - mu_k/2) = 1 - alpha."""
        log_w, mus = self._used()

        def gap(t: NDArray, alpha: NDArray) -> NDArray[np.float64]:
            shifted = t[..., None] / mus - mus / 2
            above = np.log1p(-alpha) - logsumexp(log_w + log_ndtr(-shifted), axis=-1)
            below = np.log(np.maximum(unused + ndtr(shifted) @ np.exp(log_w), _TINY)) - np.log(alpha)
            return np.where(alpha < 0.5, below, above)

        highest = np.max(mus * (ndtri(alpha)[..., None] + mus / 2), axis=-1)
        t = root(gap, 0.0, np.maximum(highest, 0.0), alpha)
        return np.exp(logsumexp(log_w + log_ndtr(-t[..., None] / mus - mus / 2), axis=-1))

    def _used(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of the weights, and the mus, of the components that are informative."""
        used = self.mus > 0
        return np.log(self.weights[used]), self.mus[used]


def revealed(*, n: int, m: int, rounds: int, sigma: float, group_size: int = 1) -> RevealedMixture:
    """The mixture that A1 faces after `rounds` batches of m out of n records, noise sigma sensitivities.

    A round with j of the `group_size` differing records (hypergeometric) shifts the sum by at most j,
    so mu = sqrt(sum of j^2 over rounds)/sigma; for one record the count is Bin(rounds, m/n).
    Exact up to components of weight below 1e-200. Raises ValueError naming the argument.
    Source: vandijk2023 sections 4.5 and 4.7.
    """
    sigma = real("sigma", sigma, above=0)
    rounds = integer("rounds", rounds, at_least=1)
    weights, squares = _power(_one_round(n, m, group_size), rounds)
    return RevealedMixture(weights, np.sqrt(squares) / sigma)


def revealed_shuffled(*, n: int, m: int, epochs: int, sigma: float, group_size: int = 1) -> RevealedMixture:
    """The mixture that A1 faces where each epoch deals all n records into n/m batches: `revealed` for shuffling.

    Of a group's records j_b fall into batch b, which shifts its sum by at most j_b: mu = sqrt(sum of j_b^2 over all
    batches)/sigma, at least that of `shuffled_mu`, which a group meets only where no two of it share a batch. For one
    record mu = sqrt(epochs)/sigma in every run. Exact up to components of weight below 1e-200 and, for m^g beyond
    float64, refused. m must divide n. Raises ValueError naming the argument.
    Guarantee: batches shuffled anew in each epoch, up to `group_size` records replaced, against A1 and so against
    anyone who sees the rounds alone. Source: vandijk2023 section 4.7, counted exactly.
    """
    n, m = integer("n", n, at_least=1), integer("m", m, at_least=1)
    group_size = integer("group_size", group_size, at_least=1)
    sigma, epochs = real("sigma", sigma, above=0), integer("epochs", epochs, at_least=1)
    if m > n or n % m:
        raise ValueError(f"m must divide n = {n} into whole batches, got {m}")
    if group_size > n or group_size * np.log10(n) > 300:
        raise ValueError(f"group_size must be at most n = {n}, and n^group_size a float64, got {group_size}")
    weights, squares = _power(_one_epoch(n, m, group_size), epochs)
    return RevealedMixture(weights, np.sqrt(squares) / sigma)


def _one_epoch(n: int, m: int, group_size: int) -> NDArray[np.float64]:
    """The law of sum j_b^2, j_b the number of differing records in batch b of one epoch's n/m, over 0, 1, 2, ...

    ways[j, s]: in how many ways some batches take j of the group with squares that sum to s; doubled batch by batch.
    """
    ways = np.zeros((group_size + 1, group_size**2 + 1))
    counts = np.arange(group_size + 1)
    ways[counts, counts**2] = comb(m, counts)

    def join(one: NDArray, two: NDArray) -> NDArray:
        both = np.zeros_like(ways)
        for j, k in itertools.product(counts, counts):
            if j + k <= group_size:
                both[j + k] += np.convolve(one[j], two[k])[: both.shape[1]]
        return both

    batches, result, times = ways, None, n // m
    while times:
        if times & 1:
            result = batches if result is None else join(result, batches)
        times >>= 1
        if times:
            batches = join(batches, batches)
    return result[group_size] / result[group_size].sum()


def revealed_renyi(order: ArrayLike, *, n: int, m: int, rounds: int, sigma: float, group_size: int = 1) -> NDArray:
    """Renyi divergence of order > 1 (any shape) that A1 sees, in closed form from one round's counts.

    rounds ln(sum_j w_j e^{order (order - 1) j^2/(2 sigma^2)})/(order - 1), inf where it overflows: above order
    E/(2 sigma^2), so subsampled batches are not E/(2 sigma^2)-zCDP, as section 4.7 has it. Arguments as `revealed`.
    Guarantee: (order, this)-Renyi DP against A1. Raises ValueError naming the argument.
    Source: derived from the law of the counts in vandijk2023 section 4.5.
    """
    order = reals("order", order, above=1)
    sigma, rounds = real("sigma", sigma, above=0), integer("rounds", rounds, at_least=1)
    one = _one_round(n, m, group_size)
    squares = np.flatnonzero(one[1:]) + 1
    # ln(1 + x) with x = sum_j w_j (e^growth_j - 1), which may be tiny or overflow.
    with np.errstate(over="ignore", divide="ignore"):
        growth = (order * (order - 1))[..., None] * squares / 2 / sigma / sigma
        gain = logsumexp(growth + np.log(-np.expm1(-growth)), b=one[squares], axis=-1)
    return (rounds * np.logaddexp(0.0, gain) / (order - 1))[()]


def _one_round(n: int, m: int, group_size: int) -> NDArray[np.float64]:
    """The law of j^2, j the number of differing records in one batch, as weights over 0, 1, 2, ..."""
    n, m = integer("n", n, at_least=1), integer("m", m, at_least=1)
    group_size = integer("group_size", group_size, at_least=1)
    if m > n:
        raise ValueError(f"m must be at most n = {n}, got {m}")
    if group_size > n:
        raise ValueError(f"group_size must be at most n = {n}, got {group_size}")
    counts = np.arange(group_size + 1)
    law = np.zeros(group_size**2 + 1)
    law[counts**2] = hypergeom.pmf(counts, n, group_size, m)
    return law


def _power(law: NDArray, times: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The law of the sum of `times` independent draws: (weights, values), by repeated squaring.

    Plain sums of products of positive numbers, no transform, so that every weight keeps its digits.
    """
    start, result, base_start, base = 0, np.ones(1), 0, law
    while times:
        if times & 1:
            start, result = _trimmed(start + base_start, np.convolve(result, base))
        times >>= 1
        if times:
            base_start, base = _trimmed(2 * base_start, np.convolve(base, base))
    support = result > 0
    return result[support], (start + np.arange(result.size))[support].astype(np.float64)


def _trimmed(start: int, law: NDArray) -> tuple[int, NDArray[np.float64]]:
    """Drop both ends of negligible weight."""
    support = np.flatnonzero(law >= _LEAST_WEIGHT)
    return start + int(support[0]), law[support[0] : support[-1] + 1]
