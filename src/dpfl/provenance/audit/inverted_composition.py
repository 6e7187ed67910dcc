"""Epsilon of composed steps from their privacy profiles: no grid of losses, no convolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

# Privacy profiles of single steps, ln delta(epsilon) for epsilon >= 0, from their densities: what the audit composes.
#
# Each holds in both directions of its neighbouring relation.

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]
"""epsilon >= 0, shape (n,), to ln delta of one step, (n,): below -690 where there is none."""
_DEVIATIONS = 13.0
_CELLS = 400_001


def gaussian_log_delta(epsilon: Array, shift: Array) -> Array:
    """Return ln(Phi(shift/2 - epsilon/shift) - e^epsilon Phi(-shift/2 - epsilon/shift)), shift > 0; shapes broadcast.

    Source: asoodeh2020, eq. (10).
    """
    first = log_ndtr(shift / 2 - epsilon / shift)
    second = np.minimum(epsilon + log_ndtr(-shift / 2 - epsilon / shift) - first, -1e-300)
    return first + np.log(np.maximum(-np.expm1(second), 1e-300))


def laplace_log_delta(epsilon: float, shift: float) -> float:
    """Return ln delta of Laplace noise of scale 1 that a record moves by `shift`: where the loss exceeds epsilon."""
    if epsilon >= shift:
        return -math.inf
    cut = (shift - epsilon) / 2
    return math.log1p(-math.exp(-cut) / 2 - math.exp(epsilon + cut - shift) / 2)


def sampled_gaussian(shifts: Array, weights: Array) -> Profile:
    """Return the profile of a mixture: with `weights`[j] the step moves by `shifts`[j] deviations, else not at all.

    balle2018, Theorems 2 and 10, where the laws that differ are `rate` of the whole.
    """
    rate = float(weights.sum())

    def log_delta(epsilon: Array) -> Array:
        moved = gaussian_log_delta(_inner(epsilon, rate)[:, None], shifts)
        return np.asarray(logsumexp(moved, b=weights, axis=1))

    return log_delta


def sampled_arsinh(scale: float, sigma: float, rate: float) -> Profile:
    """Return the profile of noise scale * arsinh(N/scale), N of deviation `sigma`, that a record drawn with probability
    `rate` moves by 1; one coordinate."""
    reach = scale * math.asinh(_DEVIATIONS * sigma / scale)
    points = np.linspace(-reach, reach + 1, _CELLS)

    def log_density(y: Array) -> Array:
        normal = norm.logpdf(scale * np.sinh(y / scale), scale=sigma)
        return normal + np.logaddexp(y / scale, -y / scale) - math.log(2)

    alone = _of_densities(log_density(points - 1), log_density(points), points)
    return lambda epsilon: alone(_inner(epsilon, rate)) + math.log(rate)


def poisson_replaced(sigma: float, rate: float) -> Profile:
    """Return the profile of one Gaussian step on a Poisson sample, a record replaced by its opposite: the laws
    (1 - rate) N(0, sigma^2) + rate N(+-1, sigma^2)."""
    reach = 1 + _DEVIATIONS * sigma
    points = np.linspace(-reach, reach, _CELLS)

    def log_density(side: float) -> Array:
        still, moved = norm.logpdf(points, 0, sigma), norm.logpdf(points, side, sigma)
        return np.logaddexp(np.log1p(-rate) + still, math.log(rate) + moved) if rate < 1 else moved

    return _of_densities(log_density(1.0), log_density(-1.0), points)


def _inner(epsilon: Array, rate: float) -> Array:
    """Return where the profile without sampling is read: ln(1 + (e^epsilon - 1)/rate)."""
    return epsilon + np.log1p(-np.expm1(-epsilon) * (1 - rate) / rate)


def _of_densities(log_p: Array, log_q: Array, points: Array) -> Profile:
    """Return ln of the integral of (p - e^epsilon q)_+ by sums over even points, sorted by their loss."""
    losses = log_p - log_q
    order = np.argsort(-losses)
    width = points[1] - points[0]
    above = np.append(0.0, np.cumsum(np.exp(log_p[order]))) * width
    below = np.append(0.0, np.cumsum(np.exp(log_q[order]))) * width
    falling = -losses[order]

    def log_delta(epsilon: Array) -> Array:
        count = np.searchsorted(falling, -epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            left = above[count] - np.exp(epsilon) * below[count]
        return np.log(np.maximum(np.nan_to_num(left, nan=0.0, neginf=0.0), 1e-300))

    return log_delta


# Composition without convolution: delta of many steps, by inverting the moment generating function of their loss.
#
# The loss L of a step that is known by its privacy profile delta(epsilon), the same in both directions, has
#
#     E exp(s L) = 1 + s (s + 1) integral_0^inf (e^(s x) + e^(-(s + 1) x)) delta(x) dx        (sason2016, eq. 79)
#
# for complex s too; steps multiply; and for every t > 0 the whole has, by Laplace inversion (the contour integral of
# alghamdi2023),
#
#     delta(epsilon) = (1/pi) integral_0^inf Re[exp(K(t + iy) - (t + iy) epsilon) / ((t + iy)(t + iy + 1))] dy,
#
# with K the logarithm of the product. The trapezoidal rule in y converges faster than any power of its step, where t is
# the Renyi order less 1 that serves epsilon best: no grid of losses, no truncation, nothing rounded up or down.

_TILTS = np.geomspace(2e-3, 5e4, 120)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SILENT = -690.0
_STEPS_IN_TILT = (64, 128, 256, 512)
"""Step in y: t over this. The rule folds in what is 2 pi 64/t above and below epsilon: rare large losses, so that the
step is halved until every second point gives the same."""
_SAME = 1e-4
_BLOCK = 64
_PANELS_IN_TILT = (1, 4)
"""Panels of the integral over epsilon in 1/t: more where K takes long to fall."""
_TILTS_FAR = 20
"""Largest y over t and over that: e^(iyx) turns faster beyond than the nodes of a panel follow."""
_NEGLIGIBLE = 1e-6
_ROUNDING = -30.0  # logarithm of what the moments' own rounding leaves
_FARTHEST = 2e4
_LARGEST = 2e4
"""Largest epsilon that is inverted: above it the rule would need too many points."""


@dataclass(frozen=True)
class InvertedComposition:
    """Steps that one after the other see the same record: each profile as often as its number says. `delta` > 0."""

    steps: tuple[tuple[Profile, int], ...]
    delta: float

    @property
    def bound(self) -> float:
        """Epsilon by Renyi divergences, never below what is spent; infinite where a step loses too much to be
        integrated. Conversion: canonne2020, Proposition 12."""
        return self._renyi[1]

    def epsilon(self, blur: float = 0.0) -> float:
        """Return what the steps spend together with one Gaussian mechanism that the record moves by `blur` deviations.

        Accurate to 1e-4 of epsilon if the profiles are, mostly far better. nan where the integral does not settle (few
        steps, each of which hardly ever sees the record, so that the loss has an atom at 0) and where epsilon may be
        above `_LARGEST`.
        """
        tilt, alone = self._renyi
        bound = alone + (tilt + 1) * blur**2 / 2
        if alone > _LARGEST:
            return math.nan
        if bound <= 0:
            return 0.0
        for steps in _STEPS_IN_TILT:
            logs, points = _logs(self.steps, tilt, steps, tilt * alone)
            logs = logs + points * (points + 1) * blur**2 / 2
            if not len(logs):
                return math.nan
            fine, coarse = (_solved(logs[::each], points[::each], bound, self.delta) for each in (1, 2))
            if abs(fine - coarse) <= _SAME * fine + 1e-6:
                return fine
        return math.nan

    @cached_property
    def _renyi(self) -> tuple[float, float]:
        """The tilt (Renyi order less 1) that gives the least epsilon, and that epsilon."""
        total = np.zeros(len(_TILTS))
        for profile, count in self.steps:
            reach = _reach(profile)
            if reach > _FARTHEST:
                return math.nan, math.inf
            points = np.concatenate([[0.0], np.geomspace(1e-9, reach, 2000)])
            logs, widths = profile(points), np.diff(points)
            with np.errstate(divide="ignore"):
                middles = np.log(widths / 2)
            values = np.logaddexp(_TILTS[:, None] * points + logs, -(_TILTS[:, None] + 1) * points + logs)
            integrals = logsumexp(np.logaddexp(values[:, :-1], values[:, 1:]) + middles, axis=1)
            total += count * np.logaddexp(0.0, np.log(_TILTS * (_TILTS + 1)) + integrals)
        orders = _TILTS + 1
        spent = (total - math.log(self.delta) - np.log(orders)) / _TILTS + np.log1p(-1 / orders)
        best = int(np.argmin(spent))
        return float(_TILTS[best]), float(spent[best])


@lru_cache(maxsize=len(_STEPS_IN_TILT))
def _logs(
    steps: tuple[tuple[Profile, int], ...], tilt: float, steps_in_tilt: int, cancelled: float
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Return K at tilt + iy, y in even steps until its real part has fallen to nothing, and those points; none where it
    does not. Nothing is relative to delta, which is less than the first term by up to e^-`cancelled`."""
    for panels_in_tilt in _PANELS_IN_TILT:
        known = [(_log_moments(profile, tilt, tilt / steps_in_tilt, panels_in_tilt), count) for profile, count in steps]
        values: list[NDArray[np.complex128]] = []
        points: list[NDArray[np.complex128]] = []
        for block in range(_TILTS_FAR * panels_in_tilt * steps_in_tilt // _BLOCK):
            places = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
            at = np.asarray(tilt + 1j * tilt / steps_in_tilt * places, dtype=np.complex128)
            values.append(np.sum([count * log_moments(at) for log_moments, count in known], axis=0))
            points.append(at)
            size = values[-1].real - values[0][0].real - 2 * np.log(np.abs(at) / tilt)
            if size.max() < max(math.log(_NEGLIGIBLE) - cancelled, _ROUNDING):
                return np.concatenate(values), np.concatenate(points)
    return np.empty(0, dtype=complex), np.empty(0, dtype=complex)


def _solved(logs: NDArray[np.complex128], points: NDArray[np.complex128], bound: float, delta: float) -> float:
    """Return the epsilon, at most `bound`, at which the trapezoidal rule over `points` gives delta; nan where the terms
    that it leaves out may matter."""
    tilt, step, scale = points[0].real, float(points[1].imag), logs[0].real

    def terms(epsilon: float) -> NDArray[np.complex128]:
        # The factor keeps what is logged in range.
        return np.exp(logs - scale - 1j * points.imag * epsilon) / (points * (points + 1))

    def excess(epsilon: float) -> float:
        each = terms(epsilon)
        sum_ = float(each[0].real / 2 + each[1:].real.sum()) * step / math.pi
        return math.log(max(sum_, 1e-300)) + scale - tilt * epsilon - math.log(delta)

    # Far below the answer the terms cancel, so the bracket is walked down to, not started at 0.
    low = bound
    if excess(low) > 0:
        return math.nan  # epsilon cannot be above its bound
    while excess(low) <= 0:
        low *= 0.9
        if low < 1e-6:
            return 0.0
    result = zero_between(excess, low, min(bound, low / 0.9))
    each = terms(result)
    left_out = len(each) * np.abs(each[-_BLOCK:]).mean()  # where terms fall as 1/y^2
    return result if left_out < _SAME * abs(each[0] / 2 + each[1:].sum().real) else math.nan


def zero_between(excess: Callable[[float], float], low: float, high: float, xtol: float = 1e-10) -> float:
    """Return the zero of a function whose signs at both ends differ, to `xtol`."""
    return cast("float", brentq(excess, low, high, xtol=xtol))


def _reach(profile: Profile) -> float:
    """Return an epsilon beyond which a step's delta is nothing."""
    largest = 1.0
    while profile(np.array([largest]))[0] > _SILENT and largest <= _FARTHEST:
        largest *= 1.5
    return largest


def _nodes(profile: Profile, tilt: float, panels_in_tilt: int) -> tuple[Array, Array]:
    """Return nodes of the integral over epsilon and ln(weight delta) there: panels grow to a width of 1/tilt, or that
    over `panels_in_tilt`."""
    reach = _reach(profile)
    widest = min(1 / (panels_in_tilt * tilt), max(0.5, reach / 500))
    scan = np.linspace(0.0, reach, 4000)
    heights = profile(scan) + tilt * scan
    reach = scan[min(len(scan) - 1, int(np.flatnonzero(heights > heights.max() - 60).max()) + 1)]
    narrow = widest * 2.0 ** -np.arange(24, -1, -1.0)
    edges = np.concatenate([[0.0], narrow, np.arange(2 * widest, reach + widest, widest)])
    half = np.diff(edges) / 2
    nodes = ((edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()
    return nodes, np.log((half[:, None] * _WEIGHTS).ravel()) + profile(nodes)


def _log_moments(
    profile: Profile, tilt: float, step: float, panels_in_tilt: int
) -> Callable[[NDArray[np.complex128]], NDArray[np.complex128]]:
    """Return what gives ln E exp(s L) at `_BLOCK` points s = tilt + iy, y in steps of `step`.

    e^(iyx) is that of the block's first y times one that all blocks share, which costs most.
    """
    nodes, mass = _nodes(profile, tilt, panels_in_tilt)
    sizes = np.exp(np.stack([tilt * nodes + mass, -(tilt + 1) * nodes + mass], axis=1))
    turns = np.exp(1j * step * np.arange(_BLOCK)[:, None] * nodes)

    def log_moments(at: NDArray[np.complex128]) -> NDArray[np.complex128]:
        up, down = (turns @ (sizes * np.exp(1j * at[0].imag * nodes)[:, None])).T
        return np.log1p(at * (at + 1) * (up + down.conj()))

    return log_moments
