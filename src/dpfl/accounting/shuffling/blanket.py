"""The privacy blanket of shuffled Gaussian reports: the part of their law that tells nothing about the input.

With noise of deviation 1 and inputs in a ball of radius a = mu/2 every report has at least the density
gamma w(y) = inf_x R_x(y) = phi(|y| + a). Reports drawn from w hide the one that differs: for m ~ Bin(n, gamma)
    delta(epsilon) <= E[(sum_{i<=m} L(W_i))_+] / (gamma n),   L = (R_x - e^epsilon R_x') / w,   W_i ~ w,
Balle, Bell, Gascon, Nissim 2019, Lemma 5.3. For the antipodal pair R_x/w = gamma e^{a (|y| + y_1)}, and
R_x'/w the same with -y_1. The sum's law is the n-fold convolution of "0, or L with probability gamma".
"""

from __future__ import annotations

import math
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
_LENGTHS, _ANGLES = 96, 512
_REACH = 12.0
_LATTICE = (1 << 14, 1 << 21)
_COARSE, _FINE = 1e-3, 1e-6  # share of the sum's variance that the lattice may add
_LOST = 1e-7
_NO_BLANKET = 1e-3  # expected reports from the blanket below which there is nothing to hide among
_LEAST_DELTA = 1e-12
_HOPELESS = 20.0  # mu at which the blanket weighs less than 1e-22


class _Blanket(NamedTuple):
    """The blanket as atoms: its weight gamma, the atoms' masses (sum 1), and gamma R_x/w, gamma R_x'/w there."""

    weight: float
    masses: Array
    ours: Array
    theirs: Array


def blanket_epsilon(
    n: ArrayLike, mu: ArrayLike, delta: ArrayLike, dimension: ArrayLike = 1
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `n` shuffled Gaussian reports, one round; arrays broadcast.

    `mu` >= 0 is the largest distance of two inputs over the noise's standard deviation (replacing one record
    clipped to C: 2C/sigma); inputs lie in a ball of that diameter in `dimension` >= 1; `n` >= 1 whole;
    `delta` in [1e-12, 1). Never above the local epsilon of G_mu, to which it falls back.
    Guarantee: (epsilon, delta)-DP under replace_one for whoever sees only the shuffled reports. Caveats: every
    client must add its noise and the shuffler be trusted; the antipodal pair of inputs is taken as the worst;
    in one dimension all discretisation errs upwards (1e-6), in more the blanket is integrated by quadrature
    (relative error up to 1e-4 where fewer than about ten reports come from the blanket).
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

    Relative error up to 1e-5 and absolute 1e-13, upwards. Raises ValueError naming the argument.
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


def _blanket(radius: float, dimension: int) -> _Blanket:
    """The blanket of inputs in a ball of that radius."""
    return _line(radius) if dimension == 1 else _ball(radius, dimension)


def _line(radius: float) -> _Blanket:
    """One dimension, in cells: each cell's mass goes to its ends so that its mean of R_x/w (or R_x'/w) stays."""
    edges = np.linspace(0.0, radius + _REACH, _CELLS + 1)
    weight = 2 * float(ndtr(-radius))
    # Left of 0 is the mirror image: there R_x'/w does what R_x/w does here.
    masses = -np.diff(ndtr(-(edges + radius))) / weight
    means = -np.diff(ndtr(radius - edges))  # of gamma-weighted R_x/w over the cell, times its mass
    ratio = weight * np.exp(2 * radius * edges)
    upper = np.clip((means - ratio[:-1] * masses) / np.maximum(np.diff(ratio), 1e-300), 0.0, masses)
    half = np.zeros(_CELLS + 1)
    half[1:] += upper
    half[:-1] += masses - upper
    half[0] += 0.5 - half.sum()
    flat = np.full(_CELLS + 1, weight)
    return _Blanket(weight, np.concatenate([half, half]), np.concatenate([ratio, flat]), np.concatenate([flat, ratio]))


def _ball(radius: float, dimension: int) -> _Blanket:
    """More dimensions, by Gauss-Legendre quadrature over |y| and the angle between y and the pair's axis."""
    nodes, weights = np.polynomial.legendre.leggauss(_LENGTHS)
    mode = (math.sqrt(radius**2 + 4 * (dimension - 1)) - radius) / 2
    low, high = max(0.0, mode - _REACH), math.sqrt(dimension) + radius + _REACH
    lengths = (low + high) / 2 + (high - low) / 2 * nodes
    log_length = (dimension - 1) * np.log(lengths) - (lengths + radius) ** 2 / 2 + np.log(weights * (high - low) / 2)
    log_length += (1 - dimension / 2) * math.log(2) - gammaln(dimension / 2)
    widest = math.asin(min(1.0, (radius + _REACH) / math.sqrt(dimension)))
    nodes, weights = np.polynomial.legendre.leggauss(_ANGLES)
    angles = math.pi / 2 + widest * nodes
    log_angle = (dimension - 2) * np.log(np.sin(angles)) + np.log(weights)
    log_weight = float(logsumexp(log_length))
    masses = np.outer(np.exp(log_length - log_length.max()), np.exp(log_angle - log_angle.max()))
    axis = lengths[:, None] * np.cos(angles)
    ours, theirs = (np.exp(log_weight + radius * (lengths[:, None] + sign * axis)) for sign in (1, -1))
    return _Blanket(math.exp(log_weight), masses.ravel() / masses.sum(), ours.ravel(), theirs.ravel())


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


def _delta(blanket: _Blanket, n: int, epsilon: float, scale: float, tolerance: float) -> float:
    """The bound at `epsilon`, to a relative error of 1e-7 where it is about `scale`, plus the lattice's spread."""
    masses = blanket.weight * blanket.masses
    values = blanket.ours - math.exp(epsilon) * blanket.theirs
    # One report below -floor already keeps the sum from being positive: clipping there changes (and lowers) nothing.
    wander = math.sqrt(n * float(masses @ (blanket.ours - blanket.theirs) ** 2))
    floor = 2 * _cut(blanket.ours, blanket.masses, _LOST * scale) + _REACH * wander
    values = np.maximum(values, -floor)
    deviation = math.sqrt(n * float(masses @ values**2))
    reach = n * abs(float(masses @ values)) + _REACH * deviation + floor
    step = deviation / math.sqrt(n) * math.sqrt(6 * tolerance)
    size = int(np.clip(2.0 ** math.ceil(math.log2(2 * reach / step)), *_LATTICE))
    step = 2 * reach / size
    beyond = n * float(masses @ np.maximum(values - reach, 0.0))  # what the lattice cuts off is added as it stands
    law = _on_lattice(np.minimum(values, reach - 2 * step) / step, masses, size)
    total = np.fft.irfft(np.exp(n * np.log(np.fft.rfft(law))), size)
    mean_gain = float(np.arange(1, size // 2) @ total[1 : size // 2]) * step
    return (mean_gain + beyond) / (blanket.weight * n)


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
