"""Gaussian steps on Poisson samples: a certified interval for epsilon.

The dominating pairs, in units of the noise's deviation, with q = `sample_rate` and a = 1 / `noise_multiplier`:
remove  (1 - q) N(0, 1) + q N(a, 1)  against  N(0, 1),
add     N(0, 1)  against  (1 - q) N(0, 1) + q N(a, 1),
replace (1 - q) N(0, 1) + q N(a, 1)  against  (1 - q) N(0, 1) + q N(-a, 1).
add_or_remove and zero_out spend the larger of the first two (zhu2022, Theorem 11), replace_one the third (as
in koskela2020, for a substituted record). That the third dominates is derived here. A record that is drawn adds x to
the sum, another one x', of norms at most 1, so with c = (g - 1)(1 - q) the hockey stick at g >= 1 is the integral of
[q N(a x) - g q N(a x') - c N(0)]_+. Reflect x' at a hyperplane through 0 that has x and x' on one side: at a point z
and its image, q N(a x) and the rest were ordered alike and are ordered oppositely now, which only adds to the two terms
[.]_+, and N(0) stays. One such reflection turns x' to where it is opposite to x. On that line the term is above 0
beyond a threshold, so that moving x outwards adds, and moving x' outwards takes away less. For g < 1 exchange the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri_exp

from dpfl.accounting import gaussian_dp
from dpfl.accounting.composition import ROUGH_TOLERANCE, TOLERANCE, LossPart, LossSearch
from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.loss_grids import UNIT, Cells
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import Array, binned, integer, member, real, reals, zero_between

# Privacy profiles of one Gaussian step on a sample: the delta at each epsilon, in closed form.

_SMALLEST_RATE = 1e-300  # keeps 1/p finite


def amplified_epsilon(epsilon: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """ln(1 + (e^epsilon - 1)/p): where the unsampled curve is read, so that delta_p(epsilon) = p delta(this).

    epsilon >= 0, p in (0, 1]; shapes broadcast, no overflow. Raises ValueError naming epsilon or p. Source: balle2018,
    Theorem 9, solved for the inner epsilon; C_p of vandijk2023 section 4.2 read by its delta.
    """
    p = np.maximum(reals("p", p, above=0, at_most=1), _SMALLEST_RATE)
    epsilon = reals("epsilon", epsilon, at_least=0)
    return (epsilon + np.log1p(-np.expm1(-epsilon) * (1 - p) / p))[()]


def subsampled_delta(epsilon: ArrayLike, p: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The delta at epsilon >= 0 of C_p(G_mu), one fixed-size batch: p theta(ln(1 + (e^epsilon - 1)/p), mu).

    The same number is the remove direction of one Poisson batch: (1 - p) N(0, 1) + p N(mu, 1) against N(0, 1).
    p in [0, 1], mu >= 0; shapes broadcast. Guarantee: a mu-GDP round on a batch drawn without replacement with share p
    is (epsilon, this)-DP when one record is replaced. Raises ValueError naming the argument.
    Source: vandijk2023 section 4.2 with its (6); theta is asoodeh2020 eq. (10).
    """
    p = reals("p", p, at_least=0, at_most=1)
    inner = amplified_epsilon(epsilon, np.where(p > 0, p, 1.0))
    return (p * theta(inner, reals("mu", mu, at_least=0)))[()]


