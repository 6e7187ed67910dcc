"""An accountant for Opacus's registry: the upper end of the certified interval for Poisson samples.

    from opacus import PrivacyEngine
    from dpfl.accounting.opacus_accountant import register
    register()
    engine = PrivacyEngine(accountant="dpfl_pld")
    model, optimizer, loader = engine.make_private_with_epsilon(...)

Opacus loads torch: no other module of accounting imports this one.
"""

from __future__ import annotations

import math
from typing import Any

from opacus.accountants import IAccountant, register_accountant

from dpfl.accounting.external_claims import poisson_phases
from dpfl.accounting.guarantees import guarantee_of_phases
from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.accounting.numerics import real
from dpfl.accounting.poisson_gaussian import LEAST_DELTA

MECHANISM = "dpfl_pld"
"""Its name in Opacus's registry."""


class CertifiedAccountant(IAccountant):
    """Opacus's accountant by pessimistic PLDs, composed over all phases of a training, rounding counted in.

    Guarantee: (get_epsilon(delta), delta)-DP under add_or_remove, and so zero_out, against an observer of every step,
    for batches drawn as Poisson samples: `make_private` draws these by default; with poisson_sampling=False the
    number does not hold, as with every accountant of Opacus.
    Source: `guarantee_of_phases`.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step."""
        steps = 1
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            steps += self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, steps))

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """Return epsilon at `delta` of all steps so far; inf if one was without noise.

        `options` of other accountants are left alone: this one has none. Raises ValueError naming delta.
        """
        delta = real("delta", delta, at_least=LEAST_DELTA, below=1)
        history = [phase for phase in self.history if phase[2] > 0]
        if any(noise == 0 for noise, _, _ in history):
            return math.inf
        if not history:
            return 0.0
        # The upper end is every observer's; for one of the model alone no lower end is computed, half of the work.
        question = {"delta": delta, "neighbouring": Neighbouring.ADD_OR_REMOVE, "observer": Observer.LAST_ITERATE}
        return guarantee_of_phases(poisson_phases(history), **question).upper

    def __len__(self) -> int:
        """Return the number of steps so far, as `IAccountant` defines it; Opacus's own accountants count entries."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return its name in the registry."""
        return MECHANISM


def register() -> None:
    """Make `PrivacyEngine(accountant="dpfl_pld")` and `create_accountant("dpfl_pld")` known to Opacus.

    Source: the definition of Opacus's registry. Calling it again changes nothing.
    """
    register_accountant(MECHANISM, CertifiedAccountant, force=True)
