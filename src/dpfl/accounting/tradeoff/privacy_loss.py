"""Privacy-loss distributions: built from exact tails, composed, and read as trade-off curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf, PLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dpfl.accounting.arguments import integer, real, reals
from dpfl.accounting.roots import root
from dpfl.accounting.subsampled_profiles import amplified_epsilon

Tails = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""The law of the privacy loss of a symmetric pair (P, Q): epsilon >= 0 to (P[loss > epsilon], Q[loss > epsilon])."""

LEAST_DELTA = 1e-10
"""Least delta of a composed distribution: rounding in the composition, some 1e-15 of mass, may hide losses below it."""

_TAIL_MASS = 1e-18  # what the loss grid leaves out, over all rounds; it is counted as infinite loss
_GRID = 200_000  # most cells of one round's loss grid, and (fourfold) of the composed one
_LARGEST_EPSILON = 700.0  # e^epsilon stays finite


def gaussian_tails(mu: float) -> Tails:
    """Tails of G_mu, mu > 0; raises ValueError naming it.

    Source: vandijk2023 (6), term by term.
    """
    mu = real("mu", mu, above=0)
    return lambda epsilon: (ndtr(mu / 2 - epsilon / mu), ndtr(-mu / 2 - epsilon / mu))


def subsampled_tails(tails: Tails, p: float) -> Tails:
    """Tails of C_p of the pair behind `tails`, p in (0, 1]: above zero loss P becomes (1 - p) Q + p P.

    Raises ValueError naming p. Source: vandijk2023 section 4.2.
    """
    p = real("p", p, above=0, at_most=1)

    def sampled(epsilon: NDArray) -> tuple[NDArray, NDArray]:
        upper, lower = tails(amplified_epsilon(epsilon, p))
        return p * upper + (1 - p) * lower, lower

    return sampled


def composed(tails: Tails, rounds: int) -> PrivacyLossDistribution:
    """The privacy-loss distribution of `rounds` rounds of the symmetric pair behind `tails`.

    Each cell of the loss grid assigns its P and Q mass to its two ends so that both are kept (connect the dots):
    the result never understates delta, and overstates it by a relative 1e-7 or so. The grid's step follows the
    spread of one round's loss. Guarantee: that delta, of `rounds` >= 1 adaptive rounds each dominated by the pair.
    Raises ValueError naming rounds. Source: vandijk2023 sections 4.3 and 4.4; the grid is that of doroshenko2022.
    """
    rounds = integer("rounds", rounds, at_least=1)
    reach = largest_loss(tails, _TAIL_MASS / rounds)
    pmf = connected_dots(tails, _step(tails, reach, rounds), reach)
    with np.errstate(over="ignore"):  # a Chernoff bound of dp_accounting that overflows is left out there
        return PrivacyLossDistribution(pmf if rounds == 1 else pmf.self_compose(rounds))


def largest_loss(tails: Tails, mass: float) -> float:
    """A loss that P exceeds with probability at most `mass`.

    Source: the definition, solved for the loss.
    """
    high = 1.0
    while tails(np.array([high]))[0] > mass:
        high *= 2
    return float(root(lambda x: np.log(tails(x)[0] + 1e-300) - np.log(mass), 0.0, high))


def _step(tails: Tails, reach: float, rounds: int) -> float:
    """A small share of the loss's spread in one round, or more where the grids would grow too long."""
    std = loss_std(tails, reach)
    composed_reach = rounds * std**2 + 20 * std * np.sqrt(rounds)
    fine = min(std / 2000, 1e-3 / np.sqrt(rounds))  # the second keeps e^loss straight over a cell
    return float(max(fine, reach / _GRID, composed_reach / (4 * _GRID)))


def loss_std(tails: Tails, reach: float) -> float:
    """The root mean square of one round's loss, as far as it `reach`es.

    Source: the definition, summed over the tails.
    """
    losses = reach * np.append(0.0, np.geomspace(1e-9, 1, 4000))
    upper, lower = tails(losses)
    return float(np.sqrt(np.sum(losses[1:] ** 2 * -np.diff(upper + lower))))


def connected_dots(tails: Tails, step: float, reach: float) -> DensePLDPmf:
    """One round's symmetric loss distribution on multiples of `step` up to `reach` and a little more.

    Source: doroshenko2022, Algorithm 1.
    """
    losses = np.arange(np.ceil(reach / step) + 1) * step
    upper, lower = tails(losses)
    p_mass, q_mass = -np.diff(upper), -np.diff(lower)
    scaled = q_mass * np.exp(np.minimum(losses[:-1], _LARGEST_EPSILON))
    right = np.clip((p_mass - scaled) / -np.expm1(-step), 0, p_mass)
    p_at = np.append(p_mass - right, 0.0)
    p_at[1:] += right
    # Below zero P mirrors Q: the mass at -loss is e^-loss that at loss. Zero takes both halves of its two cells,
    # the ties of P and Q, and what is below the grid.
    q_at = p_at * np.exp(-losses)
    ties = max(1 - upper[0] - lower[0], 0.0) + lower[-1]
    masses = np.concatenate([q_at[:0:-1], [p_at[0] + q_at[0] + ties], p_at[1:]])
    return DensePLDPmf(step, -(losses.size - 1), masses, float(upper[-1]), True)


