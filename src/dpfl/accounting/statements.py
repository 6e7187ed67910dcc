"""Privacy statement of a run: an epsilon with everything that it depends on.

Mechanisms: the noise that hides a record in a release, as frozen objects that know their accountants. A mechanism and a
sampler (dpfl.accounting.samplers) together say what one step releases; `guarantee` states what is proven of `steps` of
them, and what no proof can beat. `encode` writes either as JSON for a column of a table, so that a check of a statement
reads the object and no prose; `str` is for people. Everywhere `noise_multiplier` is the noise's standard deviation over
the norm bound of one record's contribution.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

from dpfl.accounting import gaussian_dp, local_privacy, shuffling
from dpfl.accounting.guarantees import Guarantee, Phase, guarantee, guarantee_of_phases
from dpfl.accounting.neighbouring import MOVES, Neighbouring, Observer
from dpfl.accounting.numerics import integer, member, real
from dpfl.accounting.sampler_accountants import sample_rate
from dpfl.accounting.samplers import (
    SAMPLERS,
    FixedBatches,
    FullBatch,
    Sampler,
    ShuffledEpochs,
    WithReplacement,
)
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon

# Mechanisms: the noise that hides a record in a release, as frozen objects that know their accountants.


class Mechanism(Protocol):
    """One step's noise: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return bounds on epsilon for `steps` steps at `delta`; raises ValueError naming an argument out of range."""
        ...


@dataclass(frozen=True)
class NoNoise:
    """Nothing is added: no guarantee at any delta below 1."""

    def guarantee(self, sampler: Sampler, **run: Any) -> Guarantee:
        """Return infinity, both ways."""
        return Guarantee(math.inf, math.inf, "no noise, no guarantee", "no noise, no guarantee")

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise on a sum of clipped records; every noisy sum is seen."""

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return what the sampler's accountant proves."""
        noise_multiplier, steps, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        return _gaussian(sampler, noise_multiplier, steps, delta, neighbouring)

    def __str__(self) -> str:
        return "Gaussian"


@dataclass(frozen=True)
class ClippedMeanGaussian:
    """Gaussian noise on the clipped mean of a batch, which one record of it can reverse."""

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return the profile of batches that a replaced record decides; below, the pair that comes near it.

        Nothing for other relations or samplers.
        """
        noise_multiplier, steps, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        if neighbouring is not Neighbouring.REPLACE_ONE or not isinstance(sampler, FixedBatches | WithReplacement):
            return _nothing("no accountant for a clipped mean under this sampler and relation")
        return _turned_mean(sampler, noise_multiplier, steps, delta)

    def __str__(self) -> str:
        return "Gaussian on a clipped mean"


@dataclass(frozen=True)
class SummedGaussian:
    """Gaussian noise of each of `clients` clients; only the sum of their messages on full batches is seen."""

    clients: int

    def __post_init__(self) -> None:
        integer("clients", self.clients, at_least=1)

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return the closed form of the summed noise."""
        noise_multiplier, steps, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        return _gaussian(sampler, noise_multiplier * math.sqrt(self.clients), steps, delta, neighbouring)

    def __str__(self) -> str:
        return f"Gaussian, summed over {self.clients} clients"


@dataclass(frozen=True)
class ShuffledGaussian:
    """Gaussian noise of each of `clients` clients on full batches of `records` records; their messages are seen in
    random order."""

    clients: int
    records: int
    dimension: int

    def __post_init__(self) -> None:
        integer("clients", self.clients, at_least=1)
        integer("records", self.records, at_least=1)
        integer("dimension", self.dimension, at_least=1)

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return the privacy blanket of the other clients, composed; below, the closed form with all noise summed."""
        noise_multiplier, steps, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        if neighbouring is not Neighbouring.REPLACE_ONE or not isinstance(sampler, FullBatch):
            return _nothing("no accountant for shuffled messages under this sampler and relation")
        run = {"clients": self.clients, "records": self.records, "dimension": self.dimension, "delta": delta}
        upper = shuffling.epsilon(noise_multiplier=noise_multiplier, rounds=steps, **run)
        summed = _closed_form(noise_multiplier * math.sqrt(self.clients), 2.0, steps, delta)
        return Guarantee(upper, _attained(summed), "privacy blanket, composed", "closed form of the messages' sum")

    def __str__(self) -> str:
        return f"Gaussian, messages of {self.clients} clients with {self.records} records each shuffled"


@dataclass(frozen=True)
class Laplace:
    """Laplace noise on one number of one record; each record is in one step only, and all are seen."""

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return the closed form of one noisy number (asoodeh2020, inverse of eq. (9)), the order of records known."""
        noise_multiplier, steps, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        if not isinstance(sampler, ShuffledEpochs) or not _one_epoch(sampler, steps, neighbouring):
            return _nothing("Laplace noise is accounted for in one pass over a number of records that is public")
        shift = MOVES[neighbouring] * math.sqrt(2.0) / noise_multiplier
        upper = (shift * (1.0 + 2.0**-50) + 2.0 * math.log1p(-delta)) * (1.0 + 2.0**-51)  # rounded up
        return Guarantee(max(0.0, upper), 0.0, "closed form of one step", "nothing")

    def __str__(self) -> str:
        return "Laplace"


