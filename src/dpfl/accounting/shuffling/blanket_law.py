"""The blanket of Gaussian reports as nodes of a quadrature: where it may be, and the two likelihood ratios there."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtr

Array = NDArray[np.float64]

_CELLS = 1 << 15  # of y >= 0 in one dimension
_SIDE, _NODES = 160, 4  # cells on each side of the rectangle in more, and nodes of Gauss-Legendre quadrature in each
_LENGTHS = 256
_LOOKED_AT = 1000
_NEGLIGIBLE = 1e-22  # share of the peak density below which a place is not looked at
_REACH = 12.0


class Blanket(NamedTuple):
    """Its weight gamma; and at its nodes their masses (sum 1) with gamma R_x/w (`ours`) and gamma R_x'/w (`theirs`).

    Source: balle2019, section 5.
    """

    weight: float
    masses: Array
    ours: Array
    theirs: Array

    def largest(self, share: float) -> float:
        """Return the value of `ours` above which R_x has at most that share."""
        order = np.argsort(self.ours)
        above = np.cumsum((self.ours * self.masses)[order][::-1])[::-1]
        return float(self.ours[order[min(np.searchsorted(-above, -share), order.size - 1)]])


@lru_cache(maxsize=8)
def blanket_law(radius: float, dimension: int) -> Blanket:
    """Return the blanket of inputs in a ball of `radius` >= 0 in `dimension` >= 1, noise of deviation 1.

    Source: balle2019, section 5, at the antipodal pair.
    """
    return _line(radius) if dimension == 1 else _ball(radius, dimension)


def _line(radius: float) -> Blanket:
    """One dimension: y >= 0, where R_x/w varies and R_x'/w does not, and its mirror image.

    Each cell's mass goes to its two ends so that the mean of R_x/w stays, which can only raise a convex function's
    mean.
    """
    edges = np.linspace(0.0, radius + _REACH, _CELLS + 1)
    weight = 2 * float(ndtr(-radius))
    cells = -np.diff(ndtr(-(edges + radius))) / weight
    means = -np.diff(ndtr(radius - edges)) / np.maximum(cells, 1e-300)
    varies, flat = weight * np.exp(2 * radius * edges), np.full(_CELLS + 1, weight)
    upper = cells * np.clip((means - varies[:-1]) / np.maximum(np.diff(varies), 1e-300), 0.0, 1.0)
    masses = np.append(cells - upper, 0.0) + np.append(0.0, upper)
    return Blanket(
        weight,
        np.concatenate([masses, masses]) / (2 * masses.sum()),
        np.concatenate([varies, flat]),
        np.concatenate([flat, varies]),
    )


def _ball(radius: float, dimension: int) -> Blanket:
    """More dimensions, at sqrt(|y| + y_1) and sqrt(|y| - y_1): there the density is smooth.

    R_x/w grows with the first alone and R_x'/w with the second alone.
    """
    widest = math.sqrt(math.sqrt(dimension) + 2 * (radius + _REACH))
    points = np.linspace(0.0, widest, _LOOKED_AT)[1:]
    blanket = _density(points, radius, dimension)
    report = blanket * np.exp(radius * (points**2 - widest**2))  # R_x, up to a factor: it reaches further
    support = np.flatnonzero((blanket.max(axis=0) > _NEGLIGIBLE) | (report.max(axis=0) > _NEGLIGIBLE * report.max()))
    ends = points[[max(support[0] - 1, 0), min(support[-1] + 1, points.size - 1)]] * (support[0] > 0, 1)
    points, weights = _quadrature(np.linspace(*ends, _SIDE + 1))
    masses = (_density(points, radius, dimension) * np.outer(weights, weights)).ravel()
    weight = _ball_weight(radius, dimension)
    ratio = weight * np.exp(radius * points**2)
    ours, theirs = np.repeat(ratio, points.size), np.tile(ratio, points.size)
    met = masses * np.maximum(ours, 1.0) > _NEGLIGIBLE * masses.max()
    masses, ours, theirs = masses[met], ours[met], theirs[met]
    return Blanket(weight, masses / masses.sum(), ours, theirs)


def _quadrature(edges: Array) -> tuple[Array, Array]:
    """Points and weights of Gauss-Legendre quadrature in each of the cells between `edges`."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    widths = np.diff(edges)[:, None]
    return (edges[:-1, None] + widths * (nodes + 1) / 2).ravel(), (widths * weights / 2).ravel()


def _density(points: Array, radius: float, dimension: int) -> Array:
    """The blanket's density at (s, t) = `points` x `points`, s^2 = |y| + y_1 and t^2 = |y| - y_1, its peak made 1."""
    s, t = points[:, None], points[None, :]
    length = (s**2 + t**2) / 2
    logs = (dimension - 2) * (np.log(s) + np.log(t)) + np.log(length) - (length + radius) ** 2 / 2
    return np.exp(logs - logs.max())


def _ball_weight(radius: float, dimension: int) -> float:
    """The blanket's weight: the integral of phi(|y| + radius), over |y| by Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(_LENGTHS)
    mode = (math.sqrt(radius**2 + 4 * (dimension - 1)) - radius) / 2
    low, high = max(0.0, mode - _REACH), mode + _REACH
    lengths = (low + high) / 2 + (high - low) / 2 * nodes
    logs = (dimension - 1) * np.log(lengths) - (lengths + radius) ** 2 / 2 + np.log(weights * (high - low) / 2)
    return math.exp(float(logsumexp(logs)) + (1 - dimension / 2) * math.log(2) - gammaln(dimension / 2))
