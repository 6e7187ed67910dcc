"""Epsilon by accountants that share no code with those that wrote it into a privacy statement."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp
from numpy.typing import NDArray
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd
from dpfl.accounting.tradeoff import curves
from dpfl.provenance.audit.inverted_composition import (
    Array,
    InvertedComposition,
    Profile,
    gaussian_log_delta,
    laplace_log_delta,
    poisson_replaced,
    sampled_arsinh,
    sampled_gaussian,
    zero_between,
)

# Epsilon of a model whose earlier models stay secret (asoodeh2020, asoodeh2021), round by round.
#
# A record opens the divergence h_t = theta(move of its own round) in the round that reads it; every later round
# multiplies what is left of it by c_t = theta(how far apart two models may enter that round). A secret order puts the
# record into each of T rounds with probability 1/T, so S_t = c_t S_(t-1) + h_t/T is that of the model after round t,
# and a secret stop averages S over the rounds after which it may come. The numbers that runs state come from closed
# forms and sums in logarithms; here the recursion itself is walked.

_LAPLACE_DEVIATION = math.sqrt(2.0)


@dataclass(frozen=True)
class Hidden:
    """A run whose released model hides the others. `noise_multiplier` is the deviation of the noise in a round's sum of
    `batch_size` gradients over `lipschitz`; `step` is the step size, None for 1/(strong_convexity t) in round t.

    `first_stop` is the first round after which the model may be taken, `rounds` for the last one. `permuted`: the order
    is secret. `relaxed`: steps beyond those that bring models nearer count too (asoodeh2021, after Theorem 2).
    Raises ValueError for a public order whose worst place is not known: stops from a later round on, or unequal steps.
    """

    noise_multiplier: float
    rounds: int
    batch_size: int
    step: float | None
    lipschitz: float
    radius: float
    smoothness: float
    strong_convexity: float
    first_stop: int
    permuted: bool = True
    laplace: bool = False
    relaxed: bool = True

    def __post_init__(self) -> None:
        if not self.permuted and self.first_stop < self.rounds and (self.first_stop > 1 or self.step is None):
            raise ValueError("permuted: a public order is followed for one stop or any stop, and for equal steps only")

    @property
    def own_move(self) -> float:
        """Move of the record's own round, in noise scales."""
        return 2.0 / self._scale

    @property
    def _scale(self) -> float:
        """The noise's scale parameter over lipschitz: a Laplace law's deviation is sqrt(2) of it."""
        return self.noise_multiplier / (_LAPLACE_DEVIATION if self.laplace else 1.0)

    @cached_property
    def moves(self) -> tuple[Array, NDArray[np.intp]]:
        """Return the noise scales by which two models may differ when they enter a round's noise: the numbers that
        occur, and which of them each round has, (rounds,)."""
        rounds = np.arange(1, self.rounds + 1)
        steps = 1 / (self.strong_convexity * rounds) if self.step is None else np.full(self.rounds, self.step)
        wide = np.array([self._diameter(eta) for eta in steps]) if self.step is None else self._diameter(self.step)
        return np.unique(wide * self.batch_size / (steps * self._scale * self.lipschitz), return_inverse=True)

    def _diameter(self, eta: float) -> float:
        """Return the diameter of the set that a step reaches from the ball: the least of the applicable bounds."""
        beta, rho = self.smoothness, self.strong_convexity
        known = []
        if self.relaxed:
            known.append(2 * (abs(1 - eta * rho) * self.radius + eta * self.lipschitz))
        if self.relaxed and eta * beta <= 2:
            known.append(2 * self.radius)
        if eta * (beta + rho) <= 2:
            known.append(2 * self.radius * math.sqrt(max(0.0, 1 - 2 * eta * beta * rho / (beta + rho))))
        return min(known)

    def log_delta(self, epsilon: float) -> float:
        """Return ln delta of the record with the least privacy."""
        moves, which = self.moves
        round_divergence, factors = self.theta(epsilon, np.asarray(self.own_move)), self.theta(epsilon, moves)[which]
        stops = self.first_stop < self.rounds
        if not (self.permuted or stops):
            return _log(float(round_divergence))  # the last record, whom no later step hides
        left = _walk(float(round_divergence) / self.rounds, factors, constant=len(moves) == 1)
        # In a public order the first record has the least privacy: the sum over stops of the divergence left of it.
        return _log(float(left[self.first_stop - 1 :].mean() if self.permuted else left[-1]))

    def theta(self, epsilon: float, move: Array) -> Array:
        """Return the divergence of the noise from itself moved by `move`."""
        if self.laplace:
            return np.maximum(-np.expm1((epsilon - move) / 2), 0.0)
        return np.exp(gaussian_log_delta(np.asarray(epsilon), move))