def poisson_add_delta(epsilon: ArrayLike, p: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """The delta at epsilon >= 0 of one Poisson batch, add direction: N(0, 1) against (1 - p) N(0, 1) + p N(mu, 1).

    Zero once e^epsilon (1 - p) >= 1, and never above `subsampled_delta`. p in [0, 1], mu >= 0; shapes broadcast.
    Guarantee: what a Gaussian round spends at epsilon on the record added; the larger of the two is add_or_remove's.
    Raises ValueError naming the argument. Source: derived, the hockey stick of that pair (zhu2022) by
    theta of asoodeh2020 eq. (10).
    """
    epsilon, p, mu = np.broadcast_arrays(
        reals("epsilon", epsilon, at_least=0), reals("p", p, at_least=0, at_most=1), reals("mu", mu, at_least=0)
    )
    # p - (1 - e^-epsilon), in the form that keeps its digits; once it is spent, no outcome loses epsilon.
    near = epsilon < 0.7
    left = np.where(near, p + np.expm1(-epsilon), np.exp(-epsilon) - (1 - p))
    mixed = (left > 0) & (p < 1)
    share, growth = np.where(mixed, left, 1.0), np.where(mixed, epsilon, 0.0)
    rate = np.where(mixed, p, 1.0)
    logarithm = np.where(near, np.log1p(np.where(mixed & near, np.expm1(-epsilon), 0.0) / rate), np.log(share / rate))
    inner = np.where(mixed, -logarithm, epsilon)
    weight = np.where(mixed, np.exp(growth) * share, np.where(p == 1, 1.0, 0.0))
    return np.minimum(weight * theta(np.maximum(inner, 0.0), mu), 1.0)[()]


Order = Literal["remove", "add", "replace"]

LEAST_DELTA = 1e-290
"""Below it masses underflow: refused."""
CLOSED_FORM_ERROR = 1e-10
"""Relative error of delta in the closed forms and in one step's integral: below 1e-11."""
_LEFT_OUT = 1e-9  # share of delta that the ends of the losses may contain
WIDE = 3e-4
"""Relative width of the interval above which one step is looked at."""
_ROUGHER = 5
"""By which factor the mesh of a rough law is coarser: the trapezoid rule sums smooth densities to the last digits."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
SMOOTH = 0.06
"""Change of ln density in a cell of the quadrature: three nodes then err by its sixth power over 2e6, 2e-14."""


@dataclass(frozen=True)
class Step:
    """One Gaussian step on a Poisson sample, one order of its pair; x is P's outcome, along which the loss grows.

    Source: zhu2022, Theorem 11.
    """

    shift: float
    rate: float
    order: Order

    def loss(self, x: Array) -> Array:
        """Return ln(P/Q) at x."""
        return self.loss_and_log_density(x)[0]

    def loss_and_log_density(self, x: Array) -> tuple[Array, Array]:
        """Return ln(P/Q) and the logarithm of P's density at x."""
        normal = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
        gain = self._gain(-x if self.order == "add" else x)
        if self.order == "add":
            return -gain, normal
        return gain - self._gain(-x) if self.order == "replace" else gain, normal + gain

    def place(self, loss: Array) -> Array:
        """Return where the loss is reached; -inf or inf where it never is."""
        if self.order == "replace":
            with np.errstate(divide="ignore"):
                half = np.abs(loss) / 2
                log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
                ratio = log_sinh - math.log(self.rate) + self.shift**2 / 2 + np.log1p(-self.rate)
            inverse = np.where(ratio < 20, np.arcsinh(np.exp(np.minimum(ratio, 20))), ratio + math.log(2))
            return np.sign(loss) * (half + inverse) / self.shift
        return self._ungain(loss) if self.order == "remove" else -self._ungain(-loss)

    def _gain(self, x: Array) -> Array:
        """Return ln(1 - q + q e^(a x - a^2/2))."""
        power = self.shift * x - self.shift**2 / 2
        if self.rate == 1:
            return power
        near = np.log1p(self.rate * np.expm1(np.minimum(power, 30.0)))
        if self.rate > 0.5:  # 1 - q + q e^power is small, and as a sum keeps its digits
            near = np.where(power < -1, np.log(1 - self.rate + self.rate * np.exp(np.minimum(power, -1.0))), near)
        far = math.log(self.rate) + power + np.log1p((1 - self.rate) / self.rate * np.exp(-np.maximum(power, 30.0)))
        return np.where(power > 30, far, near)

    def _ungain(self, gain: Array) -> Array:
        """Return the inverse of `_gain`; -inf below its range."""
        if self.rate == 1:
            return gain / self.shift + self.shift / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(gain, 1.0)) / self.rate, -1.0))
            least = np.log(np.maximum(np.exp(np.minimum(gain, -1.0)) - (1 - self.rate), 0.0)) - math.log(self.rate)
            small = np.where(gain < -1, least, small)  # e^gain has more digits than e^gain - 1
            large = gain - math.log(self.rate) + np.log1p(-(1 - self.rate) * np.exp(-np.maximum(gain, 1.0)))
        return np.where(gain < 1, small, large) / self.shift + self.shift / 2

    def far(self, log_tail: float) -> float:
        """Return x such that P has at most e^log_tail beyond x, and so below -x."""
        return self.shift + float(-ndtri_exp(log_tail))

    def mesh(self, low: float, high: float) -> Array:
        """Return points from `low` to `high` so near that density and loss change by a few percent in between."""
        width = SMOOTH / max(1.0, abs(low), abs(high), self.shift)
        return np.linspace(low, high, 2 + int(min((high - low) / width, 2e5)))

    def part(self, steps: int, delta: float, together: int | None = None, *, merged: bool = True) -> LossPart:
        """Return `steps` such steps, of `together` in all whose epsilon at `delta` is asked for.

        `merged`: losses of most outcomes that fall into one cell become one, else all cells begin at multiples of them.
        """
        log_tail = math.log(delta) + math.log(_LEFT_OUT / 2) - math.log(together or steps)
        far = self.far(log_tail)
        x = np.linspace(-far, far, 2 + self.mesh(-far, far).size // _ROUGHER)
        losses, logs = self.loss_and_log_density(x)
        cells = partial(_cells, self, far, 2 * math.exp(log_tail), merged=merged)
        return LossPart(cells, losses, logs + math.log(x[1] - x[0]), steps)


def epsilon_interval(
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    neighbouring: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
) -> tuple[float, float]:
    """Return (lower, upper) bounds of epsilon at `delta` of `steps` Gaussian steps on Poisson samples.

    `noise_multiplier` > 0 is the noise's standard deviation over the norm bound of one record's contribution,
    under every relation; `sample_rate` in (0, 1]; `steps` >= 0; `delta` in [1e-290, 1).
    Guarantee: the steps are (upper, delta)-DP under `neighbouring`, and not (e, delta)-DP for any e < lower. The two
    are within some 1e-5 of each other, relative, up to a million steps; further apart where delta is so small that one
    draw of the record decides, and where a record is drawn rarely and losses are far longer than epsilon (a tenth or
    more at a rate of 1e-6); rounding is bounded and counted in. `upper` is never above what the same noise spends
    without sampling.
    Sources: zhu2022, Theorem 11 (pairs); doroshenko2022 (pessimistic grid); `composition` (optimistic
    grid); without sampling and for one step closed forms (vandijk2023 (6), asoodeh2020 (10)).
    Raises ValueError naming the argument.
    """
    return _interval(noise_multiplier, sample_rate, steps, delta, neighbouring, both=True, tolerance=TOLERANCE)


def epsilon_upper(
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    neighbouring: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
    rough: bool = False,
) -> float:
    """Return the upper end of `epsilon_interval` alone, at half of its work; arguments, guarantee, errors as there.

    `rough`: some 1e-4 larger, relative, at a tenth of the work. Sources: those of `epsilon_interval`.
    """
    tolerance = ROUGH_TOLERANCE if rough else TOLERANCE
    return _interval(noise_multiplier, sample_rate, steps, delta, neighbouring, both=False, tolerance=tolerance)[1]


def _interval(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    neighbouring: str,
    *,
    both: bool,
    tolerance: float,
) -> tuple[float, float]:
    """Return the two ends; the lower one is 0 unless `both` are asked for or it costs nothing."""
    relation = member("neighbouring", Neighbouring, neighbouring)
    shift = 1 / real("noise_multiplier", noise_multiplier, above=0)
    rate = real("sample_rate", sample_rate, above=0, at_most=1)
    count = integer("steps", steps)
    failure = real("delta", delta, at_least=LEAST_DELTA, below=1)
    if count == 0:
        return 0.0, 0.0
    total_mu = (2 if relation is Neighbouring.REPLACE_ONE else 1) * shift * math.sqrt(count)
    ends = [gaussian_dp.epsilon_or_inf(min(failure * (1 + sign), 1.0), total_mu) for sign in _MARGINS]
    if math.isinf(ends[0]):
        return 0.0, math.inf
    unsampled = (ends[0] * (1 - 4 * UNIT), ends[1] * (1 + 4 * UNIT))
    if rate == 1 or unsampled[1] == 0:
        return unsampled
    if count * rate * math.erf(total_mu / math.sqrt(8 * count)) <= failure:  # the steps' total variation, at most
        return 0.0, 0.0
    orders: tuple[Order, ...] = ("replace",) if relation is Neighbouring.REPLACE_ONE else ("remove", "add")
    lower = upper = 0.0
    for order in orders:
        step = Step(shift, rate, order)
        if count == 1:
            bounds = _one_step(step, failure, unsampled[1])
        else:
            bounds = LossSearch([step.part(count, failure)], failure, tolerance=tolerance).interval(upper, both=both)
            if both and bounds[1] - bounds[0] > WIDE * bounds[1]:  # one step spends no more than many
                bounds = max(bounds[0], _one_step(step, failure, unsampled[1])[0]), bounds[1]
        lower, upper = max(lower, bounds[0]), max(upper, bounds[1])
    return lower, min(upper, unsampled[1])


_MARGINS = (CLOSED_FORM_ERROR, -CLOSED_FORM_ERROR)


def _one_step(step: Step, delta: float, largest: float) -> tuple[float, float]:
    """Return the interval of a single step, by the integral of its hockey-stick divergence."""

    def log_delta(epsilon: float) -> float:
        low = float(step.place(np.array(epsilon)))
        if not math.isfinite(low):
            return -math.inf if low > 0 else 0.0
        mesh = step.mesh(low, max(low, step.shift) + 12)
        x, weights = _quadrature(mesh)
        losses, logs = step.loss_and_log_density(x)
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        top = float(logs.max())
        return top + math.log(max(float(np.sum(weights * np.exp(logs - top) * gains)), 1e-320))

    lower, upper = (
        _crossing(lambda e, log=log: log_delta(e) - log, 0.0, largest) for log in math.log(delta) + np.array(_MARGINS)
    )
    return lower * (1 - 1e-13), upper * (1 + 1e-13)


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where `falling` is 0 between `low` and `high`, or the end where it never is."""
    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    return zero_between(lambda x: max(falling(x), -1e4), low, high, xtol=1e-300, rtol=1e-14)


def _quadrature(mesh: Array) -> tuple[Array, Array]:
    """Return nodes and weights, shape (cells, 3), of Gauss-Legendre quadrature in the cells of `mesh`."""
    half = np.diff(mesh)[:, None] / 2
    return mesh[:-1, None] + half * (1 + _NODES), half * _WEIGHTS


def _cells(step: Step, far: float, lost: float, interval: float, *, merged: bool) -> Cells:
    """Return the loss of one step cut into cells; a bulk narrower than a cell becomes an atom on the grid."""
    bulk, origin = _bulk(step, interval) if merged else (0.0, 0.0)
    low, high = float(step.loss(np.array(-far))), float(step.loss(np.array(far)))
    first, last = min(-1, math.floor((low - origin) / interval)), max(1, math.ceil((high - origin) / interval))
    grid = origin + np.arange(first, last + 1, dtype=np.float64) * interval
    edges = np.clip(step.place(grid), -far, far)
    edges[0], edges[-1] = -far, far
    mesh = np.sort(np.concatenate([edges, step.mesh(-far, far), [-bulk, bulk]]))
    middles = (mesh[1:] + mesh[:-1]) / 2
    owner = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, grid.size - 2)
    x, weights = _quadrature(mesh)
    losses, logs = step.loss_and_log_density(x)
    weights *= np.exp(logs)
    share = np.clip(np.expm1(grid[owner][:, None] - losses) / math.expm1(-interval), 0.0, 1.0)
    above, below = np.sum(weights * share, axis=1), np.sum(weights * (1 - share), axis=1)
    inside, cells = np.abs(middles) < bulk, grid.size - 1
    atom = [binned(owner[inside], part[inside], cells)[-first - 1 : -first + 1] for part in (below, above)]
    above[inside] = below[inside] = 0.0
    return Cells(
        float(grid[0]),
        interval,
        binned(owner, below, cells),
        binned(owner, above, cells),
        lost,
        (atom[0][0], atom[0][1] + atom[1][0], atom[1][1]),
        -first,
    )


def _bulk(step: Step, interval: float) -> tuple[float, float]:
    """Return (x, loss): |x| within which the losses differ by less than `interval`, and the loss of these outcomes
    merged; (0, 0) where these are not most outcomes."""
    reach = np.linspace(1.5, 9.0, 76)
    narrow = step.loss(reach) - step.loss(-reach) <= interval
    if not narrow[0]:
        return 0.0, 0.0
    bulk = float(reach[narrow][-1])
    x, weights = _quadrature(step.mesh(-bulk, bulk))
    losses, logs = step.loss_and_log_density(x)
    weights *= np.exp(logs)
    return bulk, -math.log1p(float(np.sum(weights * np.expm1(-losses)) / np.sum(weights)))
