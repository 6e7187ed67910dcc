"""Long schedules of noise: steps of many different noise multipliers as mixtures of a few.

A removal from (or addition to) Poisson samples at rate q and shift m = 1/noise has, at e^x >= 1, the profile
w theta(y, m) with w and y that depend on q and x alone (`subsampled_delta`, `poisson_add_delta`); at e^x < 1 it is that
of the other order. As a function of t(m) = theta(0, m), the total variation of the unsampled step, it is convex: from
d theta / dm = phi(m/2 - y/m) and dm/dt = sqrt(2 pi) e^(m^2/8), the second derivative in t is y^2/m^3 dm/dt times the
first one.

Above. Between nodes m_0 < m < m_1 the profile lies under its chord in t: the profile of the pair that is that of m_1
with the chance s = (t - t_0) / (t_1 - t_0), else that of m_0, told which. So this mixture dominates the step, and so in
composition (zhu2022, Theorem 10).

Below. Where y <= Y, the second derivative in t is at most k = Y^2/m_0^3 dm/dt(m_1) times the first. A function that
rises so has at t at least the share s' = (e^(k (t - t_0)) - 1) / (e^(k (t_1 - t_0)) - 1) of its rise from t_0 to t_1:
the mixture with s' in place of s is under the profile there. Outcomes of the nodes with a loss above that of Y are left
out, which only lowers. On the side of small losses, beyond -Y, the nodes' profiles exceed 1 - e^x, which no profile is
below, by at most theta(Y, m_1): lowering all masses by that share over 1 - e^x at Y puts them below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import erf, ndtri_exp

from dpfl.accounting.composition import Between
from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.poisson_gaussian import Step

if TYPE_CHECKING:
    from dpfl.accounting.loss_grids import GridLaw
    from dpfl.accounting.numerics import Array
    from dpfl.accounting.sampler_accountants import PhaseSource

_SPACING = 0.005
"""Distance of nodes in ln shift: what a mixture adds to epsilon is of its second order."""
TOLERANCE = 1e-5
"""Share of epsilon that the grid may add where all steps are between nodes. These add about 1e-4: a coarser grid takes
less time than nodes that are nearer."""
_WORTH = 2  # so many times more steps than nodes, for nodes to be used
_LEAST_RATE, _LARGEST_SHIFT = 1e-4, 5.0
_LEFT_OUT = 1e-4  # share of delta of the losses that are left out below
_ROUNDING = 1e-9  # allowed to a share


class SampledSteps(NamedTuple):
    """Steps at one `rate`: their different `shifts`, ascending, and how often each occurs, `counts`; shape (n,)."""

    rate: float
    shifts: Array
    counts: Array


def in_schedules(sources: Sequence[PhaseSource]) -> tuple[list[PhaseSource], list[SampledSteps]]:
    """Return the sources that stand for themselves, and those that nodes are worth while for, by their rate.

    Source: the definition of a schedule, in the module.
    """
    by_rate: dict[float, list[int]] = {}
    for place, source in enumerate(sources):
        if source.gaussian is not None and source.gaussian[0] <= _LARGEST_SHIFT and source.gaussian[1] >= _LEAST_RATE:
            by_rate.setdefault(source.gaussian[1], []).append(place)
    schedules, used = [], set()
    for rate, places in by_rate.items():
        known = sorted(
            (source.gaussian[0], source.steps) for source in map(sources.__getitem__, places) if source.gaussian
        )
        shifts, counts = (np.array(each, dtype=np.float64) for each in zip(*known, strict=True))
        if shifts.size >= _WORTH * _nodes(shifts).size:
            schedules.append(SampledSteps(rate, shifts, counts))
            used |= set(places)
    return [source for place, source in enumerate(sources) if place not in used], schedules


def between_nodes(
    schedules: Sequence[SampledSteps], order: Literal["remove", "add"], delta: float, together: int
) -> list[Between]:
    """Return the losses of the schedules between nodes, in one order of their pairs.

    delta: at which epsilon is asked for, of `together` steps in all. Source: derived in the module.
    """
    found = []
    for rate, shifts, counts in schedules:
        nodes = _nodes(shifts)
        parts = [Step(float(shift), rate, order).part(1, delta, together, merged=False) for shift in nodes]
        owners = np.clip(np.searchsorted(nodes, shifts, side="right") - 1, 0, nodes.size - 2)
        for place in np.unique(owners):
            mine = owners == place
            low, high = (Step(float(shift), rate, order) for shift in nodes[place : place + 2])
            above, below, trimmed = _shares(low, high, shifts[mine], delta, together)
            found.append(Between(parts[place], parts[place + 1], above, below, counts[mine], trimmed))
    return found


def _nodes(shifts: Array) -> Array:
    """Return nodes about ascending shifts."""
    least, most = math.log(shifts[0]) - 1e-6, math.log(shifts[-1]) + 1e-6
    return np.exp(np.linspace(least, most, 1 + max(1, math.ceil((most - least) / _SPACING))))


def _shares(
    low: Step, high: Step, shifts: Array, delta: float, together: int
) -> tuple[Array, Array, Callable[[GridLaw], GridLaw]]:
    """Return the chances of the node `high`, above and below, at these shifts, and what trims the nodes' laws below."""
    variations = erf(np.array([low.shift, *shifts, high.shift]) / math.sqrt(8))
    places = (variations[1:-1] - variations[0]) / (variations[-1] - variations[0])
    far = -float(ndtri_exp(math.log(delta) + math.log(_LEFT_OUT) - math.log(together)))
    most = high.shift * far + high.shift**2 / 2  # Y
    slope = math.sqrt(2 * math.pi) * math.exp(high.shift**2 / 8)
    bend = most**2 / low.shift**3 * slope * float(variations[-1] - variations[0])  # k (t_1 - t_0)
    below = np.expm1(bend * places) / math.expm1(bend)
    # Where y is Y: at the loss above which nothing is counted, and at the one below which the nodes may exceed.
    sign = -1 if high.order == "remove" else 1
    largest, least = (
        float(high.loss(np.array((end - sign * high.shift**2 / 2) / high.shift))) for end in (most, -most)
    )
    excess = float(theta(most, high.shift)) / -math.expm1(least)

    def trimmed(law: GridLaw) -> GridLaw:
        return replace(law, masses=np.where(law.losses <= largest, law.masses * (1 - excess), 0.0))

    return np.minimum(places + _ROUNDING, 1.0), np.maximum(below - _ROUNDING, 0.0), trimmed
