"""Privacy by shuffling: the blanket, clones, and the noise of shuffled rounds (lowy2021, Theorem 4.1).

Privacy gained when a trusted shuffler permutes the clients' reports before anyone reads them. The clones bound any
local randomiser by its epsilon alone, and the blanket bounds a Gaussian one by its whole law. The published closed
forms come last, with their conditions.

E[(X_1 + ... + X_n)_+] of independent copies of a discrete law, by convolution, erring upwards. The mean of a convex
function can only grow when values are spread to their neighbours on a grid, keeping their mean: every discretisation
here is such a spreading. Heavy tails would need a grid both wide and fine. So the few values beyond a threshold are
taken apart, and the sum is over how many of them occur; and a sum of many values is built from blocks, on a grid that
grows coarser with them.

The privacy blanket of shuffled Gaussian reports: the part of their law that is independent of the input. With noise of
deviation 1 and inputs in a ball of radius a = mu/2 every report has at least the density gamma w(y) = inf_x R_x(y) =
phi(|y| + a). Reports drawn from w hide the one that differs: for m ~ Bin(n, gamma)

    delta(epsilon) <= E[(sum_{i<=m} L(W_i))_+] / (gamma n),   L = (R_x - e^epsilon R_x') / w,   W_i ~ w,

balle2019, Lemma 5.3. For the antipodal pair R_x/w = gamma e^{a (|y| + y_1)}, and R_x'/w the same with -y_1. The sum's
law is the n-fold convolution of "0, or L with probability gamma".

A message is the mean of the gradients of a client's n records. Replacing one record moves it by 2/z deviations, z =
sigma n / L, but the messages of all clients lie in a ball of radius n/z: the others may be far away, and then hide
nothing. So the blanket has to lie below every message of that ball. The pair's middle is at most sqrt(n^2 - 1)/z from
the ball's: if its ends are the vectors x and x', |x|^2 + |x'|^2 = 2 |middle|^2 + 2/z^2 <= 2 (n/z)^2. The ball of radius
rho = (n + sqrt(n^2 - 1))/z around the pair's middle has all messages, and w(y) ~ phi(|y| + rho) around it is below
them, wherever the pair lies. Then R_x/w = gamma e^{(rho^2 - a^2)/2 + rho |y| + a y_1} with a = 1/z; n = 1 is the
antipodal pair.

Shuffled noisy minibatch SGD (lowy2021, Theorem 4.1): how little noise clients need behind a trusted shuffler. The
server takes the mean of the messages, which a permutation does not change: the run is that of noisy minibatch SGD
(dpfl.convex.minibatch_sgd), and only its noise differs. The paper leaves the constant of its noise open; here the noise
is calibrated by the blanket of the other clients' messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import fftshift, ifftshift, irfft, rfft
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp, ndtr
from scipy.stats import binom

from dpfl.accounting import gaussian_dp
from dpfl.accounting.numerics import (
    Array,
    binned,
    by_element,
    integer,
    integers,
    least_noise,
    real,
    reals,
    require_at_most,
    zero_between,
)
from dpfl.accounting.privacy_profiles import composed_epsilon

# Privacy gained when a trusted shuffler permutes the clients' reports before anyone reads them.

__all__ = [
    "blanket_delta",
    "blanket_epsilon",
    "blanket_rounds_epsilon",
    "clones_delta",
    "clones_epsilon",
    "restricted_clones_epsilon",
]


# E[(X_1 + ... + X_n)_+] of independent copies of a discrete law, by convolution, erring upwards.

Law = tuple[Array, Array]  # values and their masses

_LARGE_EXPECTED = 0.03  # how many of the n values are large, on average, at most
_MOST_LARGE = 8  # this many are handled separately; more have a chance below 1e-19
_NEGLIGIBLE = 1e-10  # share of the answer that ends the sum over the number of large values
_FELT = 1e-6  # share of the answer from which on the rounding is worth another transform
_SMALLEST_LATTICE = 1 << 14
_BLOCK = 64  # values of a first block
_FEW = 500  # places on each side of 0 where a law is wanted for its moments alone
_EXPONENTS = np.geomspace(1e-4, 16.0, 24)
_TILTS = np.geomspace(1e-4, 32.0, 36)
_ROUNDING = 16 * np.finfo(float).eps  # of a transform's n-th power, over n; measured to be half of it and less


class Fineness(NamedTuple):
    """The share of a value's variance that a lattice may add, the places that it may have for it, and the places on
    each side of 0 for sums of several large values.
    Source: derived; see the module.
    """

    share: float
    places: int
    growing: int


class _Lattice(NamedTuple):
    """The multiples of `step`, `size` of them around 0; laws on it are stored modulo `size`."""

    step: float
    size: int

    def spread(self, law: Law, rest: float) -> Array:
        """Return the law on the lattice, with `rest` at 0."""
        places = law[0] / self.step
        floor = np.floor(places)
        upper = law[1] * (places - floor)
        index = floor.astype(np.int64)
        masses = binned(index % self.size, law[1] - upper, self.size)
        masses += binned((index + 1) % self.size, upper, self.size)
        masses[0] += rest
        return masses

    def gains(self, masses: Array, shifts: Array) -> Array:
        """Return E[(A + shift)_+] of A on the lattice: linear in the shift between places, so exact."""
        above = np.cumsum(fftshift(masses)[::-1])[::-1]
        gains = np.append(self.step * np.cumsum(above[:0:-1])[::-1], 0.0)
        position = self.size // 2 - shifts / self.step
        index = np.clip(np.floor(position), 0, self.size - 2).astype(np.int64)
        slope = np.where(position < 0, -self.step * above[0], gains[index + 1] - gains[index])
        return np.where(position > self.size - 1, 0.0, gains[index] + (position - index) * slope)

    def rounding(self, masses: Array, n: int) -> float:
        """Bound the error of E[(A)_+] from the rounding of the transforms behind an n-fold sum."""
        return _ROUNDING * n * float(np.linalg.norm(masses)) * self.step * self.size / 2


def positive_part(values: Array, masses: Array, n: int, *, negligible: float, fineness: Fineness) -> float:
    """Return E[(X_1 + ... + X_n)_+] where X takes `values` with `masses` and is 0 otherwise; errs upwards.

    values, masses: shape (k,), the masses above 0 and of sum at most 1; `n` >= 1. What the lattice cuts off the
    far ends of a sum weighs less than `negligible`; a bound on the rounding of the transforms is added.
    Source: derived; see the module.
    """
    threshold = _threshold(values, masses, n)
    beyond = np.abs(values) > threshold
    few, large = (values[~beyond], masses[~beyond]), (values[beyond], masses[beyond])
    most = min(n, _MOST_LARGE) if large[0].size else 0
    lattice, levels = _lattice(few, n, threshold, negligible, fineness)
    rest = 1 - float(masses.sum())
    total = sum(_tilted(lattice, levels, few, n, threshold, rest).gain())
    if most == 0:
        return total
    bulk, one = _transforms(lattice, levels, few, n - most, rest)
    tilted = None
    sums, combinations = large, float(n)
    for count in range(1, most + 1):
        law = np.asarray(irfft(bulk * _power(one, most - count), lattice.size))
        rounding = lattice.rounding(law, n)
        term = combinations * float(sums[1] @ lattice.gains(law, sums[0]) + sums[1].sum() * rounding)
        if combinations * float(sums[1].sum()) * rounding > _FELT * (total + term):
            tilted = tilted or _tilted(lattice, levels, few, n - most, threshold, rest)
            term = combinations * float(sums[1] @ tilted.least_gains(most - count, law, sums[0], n))
        total += term
        if term < _NEGLIGIBLE * total:
            return total + term  # each of the terms left out is less than half of the one before
        sums, combinations = _plus(sums, large, threshold, fineness.growing), combinations * (n - count) / (count + 1)
    return total


def _threshold(values: Array, masses: Array, n: int) -> float:
    """The power of 2 beyond which, of n values, no more than _LARGE_EXPECTED are to be expected."""
    exponents = np.frexp(values)[1]
    lowest = int(exponents.min())
    above = np.cumsum(np.bincount(exponents - lowest, masses)[::-1])[::-1]
    return 2.0 ** (lowest + int(np.searchsorted(-above, -_LARGE_EXPECTED / n)) - 1)


def _lattice(law: Law, n: int, largest: float, negligible: float, fineness: Fineness) -> tuple[_Lattice, int]:
    """The lattice of the n-fold sum and how often its step may be halved on the way there.

    A halved step halves the length too, on which sums of n/4 values must find room, for n/16 a quarter and so on.
    """
    few = _on_growing_steps(law, largest, _FEW)  # spread: no moment is less
    moments = np.array(
        [[math.log1p(float(few[1] @ np.expm1(k / largest * few[0]))) for k in sign * _EXPONENTS] for sign in (1, -1)]
    )
    reach, levels = _tail(moments, n, largest, negligible), 0
    widest = 2 * reach
    while n >> 2 * (levels + 1) >= _BLOCK:
        needed = 2 ** (levels + 1) * _tail(moments, n >> 2 * (levels + 1), largest, negligible * 4.0 ** -(levels + 1))
        if needed > widest:
            break
        reach, levels = max(reach, needed), levels + 1
    step = 2**levels * math.sqrt(float(law[1] @ law[0] ** 2) * 6 * fineness.share)
    step = max(step, 2 * reach / fineness.places)  # 0 where all values are large
    if reach - step < n * float(np.abs(law[0]).max(initial=0.0)) <= reach:
        reach += 2 * step  # a sum of the largest values would be at the end, and wrap around
    size = int(np.clip(2.0 ** math.ceil(math.log2(2 * reach / step)), _SMALLEST_LATTICE, fineness.places))
    return _Lattice(2 * reach / size, size), levels


def _tail(moments: Array, n: int, largest: float, lost: float) -> float:
    """A length that the n-fold sum, up or down, exceeds so rarely that the excess, wrapped around the lattice, weighs
    less than `lost`: Chernoff's bound, at its best over the exponents. No value is above `largest`.

    moments: ln E[e^(k X/largest)] at the exponents k, a row for X and one for -X.
    """
    reach = largest
    for _ in range(3):  # the weight grows with the length, which enters by its logarithm alone
        budget = math.log(max(2 * reach / lost, 2.0))
        reach = max(1.0, float(((n * moments + budget) / _EXPONENTS).min(axis=1).max())) * largest
    return min(reach, n * largest)


class _TiltedSum(NamedTuple):
    """The transforms of a sum of `n` values and of one value, each value's mass times e^(tilt x - log_mass)."""

    lattice: _Lattice
    n: int
    tilt: float
    log_mass: float
    bulk: Array
    one: Array

    def gain(self) -> tuple[float, float]:
        """Return E[(A)_+] of the n-fold sum A, and a bound on its rounding."""
        masses = np.asarray(irfft(self.bulk, self.lattice.size))
        places = self.lattice.step * np.arange(self.lattice.size // 2)
        gains = places * np.exp(self.n * self.log_mass - self.tilt * places)
        rounding = _ROUNDING * self.n * float(np.linalg.norm(masses)) * float(gains.max())
        return max(0.0, float(gains @ masses[: gains.size])), rounding

    def least_gains(self, more: int, law: Array, shifts: Array, values: int) -> Array:
        """Return E[(A + shift)_+] with the rounding of transforms of `values` values in all.

        A sums `more` values besides the n, and `law` is its law without the tilt. What is far below 0 is read from the
        tilted law, where its rounding is small too; the rest from `law`.
        """
        plain = self.lattice.gains(law, shifts) + self.lattice.rounding(law, values)
        below = shifts < 0
        masses = np.asarray(irfft(self.bulk * _power(self.one, more), self.lattice.size))
        log_mass, half = (self.n + more) * self.log_mass, self.lattice.size // 2
        upper = np.zeros(self.lattice.size)
        upper[:half] = masses[:half] * np.exp(log_mass - self.tilt * self.lattice.step * np.arange(half))
        # The largest of (a + shift) e^(-tilt a) over all a is at a = 1/tilt - shift.
        largest = np.exp(log_mass + self.tilt * shifts[below] - 1) / self.tilt
        rounding = _ROUNDING * values * float(np.linalg.norm(masses)) * largest
        plain[below] = np.minimum(plain[below], np.maximum(self.lattice.gains(upper, shifts[below]), 0.0) + rounding)
        return plain


def _tilted(lattice: _Lattice, levels: int, law: Law, n: int, largest: float, rest: float) -> _TiltedSum:
    """The n-fold sum of that law by the law times e^(tilt x).

    Under the best tilt the sum is about 0, so that what is small without it is as exact as the rest.
    """
    few = _on_growing_steps(law, largest, _FEW)
    tilt = min(_TILTS, key=lambda k: rest + float(few[1] @ np.exp(k / largest * few[0]))) / largest
    log_mass = math.log(rest + float(law[1] @ np.exp(tilt * law[0])))
    return _TiltedSum(lattice, n, tilt, log_mass, *_transforms(lattice, levels, law, n, rest, tilt, log_mass))


def _transforms(
    lattice: _Lattice, levels: int, law: Law, n: int, rest: float, tilt: float = 0.0, log_mass: float = 0.0
) -> tuple[Array, Array]:
    """The transforms of the n-fold sum and of a single value, all masses times e^(tilt x - log_mass) a value.

    By the digits of n to base 16 (the last to base 4 where `levels` is odd), each block of values on its own step.
    """
    ahead = levels
    for level in (*range(levels, 0, -2), 0):
        finer = _Lattice(lattice.step / 2**level, lattice.size)
        places = finer.step * ifftshift(np.arange(-(finer.size // 2), finer.size // 2))
        one = np.asarray(rfft(finer.spread(law, rest) * np.exp(np.minimum(tilt * places, 700.0) - log_mass)))
        if level == levels:
            bulk = _power(one, n >> 2 * level)
            continue
        masses, block = np.asarray(irfft(bulk, lattice.size)), 4 ** (ahead - level)
        for halvings in range(ahead, level, -1):
            masses = _on_double_step(masses, math.exp(tilt * lattice.step / 2**halvings))
        bulk = _power(np.asarray(rfft(masses)), block) * _power(one, (n >> 2 * level) & (block - 1))
        ahead = level
    return bulk, one


def _on_double_step(masses: Array, growth: float) -> Array:
    """The law on every second place, over twice the length: odd places go by halves to both neighbours.

    `growth` is what the tilt adds from one place to the next.
    """
    size = masses.size
    ordered = fftshift(masses)
    even, odd = ordered[::2], ordered[1::2]
    wider = np.zeros(size)
    wider[: size // 2] = even + odd / 2 / growth
    wider[1 : size // 2 + 1] += odd / 2 * growth
    return np.roll(wider, -(size // 4))


def _power(transform: Array, n: int) -> Array:
    """The n-th power by squaring, which works for zeros, unlike exp(n log)."""
    result = np.ones_like(transform)
    while n:
        if n & 1:
            result = result * transform
        transform, n = (transform * transform, n >> 1) if n > 1 else (transform, 0)
    return result


def _plus(sums: Law, large: Law, threshold: float, side: int) -> Law:
    """The law of one more large value added, on a grid whose steps grow with the distance from 0."""
    first, second = _on_growing_steps(sums, threshold, side), _on_growing_steps(large, threshold, side)
    values, masses = np.add.outer(first[0], second[0]).ravel(), np.outer(first[1], second[1]).ravel()
    return _on_growing_steps((values, masses), threshold, side)


def _on_growing_steps(law: Law, threshold: float, side: int) -> Law:
    """The law spread to the places `threshold`/4 sinh(x), `side` of them evenly spaced in x on each side of 0."""
    scale = threshold / 4
    widest = math.asinh(float(np.abs(law[0]).max(initial=0.0)) / scale) * (1 + 1e-9) or 1.0
    places = scale * np.sinh(np.linspace(-widest, widest, 2 * side + 1))
    index = np.clip(np.searchsorted(places, law[0], side="right") - 1, 0, 2 * side - 1)
    upper = law[1] * (law[0] - places[index]) / (places[index + 1] - places[index])
    masses = binned(index, law[1] - upper, places.size) + binned(index + 1, upper, places.size)
    return places[masses > 0], masses[masses > 0]


# The blanket of Gaussian reports as nodes of a quadrature: where it may be, and the two likelihood ratios there.

_CELLS = 1 << 15  # of y >= 0 in one dimension
_SIDE, _NODES = 160, 4  # cells on each side of the rectangle in more, and nodes of Gauss-Legendre quadrature in each
_LENGTHS = 256
_LOOKED_AT = 1000
_NEGLIGIBLE_DENSITY = 1e-22  # share of the peak density below which a place is not looked at
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
def blanket_law(radius: float, dimension: int, half: float | None = None) -> Blanket:
    """Return the blanket of inputs in a ball of `radius` >= 0 in `dimension` >= 1, noise of deviation 1.

    The pair lies at distance `half` <= radius on both sides of the ball's middle; None: at its ends, antipodal. A
    pair inside in one dimension is taken in two, of which a report's first coordinate is a part.
    Source: balle2019, section 5.
    """
    if half is None or half == radius:
        return _line(radius) if dimension == 1 else _ball(radius, radius, dimension)
    return _ball(radius, half, max(dimension, 2))


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


def _ball(radius: float, half: float, dimension: int) -> Blanket:
    """More dimensions, at s = sqrt(|y| + y_1) and t = sqrt(|y| - y_1): there the density is smooth.

    R_x/w grows with (radius + half) s^2 / 2 + (radius - half) t^2 / 2, R_x'/w the same with s and t exchanged.
    """
    widest = math.sqrt(math.sqrt(dimension) + 2 * (radius + _REACH))
    points = np.linspace(0.0, widest, _LOOKED_AT)[1:]
    blanket = _density(points, radius, dimension)
    report = blanket * np.exp(_exponent(points, radius, half) - radius * widest**2)  # R_x, up to a factor
    seen = report > _NEGLIGIBLE_DENSITY * report.max()  # it reaches further than the blanket
    support = np.flatnonzero((blanket.max(axis=0) > _NEGLIGIBLE_DENSITY) | seen.any(axis=0) | seen.any(axis=1))
    ends = points[[max(support[0] - 1, 0), min(support[-1] + 1, points.size - 1)]] * (support[0] > 0, 1)
    points, weights = _quadrature(np.linspace(ends[0], ends[1], _SIDE + 1))
    masses = (_density(points, radius, dimension) * np.outer(weights, weights)).ravel()
    weight = _ball_weight(radius, dimension)
    ratio = weight * np.exp((radius**2 - half**2) / 2 + _exponent(points, radius, half))
    ours, theirs = ratio.ravel(), ratio.T.ravel()
    met = masses * np.maximum(ours, 1.0) > _NEGLIGIBLE_DENSITY * masses.max()
    masses, ours, theirs = masses[met], ours[met], theirs[met]
    return Blanket(weight, masses / masses.sum(), ours, theirs)


def _exponent(points: Array, radius: float, half: float) -> Array:
    """radius |y| + half y_1 at (s, t) = `points` x `points`."""
    squares = points**2 / 2
    return (radius + half) * squares[:, None] + (radius - half) * squares[None, :]


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
    return math.exp(float(np.asarray(logsumexp(logs))) + (1 - dimension / 2) * math.log(2) - gammaln(dimension / 2))


# The privacy blanket of shuffled Gaussian reports: the part of their law that is independent of the input.

# A coarse lattice for the search and a fine one for what it finds.
_COARSE, _FINE = Fineness(1e-5, 1 << 15, 60), Fineness(4e-7, 1 << 18, 400)
_CUT, _LOST = 1e-7, 1e-9  # shares of delta: what single reports above the cut add at most, and what wraps around
_MARGIN = 1e-6  # share of delta added for the error of the quadrature over the blanket, which is below it
_DRIFTS = 12.0
_NO_BLANKET = 1e-3  # expected reports from the blanket below which there is nothing to hide among
_LEAST_DELTA = 1e-12
_HOPELESS = 20.0  # mu at which the blanket weighs less than 1e-22


def blanket_epsilon(
    n: ArrayLike, mu: ArrayLike, delta: ArrayLike, dimension: ArrayLike = 1
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `n` shuffled Gaussian reports, one round; arrays broadcast.

    `mu` >= 0 is the largest distance of two inputs over the noise's standard deviation (replacing one record
    clipped to C: 2C/sigma); inputs are in a ball of that diameter in `dimension` >= 1; integer `n` >= 1;
    `delta` in [1e-12, 1). Never above the local epsilon of G_mu, to which it falls back.
    Guarantee: (epsilon, delta)-DP under replace_one against an observer of only the shuffled reports. Caveats: every
    client must add its noise and the shuffler be trusted; the antipodal pair of inputs is taken as the worst;
    all discretisation errs upwards, in epsilon by some 1e-6 of it, and by up to 1e-4 (3e-3 below delta = 1e-9)
    where few reports from the blanket have to hide one and tails are heavy.
    Source: balle2019, Lemma 5.3. Raises ValueError naming the argument.
    """

    def one(n: float, mu: float, delta: float, dimension: float) -> float:
        count, move, total, dim = _checked(n, mu, delta, dimension)
        return _one_round(count, move, move / 2, total, dim)

    return by_element(one, n=n, mu=mu, delta=delta, dimension=dimension)


def _one_round(n: int, mu: float, radius: float, delta: float, dimension: int) -> float:
    """The epsilon of one round at `delta`: a pair `mu` apart in the middle of a ball of `radius` of all inputs."""
    local = float(gaussian_dp.epsilon(delta, mu))
    if local == 0 or _has_no_blanket(n, radius, dimension, mu / 2):
        return local
    return _solve(n, mu, radius, delta, dimension, local)


def _has_no_blanket(n: int, radius: float, dimension: int, half: float) -> bool:
    """Whether there is next to nothing to hide among."""
    return 2 * radius > _HOPELESS or n * blanket_law(radius, dimension, half).weight < _NO_BLANKET


def blanket_delta(
    epsilon: ArrayLike, n: ArrayLike, mu: ArrayLike, dimension: ArrayLike = 1
) -> float | NDArray[np.float64]:
    """Return the blanket's delta at `epsilon` >= 0, at most that of G_mu; arguments as for blanket_epsilon.

    Errs upwards as blanket_epsilon does; the rounding of the transforms is part of it.
    Raises ValueError naming the argument. Guarantee and caveats: those of blanket_epsilon. Source: balle2019, Lemma
    5.3.
    """

    def one(epsilon: float, n: float, mu: float, dimension: float) -> float:
        count, move, _, dim = _checked(n, mu, 0.5, dimension)
        epsilon = real("epsilon", epsilon, at_least=0)
        return _delta(epsilon, count, move, move / 2, dim, (_COARSE, _COARSE, _FINE))

    return by_element(one, epsilon=epsilon, n=n, mu=mu, dimension=dimension)


def blanket_rounds_epsilon(*, n: int, mu: float, rounds: int, delta: float, dimension: int = 1) -> float:
    """Return epsilon at `delta` of `rounds` >= 1 rounds, each with `n` freshly shuffled Gaussian reports.

    Composes the one-round curve of blanket_delta (adaptive rounds allowed), on a coarser lattice, read at 97 points
    and joined by chords in e^epsilon, which are above it. Arguments, guarantee and caveats: blanket_epsilon.
    Raises ValueError naming the argument.
    Source: balle2019, Lemma 5.3, composed as in zhu2022.
    """
    count, move, total, dim = _checked(n, mu, delta, dimension)
    rounds = integer("rounds", rounds, at_least=1)
    largest = max(1e-3, float(blanket_epsilon(count, move, max(_LEAST_DELTA, 1e-3 * total / rounds), dim)))
    points = np.linspace(0.0, largest, 97)
    deltas = np.array([_delta(float(point), count, move, move / 2, dim, (_COARSE, _COARSE)) for point in points])
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
        integer("n", n, at_least=1),
        real("mu", mu, at_least=0, at_most=100),
        real("delta", delta, at_least=_LEAST_DELTA, below=1),
        integer("dimension", dimension, at_least=1),
    )


def _delta(epsilon: float, n: int, mu: float, radius: float, dimension: int, lattices: Sequence[Fineness]) -> float:
    """The bound at `epsilon`, on one lattice after the other: how small to cut depends on the size of the answer."""
    local = float(gaussian_dp.delta(epsilon, mu))
    if local == 0 or _has_no_blanket(n, radius, dimension, mu / 2):
        return local
    estimate = local
    for fineness in lattices:
        bound, _ = _bound(n, mu, radius, dimension, max(estimate, _LEAST_DELTA))
        estimate = min(local, max(0.0, bound(epsilon, fineness)))
    return estimate


def _solve(n: int, mu: float, radius: float, delta: float, dimension: int, local: float) -> float:
    """The epsilon in [0, local] where the bound is `delta`: searched on a coarse lattice, refined on a fine one."""
    bound, guess = _bound(n, mu, radius, dimension, delta)

    @cache
    def excess(epsilon: float, fineness: Fineness = _COARSE) -> float:
        return math.log(max(bound(epsilon, fineness), 1e-300) / delta)

    low, high = 0.0, min(max(guess, 1e-6 * local), local)  # above 0, or no factor would ever reach the local epsilon
    while excess(high) > 0:
        if high == local:
            return local
        low, high = high, min(1.5 * high, local)
    if low == 0 and excess(0.0) <= 0:
        return 0.0
    epsilon = zero_between(excess, low, high, xtol=1e-12, rtol=1e-4)
    slope = min((excess(epsilon * 1.001) - excess(epsilon)) / (epsilon * 0.001), -1e-9)
    for attempt in range(12):
        error, room = excess(epsilon, _FINE), 1e-6 * 4.0 ** max(0, attempt - 2)  # more room where rounding is felt
        if -room <= error <= 0:
            return epsilon
        epsilon = min(local, max(0.0, epsilon - (error + room / 2) / slope))
    return local


def _bound(
    n: int, mu: float, radius: float, dimension: int, scale: float
) -> tuple[Callable[[float, Fineness], float], float]:
    """The bound as a function of epsilon, computed to a share of 1e-6 where it is about `scale`; and where that is
    if the sum were normal."""
    blanket = blanket_law(radius, dimension, mu / 2)
    expected = n * blanket.weight
    wander = math.sqrt(expected * float(blanket.masses @ (blanket.ours - blanket.theirs) ** 2))
    # One report below -floor already keeps the sum from being positive: clipping there changes next to nothing, and
    # raises the bound. What a report has above `top` is added as it stands, which raises it too.
    top = blanket.largest(_CUT * scale)
    floor = min(2 * top + _DRIFTS * wander, max(n - 1, 1) * top)

    def bound(epsilon: float, fineness: Fineness) -> float:
        values = blanket.ours - math.exp(epsilon) * blanket.theirs
        gain = positive_part(
            np.clip(values, -floor, top),
            blanket.weight * blanket.masses,
            n,
            negligible=_LOST * scale * expected,
            fineness=fineness,
        )
        beyond = expected * float(blanket.masses @ np.maximum(values - top, 0.0))
        # With one report from the blanket the sum is known: the quadrature is inaccurate at the kink of (L)_+.
        local = float(gaussian_dp.delta(epsilon, mu))
        lonely = math.exp((n - 1) * math.log1p(-blanket.weight)) if blanket.weight < 1 else float(n == 1)
        alone = lonely * (local - float(blanket.masses @ np.maximum(values, 0.0)))
        result = (gain + beyond) / expected + alone + _MARGIN * scale
        # Reports with no other from the blanket spend lonely * local: less means that rounding ate the sum.
        return result if result >= lonely * local else local

    return bound, float(gaussian_dp.epsilon(scale, wander / expected))


# Amplification by shuffling: a report hides among clones, which look as if they came from the same two inputs.

_MOST_CLONES, _BINS = 20_000, 4000
"""Above this number of clone counts they are binned, each less than a hundredth of their deviation wide."""


def clones_delta(epsilon: ArrayLike, n: ArrayLike, epsilon0: ArrayLike) -> float | NDArray[np.float64]:
    """Return delta at `epsilon` >= 0 of `n` >= 1 shuffled reports, each epsilon0-DP (pure); arrays broadcast.

    The hockey-stick divergence of (A + D, C - A + 1 - D) and (A + 1 - D, C - A + D), summed exactly, where
    C ~ Bin(n - 1, e^-epsilon0), A ~ Bin(C, 1/2), D ~ Bernoulli(e^epsilon0 / (1 + e^epsilon0)).
    Guarantee: (epsilon, delta)-DP under replace_one, adaptive reports included.
    Source: feldman2021, Theorem 3.2. Raises ValueError naming the argument.
    """

    def one(epsilon: float, n: float, epsilon0: float) -> float:
        level = real("epsilon0", epsilon0, at_least=0, at_most=300)
        divergence = _divergence(integer("n", n, at_least=1), level, math.exp(-level))
        return min(1.0, divergence(real("epsilon", epsilon, at_least=0)))

    return by_element(one, epsilon=epsilon, n=n, epsilon0=epsilon0)


def clones_epsilon(
    n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike, delta0: ArrayLike = 0.0
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `n` shuffled reports, each (epsilon0, delta0)-DP; arrays broadcast.

    The least epsilon with clones_delta(epsilon) + (e^epsilon + 1)(1 + e^-epsilon0 / 2) n delta0 <= delta, and
    `epsilon0` if there is none below it (shuffling never hurts). `n` >= 1, `epsilon0` >= 0, `delta` in
    (0, 1), 0 <= `delta0` <= `delta`. Source: feldman2021, Theorems 3.2 and 3.8.
    Guarantee: as for clones_delta. Raises ValueError naming the argument.
    """

    def one(n: float, epsilon0: float, delta: float, delta0: float) -> float:
        count, level, total = _checked_clones(n, epsilon0, delta)
        local = real("delta0", delta0, at_least=0, at_most=total)
        if local == 0:
            return _epsilon(count, level, total, math.exp(-level))
        return _epsilon_with_failures(count, level, total, local)

    return by_element(one, n=n, epsilon0=epsilon0, delta=delta, delta0=delta0)


def restricted_clones_epsilon(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` by the larger clone probability 2/(1 + e^epsilon0); arguments as clones_epsilon.

    Caveat: the authors withdrew the general claim. It holds for randomisers all of whose output laws are at
    least (R_x + R_x') / (1 + e^epsilon0) for the two inputs compared, binary randomised response for one; not for
    Gaussians. Guarantee: that of clones_delta, for such randomisers only. Source: feldman2023. Raises ValueError naming
    the argument.
    """

    def one(n: float, epsilon0: float, delta: float) -> float:
        count, level, total = _checked_clones(n, epsilon0, delta)
        return _epsilon(count, level, total, 2 / (1 + math.exp(level)))

    return by_element(one, n=n, epsilon0=epsilon0, delta=delta)


def _checked_clones(n: float, epsilon0: float, delta: float) -> tuple[int, float, float]:
    """The three arguments, each in its range."""
    return (
        integer("n", n, at_least=1),
        real("epsilon0", epsilon0, at_least=0, at_most=300),
        real("delta", delta, above=0, below=1),
    )


def _divergence(n: int, epsilon0: float, clone_probability: float, tail: float = 1e-18) -> Callable[[float], float]:
    """The divergence of the two pairs of counts as a function of epsilon.

    Numbers of clones further off the mean than Bernstein's inequality allows for `tail` count as lost.
    """
    mean, log_tail = (n - 1) * clone_probability, -math.log(tail)
    reach = log_tail / 3 + math.sqrt(log_tail**2 / 9 + 2 * log_tail * mean * (1 - clone_probability))
    first, last = max(0, math.floor(mean - reach)), min(n - 1, math.ceil(mean + reach))
    # More clones never hurt: one more is drawn without a look at the input. So each bin counts as its fewest clones.
    width = 1 if last - first < _MOST_CLONES else (last - first) // _BINS
    clones = np.arange(first, last + 1, width)
    if width == 1:
        weights = binom.pmf(clones, n - 1, clone_probability)
    else:
        ends = np.append(clones, last + 1) - 1
        below, above = (side(ends, n - 1, clone_probability) for side in (binom.cdf, binom.sf))
        weights = np.where(clones < mean, np.diff(below), -np.diff(above))

    def delta(epsilon: float) -> float:
        if epsilon >= epsilon0:
            return 0.0
        # With a of c + 1 reports on our side the likelihood ratio exceeds e^epsilon when 1 - a/(c + 1) is below `rest`,
        # which is computed by itself: at a large epsilon0 it is lost in 1 - rest.
        rest = math.expm1(epsilon - epsilon0) / (math.expm1(-epsilon0) * (1 + math.exp(epsilon)))
        threshold = clones + 1 - np.ceil(rest * (clones + 1))
        at, above = binom.pmf(threshold, clones, 0.5), binom.sf(threshold, clones, 0.5)
        gain = at * -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0)) - above * math.expm1(epsilon)
        return float(weights @ np.maximum(gain, 0)) + 2 * tail

    return delta


def _epsilon(n: int, epsilon0: float, delta: float, clone_probability: float) -> float:
    """The epsilon at which the divergence is `delta`, between 0 and `epsilon0`."""
    if epsilon0 < 1e-300:  # products of less are no floats
        return epsilon0
    divergence = _divergence(n, epsilon0, clone_probability, min(1e-18, 1e-9 * delta))
    nearly = epsilon0 * (1 - 1e-12)
    if divergence(0.0) <= delta:
        return 0.0
    if divergence(nearly) > delta:
        return epsilon0
    # To a share of epsilon however small it is; the answer is past what the search may have stopped short of.
    result = zero_between(
        lambda epsilon: math.log(divergence(epsilon) / delta), 0.0, nearly, xtol=1e-300, rtol=1e-12, looks=1000
    )
    return min(epsilon0, result * (1 + 2e-12))


def _epsilon_with_failures(n: int, epsilon0: float, delta: float, delta0: float) -> float:
    """The least epsilon below `epsilon0` whose divergence leaves room for the local failures, else `epsilon0`."""
    failures = (1 + math.exp(-epsilon0) / 2) * n * delta0
    divergence = _divergence(n, epsilon0, math.exp(-epsilon0), min(1e-18, 1e-9 * delta))

    def excess(growth: float) -> float:
        return divergence(math.log1p(growth)) + (growth + 2) * failures - delta

    if excess(0.0) <= 0:
        return 0.0
    room = min(math.expm1(epsilon0), delta / failures - 2)
    feasible = _nonpositive_point(excess, room) if room > 0 else None
    if feasible is None:
        return epsilon0
    # The answer is past what the search may have stopped short of; epsilon0 is a guarantee by itself.
    growth = zero_between(excess, 0.0, feasible, xtol=1e-14, rtol=1e-12)
    return min(epsilon0, math.log1p(growth) * (1 + 2e-12) + 2e-14)


def _nonpositive_point(convex: Callable[[float], float], top: float) -> float | None:
    """Return a point of [0, top] where `convex` is at most 0, None if it has none.

    A divergence is convex in e^epsilon, hence the variable of the caller.
    """
    best = minimize_scalar(convex, bounds=(0.0, top), method="bounded", options={"xatol": 1e-12 * top}).x
    candidates = [*top * np.geomspace(1e-9, 1, 40), best]
    return next((float(x) for x in candidates if convex(float(x)) <= 0), None)


# Closed-form amplification by shuffling as the papers print it, each with the condition that it needs.


def least_reports(*, clients_per_round: ArrayLike, clients: ArrayLike, rounds: ArrayLike, delta: ArrayLike) -> Array:
    """Return 16 ln(18 R M^2 / (N delta)), which M = `clients_per_round` of N = `clients` must reach.

    R = `rounds`; all >= 1, `delta` in (0, 1); arrays broadcast. Source: lowy2021 Theorem 4.1.
    Raises ValueError naming the argument.
    """
    m, n, r, delta = _federation(clients_per_round, clients, rounds, delta)
    return 16 * np.log(18 * r * m**2 / (n * delta))


def _federation(m: ArrayLike, n: ArrayLike, r: ArrayLike, delta: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Clients per round, clients, rounds and delta, each in its range."""
    m, n = integers("clients_per_round", m, at_least=1), integers("clients", n, at_least=1)
    require_at_most("clients_per_round", m, "clients", n)
    return m, n, integers("rounds", r, at_least=1), reals("delta", delta, above=0, below=1)


# Shuffled noisy minibatch SGD (lowy2021, Theorem 4.1): how little noise clients need behind a trusted shuffler.

_POINTS = 11
"""Places where the profile of one round is computed; the chords between them are above it."""
_SHORT_OF_TARGET = 0.02
"""Most that the calibration may stop below the target, relative to it."""
_TRIES = 12


def local_noise_multiplier(*, epsilon: float, delta: float, rounds: int) -> float:
    """Return sigma n / L of full batches without a shuffler: 2 sqrt(R) / mu, exact by the composition of Gaussians.

    Guarantee: (epsilon, delta)-LDP of `rounds` messages, under replace_one. Raises ValueError naming the argument.
    Source: vandijk2023 (6) and section 4.3.
    """
    delta = real("delta", delta, above=0, below=1)
    return 2.0 * math.sqrt(integer("rounds", rounds, at_least=1)) / float(gaussian_dp.mu(epsilon, delta))


def central_noise_multiplier(*, epsilon: float, delta: float, rounds: int, clients: int) -> float:
    """Return the share that each client would add if a trusted server's noise were split evenly among them.

    The mean of M messages then has the noise of the central model, the least that its accounting allows: what
    `noise_multiplier` is compared with. Arguments and errors as above. Guarantee: (epsilon, delta)-DP of the means
    alone, the server trusted. Source: derived; the sum of Gaussians.
    """
    local = local_noise_multiplier(epsilon=epsilon, delta=delta, rounds=rounds)
    return local / math.sqrt(integer("clients", clients, at_least=1))


def epsilon(*, noise_multiplier: float, clients: int, records: int, rounds: int, delta: float, dimension: int) -> float:
    """Return epsilon at `delta` of `rounds` rounds whose `clients` messages on full batches are shuffled each time.

    `noise_multiplier` > 0 is sigma n / L of one client with n = `records` >= 1: a replaced record moves its message by
    2 / noise_multiplier deviations, and messages lie in a ball of radius n / noise_multiplier. `dimension` >= 1 of the
    messages; at most the epsilon without a shuffler, which it is unless that ball is small: clients that can be told
    apart hide nothing.
    Guarantee: (epsilon, delta)-DP under replace_one against an observer of the shuffled messages alone: blanket of
    balle2019, composed over adaptive rounds; every approximation errs upwards. Caveats: those of blanket_epsilon; of
    all pairs that one record can set apart, the one farthest apart is taken as the worst. Raises ValueError naming the
    argument. Source: balle2019, Lemma 5.3, with the blanket of all messages.
    """
    noise = real("noise_multiplier", noise_multiplier, above=0)
    clients, records = integer("clients", clients, at_least=1), integer("records", records, at_least=1)
    rounds, dimension = integer("rounds", rounds, at_least=1), integer("dimension", dimension, at_least=1)
    return _messages_epsilon(noise, clients, records, rounds, real("delta", delta, above=0, below=1), dimension)


@lru_cache(maxsize=256)
def _messages_epsilon(noise: float, clients: int, records: int, rounds: int, delta: float, dimension: int) -> float:
    """`epsilon`, once for all that share it."""
    move, radius = 2.0 / noise, (records + math.sqrt(records**2 - 1)) / noise
    local = gaussian_dp.epsilon_or_inf(delta, move * math.sqrt(rounds))
    if _has_no_blanket(clients, radius, dimension, move / 2):
        return local
    least = max(_LEAST_DELTA, 1e-3 * delta / rounds)
    largest = max(1e-3, _one_round(clients, move, radius, least, dimension))
    epsilons = np.concatenate([[0.0], largest * np.linspace(0.15, 1.0, _POINTS - 1)])
    lattices = (_COARSE, _COARSE, _FINE)
    deltas = np.array([_delta(float(each), clients, move, radius, dimension, lattices) for each in epsilons])
    composed = composed_epsilon(
        lambda at: np.interp(np.expm1(at), np.expm1(epsilons), deltas),
        largest=largest,
        steps=rounds,
        delta=delta,
    )
    return min(composed, local)


def noise_multiplier(
    *, target_epsilon: float, clients: int, records: int, rounds: int, delta: float, dimension: int
) -> float:
    """Return a noise multiplier that spends at most `target_epsilon`, and not more than 2 % less.

    Arguments, guarantee and errors as for `epsilon`; never above local_noise_multiplier, which always suffices.
    Source: `epsilon`, solved for the noise.
    """
    target = real("target_epsilon", target_epsilon, above=0)
    clients, records = integer("clients", clients, at_least=1), integer("records", records, at_least=1)
    rounds, dimension = integer("rounds", rounds, at_least=1), integer("dimension", dimension, at_least=1)
    delta = real("delta", delta, above=0, below=1)
    run = {"clients": clients, "records": records, "rounds": rounds, "delta": delta, "dimension": dimension}
    local = local_noise_multiplier(epsilon=target, delta=delta, rounds=rounds)
    start = math.log(min(local, 1.3 * local / math.sqrt(clients)))

    def excess(log_noise: float) -> float:
        spent = epsilon(noise_multiplier=math.exp(log_noise), **run)
        return math.log(spent / target) if spent > 0 else -math.inf

    result = least_noise(
        excess,
        start,
        slope=-1.0,  # epsilon goes about as 1 / noise
        room=-math.log(1.0 - _SHORT_OF_TARGET),
        aim=math.log(1.0 - _SHORT_OF_TARGET / 2.0),
        flattest=-0.2,
        high=math.log(local),
        known=True,
        tries=_TRIES,
    )
    # exp(log(local)) is not local: runs without a gain have the local model's noise to the last bit.
    return local if result is None or result >= math.log(local) else math.exp(result)