def _walk(share: float, factors: Array, *, constant: bool) -> Array:
    """Return S_t = factor_t S_(t-1) + share after every round; where `factors` are `constant`, as sums of powers."""
    if constant:
        powers = np.cumprod(np.concatenate([[1.0], factors[1:]]))
        return np.asarray(share * np.cumsum(powers), dtype=np.float64)
    return np.fromiter(accumulate(factors.tolist(), lambda left, factor: factor * left + share, initial=0.0), float)[1:]


@cache
def hidden_epsilon(run: Hidden, delta: float) -> float:
    """Return epsilon at `delta`, in (0, 1), of the released model, at most the epsilon of the record's own round.

    Source: asoodeh2020, Theorems 3 to 5, and asoodeh2021, Theorem 2, as recursions.
    """
    alone = _root(lambda epsilon: _log(float(run.theta(epsilon, np.asarray(run.own_move)))) - math.log(delta))
    return min(alone, _root(lambda epsilon: run.log_delta(epsilon) - math.log(delta), alone))


def _root(excess: Callable[[float], float], largest: float = 1.0) -> float:
    """Return where a falling function reaches 0; 0 where it starts below, `largest` doubled until it is beyond."""
    if excess(0.0) <= 0:
        return 0.0
    while excess(largest) > 0:
        largest *= 2
    return zero_between(excess, 0.0, largest)


def _log(value: float) -> float:
    """Return the logarithm of a probability that may have underflowed."""
    return math.log(max(value, 1e-300))


# Epsilon by another accountant than the one that wrote it into a privacy statement.
#
# Everywhere `noise_multiplier` > 0 is the noise's deviation over one record's norm bound, `move` by how many such
# bounds replacing or removing the record moves what is released, `sample_rate` in (0, 1], `steps` >= 1, `delta` in (0,
# 1).

_RARE = 1e-3
_PROFILE_GRID = 1e-4  # of dpfl.accounting.local_privacy
_POISSON_INTERVAL = 1e-4
_LARGEST_PRV = 100.0
_WIDE = 1.5
_INVERTED = "inversion of the moment generating function"


@dataclass(frozen=True)
class EpsilonInterval:
    """The interval in which a stated epsilon has to be, and the accountant that gave it."""

    lower: float
    upper: float
    accountant: str

    def holds(self, epsilon: float) -> bool:
        """Return whether epsilon is in the interval."""
        return self.lower <= epsilon <= self.upper

    def proves(self, epsilon: float) -> bool:
        """Return whether epsilon is proven: not below the interval, nor in it where that only bounds it."""
        return epsilon >= (self.upper if self.wide else self.lower)

    @property
    def wide(self) -> bool:
        """True where the accountant only bounds epsilon: a change of the noise may stay hidden between its ends."""
        return math.isfinite(self.lower) and self.upper > _WIDE * self.lower + 1e-3


@dataclass(frozen=True)
class AuditedSteps:
    """`count` steps of one kind: noise of `sigma` sensitivities on a batch of a share `rate` of the records, drawn
    without replacement. `arsinh_scale`: a over sigma of the noise a arsinh(N/a), infinite for Gaussian noise."""

    count: int
    sigma: float
    rate: float
    arsinh_scale: float = math.inf

    def profile(self) -> Profile:
        """Return what one of the steps spends."""
        if math.isinf(self.arsinh_scale):
            return sampled_gaussian(np.array([1 / self.sigma]), np.array([self.rate]))
        return sampled_arsinh(self.arsinh_scale * self.sigma, self.sigma, self.rate)


