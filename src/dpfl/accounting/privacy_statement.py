"""The privacy statement of a run: never an epsilon without all that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling


@dataclass(frozen=True)
class PrivacyStatement:
    """What a run of `steps` noisy steps guarantees, for whom, and by which accountant.

    `records` are those of one client; `sample_rate` is the share of them that a step uses (0 to 1);
    `clip_norm` bounds one record's contribution; `noise_multiplier` is the noise's standard deviation over
    that bound; `epsilon_rdp` and `epsilon_pld` belong to `delta`, are infinite without privacy and nan where
    that accountant has no answer. `note` says how the accounting relates to the sampler that really ran.
    Raises ValueError naming the first field out of range.
    """

    mechanism: str
    sampling: Sampling
    neighbouring: Neighbouring
    records: int
    sample_rate: float
    clip_norm: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon_rdp: float
    epsilon_pld: float
    note: str

    def __post_init__(self) -> None:
        if not isinstance(self.sampling, Sampling):
            raise ValueError(f"sampling must be a Sampling, got {self.sampling!r}")
        if not isinstance(self.neighbouring, Neighbouring):
            raise ValueError(f"neighbouring must be a Neighbouring, got {self.neighbouring!r}")
        integer("records", self.records, at_least=1)
        integer("steps", self.steps)
        real("sample_rate", self.sample_rate, at_least=0, at_most=1)
        real("clip_norm", self.clip_norm, above=0, infinite=True)
        real("noise_multiplier", self.noise_multiplier, at_least=0)
        real("delta", self.delta, at_least=0, below=1)
        for name in ("epsilon_rdp", "epsilon_pld"):
            value = getattr(self, name)
            if not math.isnan(value):
                real(name, value, at_least=0, infinite=True)

    @classmethod
    def not_private(
        cls,
        *,
        sampling: Sampling,
        records: int,
        sample_rate: float,
        steps: int,
        neighbouring: Neighbouring = Neighbouring.ADD_OR_REMOVE,
        clip_norm: float = math.inf,
        delta: float = 0.0,
        note: str = "no noise is added: no privacy guarantee",
    ) -> PrivacyStatement:
        """Return the statement of a run without noise: both epsilons infinite, whatever delta below 1.

        `clip_norm` is infinite when the run does not clip. Raises ValueError as the class does.
        """
        return cls(
            mechanism="none",
            sampling=sampling,
            neighbouring=neighbouring,
            records=records,
            sample_rate=sample_rate,
            clip_norm=clip_norm,
            noise_multiplier=0.0,
            steps=steps,
            delta=delta,
            epsilon_rdp=math.inf,
            epsilon_pld=math.inf,
            note=note,
        )

    def columns(self) -> dict[str, str | int | float]:
        """Return the fields as table columns named `privacy_<field>`; enums become their text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {f"privacy_{name}": v.value if isinstance(v, Enum) else v for name, v in values.items()}
