"""The privacy blanket of shuffled Gaussian reports: the part of their law that is independent of the input.

With noise of deviation 1 and inputs in a ball of radius a = mu/2 every report has at least the density
gamma w(y) = inf_x R_x(y) = phi(|y| + a). Reports drawn from w hide the one that differs: for m ~ Bin(n, gamma)
    delta(epsilon) <= E[(sum_{i<=m} L(W_i))_+] / (gamma n),   L = (R_x - e^epsilon R_x') / w,   W_i ~ w,
balle2019, Lemma 5.3. For the antipodal pair R_x/w = gamma e^{a (|y| + y_1)}, and
R_x'/w the same with -y_1. The sum's law is the n-fold convolution of "0, or L with probability gamma".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, real
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.privacy_profiles import composed_epsilon
from dpfl.accounting.shuffling.blanket_law import blanket_law
from dpfl.accounting.shuffling.positive_part import Fineness, positive_part

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
        local = float(gaussian_dp.epsilon(total, move))
        if local == 0 or move > _HOPELESS:
            return local
        has_blanket = count * blanket_law(move / 2, dim).weight >= _NO_BLANKET
        return _solve(count, move, total, dim, local) if has_blanket else local

    return elementwise(one, n=n, mu=mu, delta=delta, dimension=dimension)


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
        return _delta(real("epsilon", epsilon, at_least=0), count, move, dim, (_COARSE, _COARSE, _FINE))

    return elementwise(one, epsilon=epsilon, n=n, mu=mu, dimension=dimension)


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
    deltas = np.array([_delta(float(point), count, move, dim, (_COARSE, _COARSE)) for point in points])
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


def _delta(epsilon: float, n: int, mu: float, dimension: int, lattices: Sequence[Fineness]) -> float:
    """The bound at `epsilon`, on one lattice after the other: how small to cut depends on the size of the answer."""
    local = float(gaussian_dp.delta(epsilon, mu))
    if local == 0 or mu > _HOPELESS or n * blanket_law(mu / 2, dimension).weight < _NO_BLANKET:
        return local
    estimate = local
    for fineness in lattices:
        bound, _ = _bound(n, mu, dimension, max(estimate, _LEAST_DELTA))
        estimate = min(local, max(0.0, bound(epsilon, fineness)))
    return estimate


def _solve(n: int, mu: float, delta: float, dimension: int, local: float) -> float:
    """The epsilon in [0, local] where the bound is `delta`: searched on a coarse lattice, refined on a fine one."""
    bound, guess = _bound(n, mu, dimension, delta)

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
    epsilon = brentq(excess, low, high, xtol=1e-12, rtol=1e-4)
    slope = min((excess(epsilon * 1.001) - excess(epsilon)) / (epsilon * 0.001), -1e-9)
    for attempt in range(12):
        error, room = excess(epsilon, _FINE), 1e-6 * 4.0 ** max(0, attempt - 2)  # more room where rounding is felt
        if -room <= error <= 0:
            return epsilon
        epsilon = min(local, max(0.0, epsilon - (error + room / 2) / slope))
    return local


def _bound(n: int, mu: float, dimension: int, scale: float) -> tuple[Callable[[float, Fineness], float], float]:
    """The bound as a function of epsilon, computed to a share of 1e-6 where it is about `scale`; and where that is
    if the sum were normal."""
    blanket = blanket_law(mu / 2, dimension)
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