@cache
def poisson_rdp(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of Opacus's Renyi epsilon: around dp_accounting's, whose orders differ. Relation: add or
    remove one."""
    accountant = rdp.RdpAccountant()
    absl = logging.getLogger("absl")
    level, absl.level = absl.level, logging.ERROR  # it logs every order that it leaves out
    try:
        accountant.compose(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(noise_multiplier)), steps)
        epsilon = float(accountant.get_epsilon(delta))
    finally:
        absl.level = level
    return EpsilonInterval(0.98 * epsilon - 1e-3, 1.02 * epsilon + 1e-3, "dp_accounting's Renyi accountant")


@cache
def poisson_pld(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of a PLD epsilon: within the error of Opacus's accountant of privacy random variables; where
    epsilon is too large for that, at most at the Renyi epsilon."""
    run = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    renyi = poisson_rdp(**run)
    if renyi.upper > _LARGEST_PRV:
        return EpsilonInterval(0.0, renyi.upper, renyi.accountant)
    epsilon = float(dpsgd.epsilon(**run, accountant="prv"))
    slack = 2 * dpsgd.PRV_EPSILON_ERROR
    return EpsilonInterval(epsilon - slack, epsilon + slack / 2, "Opacus's PRV accountant")


@cache
def poisson_pld_replaced(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of a PLD epsilon for replacing a record of Poisson samples."""
    return _inverted(((poisson_replaced(noise_multiplier, sample_rate), steps),), delta, _POISSON_INTERVAL)


def gaussian(*, noise_multiplier: float, move: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of `steps` Gaussian mechanisms that a record moves by `move` norm bounds: around
    the closed form of balle2018gaussian, Theorem 8, solved here. Statements round up, so there is more room above."""
    shift = move * math.sqrt(steps) / noise_multiplier

    def excess(epsilon: float) -> float:
        return float(gaussian_log_delta(np.array([epsilon]), np.array([shift]))[0]) - math.log(delta)

    if excess(0.0) <= 0:
        return EpsilonInterval(0.0, 1e-6, "the closed form")
    largest = shift**2 + shift * math.sqrt(2 * math.log(1 / delta)) + 1
    epsilon = zero_between(excess, 0.0, largest)
    return EpsilonInterval(epsilon * (1 - 1e-3) - 1e-4, epsilon * (1 + 2e-3) + 2e-4, "the closed form")


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the noise, over what a record moves, with which one Gaussian mechanism spends `epsilon` at `delta`."""

    def excess(log_shift: float) -> float:
        return float(gaussian_log_delta(np.array([epsilon]), np.exp([log_shift]))[0]) - math.log(delta)

    return math.exp(-zero_between(excess, -20.0, 10.0, xtol=1e-12))


def laplace(*, noise_multiplier: float, move: float, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of one Laplace mechanism, its deviation sqrt(2) scales: from the masses of its
    tails. The slack is that of the root."""
    shift = move * math.sqrt(2) / noise_multiplier
    if laplace_log_delta(0.0, shift) <= math.log(delta):
        return EpsilonInterval(0.0, 1e-6, "the tails of two Laplace laws")
    epsilon = zero_between(lambda x: max(laplace_log_delta(x, shift), -1e3) - math.log(delta), 0.0, shift)
    return EpsilonInterval(epsilon * (1 - 1e-6) - 1e-6, epsilon * (1 + 1e-6) + 1e-6, "the tails of two Laplace laws")


def shuffled(
    *, noise_multiplier: float, move: float, clients: int, records: int, steps: int, delta: float
) -> EpsilonInterval:
    """Return the interval of epsilon behind a trusted shuffler: at least the messages' mean has, which can be
    computed from what is shuffled, and at most that of a client's own messages, from which the shuffle is computed.

    At least the latter where the client can be told apart: all gradients of the others are -C, all of its own +C but
    the one that is replaced, so its message is the largest in every round but for a chance that is counted here.
    """
    run = {"noise_multiplier": noise_multiplier, "steps": steps}
    mean = gaussian(**run, delta=delta, move=move / math.sqrt(clients))
    local = gaussian(**run, delta=delta, move=move)
    apart = (records - 1) * move / noise_multiplier / math.sqrt(2)
    confused = steps * (clients - 1) * norm.sf(apart) * (1 + math.exp(min(local.upper, 600.0)))
    lower = mean.lower
    if confused <= _CONFUSED * delta:
        lower = max(lower, gaussian(**run, delta=(1 + _CONFUSED) * delta, move=move).lower)
    return EpsilonInterval(lower, local.upper, "the closed forms for trust in the server and in nobody")


_CONFUSED = 1e-3
"""Share of delta that the chance of taking one client's message for another's may cost."""


@cache
def sampled_replacement(
    *, noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float, replaced: str
) -> EpsilonInterval:
    """Return the interval of epsilon of subsampled Gaussian steps under replace_one.

    `replaced`: "with_replacement" (a record fills Bin(K, 1/n) slots), "fixed_without_replacement" (one slot, with
    probability K/n), or either after "mean_" (the batch's mean is clipped: the complete message turns wherever the
    record is drawn). Multiplicities that cost a thousandth of delta in all steps are left out.
    """
    if replaced.endswith("fixed_without_replacement"):
        times, weights = np.ones(1), np.array([min(1.0, batch_size / records)])
    elif replaced == "mean_with_replacement":
        times, weights = np.ones(1), np.array([-math.expm1(batch_size * math.log1p(-1 / records))])
    else:
        most = max(1, int(binom.isf(_RARE * delta / steps, batch_size, 1 / records)))
        times = np.arange(1.0, most + 1)
        weights = binom.pmf(times, batch_size, 1 / records)
    return _inverted(((sampled_gaussian(times * 2 / noise_multiplier, weights), steps),), delta, _PROFILE_GRID)


@cache
def stepwise(steps: tuple[AuditedSteps, ...], delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of steps of several kinds, one record replaced, each with the pair of laws that
    sampling without replacement makes of its noise (vandijk2023, section 4.2)."""
    return _inverted(tuple((each.profile(), each.count) for each in steps), delta, curves.INTERVAL)


def hidden(run: Hidden, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of a model whose earlier models stay secret. Both routes solve the same equation
    without discretising anything, so the slack is that of two roots."""
    epsilon = hidden_epsilon(run, delta)
    return EpsilonInterval(epsilon * (1 - 1e-5) - 1e-6, epsilon * (1 + 1e-5) + 1e-6, "the recursion over rounds")


def _inverted(steps: tuple[tuple[Profile, int], ...], delta: float, grid: float) -> EpsilonInterval:
    """Return the interval around what steps spend, for an accountant that keeps losses on a grid.

    It splits each loss between its neighbours on the grid, masses under both laws kept: that adds at most grid^2/4 of
    variance per step, as one Gaussian mechanism of that loss would in all. Beyond it: 0.2 per cent and 2e-4 for what
    either side leaves out of delta. Where the inversion has no answer, Renyi divergences bound epsilon.
    """
    count = sum(number for _, number in steps)
    composition = InvertedComposition(steps, delta)
    least, most = composition.epsilon(), composition.epsilon(blur=grid * math.sqrt(count) / 2)
    if math.isnan(least + most):
        alone = max(_alone(profile, delta) for profile, _ in steps)
        return EpsilonInterval(alone * (1 - 2e-3) - 2e-4, composition.bound, "Renyi divergences of the privacy profile")
    return EpsilonInterval(least * (1 - 2e-3) - 2e-4, most * (1 + 2e-3) + 2e-4, _INVERTED)


def _alone(profile: Profile, delta: float) -> float:
    """Return what one step spends, by its profile: at most what all steps spend."""
    return _root(lambda epsilon: float(profile(np.array([epsilon]))[0]) - math.log(delta))
