"""Rounds of federated SGD in which every user takes part once, and the divergence that its last model keeps.

A record is seen in round t with probability m/n. There it opens a divergence theta(head_t); every later round j
multiplies it by theta(link_j). Everything is summed in logarithms, so neither T = 1e5 factors near 1 nor terms far
below 1e-308 lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_divergence
from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.contraction.geometric import double_geometric, geometric
from dpfl.accounting.contraction.stable_arithmetic import Array, exponential, power, ratio

_BLOCK = 1 << 20  # elements of an (epsilon, round) table in memory at once


@dataclass(frozen=True)
class Rounds:
    """Step sizes and noise of T rounds with m of n users each; both arrays have shape () if constant, else (T,)."""

    n: int
    m: int
    eta: Array
    sigma: Array

    @property
    def constant(self) -> bool:
        """True where every round has the same step size and noise."""
        return not self.eta.ndim and not self.sigma.ndim

    @property
    def count(self) -> float:
        """T: the length of the schedule, or n/m, which need not be an integer for a constant one."""
        return self.n / self.m if self.constant else float(max(self.eta.size, self.sigma.size))

    def whole_count(self) -> int:
        """T where a theorem needs T = n/m exactly. Raises ValueError naming m."""
        return whole_rounds(self.n, self.m)

    def head(self, lipschitz: float) -> Array:
        """2L/(sqrt(m) sigma_t): what the record moves its own round by, in units of that round's noise."""
        return ratio(2.0 * lipschitz, math.sqrt(self.m), self.sigma)

    def link(self, diameter: ArrayLike) -> Array:
        """diameter sqrt(m)/(eta_t sigma_t): how far apart two models may enter round t, in units of its noise."""
        with np.errstate(over="ignore"):
            return ratio(np.multiply(diameter, math.sqrt(self.m)), self.eta, self.sigma)


def read_rounds(n: int, m: int, eta: ArrayLike, sigma: ArrayLike) -> Rounds:
    """Check users, batch and schedules: eta and sigma are positive scalars or share the length T = n/m, rounded down.

    A schedule with one round more is refused: fewer than m users are left for it, each of whom moves the mean by more,
    and nothing is proven of such a round. Raises ValueError naming the argument.
    """
    n, m = read_users(n, m)
    schedules = {"eta": reals("eta", eta, above=0.0), "sigma": reals("sigma", sigma, above=0.0)}
    rounds = n // m
    for name, schedule in schedules.items():
        if schedule.ndim > 1 or (schedule.ndim and schedule.size != rounds):
            one_more = n % m and schedule.shape == (rounds + 1,)
            left = f": the last round would have {n % m} users, not m" if one_more else ""
            raise ValueError(f"{name} must be one number or n/m = {rounds} of them, got shape {schedule.shape}{left}")
    return Rounds(n, m, **schedules)


def read_users(n: int, m: int) -> tuple[int, int]:
    """Check integers n >= m >= 1. Raises ValueError naming the argument."""
    n, m = integer("n", n, at_least=1), integer("m", m, at_least=1)
    if m > n:
        raise ValueError(f"m must be at most n = {n}, got {m}")
    return n, m


def whole_rounds(n: int, m: int) -> int:
    """Return T = n/m. Raises ValueError naming m where it does not divide n, or as `read_users` does."""
    n, m = read_users(n, m)
    if n % m:
        raise ValueError(f"m must divide n, so that every round has m users, got n = {n} and m = {m}")
    return n // m


def non_negative(**values: float) -> tuple[float, ...]:
    """Check named scalars >= 0, in order. Raises ValueError naming the argument."""
    return tuple(real(name, value, at_least=0.0) for name, value in values.items())


def last_model(epsilon: ArrayLike, rounds: Rounds, lipschitz: float, diameter: ArrayLike) -> Array:
    """Logarithm of (m/n) sum_t theta(head_t) prod_{j>t} theta(link_j): delta of the model after round T.

    Raises ValueError naming epsilon. Source: asoodeh2021 Theorem 2.
    """
    head, link = rounds.head(lipschitz), rounds.link(diameter)
    log_rate = math.log(rounds.m / rounds.n)

    def closed_form(epsilon: Array) -> Array:
        kept = _geometric_at(geometric, epsilon, link, rounds.count)
        return gaussian_divergence.log_divergence(epsilon, head) + np.log(kept) + log_rate

    def general_sum(epsilon: Array) -> Array:
        terms = gaussian_divergence.log_divergence(epsilon, head) + _log_kept(
            gaussian_divergence.log_divergence(epsilon, link)
        )
        return _logsumexp(terms, int(rounds.count)) + log_rate

    return _over_epsilon(epsilon, rounds, closed_form, general_sum)


