"""Epsilon by another accountant than the one that wrote it into a privacy statement."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from dpfl.accounting import dpsgd

Array = NDArray[np.float64]
_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.geomspace(2.05, 2000, 160)])
_GRID = 4000
_RARE = 0.1
_LARGEST_PRV = 100.0


@dataclass(frozen=True)
class Interval:
    """Between which values a stated epsilon has to lie, and by which accountant."""

    least: float
    most: float
    accountant: str

    def holds(self, epsilon: float) -> bool:
        """Return whether epsilon lies between them."""
        return self.least <= epsilon <= self.most


@cache
def poisson_rdp(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> Interval:
    """Return where Opacus's Renyi epsilon has to lie: at dp_accounting's, whose orders are others. Relation: add or
    remove one."""
    accountant = rdp.RdpAccountant()
    absl = logging.getLogger("absl")
    spoken, absl.level = absl.level, logging.ERROR  # it names every order that it leaves out
    try:
        accountant.compose(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(noise_multiplier)), steps)
        epsilon = float(accountant.get_epsilon(delta))
    finally:
        absl.level = spoken
    return Interval(0.98 * epsilon - 1e-3, 1.02 * epsilon + 1e-3, "dp_accounting's Renyi accountant")


@cache
def poisson_pld(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> Interval:
    """Return where a PLD epsilon has to lie: within the error of Opacus's accountant of privacy random variables; where
    epsilon is too large for that, at most at the Renyi epsilon."""
    run = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    renyi = poisson_rdp(**run)
    if renyi.most > _LARGEST_PRV:
        return Interval(0.0, renyi.most, renyi.accountant)
    epsilon = float(dpsgd.epsilon(**run, accountant="prv"))
    slack = 2 * dpsgd.PRV_EPSILON_ERROR
    return Interval(epsilon - slack, epsilon + slack / 2, "Opacus's PRV accountant")


def gaussian(*, noise_multiplier: float, move: float, steps: int, delta: float) -> Interval:
    """Return where epsilon of `steps` Gaussian mechanisms has to lie that a record moves by `move` norm bounds: at the
    closed form of Balle, Wang 2018, Theorem 8, solved here."""
    shift = move * math.sqrt(steps) / noise_multiplier

    def excess(epsilon: float) -> float:
        return float(_gaussian_log_delta(np.array([epsilon]), np.array([shift]))[0]) - math.log(delta)

    if excess(0.0) <= 0:
        return Interval(0.0, 1e-6, "the closed form")
    largest = shift**2 + shift * math.sqrt(2 * math.log(1 / delta)) + 1
    epsilon = brentq(excess, 0.0, largest, xtol=1e-10)
    return Interval(epsilon * (1 - 1e-3) - 1e-4, epsilon * (1 + 2e-3) + 2e-4, "the closed form")


def shuffled(*, noise_multiplier: float, move: float, clients: int, steps: int, delta: float) -> Interval:
    """Return where epsilon behind a trusted shuffler has to lie: at least that of the messages' mean, which can be
    computed from what is shuffled, and at most that of a client's own messages, from which the shuffle is computed."""
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta}
    mean, own = gaussian(**run, move=move / math.sqrt(clients)), gaussian(**run, move=move)
    return Interval(mean.least, own.most, "the closed forms for trust in the server and in nobody")


@cache
def sampled_replacement(
    *, noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float, replaced: str
) -> Interval:
    """Return where epsilon of subsampled Gaussian steps under replace_one has to lie, by Renyi divergences.

    `replaced`: "with_replacement" (a record fills Bin(K, 1/n) slots), "fixed_without_replacement" (one slot, with
    probability K/n), or "clipped_mean" (the whole message turns wherever the record is drawn). The divergence of a step
    is the integral of its privacy profile (Sason, Verdu 2016, eq. 79), so nothing is convolved; a Renyi bound lies
    above what a privacy loss distribution gives, and up to 2.1 times as high where a record may be drawn twice.
    """
    if replaced == "fixed_without_replacement":
        times, weights = np.ones(1), np.array([min(1.0, batch_size / records)])
    elif replaced == "clipped_mean":
        times, weights = np.ones(1), np.array([-math.expm1(batch_size * math.log1p(-1 / records))])
    else:
        # A multiplicity so rare that it costs a tenth of delta in all steps would rule every Renyi moment.
        most = max(1, int(binom.isf(_RARE * delta / steps, batch_size, 1 / records)))
        times = np.arange(1.0, most + 1)
        weights = binom.pmf(times, batch_size, 1 / records)
        delta *= 1 - _RARE
    epsilon = _renyi_epsilon(_profile(times * 2 / noise_multiplier, weights), steps, delta)
    return Interval(0.4 * epsilon, 1.001 * epsilon + 1e-3, "Renyi divergences of the privacy profile")


def _profile(shifts: Array, weights: Array) -> Callable[[Array], Array]:
    """Return ln delta(epsilon) of the mixture: with `weights`[j] the step moves by `shifts`[j] deviations.

    Balle, Barthe, Gaboardi 2018, Theorems 2 and 10, where the laws that differ are `rate` of the whole.
    """
    rate = float(weights.sum())

    def log_delta(epsilon: Array) -> Array:
        inner = np.maximum(np.log1p((np.expm1(epsilon)) / rate), 0.0) if rate < 1 else epsilon
        return logsumexp(_gaussian_log_delta(inner[:, None], shifts), b=weights, axis=1)

    return log_delta


def _gaussian_log_delta(epsilon: Array, shift: Array) -> Array:
    """Return ln(Phi(shift/2 - epsilon/shift) - e^epsilon Phi(-shift/2 - epsilon/shift))."""
    first = log_ndtr(shift / 2 - epsilon / shift)
    second = np.minimum(epsilon + log_ndtr(-shift / 2 - epsilon / shift) - first, -1e-300)
    return first + np.log(np.maximum(-np.expm1(second), 1e-300))


def _renyi_epsilon(log_delta: Callable[[Array], Array], steps: int, delta: float) -> float:
    """Compose Renyi divergences and convert (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    largest = 1.0
    while log_delta(np.array([largest]))[0] > -700 and largest < 600:
        largest *= 1.5
    places = np.concatenate([[0.0], np.geomspace(1e-7, largest, _GRID)])
    logs = log_delta(places)
    widths = np.diff(places)
    best = math.inf
    for order in _ORDERS:
        up, down = (order - 1) * places + logs, -order * places + logs
        values = np.logaddexp(up, down)
        pieces = np.logaddexp(values[:-1], values[1:]) + np.log(widths / 2)
        moment = math.log(order * (order - 1)) + float(logsumexp(pieces))
        divergence = float(np.logaddexp(0.0, moment)) / (order - 1)
        spent = steps * divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, spent)
    return max(0.0, best)