@dataclass(frozen=True)
class Segmented:
    """Rounds whose noise, batches or law change by segments fixed before the run (vandijk2023, section 5.2)."""

    segments: tuple[Segment, ...]

    def guarantee(
        self, sampler: Sampler, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> Guarantee:
        """Return C_p of every round, composed; below, the pair of the rounds with Gaussian noise on drawn batches.

        Batches of fixed size, one record replaced. A release of all records (p = 1, a preparation), arsinh noise and
        a share p of the records that is not a whole number are left out below: who does not see them sees less. A round
        that also releases a count of the gradients within the clip norm attains the pair too: others -C and longer,
        the record +C and no longer, or another such -C.
        """
        _, _, delta, neighbouring = _checked(noise_multiplier, steps, delta, neighbouring)
        if neighbouring is not Neighbouring.REPLACE_ONE or not isinstance(sampler, FixedBatches):
            return _nothing("segments are accounted for with batches of fixed size and one record replaced")
        return _of_segments(self.segments, sampler.records, delta)

    def __str__(self) -> str:
        laws = sorted({segment.arsinh_scale for segment in self.segments})
        arsinh = [f"a arsinh(N/a), a = {scale:g} sigma" for scale in laws if math.isfinite(scale)]
        return f"{' and '.join(arsinh) or 'Gaussian'}, {len(self.segments)} segments"


def encode(part: Mechanism | Sampler) -> str:
    """Return a mechanism or a sampler as JSON: its kind and its fields."""
    return json.dumps({"kind": type(part).__name__, **asdict(part)})


def decode(text: str) -> Any:
    """Return the mechanism or the sampler that `encode` wrote. Source: elementary, the inverse of `encode`.

    Raises ValueError for what is no JSON, KeyError for an unknown kind, TypeError for other fields.
    """
    fields = json.loads(text)
    kind = _KINDS[fields.pop("kind")]
    if "segments" in fields:
        fields["segments"] = tuple(Segment(**each) for each in fields["segments"])
    return kind(**fields)


def _checked(
    noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring | str
) -> tuple[float, int, float, Neighbouring]:
    """Return the arguments of a mechanism's guarantee; raises ValueError naming one out of range."""
    noise, count = real("noise_multiplier", noise_multiplier, above=0), integer("steps", steps)
    return noise, count, real("delta", delta, at_least=0, below=1), member("neighbouring", Neighbouring, neighbouring)


def _nothing(why: str) -> Guarantee:
    return Guarantee(math.inf, 0.0, why, "nothing")


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(NoNoise, Gaussian, ClippedMeanGaussian, SummedGaussian, ShuffledGaussian, Laplace, Segmented),
        *SAMPLERS.values(),
    )
}


def _closed_form(noise_multiplier: float, move: float, steps: int, delta: float) -> float:
    """Return epsilon of `steps` Gaussian mechanisms."""
    return gaussian_dp.epsilon_or_inf(delta, move * math.sqrt(steps) / noise_multiplier)


def _attained(epsilon: float) -> float:
    """Return a closed form as a lower bound: 0 where it is inf, which says only that it is beyond floats."""
    return epsilon if math.isfinite(epsilon) else 0.0


def _one_epoch(sampler: ShuffledEpochs, steps: int, neighbouring: Neighbouring) -> bool:
    """Return whether a record changes one step at most: with one record more or fewer, all batches are others."""
    return steps <= sampler.steps_per_epoch and neighbouring is not Neighbouring.ADD_OR_REMOVE


