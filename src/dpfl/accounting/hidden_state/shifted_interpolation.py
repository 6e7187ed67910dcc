"""Gaussian DP of the last iterate of noisy gradient descent: full batches, and batches in a fixed cyclic order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.hidden_state.absorption import best_restart, least_energy


def shifted_interpolation_mu(
    *,
    steps: ArrayLike,
    contraction: ArrayLike,
    noise_over_shift: ArrayLike,
    diameter_over_shift: ArrayLike = math.inf,
    steps_per_epoch: ArrayLike = 1,
) -> float | NDArray[np.float64]:
    """Return mu such that the last iterate is mu-Gaussian-DP; array arguments broadcast.

    The record is used once every `steps_per_epoch` steps (1: full batches), at worst in the last step of all.
    `contraction` c in [0, 1] is that of a step (`step_contraction`; 1 for convex losses); `noise_over_shift` > 0 the
    noise of a step over the shift that the record causes (noise_multiplier for zero_out, half of it for replace_one);
    `diameter_over_shift` > 0 that of the convex set projected on (`diameter_in_shifts`), inf for none.

    Formal guarantee: T(X_t, X'_t) >= G_mu for neighbours, in both orders, if the loss of each batch of ONE of the two
    data sets has c-Lipschitz gradient steps. No clipping may be active: a clipped gradient need not contract.
    Exact for full batches without projection where c = 1 - eta m (a quadratic attains it); never above composition,
    sqrt(ceil(steps/steps_per_epoch))/noise_over_shift. 0 at steps = 0. Raises ValueError naming the argument.

    Source: bok2024, section 4: NoisyGD (strongly convex; convex, constrained) and
    NoisyCGD (Theorem 4.5; convex, constrained), each with the shifts and the restart of least cost, found
    numerically; the constrained theorems' closed forms are larger and need enough steps.
    """

    def one(
        steps: float,
        contraction: float,
        noise_over_shift: float,
        diameter_over_shift: float,
        steps_per_epoch: float,
    ) -> float:
        count, period = integer("steps", steps), integer("steps_per_epoch", steps_per_epoch, at_least=1)
        factor = real("contraction", contraction, at_least=0, at_most=1)
        noise = real("noise_over_shift", noise_over_shift, above=0)
        diameter = real("diameter_over_shift", diameter_over_shift, above=0, infinite=True)
        if count == 0:
            return 0.0
        uses = -(-count // period)
        return math.sqrt(float(place_energy(factor, uses, period=period, diameter=diameter))) / noise

    return elementwise(
        one,
        steps=steps,
        contraction=contraction,
        noise_over_shift=noise_over_shift,
        diameter_over_shift=diameter_over_shift,
        steps_per_epoch=steps_per_epoch,
    )


def place_energy(
    contraction: float,
    uses: int,
    *,
    period: int,
    diameter: float,
    gap: ArrayLike | None = None,
    tail: ArrayLike = 0,
) -> NDArray[np.float64]:
    """Return mu^2 at noise_over_shift 1 of a record used `uses` >= 1 times, by where its last use falls.

    `gap` (1..period, default period): steps from the use before to the last one; `tail` >= 0: steps after it; they
    broadcast. The restart is sought for the worst of them and tried for all, as well as none, one before the last
    use and one after it. Arguments are not checked. Source: as `shifted_interpolation_mu`.
    """
    gap = np.asarray(period if gap is None else gap)
    energy = least_energy(contraction, uses, period=period, gap=gap, tail=tail, start=0.0)
    if math.isinf(diameter):
        return energy
    worst = {"gap": int(np.max(gap)), "tail": int(np.min(tail))}
    best = best_restart(contraction, uses, period=period, diameter=diameter, **worst)
    for restart in {best, 0, min(1, uses - 1)}:
        restarted = least_energy(contraction, restart, period=period, gap=gap, tail=tail, start=diameter)
        energy = np.minimum(energy, restarted)
    return energy
