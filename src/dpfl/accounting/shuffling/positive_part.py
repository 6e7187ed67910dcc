"""E[(X_1 + ... + X_n)_+] of independent copies of a discrete law, by convolution, erring upwards.

The mean of a convex function can only grow when values are spread to their neighbours on a grid, keeping their
mean: every discretisation here is such a spreading. Heavy tails would need a grid both wide and fine. So the few
values beyond a threshold are taken apart, and the sum is over how many of them occur; and a sum of many values
is built from blocks, on a grid that grows coarser with them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fftshift, ifftshift, irfft, rfft

Array = NDArray[np.float64]
Law = tuple[Array, Array]  # values and their masses

_LARGE_EXPECTED = 0.03  # how many of the n values are large, on average, at most
_MOST_LARGE = 8  # this many are handled separately; more have a chance below 1e-19
_NEGLIGIBLE = 1e-10  # share of the answer that ends the sum over the number of large values
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
        masses = np.bincount(index % self.size, law[1] - upper, self.size)
        masses += np.bincount((index + 1) % self.size, upper, self.size)
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
    total = _without_large(lattice, levels, few, n, threshold, rest)
    if most == 0:
        return total
    bulk, one = _transforms(lattice, levels, few, n - most, rest)
    sums, combinations = large, float(n)
    for count in range(1, most + 1):
        law = irfft(bulk * _power(one, most - count), lattice.size)
        chance = combinations * float(sums[1].sum())
        term = combinations * float(sums[1] @ lattice.gains(law, sums[0])) + chance * lattice.rounding(law, n)
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


def _without_large(lattice: _Lattice, levels: int, law: Law, n: int, largest: float, rest: float) -> float:
    """E[(A)_+], A the n-fold sum of that law, with the rounding: by the law times e^(tilt x).

    Under the best tilt the sum is about 0, so that what is small without it is as exact as the rest.
    """
    few = _on_growing_steps(law, largest, _FEW)
    tilt = min(_TILTS, key=lambda k: rest + float(few[1] @ np.exp(k / largest * few[0]))) / largest
    log_mass = math.log(rest + float(law[1] @ np.exp(tilt * law[0])))
    bulk, _ = _transforms(lattice, levels, law, n, rest, tilt, log_mass)
    masses = irfft(bulk, lattice.size)
    places = lattice.step * np.arange(lattice.size // 2)
    gains = places * np.exp(n * log_mass - tilt * places)
    rounding = _ROUNDING * n * float(np.linalg.norm(masses)) * float(gains.max())
    return max(0.0, float(gains @ masses[: gains.size])) + rounding


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
        one = rfft(finer.spread(law, rest) * np.exp(np.minimum(tilt * places, 700.0) - log_mass))
        if level == levels:
            bulk = _power(one, n >> 2 * level)
            continue
        masses, block = irfft(bulk, lattice.size), 4 ** (ahead - level)
        for halvings in range(ahead, level, -1):
            masses = _on_double_step(masses, math.exp(tilt * lattice.step / 2**halvings))
        bulk = _power(rfft(masses), block) * _power(one, (n >> 2 * level) & (block - 1))
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
    masses = np.bincount(index, law[1] - upper, places.size) + np.bincount(index + 1, upper, places.size)
    return places[masses > 0], masses[masses > 0]
