"""A claim that somebody makes about a private run, and the verdict on it: proven, refuted, or unknown."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache

from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.guarantees import Guarantee, Phase, guarantee_of_phases
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.observer import HidesSteps, Observer
from dpfl.accounting.samplers import SAMPLERS, Sampler, Sampling


class ClaimVerdict(StrEnum):
    """Verdict on a claimed epsilon."""

    PROVEN = "proven"
    """The claim is at least the proven epsilon: it holds for all data and losses."""
    REFUTED = "refuted"
    """Some data and losses spend more than the claim: no proof of it can exist."""
    UNKNOWN = "unknown"
    """The claim lies between what is proven and what is exceeded."""


@dataclass(frozen=True)
class Claim:
    """A run of noisy steps, phase by phase, and the epsilon at `delta` that somebody claims for it.

    Raises ValueError naming the field: epsilon that is not finite and at least 0, no phase, and what
    `guarantee_of_phases` refuses of one argument.
    """

    name: str
    phases: tuple[Phase, ...]
    delta: float
    epsilon: float
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT
    observer: Observer | str = Observer.EVERY_STEP
    convex: HidesSteps | None = None
    """The problem of the run, where its losses are convex and no gradient is clipped: for the last iterate."""

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, at_least=0)
        real("delta", self.delta, above=0, below=1)
        member("neighbouring", Neighbouring, self.neighbouring)
        member("observer", Observer, self.observer)
        if not self.phases:
            raise ValueError("phases must hold at least one phase")
        for phase in self.phases:
            real("noise_multiplier", phase.noise_multiplier, above=0)
            integer("steps", phase.steps)


@dataclass(frozen=True)
class ClaimJudgement:
    """The verdict on a claim, the argument that decides it, and the interval that it rests on."""

    verdict: ClaimVerdict
    why: str
    guarantee: Guarantee


def judge(epsilon: float, guarantee: Guarantee) -> ClaimJudgement:
    """Return the verdict on a claimed `epsilon` >= 0 of a run that has this guarantee.

    Guarantee: proven means (epsilon, delta)-DP as `guarantee.upper` is; refuted means that the worst pair behind
    `guarantee.lower` spends more. Nothing is said about one data set in particular.
    Source: elementary, `Guarantee`. Raises ValueError naming epsilon.
    """
    claimed = real("epsilon", epsilon, at_least=0)
    if claimed < guarantee.lower:
        return ClaimJudgement(ClaimVerdict.REFUTED, guarantee.lower_by, guarantee)
    if claimed >= guarantee.upper:
        return ClaimJudgement(ClaimVerdict.PROVEN, guarantee.upper_by, guarantee)
    why = f"not proven by: {guarantee.upper_by}; not refuted by: {guarantee.lower_by}"
    return ClaimJudgement(ClaimVerdict.UNKNOWN, why, guarantee)


def check(claim: Claim) -> ClaimJudgement:
    """Return the verdict on a claim, by the accountants of this package.

    Guarantee: that of `judge`. Source: `guarantee_of_phases`. Raises ValueError naming the field out of range.

    >>> from dpfl.accounting import Phase, ShuffledEpochs
    >>> from dpfl.accounting.claims.claim import Claim, check
    >>> run = Phase(ShuffledEpochs(batch_size=64, records=6000), noise_multiplier=1.0072, steps=1880)
    >>> check(Claim("Table 2", (run,), delta=1e-5, epsilon=2.93)).verdict
    <ClaimVerdict.REFUTED: 'refuted'>
    """
    setting = claim.phases, claim.delta, claim.neighbouring, claim.observer, claim.convex
    return judge(claim.epsilon, _guarantee(*setting))


@lru_cache(maxsize=64)
def _guarantee(
    phases: tuple[Phase, ...], delta: float, neighbouring: str, observer: str, convex: HidesSteps | None
) -> Guarantee:
    """Return the guarantee of a run, once for all claims about it."""
    return guarantee_of_phases(phases, delta=delta, neighbouring=neighbouring, observer=observer, convex=convex)


def sampler_named(name: str, **settings: float) -> Sampler:
    """Return the sampler of that name, with the settings that it needs and no other.

    Source: elementary. Raises ValueError naming what is missing, too much or out of range.
    """
    kind = SAMPLERS[member("sampler", Sampling, name)]
    needed = [field.name for field in fields(kind)]
    if set(settings) != set(needed):
        raise ValueError(
            f"sampler {name} needs {' and '.join(needed) or 'no setting of its own'}, got {_list(settings)}"
        )
    return kind(**settings)


def _list(settings: dict[str, float]) -> str:
    """Return the names in words."""
    return " and ".join(settings) or "none"