@dataclass(frozen=True)
class _Half:
    """One direction's losses >= 0: at losses[j], upper[j] = P[loss >= it] and lower[j] = Q[finite loss >= it]."""

    losses: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower: NDArray[np.float64]

    @classmethod
    def of(cls, pmf: PLDPmf) -> _Half:
        """Read a dp_accounting mass function; its class keeps these fields private but offers no reader."""
        dense = pmf.to_dense_pmf()
        indices = dense._lower_loss + np.arange(dense.size)
        losses, masses = indices[indices >= 0] * dense._discretization, dense._probs[indices >= 0]
        if losses.size == 0 or losses[0] > 0:
            losses, masses = np.append(0.0, losses), np.append(0.0, masses)
        upper = np.append(0.0, np.cumsum(masses[::-1])) + dense._infinity_mass
        lower = np.append(0.0, np.cumsum((masses * np.exp(-losses))[::-1]))
        # The transform leaves masses of about -1e-18 in the tails: keep the sums monotone.
        upper, lower = (np.maximum.accumulate(sums)[::-1] for sums in (upper, lower))
        return cls(np.append(losses, np.inf), upper, lower)

    def delta(self, epsilon: NDArray) -> NDArray[np.float64]:
        """Hockey-stick divergence of P from Q at epsilon >= 0."""
        index = np.searchsorted(self.losses, epsilon, side="right")
        index = np.minimum(index, self.losses.size - 1)
        growth = np.exp(np.minimum(epsilon, _LARGEST_EPSILON))
        return np.clip(self.upper[index] - growth * self.lower[index], self.upper[-1], 1.0)

    def epsilon(self, delta: NDArray) -> NDArray[np.float64]:
        """The smallest epsilon >= 0 with at most this delta; inf below the mass of infinite loss."""
        at_losses = np.minimum.accumulate(self.delta(self.losses[:-1]))
        index = np.searchsorted(-at_losses, -delta)  # the first loss whose delta is at most the target
        index = np.minimum(index, at_losses.size - 1)
        excess, lower = self.upper[index] - delta, self.lower[index]
        solvable = (excess > 0) & (lower > 0)
        exact = np.log(np.where(solvable, excess, 1.0) / np.where(solvable, lower, 1.0))
        result = np.where(solvable, np.clip(exact, 0.0, self.losses[index]), self.losses[index])
        result = np.where(at_losses[0] <= delta, 0.0, result)
        return np.where(delta < self.upper[-1], np.inf, result)


@dataclass(frozen=True)
class PrivacyLoss:
    """A pair (P, Q) known through the laws of its privacy loss in both directions, down to a delta of `least_delta`.

    Source: vandijk2023 section 4; dong2022, Proposition 2.12.
    """

    p_against_q: _Half
    q_against_p: _Half
    least_delta: float = 0.0

    @classmethod
    def of(cls, pld: PrivacyLossDistribution, least_delta: float = 0.0) -> PrivacyLoss:
        """P is the upper distribution of the remove direction of a dp_accounting distribution, Q its lower one."""
        if not isinstance(pld, PrivacyLossDistribution):
            raise ValueError(f"pld must be a dp_accounting PrivacyLossDistribution, got {type(pld).__name__}")
        return cls(_Half.of(pld._pmf_remove), _Half.of(pld._pmf_add), least_delta)

    def tradeoff(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """T(P, Q)(alpha); see `from_pld`."""
        alpha = reals("alpha", alpha, at_least=0, at_most=1)
        one, two = self.p_against_q, self.q_against_p
        # Near alpha = 1: vertices (1 - alpha, beta) = (P, Q)[loss >= e], on from zero loss with slope -1.
        large_alpha = np.interp(1 - alpha, one.upper[::-1], one.lower[::-1])
        large_alpha = large_alpha + np.maximum((1 - alpha) - one.upper[0], 0.0)
        # Near alpha = 0: the other direction's vertices (alpha, 1 - beta) = (P, Q)[loss' >= e].
        small_alpha = 1 - np.interp(alpha, two.lower[::-1], two.upper[::-1])
        small_alpha = small_alpha - np.maximum(alpha - two.lower[0], 0.0)
        return np.clip(np.maximum(large_alpha, small_alpha), 0.0, 1 - alpha)[()]

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """The larger of the two directions' delta at epsilon >= 0."""
        epsilon = reals("epsilon", epsilon, at_least=0)
        return np.maximum(self.p_against_q.delta(epsilon), self.q_against_p.delta(epsilon))[()]

    def epsilon(self, delta: ArrayLike) -> NDArray[np.float64]:
        """The smallest epsilon >= 0 that covers both directions at `delta` in [`least_delta`, 1]."""
        delta = reals("delta", delta, at_least=self.least_delta, at_most=1)
        return np.maximum(self.p_against_q.epsilon(delta), self.q_against_p.epsilon(delta))[()]


def from_pld(pld: PrivacyLossDistribution, alpha: ArrayLike) -> NDArray[np.float64]:
    """The trade-off curve T(P, Q)(alpha) behind a privacy-loss distribution of (P, Q), by the dual form

    max(0, sup_{e >= 0} 1 - delta_QP(e) - e^e alpha, sup_{e >= 0} e^-e (1 - alpha - delta_PQ(e))).
    Each delta comes from its own direction's masses and from losses >= 0 only: summing the negative ones is
    unstable. P is the upper distribution of the remove direction. alpha in [0, 1], any shape.
    A pessimistic distribution gives a lower bound of the true curve, so a guarantee. Raises ValueError naming pld or
    alpha. Source: vandijk2023 section 4, the largest of its f_{epsilon,delta}, each direction for its own line.
    """
    return PrivacyLoss.of(pld).tradeoff(alpha)
