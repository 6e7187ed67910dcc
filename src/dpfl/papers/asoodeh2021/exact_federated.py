"""Algorithm 1 of the paper in one dimension, computed on a grid without any of the paper's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dpfl.accounting.contraction import hockey_stick
from dpfl.accounting.contraction.kernels import Array, DiscretisedInterval


@dataclass(frozen=True)
class ExactFederatedSgd:
    """Algorithm 1 with m users per round on [-radius, radius], whose user i has slope +lipschitz or -lipschitz.

    Every other user's loss is curvature * w^2 / 2 (concave where negative). A round averages m gradients, each with
    noise of standard deviation sigma, and steps by its own eta. User i falls into each round with the same chance,
    at a model in the middle of the interval; its round-mates' gradients vanish there.
    """

    m: int
    etas: Sequence[float]
    sigma: float
    lipschitz: float
    radius: float
    curvature: float = 0.0
    cells: int = 300

    def models(self) -> Array:
        """Return the two laws of the model after round s when user i was in round t, shape (t, s, 2, cells + 2).

        Rounds s before t are left at zero: there the two laws are one.
        """
        interval = DiscretisedInterval(-self.radius, self.radius, self.cells)
        noises = [norm(scale=eta * self.sigma / np.sqrt(self.m)) for eta in self.etas]
        steps = [
            interval.projected((1 - eta * self.curvature) * interval.points, noise)
            for eta, noise in zip(self.etas, noises, strict=True)
        ]
        laws = np.zeros((len(steps), len(steps), 2, self.cells + 2))
        for t, (eta, noise) in enumerate(zip(self.etas, noises, strict=True)):
            shift = eta * self.lipschitz / self.m
            laws[t, t] = interval.projected(np.array([shift, -shift]), noise)
            for s in range(t + 1, len(steps)):
                laws[t, s] = laws[t, s - 1] @ steps[s]
        return laws

    def delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the last model."""
        p, q = self.models()[:, -1].mean(axis=0)
        return float(hockey_stick(p, q, epsilon))

    def stopped_delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the model after a round drawn uniformly from all.

        A stop before user i's round is alike under both data sets: it could only lower delta and is left out.
        """
        p, q = self.models().mean(axis=(0, 1))
        return float(hockey_stick(p, q, epsilon))

    def averaged_delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the average of all models, from a start in the middle, all other losses 0.

        Unlike `models` this follows every model from round 1 on: the average is of one path. Its sum lives on the grid
        of the interval's points, in units of half a cell.
        """
        interval = DiscretisedInterval(-self.radius, self.radius, self.cells)
        places = np.concatenate([[0], np.arange(1, 2 * self.cells, 2), [2 * self.cells]])
        rounds = len(self.etas)
        noises = [norm(scale=eta * self.sigma / np.sqrt(self.m)) for eta in self.etas]

        def averages(t: int, sign: int) -> Array:
            """The law of the sum of all models when user i is in round t."""
            law = np.zeros((len(places), 2 * self.cells * rounds + 1))
            for s, (eta, noise) in enumerate(zip(self.etas, noises, strict=True)):
                shift = -sign * eta * self.lipschitz / self.m if s == t else 0.0
                if s == 0:
                    moved = np.zeros_like(law)
                    moved[:, 0] = interval.projected(np.array([shift]), noise)[0]
                else:
                    moved = interval.projected(interval.points + shift, noise).T @ law
                law = np.stack([np.roll(row, place) for row, place in zip(moved, places, strict=True)])
            return law.sum(axis=0)

        p, q = (np.mean([averages(t, sign) for t in range(rounds)], axis=0) for sign in (1, -1))
        return float(hockey_stick(p, q, epsilon))