def stopped_model(epsilon: ArrayLike, rounds: Rounds, lipschitz: float, diameter: ArrayLike, first: int) -> Array:
    """Logarithm of the mean over tau = first..T of (1/T) sum_{t<=tau} theta(head_t) prod_{t<j<=tau} theta(link_j).

    Raises ValueError naming epsilon, or m where it does not divide n. Source: asoodeh2021 Corollary 3.
    """
    head, link = rounds.head(lipschitz), rounds.link(diameter)
    total = rounds.whole_count()
    stops = float(total - first + 1)
    log_rate = -math.log(stops) - math.log(total)

    def closed_form(epsilon: Array) -> Array:
        kept = exponential(power(gaussian_divergence.log_divergence(epsilon, link), np.float64(first)))
        within = _geometric_at(geometric, epsilon, link, float(first)) * stops
        beyond = _geometric_at(double_geometric, epsilon, link, stops - 1.0)
        return gaussian_divergence.log_divergence(epsilon, head) + np.log(within + kept * beyond) + log_rate

    def general_sum(epsilon: Array) -> Array:
        log_link = np.broadcast_to(gaussian_divergence.log_divergence(epsilon, link), (len(epsilon), total))
        reach = np.zeros(log_link.shape)
        reach[:, :first] = _log_kept(log_link[:, :first])
        stays = np.log(_discounted_counts(log_link[:, first - 1 :]))
        reach[:, : first - 1] += stays[:, :1]
        reach[:, first - 1 :] += stays
        return _logsumexp(gaussian_divergence.log_divergence(epsilon, head) + reach, total) + log_rate

    return _over_epsilon(epsilon, rounds, closed_form, general_sum)


def _geometric_at(function: Callable[..., Array], epsilon: Array, link: Array, terms: float) -> Array:
    """`geometric` or `double_geometric` of the factor theta(link)."""
    log_factor, gap = gaussian_divergence.log_divergence(epsilon, link), gaussian_divergence.complement(epsilon, link)
    return function(log_factor, gap, np.float64(terms))


def _log_kept(log_link: Array) -> Array:
    """sum of log_link over the later rounds j > t, for each t; extended precision, as 1e5 additions drift."""
    kept = np.zeros(log_link.shape)
    later = log_link[..., :0:-1].astype(np.longdouble)
    kept[..., -2::-1] = np.cumsum(later, axis=-1)
    return kept


def _discounted_counts(log_link: Array) -> Array:
    """G_t = 1 + theta_{t+1} G_{t+1}, G_T = 1, by doubling the reach: log2(T) passes of positive terms."""
    log_reach = np.full(log_link.shape, -np.inf)
    log_reach[..., :-1] = log_link[..., 1:]
    counts = np.ones(log_link.shape)
    step = 1
    while step < log_link.shape[-1]:
        counts[..., :-step] += np.exp(log_reach[..., :-step]) * counts[..., step:]
        log_reach[..., :-step] += log_reach[..., step:]
        step *= 2
    return counts


def _logsumexp(terms: Array, count: int) -> Array:
    """log of the sum over the last axis, which may be of length 1 standing for `count` equal terms."""
    terms = np.broadcast_to(terms, (*terms.shape[:-1], count))
    largest = terms.max(axis=-1)
    reference = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        return reference + np.log(np.exp(terms - reference[..., None]).sum(axis=-1))


def _over_epsilon(epsilon: ArrayLike, rounds: Rounds, closed_form: Callable, general_sum: Callable) -> Array:
    """Apply the closed form to a constant schedule, else the sum to columns of epsilon, a bounded table at a time."""
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    with np.errstate(over="ignore"):  # a logarithm below -1e308 is one of 0
        if rounds.constant:
            return closed_form(epsilon)
        column = epsilon.reshape(-1, 1)
        size = max(1, _BLOCK // int(rounds.count))
        blocks = [general_sum(column[start : start + size]) for start in range(0, len(column), size)]
    return np.concatenate(blocks).reshape(epsilon.shape) if blocks else np.empty(epsilon.shape)
