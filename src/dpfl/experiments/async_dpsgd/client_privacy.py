"""Privacy of a client (vandijk2023, section 2.4): what it adds to its updates, and what that guarantees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dpfl.accounting import gaussian_dp
from dpfl.accounting.guarantees import noise_multiplier
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, Poisson, Sampler, Sampling
from dpfl.accounting.statements.mechanism import Gaussian, Segmented
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.accounting.tradeoff.segments import Segment, segments_sigma
from dpfl.errors import InputError
from dpfl.experiments.async_dpsgd.async_settings import AsyncSettings, Scaling
from dpfl.experiments.async_dpsgd.input_normalisation import InputNormalisation
from dpfl.experiments.async_dpsgd.schedules import BatchSchedule, Strategy

_ASYNCHRONY = "delay, loss, order and interrupts are post-processing and change nothing"
_ONE_AXIS = "arsinh noise: for moves of the sum along one axis, no proof for others"
_LEAKS = "inputs prepared with exact statistics of the records, which no guarantee covers"
_BATCH_NORM = "batch normalisation: each clipped gradient depends on the whole batch, which no guarantee covers"
_COUNTED = "the clip norm follows a noisy count, part of each round's Gaussian mechanism"
_BATCH_CLIP = "the batch's mean gradient is clipped, with its own sensitivity of 2C"
_CHOSEN = "the choice of settings by accuracy is not accounted for"


@dataclass(frozen=True)
class ClientPrivacy:
    """Batches, noise and budget of one cell, checked.

    sigma: the noise of a round over the sensitivity of its sum to the neighbouring relation, 2 clip_norm for
    REPLACE_ONE and clip_norm for ZERO_OUT; None where it has to meet `epsilon` (infinite: no privacy, no clipping)
    if used as `budget` says, which is `strategy` itself but for one that may spend more.
    preparation_share: the part of epsilon that the inputs' preparation alone may spend.
    `records` is public: sample rate and number of rounds follow from it, so no statement is made for ADD_OR_REMOVE.
    """

    records: int
    batch_size: int
    epochs: int
    sampling: Sampling
    neighbouring: Neighbouring
    clip_norm: float
    delta: float
    epsilon: float
    sigma: float | None
    strategy: Strategy
    budget: Strategy
    preparation: InputNormalisation
    preparation_share: float

    @classmethod
    def of(cls, given: AsyncSettings, records: int) -> ClientPrivacy:
        """Return the privacy of settings for a client of `records`; raises InputError naming what cannot be used."""
        factor = given.batch_factor
        batch_size = given.batch_size * factor
        if batch_size > records:
            raise InputError(f"batch_size: is {batch_size}, must be from 1 to a client's {records} records")
        if given.neighbouring is Neighbouring.ADD_OR_REMOVE:
            raise InputError(
                f"neighbouring: {given.neighbouring} is not kept here, should be {Neighbouring.ZERO_OUT} or "
                f"{Neighbouring.REPLACE_ONE}: sample rate and rounds follow from a client's number of records"
            )
        if given.sampling is Sampling.FIXED and given.neighbouring is not Neighbouring.REPLACE_ONE:
            raise InputError(f"neighbouring: must be {Neighbouring.REPLACE_ONE} for batches of fixed size")
        strategy = _strategy(given.strategy, given.strategies)
        privacy = cls(
            records=records,
            batch_size=batch_size,
            epochs=given.epochs * (factor if given.scaling is Scaling.ROUNDS else 1),
            sampling=given.sampling,
            neighbouring=given.neighbouring,
            clip_norm=given.clip_norm,
            delta=_delta(given.delta, records),
            epsilon=given.epsilon,
            sigma=None if given.sigma is None else given.sigma * factor,
            strategy=strategy,
            budget=_strategy(strategy.budget_of, given.strategies) if strategy.budget_of else strategy,
            preparation=given.preparation,
            preparation_share=given.preparation_share,
        )
        privacy._check()
        return privacy

    def _check(self) -> None:
        """Raise InputError for what has no accounting."""
        if self.sampling is Sampling.POISSON and self.preparation.is_private:
            raise InputError("preparation: is accounted for batches of fixed size only")
        own = self.strategy
        special = own.batch_clip or own.adaptive_quantile is not None
        if self.sampling is Sampling.POISSON and (special or self.segments(own, 1.0) != [self._segment]):
            raise InputError(
                "strategy: segments, arsinh noise, batch clipping and adaptive clip norms are accounted for batches of "
                "fixed size only"
            )
        plain = not own.batch_clip and math.isinf(own.arsinh_scale) and set(own.noise(self.course)) == {1.0}
        if own.adaptive_quantile is not None and not plain:
            raise InputError("strategy: adaptive_quantile goes with records clipped one by one and one Gaussian noise")

    @cached_property
    def course(self) -> BatchSchedule:
        """The batches of the run; raises InputError where a segment has one that cannot be."""
        return self.strategy.course(records=self.records, batch_size=self.batch_size, epochs=self.epochs)

    @property
    def rounds(self) -> int:
        """Rounds of the run: whole batches in an epoch, over all epochs."""
        return self.course.rounds

    @property
    def private(self) -> bool:
        """True where there is a finite budget, or noise."""
        return self.sigma is not None or math.isfinite(self.epsilon)

    @property
    def sampler(self) -> Sampler:
        """Sampler of a round's batch among a client's records."""
        if self.sampling is Sampling.POISSON:
            return Poisson(self.batch_size / self.records)
        return FixedBatches(self.batch_size, self.records)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of a sum to one record, in clip norms."""
        return 2.0 if self.neighbouring is Neighbouring.REPLACE_ONE else 1.0

    @property
    def _segment(self) -> Segment:
        """A run without segments, at sigma 1."""
        return Segment(self.rounds, 1.0, self.batch_size / self.records)

    def preparation_sigma(self) -> float:
        """Return the noise of the preparation's release over its sensitivity: 0 where it takes exact statistics."""
        if not (self.private and self.preparation.is_private):
            return 0.0
        return 1 / float(gaussian_dp.mu(self.preparation_share * self.epsilon, self.delta))

    def segments(self, strategy: Strategy, sigma: float) -> list[Segment]:
        """Return what is released with a run's sigma: the preparation, then the rounds."""
        prepared = self.preparation_sigma()
        release = [Segment(1, prepared, 1.0)] if prepared else []
        return release + strategy.segments(self.course, sigma=sigma, records=self.records)

    def round_sigma(self) -> float:
        """Return the run's sigma: the one given, or the least that meets epsilon; 0 without privacy.

        Raises InputError where nothing is proven at the run's delta and noise law.
        """
        if not self.private:
            return 0.0
        if self.sigma is not None:
            return self.sigma
        if self.sampling is Sampling.FIXED:
            try:
                return segments_sigma(partial(self.segments, self.budget), self.epsilon, self.delta)
            except ValueError as refusal:
                raise InputError(f"{refusal}, for batches of fixed size") from None
        run = {"target_epsilon": self.epsilon, "steps": self.rounds, "delta": self.delta}
        return noise_multiplier(self.sampler, **run, neighbouring=self.neighbouring) / self.sensitivity

    def statement(self, sigma: float) -> PrivacyStatement:
        """Return the guarantee of one client's releases for a run with this sigma."""
        run = {"records": self.records, "steps": self.rounds, "delta": self.delta, "neighbouring": self.neighbouring}
        if not self.private:
            return PrivacyStatement.of(Gaussian(), self.sampler, noise_multiplier=0.0, **run)
        noise = {"clip_norm": self.clip_norm, "noise_multiplier": sigma * self.sensitivity}
        if self.sampling is Sampling.POISSON:
            note = f"Poisson sampling, as accounted; {_ASYNCHRONY}"
            return PrivacyStatement.of(Gaussian(), self.sampler, note=note, **run, **noise)
        mechanism = Segmented(tuple(self.segments(self.strategy, sigma)))
        stated = PrivacyStatement.of(mechanism, self.sampler, **run, **noise)
        guarantee, note = stated.guarantee, self._note(stated.guarantee.upper)
        if self._leak:
            guarantee = replace(guarantee, upper=math.inf, upper_by=self._leak)
        return replace(stated, guarantee=guarantee, note=note)

    @property
    def _leak(self) -> str:
        """Reason that no guarantee holds, where none does; empty else."""
        if self.preparation is InputNormalisation.BATCH:
            return _BATCH_NORM
        return _LEAKS if self.preparation.is_exact else ""

    def _note(self, spent: float) -> str:
        """Say how the accounting relates to what is done."""
        parts = ["C_p of each round, composed (fixed batches, sensitivity 2C)", _ASYNCHRONY]
        sigmas = np.unique(self.strategy.noise(self.course))
        if len(sigmas) > 1:
            parts.append(f"segments with {', '.join(f'{value:.3g}' for value in sigmas)} times this noise, composed")
        sizes = dict.fromkeys(self.course.batch_sizes)
        if len(sizes) > 1:
            parts.append(f"segments with batches of {', '.join(map(str, sizes))}, each with its own rate, composed")
        if math.isfinite(self.strategy.arsinh_scale):
            parts.append(_ONE_AXIS)
        if self.preparation.is_private:
            parts.append(f"with the preparation's sigma of {self.preparation_sigma():.4g}")
        if self.strategy.adaptive_quantile is not None:
            parts.append(_COUNTED)
        if self.strategy.batch_clip:
            parts.append(_BATCH_CLIP)
        if self._leak:
            parts.append(f"{self._leak}; the updates alone would spend {spent:.3g}")
        if self.sigma is not None:
            parts.append(_CHOSEN)
        return "; ".join(parts)


def _delta(given: float | str, records: int) -> float:
    """Return delta, in records of a client where it is given so (vandijk2023, section 3.2)."""
    return {"1/N": 1 / records, "1/(10 N)": 1 / (10 * records)}[given] if isinstance(given, str) else given


def _strategy(name: str, known: Mapping[str, Strategy]) -> Strategy:
    """Return the strategy of that name; raises InputError naming the known ones."""
    if name not in known:
        raise InputError(f"strategy: {name!r} is unknown, should be one of {', '.join(known)}")
    return known[name]
