"""The epsilon that steps show, if each adds Gaussian noise and draws records as its sampler says.

An audit, not an outsider's attack: it reads which steps drew the record, and measures the two numbers of this family of
mechanisms that the accountant takes for granted: how much noise a step adds, and how far a record moves a step that
draws it. So a run with too little noise is found out, and one that lets a record pull farther than its clip norm. Their
ratio is the noise multiplier that the run has in truth, and the accountant's proven lower bound at it, with the stated
sampler, is a lower bound on the run's epsilon.

What is measured is no secret that the sampler keeps, so a few thousand draws tell it to some per cent; a test that must
guess the coins, as every attacker must, needs millions. The bound says nothing of a run of another kind: one that draws
more often than it says, repeats its noise or its batches, or leaks where nobody looks, may spend more.

Sources: nasr2023, section 5, for the bound that knows the mechanism but for its noise; agrawal2026 for scores of
canaries read as Gaussian numbers instead of guesses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import nct

from dpfl.accounting import guarantee
from dpfl.accounting.numerics import integer, real

if TYPE_CHECKING:
    from dpfl.accounting.samplers import FixedBatches, Poisson

_FARTHEST = 50.0
"""Largest reach that is reported, in deviations of the noise."""
_LARGEST = 1e4
"""Largest statistic of the noncentral t law that is used: a larger one counts as this, which lowers the bound."""


@dataclass(frozen=True)
class StepEvidence:
    """Sums over what steps showed, in clip norms, along directions that were fixed before the step.

    `total` is the sum over `draws` steps that drew the record in question, each of which a record within the claim
    moves by `shift` at most. `squares` is the sum of the squares of `values` numbers of noise alone. Evidence of two
    runs adds up. Raises ValueError naming the field out of range.
    """

    shift: float
    draws: int
    total: float
    values: int
    squares: float

    def __post_init__(self) -> None:
        real("shift", self.shift, above=0)
        integer("draws", self.draws)
        real("total", self.total)
        integer("values", self.values)
        real("squares", self.squares, at_least=0)

    @classmethod
    def of(cls, drawn: NDArray[np.float64], noise: NDArray[np.float64], shift: float) -> Self:
        """Return the evidence of observations of steps that drew the record, and of noise alone, of any shapes."""
        return cls(shift, drawn.size, float(drawn.sum()), noise.size, float(np.square(noise).sum()))

    def __add__(self, other: StepEvidence) -> StepEvidence:
        """Return the evidence of both; raises ValueError where a record would move them differently."""
        if self.shift != other.shift:
            raise ValueError(f"shift: {self.shift} and {other.shift} do not add up")
        return StepEvidence(
            self.shift, self.draws + other.draws, self.total + other.total, self.values + other.values,
            self.squares + other.squares,
        )  # fmt: skip

    def columns(self, attack: str) -> dict[str, Any]:
        """Return the fields as columns of a run table."""
        return {f"{attack}_{name}": value for name, value in asdict(self).items()}

    @classmethod
    def read(cls, run: Mapping[str, Any], attack: str) -> Self | None:
        """Return the evidence of an attack in a row of a run table, None where it has none."""
        found = {field.name: float(run.get(f"{attack}_{field.name}", math.nan)) for field in fields(cls)}
        if any(math.isnan(value) for value in found.values()):
            return None
        return cls(found["shift"], int(found["draws"]), found["total"], int(found["values"]), found["squares"])


def reach_lower_bound(evidence: StepEvidence, confidence: float = 0.95) -> float:
    """Return a lower bound on how far a record moves a step that draws it, in deviations of the noise.

    Between 0 and the lesser of 50 and 10,000 / sqrt(draws). The mean over draws, over the root mean square of the
    noise, times sqrt(draws) follows a noncentral t law whose centre is the reach times sqrt(draws); this is exact.
    Guarantee: with probability `confidence` or more some step reaches as far, if the noise is Gaussian, the same in
    every direction, and independent from step to step. Reaches may differ between steps: the centre is their mean. What
    is not noise alone among the squares only lowers the bound. Source: johnson1940. Raises ValueError naming the
    argument.
    """
    miss = 1 - real("confidence", confidence, above=0, below=1)
    if evidence.draws == 0 or evidence.values == 0 or evidence.total <= 0:
        return 0.0
    scale, noise = math.sqrt(evidence.draws), math.sqrt(evidence.squares / evidence.values)
    seen = evidence.total / scale / noise if evidence.total < _LARGEST * scale * noise else _LARGEST

    def excess(centre: float) -> float:
        return float(nct.sf(seen, evidence.values, centre)) - miss

    # The deviation of the law is about `width`: beyond a few of them its series does not converge.
    width = math.sqrt(1 + seen**2 / (2 * evidence.values))
    about = seen + float(ndtri(miss)) * width
    low = max(0.0, about - 4 * width)
    if excess(low) > 0:
        return 0.0
    return min(_FARTHEST, float(cast("Any", brentq)(excess, low, about + 4 * width)) / scale)


@lru_cache(maxsize=256)
def family_epsilon(
    evidence: StepEvidence,
    sampler: Poisson | FixedBatches,
    *,
    steps: int,
    delta: float,
    neighbouring: str,
    confidence: float = 0.95,
) -> float:
    """Return a lower bound on epsilon at `delta` if the run is `steps` Gaussian steps on batches of `sampler`.

    0 where the evidence shows nothing. Guarantee: as of `reach_lower_bound`; then the bound is above the run's epsilon
    with probability 1 - `confidence` at most. Raises ValueError naming the argument.
    """
    reach = reach_lower_bound(evidence, confidence)
    if reach == 0:
        return 0.0
    noise = evidence.shift / reach
    return guarantee(sampler, noise_multiplier=noise, steps=steps, delta=delta, neighbouring=neighbouring).lower
