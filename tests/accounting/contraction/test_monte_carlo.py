"""The algorithms themselves in 2, 3 and 5 dimensions on neighbouring data, and what a fixed test sees of the record.

Nothing is discretised: noisy gradients of quadratic losses, averaged, stepped, projected on a ball. Three samples in ten
choose a half-space across the direction in which record i differs; on the others, untouched by the choice, the
half-space's two frequencies give a Clopper-Pearson lower bound of E_{e^eps} between the released models. One that
exceeds a true guarantee has a chance of 1e-6; the streams are addressed, so the verdict is the same at every run.
test_simulation.py does the same in one dimension by exact propagation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import beta as beta_law

from dpfl.accounting.contraction import (
    contraction_factor,
    federated_delta,
    federated_delta_relaxed,
    federated_delta_strongly_convex,
    federated_random_stop_bound,
    federated_random_stop_delta,
    federated_suffix_stop_delta,
    pnsgd_gaussian_delta,
    pnsgd_random_stop_bound,
    pnsgd_random_stop_delta,
    theta,
)
from dpfl.engine.randomness import generator

EPSILON = np.array([0.0, 0.25, 0.5, 1.0])
FALSE_ALARM = 1e-6
SAMPLES, CHOOSING = 300_000, 90_000
LIPSCHITZ = 1.0


@dataclass(frozen=True)
class Setting:
    """n quadratic losses on a ball, m of them a round; `place` is record i's (from 1), or None to draw the order.

    A loss's gradient is hessian * w + slope with the Hessian diagonal: `along` in the first coordinate, in which
    record i differs, `across` in the others. `pull` is the share of what LIPSCHITZ leaves the other records' slopes,
    whose directions are random.
    """

    dimensions: int
    n: int
    eta: float | tuple[float, ...]
    sigma: float | tuple[float, ...]
    radius: float
    place: int | None = None
    m: int = 1
    along: float = 0.0
    across: float = 0.0
    pull: float = 0.0
    seed: int = field(default=1, kw_only=True)

    @property
    def rounds(self) -> int:
        return self.n // self.m

    def schedule(self, name: str) -> np.ndarray:
        """eta or sigma, one a round."""
        return np.broadcast_to(np.asarray(getattr(self, name), dtype=float), self.rounds)

    def losses(self, sign: int) -> tuple[np.ndarray, np.ndarray]:
        """Hessians and slopes, shape (n, d) each; record i is the last but for a `place`, its slope has this sign."""
        hessian = np.full((self.n, self.dimensions), self.across)
        hessian[:, 0] = self.along
        slope = generator(self.seed, "split").normal(size=hessian.shape)
        slope *= self.pull * self._spare(hessian) / np.linalg.norm(slope, axis=1, keepdims=True)
        i = self.n - 1 if self.place is None else self.place - 1
        # Only as convex as the least convex of the others: what is spare goes into the slope.
        hessian[i] = min(self.along, self.across)
        slope[i] = 0.0
        slope[i, 0] = sign * self._spare(hessian)[i, 0]
        if np.any(hessian.max(axis=1) * self.radius + np.linalg.norm(slope, axis=1) > LIPSCHITZ * (1 + 1e-12)):
            pytest.fail("a gradient exceeds LIPSCHITZ on the ball")
        return hessian, slope

    def _spare(self, hessian: np.ndarray) -> np.ndarray:
        """What the Hessian leaves of LIPSCHITZ anywhere on the ball."""
        return LIPSCHITZ - hessian.max(axis=1, keepdims=True) * self.radius


@cache
def models(setting: Setting, sign: int) -> np.ndarray:
    """The first coordinate of every round's model in SAMPLES independent runs from the centre, (rounds, SAMPLES)."""
    hessian, slope = setting.losses(sign)
    order = np.broadcast_to(np.arange(setting.n), (SAMPLES, setting.n))
    if setting.place is None:
        order = generator(setting.seed, "batches", sign + 1).permuted(order, axis=1)
    w = np.zeros((SAMPLES, setting.dimensions))
    history = np.empty((setting.rounds, SAMPLES))
    for t, (eta, sigma) in enumerate(zip(setting.schedule("eta"), setting.schedule("sigma"), strict=True)):
        batch = order[:, t * setting.m : (t + 1) * setting.m]
        gradients = sigma * generator(setting.seed, "noise", sign + 1, t).normal(size=(*batch.shape, w.shape[1]))
        gradients += hessian[batch] * w[:, None] + slope[batch]
        w -= eta * gradients.mean(axis=1)
        w /= np.maximum(np.linalg.norm(w, axis=1, keepdims=True) / setting.radius, 1.0)
        history[t] = w[:, 0]
    return history


def last(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The last models under the two neighbours."""
    return models(setting, 1)[-1], models(setting, -1)[-1]


def stopped(setting: Setting, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The models after a round drawn uniformly from first..T, every run its own."""
    released = []
    for sign in (1, -1):
        tau = generator(setting.seed, "participants", sign + 1).integers(first - 1, setting.rounds, SAMPLES)
        released.append(models(setting, sign)[tau, np.arange(SAMPLES)])
    return released[0], released[1]


def leak(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Lower confidence bounds at each EPSILON of the larger of E(P||Q) and E(Q||P)."""
    chosen = [_best_test(epsilon, p[:CHOOSING], q[:CHOOSING]) for epsilon in EPSILON]
    fresh = {1: p[CHOOSING:], -1: q[CHOOSING:]}
    bounds = []
    for epsilon, (order, side, threshold) in zip(EPSILON, chosen, strict=True):
        more, less = (np.count_nonzero(side * fresh[arm] > threshold) for arm in (order, -order))
        count = SAMPLES - CHOOSING
        low = beta_law.ppf(FALSE_ALARM / 2, more, count - more + 1) if more else 0.0
        high = beta_law.isf(FALSE_ALARM / 2, less + 1, count - less) if less < count else 1.0
        bounds.append(low - np.exp(epsilon) * high)
    return np.array(bounds)


def _best_test(epsilon: float, p: np.ndarray, q: np.ndarray) -> tuple[int, int, float]:
    """Which of (P, Q) and (Q, P), which side and which threshold look best on the samples that may choose."""
    best = []
    for side in (1, -1):
        upper, lower = np.sort(side * p), np.sort(side * q)
        grid = np.linspace(min(upper[0], lower[0]), max(upper[-1], lower[-1]), 801)[:-1]
        in_p, in_q = (1 - np.searchsorted(law, grid, side="right") / len(law) for law in (upper, lower))
        for order, gain in ((1, in_p - np.exp(epsilon) * in_q), (-1, in_q - np.exp(epsilon) * in_p)):
            best.append((gain.max(), order, side, grid[gain.argmax()]))
    return max(best)[1:]
