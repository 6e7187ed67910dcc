"""Trade-off curves: duality, subsampling, segments of a run, adversaries, and closed forms for mu of DP-SGD.

Closed forms for mu of a complete DP-SGD run: epochs, central limits, and the last epoch's smaller noise. sigma is the
noise of a round in units of its sensitivity. For fixed-size batches the sensitivity is 2C, so sigma there is half the
noise multiplier; for Poisson batches it is C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, logsumexp, ndtr, ndtri, roots_legendre

from dpfl.accounting import gaussian_dp
from dpfl.accounting.numerics import integer, integers, member, real, reals, root, zero_between
from dpfl.accounting.tradeoff.privacy_loss import (
    LEAST_DELTA,
    PrivacyLoss,
    Tails,
    added,
    arsinh_tails,
    composed,
    connected_dots,
    gaussian_tails,
    largest_loss,
    loss_std,
    revealed,
    subsampled_tails,
)

# Convex piecewise-linear trade-off curves, with the operations of f-DP exact on their vertices.

_SLACK = 1e-12  # rounding allowed when vertices are checked


def _refuse(rule: str, broken: NDArray[np.bool_], alpha: NDArray[np.float64], beta: NDArray[np.float64]) -> None:
    """Raise ValueError naming the first vertex whose beta breaks the rule."""
    if (at := np.flatnonzero(broken)).size:
        raise ValueError(f"beta must {rule}, got {beta[at[0]]:g} at alpha = {alpha[at[0]]:g}")


def epsilon_delta(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """f_{epsilon,delta}(alpha) = max{0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)}.

    alpha and delta in [0, 1], epsilon in [0, inf]; shapes broadcast. Guarantee: a mechanism is
    (epsilon, delta)-DP if and only if it is f_{epsilon,delta}-DP. Raises ValueError naming the argument.
    Source: vandijk2023 section 4, with max for the printed min.
    """
    steep, flat = epsilon_delta_lines(alpha, epsilon, delta)
    return np.maximum(0.0, np.maximum(steep, flat))[()]


def epsilon_delta_lines(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> tuple[NDArray, NDArray]:
    """Return 1 - delta - e^epsilon alpha and e^-epsilon (1 - delta - alpha), finite; shapes broadcast.

    The lines whose maximum with 0 is `epsilon_delta`; below zero for certain the steep one counts as e^(epsilon/2)
    alpha cut at 1. Raises ValueError naming the argument. Source: vandijk2023 section 4.
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    epsilon = reals("epsilon", epsilon, at_least=0, infinite=True)
    delta = reals("delta", delta, at_least=0, at_most=1)
    # e^(eps/2) twice: the first product can be cut at 1, where the line is below zero for certain.
    root = np.exp(np.minimum(epsilon, 1400.0) / 2)
    return 1 - delta - np.minimum(alpha * root, 1.0) * root, np.exp(-epsilon) * (1 - delta - alpha)


