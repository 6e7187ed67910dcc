"""Calls that the docs show, for the type checker: `make lint` refuses an annotation that is too narrow for one.

`test_public_face.py` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfl.accounting import (
    ConvexProblem,
    FullBatch,
    LaplaceNoise,
    Neighbouring,
    Observer,
    Phase,
    Poisson,
    RandomAllocation,
    RandomizedResponse,
    guarantee,
    guarantee_of_phases,
    noise_multiplier,
    privacy_curve,
)
from dpfl.accounting.sampler_accountants import EpsilonBound, SamplerAccountant, accounts_for, sample_rate


@dataclass(frozen=True)
class Cyclic:
    """A sampler of a user's own: batches in a public order."""

    steps_per_epoch: int


@accounts_for(Cyclic)
class CyclicAccountant(SamplerAccountant[Cyclic]):
    """Gaussian DP of every step, which is more than is used."""

    @property
    def expected_uses(self) -> float:
        return 1 / self.sampler.steps_per_epoch

    def lower(self) -> EpsilonBound:
        return self.upper()


def documented_calls() -> dict[str, float]:
    """Return the epsilons, rates and noise of one call of each kind that the docs show."""
    found = {
        "allocation": guarantee(RandomAllocation(2, 10), noise_multiplier=2.0, steps=10, delta=1e-5).upper,
        "laplace": guarantee(LaplaceNoise(), noise_multiplier=5.0, steps=3, delta=0.01).upper,
        "own": guarantee(Cyclic(10), noise_multiplier=2.0, steps=10, delta=1e-5).upper,
        "every_step": guarantee(Poisson(0.1), noise_multiplier=2.0, steps=10, delta=1e-5, observer="every_step").upper,
        "noise": noise_multiplier(RandomAllocation(2, 10), target_epsilon=1.0, steps=10, delta=1e-5),
        "laplace_noise": noise_multiplier(LaplaceNoise(), target_epsilon=1.0, steps=10, delta=1e-5),
        "rate": sample_rate(RandomAllocation(2, 10)) + sample_rate(Cyclic(10)),
    }
    reports = RandomizedResponse(4)
    found["reports"] = guarantee(
        reports, noise_multiplier=reports.noise_multiplier(0.5), steps=1, delta=1e-5, neighbouring="replace_one"
    ).upper
    phases = [Phase(RandomAllocation(2, 10), 2.0, 10), Phase(LaplaceNoise(), 5.0, 1), Phase(Cyclic(10), 4.0, 1)]
    found["phases"] = guarantee_of_phases(phases, delta=1e-5).upper
    found["advantage"] = float(privacy_curve(phases[:1], neighbouring=Neighbouring.ZERO_OUT).advantage().upper)
    problem = ConvexProblem(smoothness=1.0, learning_rate=0.5, lipschitz=1.0, strong_convexity=0.4)
    hidden = guarantee(
        FullBatch(), noise_multiplier=3.0, steps=200, delta=1e-5, observer=Observer.LAST_ITERATE, convex=problem
    )
    return {**found, "convex": hidden.upper}
