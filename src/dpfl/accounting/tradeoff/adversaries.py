"""The trade-off curve of a complete DP-SGD run, against each adversary and by each approximation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.tradeoff.approximations import clt_mu, h_bar_mu, h_mu
from dpfl.accounting.tradeoff.privacy_loss import (
    LEAST_DELTA,
    PrivacyLoss,
    composed,
    gaussian_tails,
    subsampled_tails,
)
from dpfl.accounting.tradeoff.revealed import revealed


class Adversary(StrEnum):
    """Knowledge of the adversary in the analysis, or the approximation used in its place.

    Source: vandijk2023 section 4.5.
    """

    A0 = "A0"
    """Knows the sampling law of each round: C_{m/N}(G_{1/sigma}) composed over the rounds."""
    A1 = "A1"
    """Learns which rounds used the record: an exact mixture."""
    H = "h"
    """The closed form claimed to hold against A1."""
    H_BAR = "h_bar"
    """The closed form claimed to limit any guarantee against A1."""
    CLT = "clt"
    """The central limit of A0 for many rounds."""


class Guarantee(Protocol):
    """Guarantee of a mechanism, in the three readings; every argument may be an array.

    Source: vandijk2023 section 4.
    """

    def tradeoff(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """The least type II error at type I error alpha."""

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """The delta at epsilon >= 0."""

    def epsilon(self, delta: ArrayLike) -> NDArray[np.float64]:
        """The smallest epsilon >= 0 at delta."""


@dataclass(frozen=True)
class Gaussian:
    """G_mu as a guarantee.

    Source: vandijk2023 section 4.1.
    """

    mu: float

    def tradeoff(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """G_mu(alpha)."""
        return gaussian_dp.tradeoff(alpha, self.mu)

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """The delta of G_mu at epsilon."""
        return gaussian_dp.delta(epsilon, self.mu)

    def epsilon(self, delta: ArrayLike) -> NDArray[np.float64]:
        """The epsilon of G_mu at delta."""
        return gaussian_dp.epsilon(delta, self.mu)


def dpsgd(
    alpha: ArrayLike, *, n: int, m: int, epochs: int, sigma: float, adversary: Adversary | str
) -> NDArray[np.float64]:
    """The trade-off curve at alpha in [0, 1], any shape, of DP-SGD: `epochs` n/m rounds of m out of n records.

    sigma > 0 is the noise in units of a round's sensitivity (2C for fixed-size batches, one record replaced).
    adversary: "A0", "A1" (both exact), "h", "h_bar" or "clt" (approximations). A0 comes from a
    privacy-loss distribution that never understates the loss. Raises ValueError naming the argument. Guarantee: that of
    `dpsgd_guarantee`. Source: vandijk2023 sections 4.4, 4.5 and 4.7.
    """
    return dpsgd_guarantee(n=n, m=m, epochs=epochs, sigma=sigma, adversary=adversary).tradeoff(alpha)


def dpsgd_guarantee(
    *, n: int, m: int, epochs: int, sigma: float, adversary: Adversary | str, group_size: int = 1
) -> Guarantee:
    """The same run as an object that answers tradeoff(alpha), delta(epsilon) and epsilon(delta).

    `group_size` records may differ at once for A1, h and h_bar; for A0 and clt take `group` of the curve. A0, A1 and
    clt need a whole number of rounds, epochs n/m. Guarantee, batches of fixed size: with one record replaced the run is
    A0's curve-DP, for a delta of `LEAST_DELTA` and more: its epsilon(delta) refuses a smaller one. A1's holds for the
    one who knows more; h, h_bar and clt approximate and guarantee nothing. Other arguments as `dpsgd`. Raises
    ValueError naming the argument. Source: vandijk2023 sections 4.4, 4.5 and 4.7.
    """
    adversary = member("adversary", Adversary, adversary)
    n, m, epochs = integer("n", n, at_least=1), integer("m", m, at_least=1), integer("epochs", epochs, at_least=1)
    sigma, group_size = real("sigma", sigma, above=0), integer("group_size", group_size, at_least=1)
    if m > n:
        raise ValueError(f"m must be at most n = {n}, got {m}")
    if group_size > 1 and adversary in (Adversary.A0, Adversary.CLT):
        raise ValueError(f"group_size must be 1 against {adversary.value}, got {group_size}")
    match adversary:
        case Adversary.A0:
            tails = subsampled_tails(gaussian_tails(1 / sigma), m / n)
            return PrivacyLoss.of(composed(tails, _rounds(n, m, epochs)), LEAST_DELTA)
        case Adversary.A1:
            return revealed(n=n, m=m, rounds=_rounds(n, m, epochs), sigma=sigma, group_size=group_size)
        case Adversary.H:
            return Gaussian(float(h_mu(epochs, sigma, group_size)))
        case Adversary.H_BAR:
            return Gaussian(float(h_bar_mu(epochs, sigma, group_size)))
        case Adversary.CLT:
            return Gaussian(min(float(clt_mu(m / n, _rounds(n, m, epochs), sigma)), 1e100))


def poisson_guarantee(*, n: int, m: int, epochs: int, noise_multiplier: float) -> PrivacyLoss:
    """The same run with Poisson batches of expected size m, one record added or removed; by dp_accounting.

    noise_multiplier is in units of C, the sensitivity here. At equal noise a fixed-size batch, whose sensitivity
    is 2C, has sigma = noise_multiplier/2 in `dpsgd_guarantee`: the factor 2 that fixed batches cost.
    Raises ValueError naming the argument. Source: vandijk2023 section 2.3.
    """
    n, m, epochs = integer("n", n, at_least=1), integer("m", m, at_least=1), integer("epochs", epochs, at_least=1)
    noise_multiplier = real("noise_multiplier", noise_multiplier, above=0)
    if m > n:
        raise ValueError(f"m must be at most n = {n}, got {m}")
    one = from_gaussian_mechanism(noise_multiplier, sampling_prob=m / n, value_discretization_interval=1e-4)
    return PrivacyLoss.of(one.self_compose(_rounds(n, m, epochs)))


def _rounds(n: int, m: int, epochs: int) -> int:
    """epochs n/m, which must be an integer."""
    if epochs * n % m:
        raise ValueError(f"m must divide epochs * n = {epochs * n} into whole rounds, got {m}")
    return epochs * n // m
