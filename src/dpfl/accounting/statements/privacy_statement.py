"""Privacy statement of a run: an epsilon with everything that it depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.guarantees import Guarantee
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.observer import Observer
from dpfl.accounting.samplers import Sampler
from dpfl.accounting.statements.mechanism import Mechanism, NoNoise, encode, sample_rate


@dataclass(frozen=True)
class PrivacyStatement:
    """Proven and refuted epsilon of a run of `steps` noisy steps, with the setting in which they apply.

    `records` are those of one client, and public unless `records_public` is False; `clip_norm` bounds one record's
    contribution, inf where nothing is clipped; `noise_multiplier` is the noise's standard deviation over that bound.
    `guarantee` holds at `delta` for `neighbouring` data sets and an `observer`: epsilon is at most `upper` (inf where
    nothing is proven) and no proof can show less than `lower` (0 where nothing is known).
    All of it is of this run alone, its seed secret: runs of one seed share base noise, so their guarantees must not be
    composed as if it were independent. `note` says what else a reader has to know.
    Raises ValueError naming the first field out of range.
    """

    mechanism: Mechanism
    sampler: Sampler
    neighbouring: Neighbouring
    observer: Observer
    records: int
    records_public: bool
    clip_norm: float
    noise_multiplier: float
    steps: int
    delta: float
    guarantee: Guarantee
    note: str

    def __post_init__(self) -> None:
        member("neighbouring", Neighbouring, self.neighbouring)
        member("observer", Observer, self.observer)
        integer("records", self.records, at_least=1)
        integer("steps", self.steps)
        real("clip_norm", self.clip_norm, above=0, infinite=True)
        real("noise_multiplier", self.noise_multiplier, at_least=0)
        real("delta", self.delta, at_least=0, below=1)
        real("guarantee.upper", self.guarantee.upper, at_least=0, infinite=True)
        real("guarantee.lower", self.guarantee.lower, at_least=0, infinite=True)
        if self.guarantee.lower > self.guarantee.upper * (1 + 1e-9):
            raise ValueError(f"guarantee.lower {self.guarantee.lower} must not exceed upper {self.guarantee.upper}")

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        sampler: Sampler,
        *,
        neighbouring: Neighbouring,
        records: int,
        noise_multiplier: float,
        steps: int,
        delta: float,
        clip_norm: float = math.inf,
        observer: Observer = Observer.EVERY_STEP,
        records_public: bool = True,
        note: str = "",
    ) -> PrivacyStatement:
        """Return the statement of what `mechanism` guarantees; noise_multiplier 0 is no noise and no guarantee.

        Raises ValueError as the class and the mechanism's accountant do.
        """
        if noise_multiplier == 0:
            mechanism, note = NoNoise(), "; ".join(filter(None, ["no noise is added: no privacy guarantee", note]))
        run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta, "neighbouring": neighbouring}
        return cls(
            mechanism=mechanism,
            sampler=sampler,
            observer=observer,
            records=records,
            records_public=records_public,
            clip_norm=clip_norm,
            guarantee=mechanism.guarantee(sampler, **run),
            note=note,
            **run,
        )

    def columns(self) -> dict[str, str | int | float | bool]:
        """Return the statement as table columns named `privacy_...`; mechanism and sampler as JSON (`encode`)."""
        values = {
            "mechanism": encode(self.mechanism),
            "sampler": encode(self.sampler),
            "sampling": self.sampler.sampling.value,
            "neighbouring": self.neighbouring.value,
            "observer": self.observer.value,
            "records": self.records,
            "records_public": self.records_public,
            "sample_rate": sample_rate(self.sampler),
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "steps": self.steps,
            "delta": self.delta,
            "epsilon_proven": self.guarantee.upper,
            "proven_by": self.guarantee.upper_by,
            "epsilon_refuted": self.guarantee.lower,
            "refuted_by": self.guarantee.lower_by,
            "note": self.note,
        }
        return {f"privacy_{name}": value for name, value in values.items()}
