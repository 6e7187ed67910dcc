"""Privacy losses as distributions: Gaussian and arsinh noise, and adversary A1's mixture (vandijk2023)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf, PLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len, rfft
from scipy.special import comb, log_ndtr, logsumexp, ndtr, ndtri
from scipy.stats import hypergeom

from dpfl.accounting import gaussian_dp
from dpfl.accounting.composition import TRANSFORM_ERROR
from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.loss_grids import UNIT
from dpfl.accounting.numerics import integer, real, reals, root
from dpfl.accounting.poisson_gaussian import amplified_epsilon

# Privacy-loss distributions: built from exact tails, composed, and read as trade-off curves.

Tails = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""The law of the privacy loss of a symmetric pair (P, Q): epsilon >= 0 to (P[loss > epsilon], Q[loss > epsilon])."""

LEAST_DELTA = 1e-10
"""Least delta of a composed distribution; larger where its mass of infinite loss, which rounding adds to, is near."""

_TAIL_MASS = 1e-18  # what the loss grid leaves out, over all rounds; it is counted as infinite loss
_TRUNCATED = 1e-15  # what a composition leaves out at its ends; it is counted as infinite loss
_ABOVE_INFINITE = 4  # by which factor delta is above the mass of infinite loss at least: next to it epsilon is loose
_GRID = 200_000  # most cells of one round's loss grid, and (fourfold) of the composed one
_LARGEST_EPSILON = 700.0  # e^epsilon stays finite
_LEAST_MASS = 1e-300  # of Q beyond a loss: less counts as none, so that a loss above _LARGEST_EPSILON has no Q mass
_ROUND_ERROR = 1e-14  # what tails, their differences and their sums may round in one round, as mass


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

    Each cell of the loss grid assigns its P and Q mass to its two ends so that both are kept (connect the dots): the
    result never understates delta, and overstates it by a relative 1e-7 or so, more from some million rounds on, and by
    what `added` counts for rounding. The grid's step follows the spread of one round's loss. Guarantee: that delta, of
    `rounds` >= 1 adaptive rounds each dominated by the pair. Raises ValueError naming rounds. Source: vandijk2023
    sections 4.3 and 4.4; the grid is that of doroshenko2022.
    """
    rounds = integer("rounds", rounds, at_least=1)
    reach = largest_loss(tails, _TAIL_MASS / rounds)
    return added([(connected_dots(tails, _step(tails, reach, rounds), reach), rounds)])


def added(losses: Sequence[tuple[DensePLDPmf, int]], left_out: float = _TRUNCATED) -> PrivacyLossDistribution:
    """The sum of independent symmetric losses on one grid, each of them so many times (>= 1).

    Each composition may leave out `left_out` of mass; that, and all that its transforms may round, counts as infinite
    loss: some 1e-11 to 1e-8 of mass for a thousand rounds, 1e-6 to 1e-4 for ten million rare ones, the more the longer
    the losses are beside their spread. Guarantee: delta is never understated. Source: dp_accounting's composition; the
    bound of its rounding is derived here.
    """
    with np.errstate(over="ignore"):  # a Chernoff bound of dp_accounting that overflows is left out there
        parts = [_self_composed(loss, count, left_out) if count > 1 else loss for loss, count in losses]
        whole = reduce(lambda one, other: _joined(one, other, left_out), parts)
        return PrivacyLossDistribution(_with_lost(whole, _ROUND_ERROR))


def _self_composed(loss: DensePLDPmf, count: int, left_out: float) -> DensePLDPmf:
    """`count` losses, by a power of the spectrum.

    The root mean square error of the spectrum is at most `off`, and is taken for each value; near frequency 0, where
    one may be larger, the term of the power has room. The power is then off by count (|value| + off)^(count - 1) off;
    it rounds the logarithm too, and the transform back rounds once more. The root of the mean square over the spectrum
    is the norm of the masses' errors, and delta is a sum of at most that many of them with weights of at most 1.
    """
    result = loss.self_compose(count, tail_mass_truncation=left_out)
    size = cast("int", next_fast_len(max(result.size, loss.size)))  # scipy's own annotations have none of it
    weights = np.full(size // 2 + 1, 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    values = np.maximum(np.abs(np.asarray(rfft(loss._probs, size))), 1e-300)
    rounding = TRANSFORM_ERROR * UNIT * math.log2(size)
    off = rounding * float(np.linalg.norm(loss._probs))
    transformed = count * off * np.exp(np.minimum((count - 1) * np.log(values + off), 0.0))
    powers = np.exp(count * np.log(values))
    raised = 4 * UNIT * (count * (math.pi - np.log(values)) + 2) * powers
    errors = math.sqrt(float(weights @ (transformed + raised) ** 2) / size)
    errors += rounding * math.sqrt(float(weights @ powers**2) / size)
    return _with_lost(result, errors * math.sqrt(result.size))


def _joined(one: DensePLDPmf, other: DensePLDPmf, left_out: float) -> DensePLDPmf:
    """Two losses added; the product of their spectra is off by the error of either one times the other."""
    result = one.compose(other, tail_mass_truncation=left_out)
    norms = [float(np.linalg.norm(loss._probs)) for loss in (one, other)]
    size = one.size + other.size
    errors = TRANSFORM_ERROR * UNIT * (math.log2(size) + 1) * (2 * norms[0] * norms[1] + min(norms))
    return _with_lost(result, errors * math.sqrt(size))


def _with_lost(loss: DensePLDPmf, mass: float) -> DensePLDPmf:
    """The loss with so much more mass of infinite loss, at most all."""
    infinite = min(loss._infinity_mass + mass, 1.0)
    return DensePLDPmf(loss._discretization, loss._lower_loss, loss._probs, infinite, loss._pessimistic_estimate)


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
        lower = np.where(lower < _LEAST_MASS, 0.0, lower)
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
        """P is the upper distribution of the remove direction of a dp_accounting distribution, Q its lower one.

        A `least_delta` above 0 becomes larger where the mass of infinite loss is near it: four times that and a bit.
        """
        if not isinstance(pld, PrivacyLossDistribution):
            raise ValueError(f"pld must be a dp_accounting PrivacyLossDistribution, got {type(pld).__name__}")
        halves = _Half.of(pld._pmf_remove), _Half.of(pld._pmf_add)
        if least_delta > 0:
            near = _ABOVE_INFINITE * max(float(half.upper[-1]) for half in halves)
            least_delta = min(max(least_delta, float(f"{1.05 * near:.1e}")), 1.0)
        return cls(*halves, least_delta)

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


# Noise a arsinh(N/a), N Gaussian: lighter tails than N, and its privacy cost.


def arsinh_guarantee(*, scale: float, sigma: float, p: float = 1.0, rounds: int = 1, shift: float = 1.0) -> PrivacyLoss:
    """Return the guarantee of `rounds` subsampled rounds, noise scale * arsinh(N/scale), N ~ Normal(0, sigma^2).

    The noisy value is a scalar that a record moves by `shift`. For scale >= sigma the density is log-concave
    and smaller moves are covered too. In d dimensions the noise is not rotation invariant: this is the
    guarantee for a move along one axis. scale >= shift/300, sigma and shift > 0, p in (0, 1].
    Raises ValueError naming the argument. Source: vandijk2023 section 5.2.
    """
    return PrivacyLoss.of(composed(subsampled_tails(arsinh_tails(scale, sigma, shift), p), rounds))


def arsinh_delta(epsilon: ArrayLike, *, scale: float, sigma: float, shift: float = 1.0) -> NDArray[np.float64]:
    """The delta of one unsampled round at epsilon in [0, 700], any shape; exact up to the roots of the loss.

    Arguments and errors as `arsinh_guarantee`.
    Source: vandijk2023 section 5.2.
    """
    epsilon = reals("epsilon", epsilon, at_least=0, at_most=700)
    upper, lower = arsinh_tails(scale, sigma, shift)(epsilon)
    return np.maximum(upper - np.exp(epsilon) * lower, 0.0)[()]


def arsinh_tails(scale: float, sigma: float, shift: float = 1.0) -> Tails:
    """The law of the privacy loss of the noise against itself moved by `shift`; arguments as `arsinh_guarantee`.

    The loss is odd about shift/2. Where scale < sigma it need not be monotone: from the left it falls from
    +inf to a dip at -turn, rises to a hump at +turn and falls from there on, so it can exceed epsilon twice.
    Raises ValueError naming the argument. Source: derived from vandijk2023 section 5.2.
    """
    scale, sigma = real("scale", scale, above=0), real("sigma", sigma, above=0)
    shift = real("shift", shift, above=0)
    if scale < shift / 300:
        raise ValueError(f"scale must be at least shift/300 = {shift / 300}, got {scale}")
    noise = _ArsinhNoise(scale, sigma, shift)
    turn = noise.turning_point()
    hump = float(noise.loss(np.array(turn)))

    def tails(epsilon: NDArray) -> tuple[NDArray, NDArray]:
        epsilon = np.asarray(epsilon, dtype=np.float64)
        far = noise.reach(epsilon)
        left = root(lambda w, eps: noise.loss(w) - eps, np.minimum(-far, -turn), -turn, epsilon)
        upper, lower = (np.array(noise.below(left + side)) for side in (shift / 2, -shift / 2))
        twice = epsilon < hump
        if np.any(twice):
            eps = epsilon[twice]
            rise = root(lambda w, eps: noise.loss(w) - eps, 0.0, turn, eps)
            fall = root(lambda w, eps: noise.loss(w) - eps, turn, np.maximum(far[twice], turn), eps)
            upper[twice] += noise.between(rise + shift / 2, fall + shift / 2)
            lower[twice] += noise.between(rise - shift / 2, fall - shift / 2)
        return upper, lower

    return tails


class _ArsinhNoise:
    """The noise, and the loss of one move; w is the noisy value measured from the middle of the two hypotheses."""

    def __init__(self, scale: float, sigma: float, shift: float) -> None:
        self.scale, self.sigma, self.shift = scale, sigma, shift
        self.steepness = scale**2 / (2 * sigma**2) * np.sinh(shift / scale)

    def loss(self, w: NDArray) -> NDArray[np.float64]:
        """ln f(w + shift/2) - ln f(w - shift/2)."""
        high, low = (w + self.shift / 2) / self.scale, (w - self.shift / 2) / self.scale
        return _log_cosh(high) - _log_cosh(low) - self.steepness * np.sinh(2 * w / self.scale)

    def reach(self, epsilon: NDArray) -> NDArray[np.float64]:
        """A distance beyond which the loss is certainly outside (-epsilon, epsilon)."""
        return self.scale / 2 * np.arcsinh((epsilon + self.shift / self.scale) / self.steepness) * (1 + 1e-12)

    def turning_point(self) -> float:
        """The w >= 0 where the loss has its hump; 0 where it falls throughout."""
        middle, ratio = np.cosh(self.shift / self.scale), 8 * self.sigma**2 / self.scale**2
        height = ratio / (2 * (middle + np.sqrt(middle**2 + ratio)))
        return float(self.scale / 2 * np.arccosh(height)) if height > 1 else 0.0

    def below(self, y: NDArray) -> NDArray[np.float64]:
        """The probability that the noise is below y."""
        return ndtr(self.scale * np.sinh(y / self.scale) / self.sigma)

    def between(self, low: NDArray, high: NDArray) -> NDArray[np.float64]:
        """The probability that the noise is between; taken in the tail where both are, to keep digits."""
        flip = np.where(low > 0, -1.0, 1.0)
        return flip * (self.below(flip * high) - self.below(flip * low))


def _log_cosh(x: NDArray) -> NDArray[np.float64]:
    """ln cosh x, without overflow."""
    return np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - np.log(2.0)


# Adversary A1, who sees how many differing records each round used: a mixture of Gaussians with a known label.

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
        return np.exp(np.asarray(logsumexp(log_w + log_ndtr(-t[..., None] / mus - mus / 2), axis=-1)))

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
    batches)/sigma, at least that of `shuffled_mu`, which a group meets only if no two of it share a batch. For one
    record mu = sqrt(epochs)/sigma in every run. Exact up to components of weight below 1e-200 and, for m^g beyond
    float64, refused. m must divide n. Raises ValueError naming the argument.
    Guarantee: batches shuffled again in each epoch, up to `group_size` records replaced, against A1 and so against
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

    batches, result, times = ways, np.zeros_like(ways), n // m
    result[0, 0] = 1.0  # nobody in no batch
    while times:
        if times & 1:
            result = join(result, batches)
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
        gain = np.asarray(logsumexp(growth + np.log(-np.expm1(-growth)), b=one[squares], axis=-1))
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
