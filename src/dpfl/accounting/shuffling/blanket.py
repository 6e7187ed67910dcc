"""The privacy blanket of shuffled Gaussian reports: the part of their law that tells nothing about the input.

With noise of deviation 1 and inputs in a ball of radius a = mu/2 every report has at least the density
gamma w(y) = inf_x R_x(y) = phi(|y| + a). Reports drawn from w hide the one that differs: for m ~ Bin(n, gamma)
    delta(epsilon) <= E[(sum_{i<=m} L(W_i))_+] / (gamma n),   L = (R_x - e^epsilon R_x') / w,   W_i ~ w,
Balle, Bell, Gascon, Nissim 2019, Lemma 5.3. For the antipodal pair R_x/w = gamma e^{a (|y| + y_1)}, and
R_x'/w the same with -y_1. The sum's law is the n-fold convolution of "0, or L with probability gamma".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, ndtr

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import scalar, whole
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.profiles import composed_epsilon

Array = NDArray[np.float64]

_CELLS = 1 << 14
_LENGTHS = 256
_SIDE, _NODES = 768, 3
_NEGLIGIBLE = 1e-22  # share of the peak density below which a place is not looked at
_REACH = 12.0
_SMALLEST_LATTICE = 1 << 14
# Share of the sum's variance that the lattice may add, and the largest lattice, which may add more.
_COARSE, _FINE = (1e-3, 1 << 18), (1e-6, 1 << 21)
_CUT, _LOST = 1e-5, 1e-7  # shares of delta: what single reports above the cut add at most, and what wraps around
_EXPONENTS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_NO_BLANKET = 1e-3  # expected reports from the blanket below which there is nothing to hide among
_LEAST_DELTA = 1e-12
_HOPELESS = 20.0  # mu at which the blanket weighs less than 1e-22


class _Blanket(NamedTuple):
    """The blanket in cells: its weight gamma, and for each cell its mass (sum 1) with the mean, the least and the
    largest value of gamma R_x/w (`ours`) and of gamma R_x'/w (`theirs`) there."""

    weight: float
    masses: Array
    ours: tuple[Array, Array, Array]
    theirs: tuple[Array, Array, Array]

    def atoms(self, epsilon: float) -> tuple[Array, Array]:
        """Return values of L and their masses: each cell's law is spread to the ends of its range, keeping its mean.

        E[(sum L)_+] is convex in every L, so the spreading can only raise it: discretisation errs upwards.
        """
        factor = math.exp(epsilon)
        mean, low, high = (
            one - factor * other for one, other in zip(self.ours, (self.theirs[i] for i in (0, 2, 1)), strict=True)
        )
        share = np.clip((mean - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
        return np.concatenate([low, high]), np.concatenate([self.masses * (1 - share), self.masses * share])


def blanket_epsilon(
    n: ArrayLike, mu: ArrayLike, delta: ArrayLike, dimension: ArrayLike = 1
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `n` shuffled Gaussian reports, one round; arrays broadcast.

    `mu` >= 0 is the largest distance of two inputs over the noise's standard deviation (replacing one record
    clipped to C: 2C/sigma); inputs lie in a ball of that diameter in `dimension` >= 1; `n` >= 1 whole;
    `delta` in [1e-12, 1). Never above the local epsilon of G_mu, to which it falls back.
    Guarantee: (epsilon, delta)-DP under replace_one for whoever sees only the shuffled reports. Caveats: every
    client must add its noise and the shuffler be trusted; the antipodal pair of inputs is taken as the worst;
    all discretisation errs upwards, in delta by about 1e-5, and by up to 1e-3 where few reports hide the one.
    Source: Balle, Bell, Gascon, Nissim 2019, Lemma 5.3. Raises ValueError naming the argument.
    """

    def one(n: float, mu: float, delta: float, dimension: float) -> float:
        count, move, total, dim = _checked(n, mu, delta, dimension)
        local = float(gaussian_dp.epsilon(total, move))
        if local == 0 or move > _HOPELESS:
            return local
        blanket = _blanket(move / 2, dim)
        return local if count * blanket.weight < _NO_BLANKET else _solve(blanket, count, total, local)

    return elementwise(one, n=n, mu=mu, delta=delta, dimension=dimension)


def blanket_delta(
    epsilon: ArrayLike, n: ArrayLike, mu: ArrayLike, dimension: ArrayLike = 1
) -> float | NDArray[np.float64]:
    """Return the blanket's delta at `epsilon` >= 0, at most that of G_mu; arguments as for blanket_epsilon.

    Errs upwards as blanket_epsilon does, and by the rounding of the transform, 1e-9 and less.
    Raises ValueError naming the argument.
    """

    def one(epsilon: float, n: float, mu: float, dimension: float) -> float:
        count, move, _, dim = _checked(n, mu, 0.5, dimension)
        at = scalar("epsilon", epsilon, at_least=0)
        local = float(gaussian_dp.delta(at, move))
        if local == 0 or move > _HOPELESS:
            return local
        blanket = _blanket(move / 2, dim)
        if count * blanket.weight < _NO_BLANKET:
            return local
        found = local
        for _ in range(3):  # the better the size of the answer is known, the finer the lattice
            found = min(local, max(0.0, _delta(blanket, count, at, max(found, _LEAST_DELTA), _FINE)))
        return found

    return elementwise(one, epsilon=epsilon, n=n, mu=mu, dimension=dimension)


def blanket_rounds_epsilon(*, n: int, mu: float, rounds: int, delta: float, dimension: int = 1) -> float:
    """Return epsilon at `delta` of `rounds` >= 1 rounds, each with `n` freshly shuffled Gaussian reports.

    Composes the one-round curve of blanket_delta (adaptive rounds allowed), read at 97 points and joined by
    chords in e^epsilon, which lie above it. Arguments, guarantee and caveats: blanket_epsilon.
    Raises ValueError naming the argument.
    """
    count, move, total, dim = _checked(n, mu, delta, dimension)
    rounds = whole("rounds", rounds, at_least=1)
    largest = max(1e-3, float(blanket_epsilon(count, move, max(_LEAST_DELTA, 1e-3 * total / rounds), dim)))
    points = np.linspace(0.0, largest, 97)
    deltas = np.asarray(blanket_delta(points, count, move, dim))
    return min(
        composed_epsilon(
            lambda epsilon: np.interp(np.expm1(epsilon), np.expm1(points), deltas),
            largest=largest,
            steps=rounds,
            delta=total,
        ),
        float(gaussian_dp.epsilon(total, move * math.sqrt(rounds))),
    )


def _checked(n: float, mu: float, delta: float, dimension: float) -> tuple[int, float, float, int]:
    """The arguments, each in its range."""
    return (
        whole("n", n, at_least=1),
        scalar("mu", mu, at_least=0, at_most=100),
        scalar("delta", delta, at_least=_LEAST_DELTA, below=1),
        whole("dimension", dimension, at_least=1),
    )


@lru_cache(maxsize=8)
def _blanket(radius: float, dimension: int) -> _Blanket:
    """The blanket of inputs in a ball of that radius."""
    return _line(radius) if dimension == 1 else _ball(radius, dimension)


def _line(radius: float) -> _Blanket:
    """One dimension: intervals of y >= 0, where R_x/w varies and R_x'/w does not, and their mirror images."""
    edges = np.linspace(0.0, radius + _REACH, _CELLS + 1)
    weight = 2 * float(ndtr(-radius))
    masses = -np.diff(ndtr(-(edges + radius))) / weight
    means = -np.diff(ndtr(radius - edges)) / np.maximum(masses, 1e-300)
    ratio = weight * np.exp(2 * radius * edges)
    varies = (np.clip(means, ratio[:-1], ratio[1:]), ratio[:-1], ratio[1:])
    flat = (np.full(_CELLS, weight),) * 3
    halves = ((varies, flat), (flat, varies))
    ours, theirs = (tuple(np.concatenate(pair) for pair in zip(*half, strict=True)) for half in halves)
    masses = np.concatenate([masses, masses])
    return _Blanket(weight, masses / masses.sum(), ours, theirs)


def _ball(radius: float, dimension: int) -> _Blanket:
    """More dimensions, in rectangles of sqrt(|y| + y_1) and sqrt(|y| - y_1): there the density is smooth.

    R_x/w grows with the first alone and R_x'/w with the second alone. Masses and means are by Gauss-Legendre
    quadrature inside every rectangle.
    """
    widest = math.sqrt(math.sqrt(dimension) + 2 * (radius + _REACH))
    points = np.linspace(0.0, widest, _SIDE)[1:]
    blanket = _density(points, radius, dimension)
    report = blanket * np.exp(radius * (points**2 - widest**2))  # R_x, up to a factor: it reaches further
    seen = np.flatnonzero((blanket.max(axis=0) > _NEGLIGIBLE) | (report.max(axis=0) > _NEGLIGIBLE * report.max())) + 1
    edges = np.linspace(max(seen[0] - 1, 0), min(seen[-1] + 1, _SIDE - 1), _SIDE + 1) * (widest / (_SIDE - 1))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    points = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    density = _density(points, radius, dimension) * np.outer(np.tile(weights, _SIDE), np.tile(weights, _SIDE))
    weight = _ball_weight(radius, dimension)
    values, ends = weight * np.exp(radius * points**2), weight * np.exp(radius * edges**2)

    def cells(numbers: Array) -> Array:
        return numbers.reshape(_SIDE, _NODES, _SIDE, _NODES).sum(axis=(1, 3)).ravel()

    masses = cells(density)
    safe = np.maximum(masses, 1e-300)
    first, second = np.repeat(np.arange(_SIDE), _SIDE), np.tile(np.arange(_SIDE), _SIDE)
    ours, theirs = (
        (np.clip(cells(density * factor) / safe, ends[:-1][place], ends[1:][place]), ends[:-1][place], ends[1:][place])
        for factor, place in ((values[:, None], first), (values[None, :], second))
    )
    return _Blanket(weight, masses / masses.sum(), ours, theirs)


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


def _solve(blanket: _Blanket, n: int, delta: float, local: float) -> float:
    """The epsilon in [0, local] where the bound is `delta`: searched on a coarse lattice, mended by a fine one."""

    def coarse(epsilon: float) -> float:
        return math.log(max(_delta(blanket, n, epsilon, delta, _COARSE), 1e-300) / delta)

    if coarse(local) > 0:
        return local
    if coarse(0.0) <= 0:
        return 0.0
    epsilon = brentq(coarse, 0.0, local, xtol=1e-12, rtol=1e-6)
    slope = (coarse(epsilon * 1.001) - coarse(epsilon)) / (epsilon * 0.001)
    for _ in range(10):
        error = math.log(max(_delta(blanket, n, epsilon, delta, _FINE), 1e-300) / delta)
        if -1e-7 <= error <= 0:
            break
        epsilon = min(local, max(0.0, epsilon - (error + 5e-8) / slope))
    return epsilon


def _delta(blanket: _Blanket, n: int, epsilon: float, scale: float, lattice: tuple[float, int]) -> float:
    """The bound at `epsilon`, to a relative error of 1e-5 where it is about `scale`, plus what spreading adds."""
    values, masses = blanket.atoms(epsilon)
    masses = blanket.weight * masses
    # One report below -floor already keeps the sum from being positive: clipping there changes next to nothing, and
    # raises the bound. What a report has above `top` is added as it stands, which raises it too.
    top = _cut(blanket.ours[2], blanket.masses, _CUT * scale)
    wander = math.sqrt(n * blanket.weight * float(blanket.masses @ (blanket.ours[0] - blanket.theirs[0]) ** 2))
    floor = min(2 * top + _REACH * wander, max(n - 1, 1) * top)
    beyond = n * float(masses @ np.maximum(values - top, 0.0))
    values = np.clip(values, -floor, top)
    lost = _LOST * scale * blanket.weight * n
    reach = max(_tail(-values, masses, n, floor, lost), _tail(values, masses, n, top, lost))
    tolerance, largest = lattice
    step = math.sqrt(float(masses @ values**2) * 6 * tolerance)
    size = int(np.clip(2.0 ** math.ceil(math.log2(2 * reach / step)), _SMALLEST_LATTICE, largest))
    step = 2 * reach / size
    law = _on_lattice(values / step, masses, size)
    total = np.fft.irfft(np.exp(n * np.log(np.fft.rfft(law))), size)
    mean_gain = float(np.arange(1, size // 2) @ total[1 : size // 2]) * step
    rounding = 64 * n * np.finfo(float).eps * float(np.linalg.norm(total)) * reach
    return (mean_gain + beyond + rounding) / (blanket.weight * n)


def _tail(values: Array, masses: Array, n: int, largest: float, lost: float) -> float:
    """A length that the n-fold sum of `values` <= `largest` exceeds so rarely that, wrapped around the lattice, the
    excess weighs less than `lost`: Chernoff's bound, at its best over a few exponents."""
    moments = [(k, n * math.log1p(float(masses @ np.expm1(k / largest * values)))) for k in _EXPONENTS]
    reach = largest
    for _ in range(3):  # the weight grows with the length, which enters by its logarithm alone
        budget = math.log(max(2 * reach / lost, 2.0))
        reach = max(1.0, min((moment + budget) / k for k, moment in moments)) * largest
    return min(reach, n * largest)


def _cut(ours: Array, masses: Array, lost: float) -> float:
    """The value of R_x/w above which R_x has no more than `lost`."""
    order = np.argsort(ours)
    above = np.cumsum((ours * masses)[order][::-1])[::-1]
    return float(ours[order[min(np.searchsorted(-above, -lost), ours.size - 1)]])


def _on_lattice(values: Array, masses: Array, size: int) -> Array:
    """Put each mass on the two whole numbers around its value, keeping its mean; the rest of 1 sits at 0.

    Spreading a value so can only raise E[(sum)_+]. Negative numbers are stored modulo `size`.
    """
    floor = np.floor(values)
    upper = masses * (values - floor)
    index = floor.astype(np.int64)
    law = np.bincount(index % size, masses - upper, size) + np.bincount((index + 1) % size, upper, size)
    law[0] += 1 - law.sum()
    return law
