"""Convex losses without clipping, of which only the last iterate is seen: what a guarantee gains from hidden steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.hidden_state.gradient_step import SENSITIVITIES, diameter_in_shifts, step_contraction
from dpfl.accounting.hidden_state.last_iterate import last_iterate_epsilon
from dpfl.accounting.hidden_state.shifted_interpolation import shifted_interpolation_mu
from dpfl.accounting.hidden_state.uniform_batches import LEAST_DELTA
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, FullBatch, Sampler, ShuffledEpochs

_SHUFFLED, _UNIFORM, _FULL = "shuffled_epochs", "fixed_without_replacement", "full_batch"
_PROOFS = {
    "composition": "composition of all iterates",
    "contraction": "contraction (asoodeh2020, Theorem 4) after the last use",
    "shifted_interpolation": "shifted interpolation (bok2024)",
    "contraction_and_shifts": "contraction or shifted interpolation, by place of the last use",
}


@dataclass(frozen=True)
class ConvexProblem:
    """Losses and steps w <- project(w - learning_rate (noisy sum of a batch's gradients) / divisor).

    The mean loss of every batch is convex, `smoothness`-smooth (> 0) and `strong_convexity`-strongly convex (from 0 to
    smoothness; a public regulariser counts); a record's gradient is at most `lipschitz` > 0 long by itself: a CLIPPED
    gradient need not contract, and no such problem may be stated for it. `learning_rate` is in (0, 2/smoothness].
    `project` is on a convex set of `diameter` > 0 (inf: none). The divisor is the batch size, of a shorter last batch
    too; `records` is that of a full batch, needed where the diameter is finite. Raises ValueError naming the field.
    """

    smoothness: float
    learning_rate: float
    lipschitz: float
    strong_convexity: float = 0.0
    diameter: float = math.inf
    records: int | None = None

    def __post_init__(self) -> None:
        smoothness = real("smoothness", self.smoothness, above=0)
        real("learning_rate", self.learning_rate, above=0, at_most=2 / smoothness)
        real("lipschitz", self.lipschitz, above=0)
        real("strong_convexity", self.strong_convexity, at_least=0, at_most=smoothness)
        real("diameter", self.diameter, above=0, infinite=True)
        if self.records is not None:
            integer("records", self.records, at_least=1)

    @property
    def attained(self) -> bool:
        """True where a quadratic attains shifted interpolation under full batches: without a set, if a step contracts
        by 1 - learning_rate strong_convexity. Longer steps turn around, and the shifts of a record cancel.
        """
        stretch = self.learning_rate * (self.smoothness + self.strong_convexity)
        return math.isinf(self.diameter) and stretch <= 2

    def last_iterate(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> tuple[float, str] | None:
        """Return an epsilon of the last iterate alone and its proof; None where the sampler and relation have none.

        `noise_multiplier` is the noise's standard deviation on a batch's sum over `lipschitz`. Guarantee and sources:
        `last_iterate_epsilon`. Raises ValueError naming `records` where it is needed.
        """
        batches, size, records = self._batches(sampler)
        unproven = neighbouring is Neighbouring.ADD_OR_REMOVE and batches != _FULL
        if batches is None or unproven or (batches == _UNIFORM and delta < LEAST_DELTA):
            return None
        found = last_iterate_epsilon(
            batches=batches,
            steps=steps,
            records=records,
            batch_size=size,
            noise_multiplier=noise_multiplier,
            delta=delta,
            step_size=self.learning_rate,
            smoothness=self.smoothness,
            lipschitz=self.lipschitz,
            strong_convexity=self.strong_convexity,
            diameter=self.diameter,
            neighbouring=neighbouring,
        )
        return found.epsilon, f"last iterate of convex losses: {_PROOFS[found.bound]}"

    def last_iterate_mu(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, neighbouring: Neighbouring
    ) -> float | None:
        """Return a mu of Gaussian DP of the last iterate of full batches, wherever the first one is; else None.

        Guarantee and source: `shifted_interpolation_mu`. Raises ValueError naming `records` where it is needed.
        """
        if not isinstance(sampler, FullBatch):
            return None
        _, size, _ = self._batches(sampler)
        diameter = diameter_in_shifts(
            self.diameter,
            step_size=self.learning_rate,
            lipschitz=self.lipschitz,
            batch_size=size,
            neighbouring=neighbouring,
        )
        return shifted_interpolation_mu(
            steps=steps,
            contraction=step_contraction(self.learning_rate, self.smoothness, self.strong_convexity),
            noise_over_shift=noise_multiplier / SENSITIVITIES[neighbouring],
            diameter_over_shift=diameter,
        )

    def _batches(self, sampler: Sampler) -> tuple[str | None, int, int]:
        """The sampler's name among the hidden-state bounds, the batch size and the number of records."""
        match sampler:
            case FullBatch():
                if self.records is None and math.isfinite(self.diameter):
                    raise ValueError("convex: records must be given for full batches on a set of finite diameter")
                size = self.records or 1
                return _FULL, size, size
            case ShuffledEpochs(batch_size=size, records=records):
                return _SHUFFLED, size, records
            case FixedBatches(batch_size=size, records=records):
                return _UNIFORM, size, records
        return None, 1, 1
