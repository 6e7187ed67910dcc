"""Settings of an experiment without a trusted server, checked: protocols, mechanisms, and the grid to choose from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dpfl.accounting import isrl_dp
from dpfl.accounting.samplers import Sampling
from dpfl.algorithms import local_sgd, minibatch_sgd
from dpfl.engine.federated_rounds import Clipping, Hyperparameters, Participation, Protocol
from dpfl.errors import InputError
from dpfl.experiments.shared.ldp_noise import ClientMessages, NoiseRule
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Settings, Several, among
from dpfl.grid.sweep import is_private
from dpfl.models.glm import Array, Loss


class LdpAlgorithm(StrEnum):
    """An algorithm that a cell may name."""

    MINIBATCH = "minibatch"
    LOCAL = "local"


RUN = {
    LdpAlgorithm.MINIBATCH: minibatch_sgd.averaged_minibatch_sgd,
    LdpAlgorithm.LOCAL: local_sgd.averaged_local_sgd,
}
"""Its training."""


@dataclass(frozen=True)
class ClientCounts:
    """Counts that the data decide: clients, each one's records before the split, and the fewest that one trains on."""

    clients: int
    before_split: int
    training: int


class CountedRecords(StrEnum):
    """Ways to count a client's records in the noise of local SGD."""

    TRAINING = "training"
    """Those that it trains on."""
    BEFORE_SPLIT = "before_split"
    """All of them, as the authors' scripts do: less noise than the formula asks for."""


