"""Neighbouring relations between data sets, and observers: what an adversary sees of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dpfl.accounting.samplers import Accountable

# Neighbouring relations between data sets.


class Neighbouring(StrEnum):
    """Relation between the two data sets that must be indistinguishable."""

    ADD_OR_REMOVE = "add_or_remove"
    """One record more or one fewer: a clipped sum moves by at most the clip norm."""
    REPLACE_ONE = "replace_one"
    """One record becomes another: a clipped sum moves by at most twice the clip norm."""
    ZERO_OUT = "zero_out"
    """One record's contribution becomes zero, the size stays: a clipped sum moves by at most the clip norm."""


MOVES = {Neighbouring.ADD_OR_REMOVE: 1.0, Neighbouring.ZERO_OUT: 1.0, Neighbouring.REPLACE_ONE: 2.0}
"""By how many norm bounds of a record's contribution a sum moves from a data set to its neighbour, which has the same
batches."""


# Observers: the parts of a run that an adversary sees, and what a proof about the last iterate must offer.


class Observer(StrEnum):
    """Part of a run that the adversary sees."""

    EVERY_STEP = "every_step"
    """Every noisy gradient, or every iterate."""
    LAST_ITERATE = "last_iterate"
    """The model after the last step only."""
    ROUND_ENDS = "round_ends"
    """The models after the last step of each round, the last step of the run among them."""


class HidesSteps(Protocol):
    """A problem whose last iterate spends less than all iterates together, as `ConvexProblem`."""

    @property
    def attained(self) -> bool:
        """True where a loss of the problem attains, under full batches, what `last_iterate` proves of it."""
        ...

    def last_iterate(
        self, sampler: Accountable, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> tuple[float, str] | None:
        """Return an epsilon of the last iterate and its proof; None where the sampler and relation have none."""
        ...

    def last_iterate_mu(
        self, sampler: Accountable, *, noise_multiplier: float, steps: int, neighbouring: Neighbouring
    ) -> float | None:
        """Return a mu of Gaussian DP of the last iterate, wherever the first one is; None if there is no proof."""
        ...
