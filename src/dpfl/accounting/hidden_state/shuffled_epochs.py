"""The last iterate of shuffled epochs whose permutations stay secret: a mean over where the last use falls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpfl.accounting import gaussian_divergence, gaussian_dp
from dpfl.accounting.contraction.stable_arithmetic import power
from dpfl.accounting.hidden_state.shifted_interpolation import place_energy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LastUse:
    """Possible steps of a record's last use: arrays of one length, one element per step.

    `chance` sums to the chance that the record is used at all; `shifted_mu` is mu of shifted interpolation over all
    steps, `used_mu` that up to the last use, `tail` the steps after it.
    """

    chance: Array
    shifted_mu: Array
    used_mu: Array
    tail: Array


def last_use(
    *,
    steps: int,
    steps_per_epoch: int,
    short_batch: float,
    contraction: float,
    noise_over_shift: float,
    diameter_over_shift: float,
) -> LastUse:
    """Return the places of the last use of a record in `steps` >= 1 steps of freshly shuffled epochs.

    `short_batch` in (0, 1] is the size of an epoch's last batch over that of the others. Earlier uses are put where
    they cost most, at the end of their epochs: moving a use to a later step never lowers the cost. The other arguments
    are those of `shifted_interpolation_mu`, one number each, and are not checked here.
    Source: derived; the mixture over permutations, none of which depends on the data.
    """
    epochs, rest = divmod(steps, steps_per_epoch)
    share = np.ones(steps_per_epoch)
    share[-1] = short_batch
    share /= share.sum()
    parts = []
    for uses, length, behind, chance in (
        (epochs, steps_per_epoch, rest, 1 - share[:rest].sum()),
        (epochs + 1, rest, 0, 1.0),
    ):
        if not uses or not length:
            continue
        gap = np.arange(1, length + 1)
        tail = length - gap + behind
        place = {"period": steps_per_epoch, "diameter": diameter_over_shift, "gap": gap}
        used = place_energy(contraction, uses, **place)
        shifted = place_energy(contraction, uses, **place, tail=tail)
        parts.append((chance * share[:length], np.minimum(shifted, used), used, tail.astype(np.float64)))
    chances, shifted, used, tails = (np.concatenate(column) for column in zip(*parts, strict=True))
    return LastUse(chances, np.sqrt(shifted) / noise_over_shift, np.sqrt(used) / noise_over_shift, tails)


def shuffled_delta(epsilon: float, places: LastUse, *, link: float, bound: str = "minimum") -> float:
    """Return the delta at `epsilon` >= 0 of the last iterate after shuffled epochs with secret permutations.

    `link` is contraction diameter/noise: how far apart two models may enter a step, in units of its noise; inf without
    projection. `bound`: "shifted" takes theta(epsilon, shifted_mu) at each place, "contraction"
    theta(epsilon, used_mu) theta(epsilon, link)^tail, "minimum" the smaller of both at each place.
    Formal guarantee: (epsilon, delta)-DP in both orders; the divergence is jointly convex, so a mixture over the place,
    whose law does not depend on the data, has at most the mean. Raises ValueError naming bound.
    Source: derived; the tail by contraction is asoodeh2020 Theorems 2 and 4, the shifts are bok2024.
    """
    logs = {}
    if bound in ("shifted", "minimum"):
        logs["shifted"] = gaussian_divergence.log_divergence(epsilon, places.shifted_mu)
    if bound in ("contraction", "minimum"):
        log_link = gaussian_divergence.log_divergence(epsilon, np.float64(link))
        logs["contraction"] = gaussian_divergence.log_divergence(epsilon, places.used_mu) + power(log_link, places.tail)
    if not logs:
        raise ValueError(f"bound must be one of 'shifted', 'contraction', 'minimum', got {bound!r}")
    return float(np.sum(places.chance * np.exp(np.min(list(logs.values()), axis=0))))


def shuffled_epsilon(delta: float, places: LastUse, *, link: float, bound: str = "minimum") -> float:
    """Return the least epsilon >= 0 at which `shuffled_delta` is at most `delta` in (0, 1), within 1e-9 above it.

    Formal guarantee: that of `shuffled_delta`. Source: the inverse of `shuffled_delta`.
    """

    def excess(epsilon: float) -> float:
        spent = shuffled_delta(epsilon, places, link=link, bound=bound)
        return math.log(max(spent, 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    highest = float(gaussian_dp.epsilon(delta, places.used_mu.max()))
    if excess(highest) >= 0:
        return highest
    root = brentq(excess, 0.0, highest, xtol=1e-10)
    return root if excess(root) <= 0 else min(highest, root + 1e-9)
