"""Composition of a mechanism that is known by its privacy profile alone: delta as a function of epsilon."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

Array = NDArray[np.float64]


def composed_epsilon(
    profile: Callable[[Array], Array], *, largest: float, steps: int, delta: float, interval: float = 1e-4
) -> float:
    """Return epsilon at `delta` of `steps` adaptive uses of a mechanism with the given `profile`.

    `profile` maps an array of epsilon in [0, `largest`] to delta and holds in both directions of the
    neighbouring relation; it must fall, be convex in e^epsilon and never lie below the truth, and then so does
    the answer never (zhu2022: such a curve has a dominating pair; doroshenko2022 discretise it).
    What the profile leaves at `largest` counts as lost in every step. Grid: `interval` in epsilon.
    """
    # At -epsilon the divergence is 1 - e^-epsilon + e^-epsilon delta(epsilon), by exchanging the two laws.
    return composed_pair_epsilon(
        lambda e: np.where(e < 0, 1 - np.exp(np.minimum(e, 0)) * (1 - profile(np.abs(e))), profile(np.abs(e))),
        largest=largest,
        steps=steps,
        delta=delta,
        interval=interval,
    )


def composed_pair_epsilon(
    divergence: Callable[[Array], Array], *, largest: float, steps: int, delta: float, interval: float = 1e-4
) -> float:
    """Return epsilon at `delta` of the `steps`-fold product of one pair of laws, in the one direction given.

    `divergence` maps an array of epsilon in [-`largest`, `largest`] to the hockey-stick divergence of the pair.
    Grid and errors as for `composed_epsilon`.
    """
    count = max(1, int(np.ceil(largest / interval)))
    deltas = np.clip(divergence(np.arange(-count, count + 1) * interval), 0.0, 1.0)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -count, count, deltas)
    pld = privacy_loss_distribution.PrivacyLossDistribution(pmf)
    composed = pld.self_compose(steps, tail_mass_truncation=min(1e-15, 1e-6 * delta))
    return float(composed.get_epsilon_for_delta(delta))