@cache
def _gaussian(
    sampler: Sampler, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
) -> Guarantee:
    """Return the guarantee of Gaussian noise under a sampler, once for all that share it."""
    move = MOVES[neighbouring]
    if isinstance(sampler, FullBatch):
        exact = _closed_form(noise_multiplier, move, steps, delta)
        return Guarantee(exact, _attained(exact), "closed form", "closed form")
    if isinstance(sampler, ShuffledEpochs) and _one_epoch(sampler, steps, neighbouring):
        # One step uses the record, which one may be known.
        return Guarantee(_closed_form(noise_multiplier, move, 1, delta), 0.0, "closed form of one step", "nothing")
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta, "neighbouring": neighbouring}
    known = guarantee(sampler, **run)
    if isinstance(sampler, FixedBatches | WithReplacement) and neighbouring is Neighbouring.REPLACE_ONE:
        drawn = {"batch_size": sampler.batch_size, "records": sampler.records, "sampling": sampler.sampling}
        spent = float(local_privacy.epsilon(noise_multiplier=noise_multiplier, steps=steps, delta=delta, **drawn))
        return Guarantee(spent, min(known.lower, spent), "composed profile of the sampler's pair", known.lower_by)
    return known


@cache
def _turned_mean(
    sampler: FixedBatches | WithReplacement, noise_multiplier: float, steps: int, delta: float
) -> Guarantee:
    """Return the guarantee of a clipped mean, once for all that share it."""
    run = {"batch_size": sampler.batch_size, "records": sampler.records, "steps": steps, "delta": delta}
    drawn = {"sigma_over_lipschitz": noise_multiplier, "sampling": sampler.sampling}
    spent = float(local_privacy.clipped_mean_epsilon(**run, **drawn))
    known = local_privacy.clipped_mean_known_epsilon(**run, **drawn)
    by = "composed profile of a record that turns the mean", "optimistic PLD of the pair: others -L, the record turns"
    return Guarantee(spent, min(known, spent), *by)


@cache
def _of_segments(segments: tuple[Segment, ...], records: int, delta: float) -> Guarantee:
    """Return the guarantee of segments with one record replaced, once for all that share them."""
    try:
        spent, by = segments_epsilon(segments, delta), "C_p of each round, composed"
    except ValueError as refusal:  # a delta or an arsinh scale that no accountant here covers
        return _nothing(str(refusal))
    phases = [
        Phase(FixedBatches(round(each.p * records), records), MOVES[Neighbouring.REPLACE_ONE] * each.sigma, each.rounds)
        for each in segments
        if each.p < 1 and math.isinf(each.arsinh_scale) and math.isclose(each.p * records, round(each.p * records))
    ]
    if not phases:
        return Guarantee(spent, 0.0, by, "nothing")
    known = guarantee_of_phases(phases, delta=delta, neighbouring=Neighbouring.REPLACE_ONE)
    return Guarantee(spent, min(known.lower, spent), by, known.lower_by)


@dataclass(frozen=True)
class PrivacyStatement:
    """Proven and refuted epsilon of a run of `steps` noisy steps, with the setting in which they apply.

    `records` are those of one client, and public unless `records_public` is False; `clip_norm` bounds one record's
    contribution, inf if nothing is clipped; `noise_multiplier` is the noise's standard deviation over that bound.
    `guarantee` holds at `delta` for `neighbouring` data sets and an `observer`: epsilon is at most `upper` (inf where
    nothing is proven) and no proof can show less than `lower` (0 if nothing is known).
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
        object.__setattr__(self, "neighbouring", member("neighbouring", Neighbouring, self.neighbouring))
        object.__setattr__(self, "observer", member("observer", Observer, self.observer))
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
    def of(  # noqa: PLR0913
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
        records_public: bool = True,
        note: str = "",
    ) -> PrivacyStatement:
        """Return the statement of what `mechanism` guarantees against an observer of every step; noise_multiplier 0
        means no noise and no guarantee.

        Raises ValueError as the class and the mechanism's accountant do.
        """
        if real("noise_multiplier", noise_multiplier, at_least=0) == 0:
            mechanism, note = NoNoise(), "; ".join(filter(None, ["no noise is added: no privacy guarantee", note]))
        run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta, "neighbouring": neighbouring}
        return cls(
            mechanism=mechanism,
            sampler=sampler,
            observer=Observer.EVERY_STEP,
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