@dataclass(frozen=True, eq=False)
class Curve:
    """A trade-off curve that is linear between the vertices (alpha, beta), both of shape (k,), k >= 2.

    alpha rises from 0 to 1, beta falls to 0, the slopes rise and beta <= 1 - alpha; beta[0] < 1 is a jump at
    alpha = 0. Any curve is below its chords, so sampling a smooth one gives an upper approximation.
    Raises ValueError naming alpha or beta.
    Source: dong2022, Definition 2.1.
    """

    alpha: NDArray[np.float64]
    beta: NDArray[np.float64]

    def __post_init__(self) -> None:
        alpha = reals("alpha", self.alpha, at_least=0, at_most=1)
        beta = reals("beta", self.beta, at_least=0, at_most=1)
        if alpha.ndim != 1 or alpha.shape != beta.shape or alpha.size < 2:
            raise ValueError(
                f"alpha and beta must be two 1-D arrays of one length >= 2, got {alpha.shape}, {beta.shape}"
            )
        falls = np.flatnonzero(np.diff(alpha) <= 0)
        if alpha[0] != 0 or alpha[-1] != 1 or falls.size:
            found = alpha[falls[0] : falls[0] + 2] if falls.size else alpha[[0, -1]]
            raise ValueError(f"alpha must rise strictly from 0 to 1, got {found[0]:g} and then {found[1]:g}")
        _refuse("fall", np.append(False, np.diff(beta) > 0), alpha, beta)
        _refuse("be at most 1 - alpha", beta > 1 - alpha + _SLACK, alpha, beta)
        chord = beta[:-2] + (beta[2:] - beta[:-2]) * (alpha[1:-1] - alpha[:-2]) / (alpha[2:] - alpha[:-2])
        _refuse("be convex in alpha", np.append(False, beta[1:-1] > chord + _SLACK), alpha, beta)
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "beta", np.minimum(beta, 1 - alpha))

    @classmethod
    def hull(cls, alpha: ArrayLike, beta: ArrayLike) -> Curve:
        """The largest convex curve below the points (alpha, beta), (0, 1) and (1, 0): their double conjugate."""
        x = np.concatenate([[0.0], reals("alpha", alpha, at_least=0, at_most=1).ravel(), [1.0]])
        y = np.concatenate([[1.0], reals("beta", beta, at_least=0, at_most=1).ravel(), [0.0]])
        order = np.lexsort((y, x))
        kept: list[tuple[float, float]] = []
        for point in zip(x[order].tolist(), y[order].tolist(), strict=True):
            if kept and point[0] == kept[-1][0]:
                continue  # the lowest point of each alpha comes first
            while len(kept) > 1 and _turns_right(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        return cls(*np.array(kept).T)

    @classmethod
    def of_epsilon_delta(cls, epsilon: float, delta: float) -> Curve:
        """f_{epsilon,delta} through its vertices; epsilon in [0, 700], delta in [0, 1]."""
        epsilon = real("epsilon", epsilon, at_least=0, at_most=700)
        delta = real("delta", delta, at_least=0, at_most=1)
        fixed_point = (1 - delta) / (1 + np.exp(epsilon))
        return cls.hull([0.0, fixed_point, 1 - delta], [1 - delta, fixed_point, 0.0])

    def __call__(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """beta at alpha in [0, 1], any shape."""
        return np.interp(reals("alpha", alpha, at_least=0, at_most=1), self.alpha, self.beta)[()]

    def inverse(self) -> Curve:
        """f^-1, the curve with the hypotheses exchanged. Source: vandijk2023 (7)."""
        touches = int(np.argmax(self.beta == 0)) + 1
        alpha, beta = self.beta[:touches][::-1], self.alpha[:touches][::-1]
        rising = np.append(True, np.diff(alpha) > 0)
        alpha, beta = alpha[rising], beta[rising]
        return Curve(alpha, beta) if alpha[-1] == 1 else Curve(np.append(alpha, 1.0), np.append(beta, 0.0))

    def conjugate(self, slope: ArrayLike) -> NDArray[np.float64]:
        """f*(slope) = max over alpha of slope alpha - f(alpha), at real slopes of any shape."""
        slope = reals("slope", slope)
        best = np.searchsorted(np.diff(self.beta) / np.diff(self.alpha), slope)
        return (slope * self.alpha[best] - self.beta[best])[()]

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """The delta at each epsilon in [0, 700]: 1 + f*(-e^epsilon), for the rejecting side of the curve."""
        return 1 + self.conjugate(-np.exp(reals("epsilon", epsilon, at_least=0, at_most=700)))

    def compose(self, other: Curve) -> Curve:
        """f (x) h = T(P x P', Q x Q'), exact: every pair of segments, by falling likelihood ratio.

        The result has up to k k' vertices. Source: vandijk2023 section 4.3.
        """
        (p, q), (p_other, q_other) = self._segments(), other._segments()
        p, q = np.outer(p, p_other).ravel(), np.outer(q, q_other).ravel()
        p, q = p[p > 0], q[p > 0]  # what only Q can produce is rejected for nothing
        order = np.argsort(-q / p, kind="stable")
        alpha = np.append(0.0, np.cumsum(p[order]))
        beta = np.append(np.cumsum(q[order][::-1])[::-1], 0.0)
        alpha, beta = alpha / alpha[-1], np.minimum(beta, 1.0)
        rising = np.append(True, np.diff(alpha) > 0)
        return Curve.hull(alpha[rising], np.minimum(beta[rising], 1 - alpha[rising]))

    def _segments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(P mass, Q mass) of each segment, and of the jump at alpha = 0, which P never produces."""
        return np.append(0.0, np.diff(self.alpha)), np.append(1 - self.beta[0], -np.diff(self.beta))

    def subsample(self, p: float) -> Curve:
        """C_p(f) = min{f_p, f_p^-1}**, exact. p in [0, 1]. Source: vandijk2023 section 4.2."""
        p = real("p", p, at_least=0, at_most=1)
        mixed = p * self.beta + (1 - p) * (1 - self.alpha)
        return Curve.hull(np.append(self.alpha, mixed), np.append(mixed, self.alpha))


def _turns_right(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Return whether b is on or above the chord from a to c."""
    return (b[0] - a[0]) * (c[1] - a[1]) <= (c[0] - a[0]) * (b[1] - a[1])


# Trade-off functions as plain callables: inverse, conjugates, groups, and the duality with (epsilon, delta).

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""A function of an array, element by element."""

_HALVINGS = 200  # reaches roots down to 1e-60
_SECTIONS = 120  # golden sections: 700 down to 1e-22
_GOLDEN = (np.sqrt(5) - 1) / 2


def inverse(f: Function, alpha: ArrayLike) -> NDArray[np.float64]:
    """f^-1(alpha) = inf{t in [0, 1]: f(t) <= alpha} of a decreasing f with f(1) = 0; alpha in [0, 1], any shape.

    By bisection. Raises ValueError naming alpha. Source: vandijk2023 (7).
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    low, high = np.zeros_like(alpha), np.ones_like(alpha)
    at_once = f(low) <= alpha
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = f(middle) <= alpha
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(at_once, 0.0, high)[()]


def conjugate(f: Function, slope: ArrayLike) -> NDArray[np.float64]:
    """f*(slope) = sup over x in [0, 1] of slope x - f(x), for convex f, at real slopes of any shape.

    By golden-section search. Raises ValueError naming slope. Source: vandijk2023 section 4.2.
    """
    slope = reals("slope", slope)
    return _highest(lambda x: slope * x - f(x), np.zeros_like(slope), np.ones_like(slope))[()]


def double_conjugate(f: Function, knots: int = 4001) -> Curve:
    """f**, the largest convex function below f, from `knots` points that crowd towards 0 and 1.

    f need not be convex: min{f_p, f_p^-1}** is C_p(f). Error of the order of knots^-2.
    Raises ValueError naming knots. Source: vandijk2023 section 4.2.
    """
    reach = np.linspace(-40.0, 40.0, integer("knots", knots, at_least=3))
    alpha = np.concatenate([[0.0], expit(reach), [1.0]])
    return Curve.hull(alpha, np.clip(f(alpha), 0.0, 1 - alpha))


def group(f: Function, g: int) -> Function:
    """1 - (1 - f)^{o g}: what an f-DP mechanism guarantees to groups of g >= 1 records, as a function of alpha.

    Accurate to about 1e-16 in absolute terms; for G_mu use gaussian_dp.group. The curve refuses alpha outside
    [0, 1] by ValueError. Raises ValueError naming g. Source: vandijk2023 section 4.6.
    """
    g = integer("g", g, at_least=1)

    def grouped(alpha: ArrayLike) -> NDArray[np.float64]:
        level = reals("alpha", alpha, at_least=0, at_most=1)
        for _ in range(g - 1):
            level = 1 - f(level)
        return f(level)

    return grouped


def delta_of(f: Function, epsilon: ArrayLike) -> NDArray[np.float64]:
    """The delta of an f-DP mechanism at epsilon in [0, 700] of any shape: 1 + f*(-e^epsilon), f symmetric.

    Guarantee: an f-DP mechanism is (epsilon, delta)-DP for every epsilon. Raises ValueError naming epsilon. Source: the
    duality behind vandijk2023 (6).
    """
    epsilon = reals("epsilon", epsilon, at_least=0, at_most=700)
    return np.clip(1 + conjugate(f, -np.exp(epsilon)), 0.0, 1.0)[()]


def from_delta(delta: Function, alpha: ArrayLike) -> NDArray[np.float64]:
    """The symmetric trade-off curve at alpha in [0, 1], any shape, of a mechanism with the curve delta(epsilon).

    sup over epsilon of f_{epsilon,delta(epsilon)}(alpha), searched over [0, 700] by golden section; any
    epsilon gives a valid guarantee, so the answer is never too large. `delta` maps arrays of epsilon to [0, 1].
    Guarantee: (epsilon, delta(epsilon))-DP for every epsilon makes the mechanism DP with this curve.
    Raises ValueError naming alpha. Source: vandijk2023 section 4, where f_{epsilon,delta} is given.
    """
    alpha = reals("alpha", alpha, at_least=0, at_most=1)
    low, high = np.zeros_like(alpha), np.full_like(alpha, 700.0)
    steep = _highest(lambda epsilon: 1 - delta(epsilon) - np.exp(epsilon) * alpha, low, high)
    flat = _highest(lambda epsilon: np.exp(-epsilon) * (1 - delta(epsilon) - alpha), low, high)
    return np.maximum(0.0, np.maximum(steep, flat))[()]


def _highest(objective: Function, low: NDArray, high: NDArray) -> NDArray[np.float64]:
    """The largest value of a function with one peak between `low` and `high`, ends included."""
    best = np.maximum(objective(low), objective(high))
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = objective(left), objective(right)
    for _ in range(_SECTIONS):
        best = np.maximum(best, np.maximum(at_left, at_right))
        lower = at_left >= at_right
        low, high = np.where(lower, low, left), np.where(lower, right, high)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = objective(left), objective(right)
    return best


# Subsampled Gaussian rounds: the operator C_p for fixed-size batches, and Poisson batches.


def subsample(p: ArrayLike, mu: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """C_p(G_mu)(alpha) = min{f_p, f_p^-1}**(alpha) with f_p = p G_mu + (1 - p) Id; shapes broadcast.

    Exact: f_p up to the fixed point of G_mu, its mirror image f_p^-1 at the other end, and between the two
    the chord of slope -1. p and alpha in [0, 1], mu >= 0. Guarantee: a round that is mu-GDP on a fixed-size
    batch drawn without replacement with share p is C_p(G_mu)-DP when one record is replaced.
    Raises ValueError naming p, mu or alpha. Source: vandijk2023 section 4.2.
    """
    p, mu, alpha = np.broadcast_arrays(
        reals("p", p, at_least=0, at_most=1),
        reals("mu", mu, at_least=0, at_most=1e100),
        reals("alpha", alpha, at_least=0, at_most=1),
    )
    fixed_point = ndtr(-mu / 2)
    mirrored = p * fixed_point + (1 - p) * ndtr(mu / 2)
    chance = 1 - alpha
    falling = chance - p * (chance - gaussian_dp.tradeoff(alpha, mu))
    # The chord, fixed_point + mirrored - alpha, in the form that stays accurate when its ends are tiny.
    value = np.where(alpha <= fixed_point, falling, (1 - p) + 2 * p * fixed_point - alpha)
    value = np.where(p == 0, chance, value)
    mirror = (alpha > fixed_point) & (alpha >= mirrored) & (alpha < 1) & (p > 0)
    value[mirror] = _mirror_image(p[mirror], mu[mirror], alpha[mirror])
    return np.where(alpha == 1, 0.0, np.minimum(value, chance))[()]


def _mirror_image(p: NDArray, mu: NDArray, alpha: NDArray) -> NDArray[np.float64]:
    """f_p^-1(alpha) beyond the chord: Q(z) where p Phi(z - mu) + (1 - p) Phi(z) = alpha."""

    def gap(z: NDArray, p: NDArray, mu: NDArray, alpha: NDArray) -> NDArray[np.float64]:
        below = np.log(np.maximum(p * ndtr(z - mu) + (1 - p) * ndtr(z), 5e-324)) - np.log(alpha)
        above = 1 - (p * ndtr(mu - z) + (1 - p) * ndtr(-z)) / (1 - alpha)
        return np.where(alpha < 0.5, below, above)

    quantile = ndtri(alpha)
    return ndtr(-root(gap, np.maximum(mu / 2, quantile), quantile + mu, p, mu, alpha))


def poisson_renyi(order: int, p: float, mu: float) -> float:
    """Renyi divergence of integer `order` >= 2 of (1 - p) N(0, 1) + p N(mu, 1) from N(0, 1): one Poisson batch.

    Exact binomial sum in logarithms, with relative accuracy also where it is tiny; inf where it overflows. It also
    bounds that of C_p(G_mu) from below, which dominates this pair. p in (0, 1), mu >= 0; mu = 1/noise_multiplier.
    Raises ValueError naming the argument. Source: mironov2019, section 3.3.
    """
    order = integer("order", order, at_least=2)
    p, mu = real("p", p, above=0, below=1), real("mu", mu, at_least=0)
    # Without growth the terms sum to 1, and those of k = 0, 1 do not grow: ln(1 + x) with x from k >= 2, may be tiny.
    k = np.arange(2, order + 1)
    log_choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    with np.errstate(over="ignore", divide="ignore"):
        growth = k * (k - 1) / 2 * mu * mu
        terms = log_choose + k * np.log(p) + (order - k) * np.log1p(-p) + growth + np.log(-np.expm1(-growth))
        return float(np.logaddexp(0.0, np.asarray(logsumexp(terms))) / (order - 1))


# Privacy of a DP-SGD run whose noise changes between segments of rounds, or is not Gaussian: fixed-size batches.

INTERVAL = 5e-4
"""Widest grid of the privacy loss: finer where a round's loss spreads over less than `CELLS` of its cells."""
CELLS = 20
"""A grid adds up to a quarter of its squared width to the variance of each loss: under 1e-3 of epsilon so."""
LEFT_OUT = 1e-4
"""Share of delta that the loss grid's ends may leave out over the whole run; it is counted as lost."""
LONGEST_LOSS = 60.0
"""Largest loss on a grid of `INTERVAL`: where the losses reach farther, privacy is weak and the grid is coarser."""
ARSINH_SHARE = 0.1
"""Largest delta of a run with arsinh noise, as a share of the total variation of its arsinh rounds: up to a fifth of
it moves spread over several axes never spent more in the cases tried, and from a half on they spent more in some."""
LEAST_SIGMA = 1e-50
"""Least sigma whose losses have finite squares."""
_SHORTEST = 1e-9
"""Least reach of a grid: of a round whose record is hardly ever drawn, no loss may be left."""
SIGMA_TOLERANCE = 1e-4
SIGMAS = (0.2, 1000.0)


@dataclass(frozen=True)
class Segment:
    """`rounds` >= 0 rounds with one noise law: sigma >= `LEAST_SIGMA` in units of a round's sensitivity, p in (0, 1]
    the share of records in a batch.

    `arsinh_scale` > 0: a over sigma of the noise a arsinh(N/a); infinite for Gaussian noise.
    Raises ValueError naming the first field out of range.
    Source: vandijk2023 sections 4.2 and 5.2.
    """

    rounds: int
    sigma: float
    p: float
    arsinh_scale: float = np.inf

    def __post_init__(self) -> None:
        integer("rounds", self.rounds)
        real("sigma", self.sigma, at_least=LEAST_SIGMA)
        real("p", self.p, above=0, at_most=1)
        real("arsinh_scale", self.arsinh_scale, above=0, infinite=True)

    def tails(self) -> Tails:
        """Return the law of one round's loss under C_p; arsinh noise is moved along one axis."""
        if np.isinf(self.arsinh_scale):
            return subsampled_tails(gaussian_tails(1 / self.sigma), self.p)
        return subsampled_tails(arsinh_tails(self.arsinh_scale * self.sigma, self.sigma), self.p)


def segments_epsilon(segments: Sequence[Segment], delta: float) -> float:
    """Return the epsilon at `delta` of a run of segments, one record replaced, batches of fixed size.

    Every round is C_p of its noise, as adversary A0 sees it, and the rounds compose: an upper bound by connecting the
    dots of the losses. It is above what the rounds spend by less than 2e-3 of it if all have one noise law, none loses
    more than `LONGEST_LOSS` and `delta` is at most 1e-3; one grid holds all segments, so that it is looser for those
    whose losses are small beside another's. `delta` in [`LEAST_DELTA`, 1), at least one round in all; with very many
    rounds, what rounding may hide (`added`) asks for a larger one: use `accounting.guarantee`. Arsinh noise is
    accounted for the full move of the sum along one axis, with arsinh_scale of 1 and more and delta up to
    `ARSINH_SHARE` of the total variation of its rounds: a move spread over more axes spent less in every case tried
    there, and more in some beyond it; a shorter move may spend more below that scale. Raises ValueError naming the
    argument. Guarantee: (epsilon, `delta`)-DP with one record replaced, for arsinh noise as far as it was tried.
    Source: vandijk2023, sections 4.4 and 5.2.
    """
    failure = real("delta", delta, at_least=LEAST_DELTA, below=1)
    runs = [segment for segment in segments if segment.rounds]
    if not runs:
        raise ValueError("segments must have at least one round in all, got none")
    arsinh = [segment for segment in runs if np.isfinite(segment.arsinh_scale)]
    for segment in arsinh:
        real("arsinh_scale", segment.arsinh_scale, at_least=1)
    loss = _composed_segments(runs, failure)
    if arsinh:
        variation = (loss if len(arsinh) == len(runs) else _composed_segments(arsinh, failure)).delta(0.0)
        real("delta with arsinh noise", failure, at_most=ARSINH_SHARE * float(variation))
    return float(loss.epsilon(failure))


def _composed_segments(runs: Sequence[Segment], delta: float) -> PrivacyLoss:
    """Return the composed loss of segments that all have rounds, on one grid that suits `delta`."""
    # Every segment may leave out mass at the ends of its rounds' grid, when it is composed, and when it is joined.
    left_out = LEFT_OUT * delta / (3 * len(runs))
    tails = [segment.tails() for segment in runs]
    reaches = [
        max(largest_loss(law, left_out / segment.rounds), _SHORTEST) for segment, law in zip(runs, tails, strict=True)
    ]
    smallest_std = min(map(loss_std, tails, reaches))
    step = max(min(INTERVAL, smallest_std / CELLS), INTERVAL * max(reaches) / LONGEST_LOSS)
    losses = (connected_dots(law, step, reach) for law, reach in zip(tails, reaches, strict=True))
    counts = (segment.rounds for segment in runs)
    return PrivacyLoss.of(added(list(zip(losses, counts, strict=True)), left_out), LEAST_DELTA)


def segments_sigma(run: Callable[[float], Sequence[Segment]], target_epsilon: float, delta: float) -> float:
    """Return the least sigma from 0.2 to 1000 for which the segments `run(sigma)` spend at most `target_epsilon`.

    Within 1e-4 of it, relatively. `target_epsilon` > 0, `delta` as for `segments_epsilon`; `run` must give less epsilon
    for more sigma. Guarantee: that of `segments_epsilon`, (target_epsilon, delta)-DP with one record replaced. Raises
    ValueError naming the argument, target_epsilon also if no such sigma meets it. Source: `segments_epsilon` solved for
    sigma.
    """
    target = real("target_epsilon", target_epsilon, above=0)
    least, most = np.log(SIGMAS)

    @cache
    def excess(log_sigma: float) -> float:
        return segments_epsilon(run(float(np.exp(log_sigma))), delta) / target - 1

    low, high = 0.0, 0.7
    while excess(high) > 0:
        if high == most:
            raise ValueError(f"target_epsilon {target} is met by no sigma from {SIGMAS[0]} to {SIGMAS[1]}")
        low, high = high, min(high + 0.7, most)
    while excess(low) <= 0:
        if low == least:
            return SIGMAS[0]
        low, high = max(low - 0.7, least), low
    zero = zero_between(excess, low, high, xtol=SIGMA_TOLERANCE)
    return float(np.exp(zero if excess(zero) <= 0 else min(zero + SIGMA_TOLERANCE, high)))


# The trade-off curve of a complete DP-SGD run, against each adversary and by each approximation.


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
        ...

    def delta(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """The delta at epsilon >= 0."""
        ...

    def epsilon(self, delta: ArrayLike) -> NDArray[np.float64]:
        """The smallest epsilon >= 0 at delta."""
        ...


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
    A0's curve-DP; its epsilon(delta) refuses a delta below `LEAST_DELTA` or, with very many rounds, near what rounding
    may hide: use `accounting.guarantee`. A1's holds for the one who knows more; h, h_bar and clt approximate and
    guarantee nothing. Other arguments as `dpsgd`. Raises ValueError naming the argument. Source: vandijk2023 sections
    4.4, 4.5 and 4.7.
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
    is 2C, has sigma = noise_multiplier/2 in `dpsgd_guarantee`: the factor 2 that fixed batches cost. dp_accounting does
    not count what its transform rounds, some 1e-15 of mass a round: no guarantee where delta is not far above that.
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


_NODES, _WEIGHTS = roots_legendre(40)


# Closed forms for mu of a complete DP-SGD run: epochs, central limits, and the last epoch's smaller noise.


def shuffled_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """sqrt(g E)/sigma: E epochs of shuffled batches. Exact for g = 1, where every record is used E times.

    For g > 1 it assumes that the group's records fall into different batches; where they may share one, the guarantee
    is weaker (`revealed_shuffled`). epochs, group_size >= 1, sigma > 0;
    shapes broadcast. Guarantee: for g = 1 mu-Gaussian DP with one record replaced. Raises ValueError naming the
    argument. Source: vandijk2023 section 4.7.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    return (np.sqrt(group_size * epochs) / sigma)[()]


def h_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """mu of h, sqrt((1 + 1/sqrt(2E)) E)/sigma, the approximate guarantee against adversary A1; E becomes gE for groups.

    No true bound: deep in the tail A1 does better. epochs, group_size >= 1, sigma > 0; shapes broadcast.
    Raises ValueError naming the argument. Source: vandijk2023 section 4.7.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    total = group_size * epochs
    return (np.sqrt(total + np.sqrt(total / 2)) / sigma)[()]


def h_bar_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """mu of h-bar, sqrt((1 - 1/sqrt(2E)) E)/sigma, the approximate limit of any guarantee against A1.

    Arguments, errors and source as `h_mu`.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    total = group_size * epochs
    return (np.sqrt(total - np.sqrt(total / 2)) / sigma)[()]


def last_epoch_mu(
    epochs: ArrayLike, sigma: ArrayLike, last_sigma: ArrayLike | None = None, group_size: ArrayLike = 1
) -> NDArray[np.float64]:
    """sqrt(g) sqrt((E - 1)/sigma^2 + 1/last_sigma^2): mu with another noise in the last of E shuffled epochs.

    Without `last_sigma` it is sigma/sqrt(E + 1), which gives sqrt(2 g E)/sigma. Ranges, errors as `shuffled_mu`.
    Guarantee: that of `shuffled_mu`. Source: vandijk2023 section 5.2.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    last = sigma / np.sqrt(epochs + 1) if last_sigma is None else reals("last_sigma", last_sigma, above=0)
    return (np.sqrt(group_size) * np.hypot(np.sqrt(epochs - 1) / sigma, 1 / last))[()]


def clt_mu(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """sqrt(2) p sqrt(T) sqrt(e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2): limit of C_p composed T times.

    p in [0, 1], rounds >= 1, sigma > 0; shapes broadcast; inf where e^(1/sigma^2) overflows. Accurate for large
    sigma too, where the bracket nearly cancels. Raises ValueError naming the argument. A limit: it guarantees nothing.
    Source: Corollary 5.4 of dong2022, quoted in vandijk2023 section 4.5.
    """
    p, rounds, x = _sampled(p, rounds, sigma)
    # Phi(1.5 x) + 3 Phi(-0.5 x) - 2 = 3 integral over [0, x/2] of phi(3u) - phi(u), which does not cancel.
    u = (x / 4)[..., None] * (_NODES + 1)
    density = np.exp(-(u**2) / 2) * np.expm1(-4 * u**2) / np.sqrt(2 * np.pi)
    narrow = 3 * (x / 4) * (density @ _WEIGHTS)
    wide = ndtr(1.5 * x) + 3 * ndtr(-0.5 * x) - 2
    with np.errstate(over="ignore"):
        bracket = np.expm1(x**2) * ndtr(1.5 * x) + np.where(x < 2, narrow, wide)
    return _scaled(p * np.sqrt(2 * rounds), bracket)


def poisson_clt_mu(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """p sqrt(T (e^(1/sigma^2) - 1)): the limit of T Poisson batches. It understates at practical sizes.

    Arguments and errors as `clt_mu`. Source: bu2020, for comparison with vandijk2023 section 4.5.
    """
    p, rounds, x = _sampled(p, rounds, sigma)
    with np.errstate(over="ignore"):
        bracket = np.expm1(x**2)
    return _scaled(p * np.sqrt(rounds), bracket)


def sufficient_sigma(epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """sqrt(2 (epsilon + ln(1/delta))/epsilon): noise for (epsilon, delta)-DP.

    No guarantee outside of the conditions of its source. Source: quoted by vandijk2023 section 4.5, from a work that
    asks for T up to about epsilon (N/m)^2/2. epsilon > 0, delta in (0, 1]; shapes broadcast. Raises ValueError naming
    the argument.
    """
    epsilon, delta = reals("epsilon", epsilon, above=0), reals("delta", delta, above=0, at_most=1)
    return np.sqrt(2 * (epsilon - np.log(delta)) / epsilon)[()]


def _run(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Checked epochs, sigma and group size."""
    return (
        integers("epochs", epochs, at_least=1),
        reals("sigma", sigma, above=0),
        integers("group_size", group_size, at_least=1),
    )


def _sampled(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Checked sampling rate and rounds, and 1/sigma (at most 1e100, so that its square is finite)."""
    return (
        reals("p", p, at_least=0, at_most=1),
        integers("rounds", rounds, at_least=1),
        1 / np.maximum(reals("sigma", sigma, above=0), 1e-100),
    )


def _scaled(factor: NDArray, bracket: NDArray) -> NDArray[np.float64]:
    """factor sqrt(bracket), zero where the factor is (also against an infinite bracket)."""
    return np.where(factor > 0, np.where(factor > 0, factor, 1.0) * np.sqrt(bracket), 0.0)[()]
