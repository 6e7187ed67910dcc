"""The epsilon that an attack's counts prove if the mechanism is known but for its noise.

A test's rates bound one point of the mechanism's trade-off curve. If the sampler, the number of steps and the relation
are as stated, and the noise is Gaussian, the curve has one free parameter: the noise multiplier. Every member whose
proven curve does not allow these rates is refuted; more noise allows less. So the mechanism adds less noise than the
least that is refuted, and its epsilon at any delta is at least what that member exceeds (nasr2023, section 5). The
bound says nothing of a mechanism that is of no such family, such as one that forgets to clip.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from dpfl.accounting import Phase, guarantee, privacy_curve

if TYPE_CHECKING:
    from dpfl.accounting.samplers import Sampler
    from dpfl.attacks.lower_bounds import TestErrors

_LEAST, _MOST = 1 / 8, 16.0  # times the stated noise: where the noise is looked for
_NEAR = 1.005


@lru_cache(maxsize=256)
def family_epsilon(
    errors: TestErrors,
    sampler: Sampler,
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
    neighbouring: str,
    confidence: float = 0.95,
) -> float:
    """Return a lower bound on epsilon at `delta` if the run is Gaussian steps on batches of `sampler`, 0 if none.

    `noise_multiplier` > 0, what is stated, is only where the search begins: noise is looked for from an eighth to 16
    times of it, and found to 0.5 %, on the safe side. Guarantee: if the run is of the family, and the test was fixed
    before the trainings that it counts, the bound is above the run's epsilon with probability 1 - `confidence` at most.
    Source: nasr2023, section 5; `privacy_curve` (the members' curves). Raises ValueError naming the argument.
    """
    found, wrong = errors.rates(confidence)
    if found <= wrong or wrong >= 1:
        return 0.0

    def refuted(noise: float) -> bool:
        curve = privacy_curve([Phase(sampler, noise, steps)], neighbouring=neighbouring)
        return bool(curve.true_positive_rate(wrong).upper < found)

    low, high = _LEAST * noise_multiplier, _MOST * noise_multiplier
    if not refuted(high):
        return 0.0
    if refuted(low):
        high = low
    while high / low > _NEAR:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return guarantee(sampler, noise_multiplier=high, steps=steps, delta=delta, neighbouring=neighbouring).lower
