"""Epsilon by another accountant than the one that wrote it into a privacy statement.

Everywhere `noise_multiplier` > 0 is the noise's deviation over one record's norm bound, `move` by how many such bounds
replacing or removing the record moves what is released, `sample_rate` in (0, 1], `steps` >= 1, `delta` in (0, 1).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting import dpsgd
from dpfl.accounting.tradeoff import segments
from dpfl.provenance.audit.hidden_state import Hidden, hidden_epsilon
from dpfl.provenance.audit.mgf_inversion import InvertedComposition
from dpfl.provenance.audit.step_profiles import (
    Profile,
    gaussian_log_delta,
    laplace_log_delta,
    poisson_replaced,
    sampled_arsinh,
    sampled_gaussian,
)

_RARE = 1e-3
_PROFILE_GRID = 1e-4  # of dpfl.accounting.isrl_dp
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
    epsilon = brentq(excess, 0.0, largest, xtol=1e-10)
    return EpsilonInterval(epsilon * (1 - 1e-3) - 1e-4, epsilon * (1 + 2e-3) + 2e-4, "the closed form")


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the noise, over what a record moves, with which one Gaussian mechanism spends `epsilon` at `delta`."""

    def excess(log_shift: float) -> float:
        return float(gaussian_log_delta(np.array([epsilon]), np.exp([log_shift]))[0]) - math.log(delta)

    return math.exp(-brentq(excess, -20.0, 10.0, xtol=1e-12))


def laplace(*, noise_multiplier: float, move: float, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of one Laplace mechanism, its deviation sqrt(2) scales: from the masses of its
    tails. The slack is that of the root."""
    shift = move * math.sqrt(2) / noise_multiplier
    if laplace_log_delta(0.0, shift) <= math.log(delta):
        return EpsilonInterval(0.0, 1e-6, "the tails of two Laplace laws")
    epsilon = brentq(lambda x: max(laplace_log_delta(x, shift), -1e3) - math.log(delta), 0.0, shift, xtol=1e-10)
    return EpsilonInterval(epsilon * (1 - 1e-6) - 1e-6, epsilon * (1 + 1e-6) + 1e-6, "the tails of two Laplace laws")


def shuffled(*, noise_multiplier: float, move: float, clients: int, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon behind a trusted shuffler: at least that of the messages' mean, which can be
    computed from what is shuffled, and at most that of a client's own messages, from which the shuffle is computed."""
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta}
    mean, local = gaussian(**run, move=move / math.sqrt(clients)), gaussian(**run, move=move)
    return EpsilonInterval(mean.lower, local.upper, "the closed forms for trust in the server and in nobody")


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
    return _inverted(tuple((each.profile(), each.count) for each in steps), delta, segments.INTERVAL)


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
        return EpsilonInterval(0.0, composition.bound, "Renyi divergences of the privacy profile")
    return EpsilonInterval(least * (1 - 2e-3) - 2e-4, most * (1 + 2e-3) + 2e-4, _INVERTED)
