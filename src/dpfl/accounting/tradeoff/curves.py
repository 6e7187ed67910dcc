"""Convex piecewise-linear trade-off curves, with the operations of f-DP exact on their vertices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import real, reals

_SLACK = 1e-12  # rounding allowed when vertices are checked


def epsilon_delta(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """f_{epsilon,delta}(alpha) = max{0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)}.

    alpha and delta in [0, 1], epsilon in [0, inf]; shapes broadcast. Guarantee: a mechanism is
    (epsilon, delta)-DP if and only if it is f_{epsilon,delta}-DP. Raises ValueError naming the argument.
    Source: vandijk2023 section 4, with max for the printed min.
    """
    steep, flat = _two_lines(alpha, epsilon, delta)
    return np.maximum(0.0, np.maximum(steep, flat))[()]


def _two_lines(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> tuple[NDArray, NDArray]:
    """1 - delta - e^epsilon alpha and e^-epsilon (1 - delta - alpha), without overflow."""
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
        if alpha[0] != 0 or alpha[-1] != 1 or np.any(np.diff(alpha) <= 0):
            raise ValueError("alpha must rise strictly from 0 to 1")
        if np.any(np.diff(beta) > 0) or np.any(beta > 1 - alpha + _SLACK):
            raise ValueError("beta must fall and be at most 1 - alpha")
        chord = beta[:-2] + (beta[2:] - beta[:-2]) * (alpha[1:-1] - alpha[:-2]) / (alpha[2:] - alpha[:-2])
        if np.any(beta[1:-1] > chord + _SLACK):
            raise ValueError("beta must be convex in alpha")
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