class LdpSettings(Settings):
    """A sweep's settings. step_exponents by algorithm: (first, last, count) of the step sizes' natural logarithms.

    batch_size "published" is the K of the authors' scripts at the setting largest_epsilon, the same for every cell; as
    in their experiments it counts a client's records before the split, which makes it larger than lowy2021's
    Theorem 2.1 asks for. A whole number is taken as it is. local_noise_records: the n of the formula for the noise of
    local SGD, with its delta 1/n^2; that of minibatch SGD always counts training records.
    """

    noise: Choice[NoiseRule]
    largest_epsilon: Positive
    rounds: Count
    participating: Count
    batch_size: Literal["published"] | Count
    repetitions: Count
    last_iterates: Count
    sampling: Annotated[Choice[Sampling], among(Sampling.WITH_REPLACEMENT, Sampling.FIXED)]
    clipping: Choice[Clipping]
    delta: Literal["1/n^2"]
    local_noise_records: Choice[CountedRecords] = CountedRecords.TRAINING
    step_exponents: dict[str, Annotated[tuple[float, float, Count], Field(strict=False)]]
    clip_norms: Several[Annotated[float, Field(gt=0)]]
    divergence_loss: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where settings do not go together."""
        if self.last_iterates > self.rounds:
            raise ValueError(f"last_iterates is {self.last_iterates}; it must be at most the {self.rounds} rounds")
        if not any(map(math.isfinite, self.clip_norms)):
            raise ValueError(f"clip_norms is {list(self.clip_norms)}; one of them must be finite")
        if self.local_noise_records is CountedRecords.BEFORE_SPLIT and self.noise is NoiseRule.TIGHT:
            raise ValueError("local_noise_records: before_split is for the published formulas, and noise is tight")
        return self


class LdpCell(Settings):
    """A cell: its algorithm, one of RUN, and its budget."""

    algorithm: Choice[LdpAlgorithm]
    epsilon: Epsilon


@dataclass(frozen=True)
class LdpPlan:
    """A sweep's settings on its data. step_sizes by algorithm and clip_norms span the grid that a run is chosen from.

    Every client adds the same noise, calibrated to the client with the fewest training records, `records`; that of
    local SGD to one with `local_noise_records`.
    """

    protocol: Protocol
    clients: int
    records: int
    local_noise_records: int
    delta: float
    noise: NoiseRule
    step_sizes: dict[str, Array]
    clip_norms: Array
    divergence_loss: float

    @classmethod
    def of(cls, settings: LdpSettings, cells: Iterable[LdpCell], loss: Loss, records: ClientCounts) -> LdpPlan:
        """Return the plan; raises InputError naming the setting or the cell's key that cannot be used."""
        if settings.participating > records.clients:
            raise InputError(f"participating is {settings.participating}; there are {records.clients} clients")
        protocol = Protocol(
            loss=loss,
            rounds=settings.rounds,
            participation=Participation((settings.participating,)),
            batch_size=_batch_size(settings, records),
            repetitions=settings.repetitions,
            last_iterates=settings.last_iterates,
            sampling=settings.sampling,
            clipping=settings.clipping,
        )
        plan = cls(
            protocol=protocol,
            clients=records.clients,
            records=records.training,
            local_noise_records=(
                records.before_split
                if settings.local_noise_records is CountedRecords.BEFORE_SPLIT
                else records.training
            ),
            delta=1.0 / records.training**2,
            noise=settings.noise,
            step_sizes={name: np.exp(np.linspace(*exps)) for name, exps in settings.step_exponents.items()},
            clip_norms=np.array(settings.clip_norms, dtype=np.float64),
            divergence_loss=settings.divergence_loss,
        )
        for cell in cells:
            plan._check_cell(cell.epsilon, settings.largest_epsilon)
        return plan

    def protocol_of(self, algorithm: str) -> Protocol:
        """Return an algorithm's protocol: a step of local SGD draws its record anew, whatever a minibatch does."""
        fields = dict(vars(self.protocol))
        if algorithm == "local":
            fields["sampling"] = Sampling.WITH_REPLACEMENT
        return Protocol(**fields)

    def messages(self, algorithm: str) -> ClientMessages:
        """Return what a client that joins every round releases: R messages of K records, or K R of one record."""
        protocol = self.protocol_of(algorithm)
        batch_size = protocol.batch_size
        return ClientMessages(
            message_records=batch_size if algorithm == "minibatch" else 1,
            records=self.records,
            releases=protocol.rounds * (1 if algorithm == "minibatch" else batch_size),
            delta=self.delta,
            sampling=protocol.sampling,
            clipping=protocol.clipping,
            batch_share=min(1.0, batch_size / self.records),
        )

    def calibrated_messages(self, algorithm: str) -> ClientMessages:
        """Return the messages that the noise is calibrated for: those of a client with the records that it counts."""
        messages = self.messages(algorithm)
        counted = self.records if algorithm == "minibatch" else self.local_noise_records
        if counted == self.records:
            return messages
        share = min(1.0, self.protocol.batch_size / counted)
        return replace(messages, records=counted, delta=1.0 / counted**2, batch_share=share)

    def points(self, cell: Mapping[str, Any], noise_multiplier: float) -> Hyperparameters:
        """Return the cell's grid, step sizes outside, clip norms inside; only without privacy may a norm be inf."""
        clips = self.clip_norms[np.isfinite(self.clip_norms)] if is_private(cell) else self.clip_norms
        steps, clips = (part.ravel() for part in np.meshgrid(self.step_sizes[cell["algorithm"]], clips, indexing="ij"))
        if not is_private(cell):
            return Hyperparameters(steps, clips, np.zeros_like(steps))
        return Hyperparameters(steps, clips, noise_multiplier * clips / self.messages(cell["algorithm"]).share)

    def _check_cell(self, epsilon: float, largest_epsilon: float) -> None:
        """Raise InputError where a cell's budget cannot be used."""
        if math.isinf(epsilon):
            return
        if epsilon > largest_epsilon:
            raise InputError(f"epsilon is {epsilon} in a cell, above largest_epsilon {largest_epsilon}")
        covered = math.log(2.0 / self.delta)
        if self.noise is NoiseRule.ADVANCED_COMPOSITION and epsilon > covered:
            raise InputError(
                f"epsilon is {epsilon} in a cell; for a client with {self.records} training records the published "
                f"noise is stated up to ln(2/delta) = {covered:.3g}: take fewer clients or a smaller epsilon"
            )
        if self.noise is NoiseRule.TIGHT and self.protocol.clipping is Clipping.MEAN:
            raise InputError("noise: tight needs clipping: record, for clipping the mean does not protect a record")


def _batch_size(settings: LdpSettings, records: ClientCounts) -> int:
    """Return the K of every round, at least 1, and without replacement at most n."""
    size = settings.batch_size
    if size == "published":
        client = {
            "epsilon": settings.largest_epsilon,
            "rounds": settings.rounds,
            "records": records.before_split,
        }
        if settings.noise is NoiseRule.MOMENTS:
            least = isrl_dp.least_batch_moments(**client)
        else:
            least = isrl_dp.least_batch_advanced(**client, delta=1.0 / records.before_split**2)
        size = math.floor(least)
        if size < 1:
            raise InputError(f"largest_epsilon: {settings.largest_epsilon} gives a batch of K = 0 records; raise it")
    if settings.sampling is Sampling.FIXED and size > records.training:
        raise InputError(
            f"batch_size: K = {size} records without replacement exceed the {records.training} that a client trains on"
        )
    return size
