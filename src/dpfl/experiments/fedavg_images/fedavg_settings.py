"""Settings and cells of a federated averaging sweep on images."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from dpfl.accounting.samplers import Sampling
from dpfl.data.partition import random_shares
from dpfl.engine.batches import BatchSampler
from dpfl.engine.clip_bounds import Precision
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several, among
from dpfl.models.image_models import Architecture, FeatureNorm, ImageModel, Pixels


class ClientRecords(StrEnum):
    """Ways in which clients come by their shares of the training records."""

    INDEPENDENT = "independent"
    """Each client draws its own share of all records, so that clients overlap."""
    DISJOINT = "disjoint"
    """Slices of one permutation, as long as the shares add up to at most 1."""


class PlainBatches(StrEnum):
    """Order of the batches of cells that do not clip."""

    FIXED = "fixed"
    """The same batches in every epoch."""
    SHUFFLED = "shuffled"
    """A fresh permutation in every epoch."""


class Accountant(StrEnum):
    """Calibration of the noise, see dpfl.accounting.dpsgd."""

    PRV = "prv"
    RDP = "rdp"
    PLD = "pld"


class Metric(StrEnum):
    """Measures besides accuracy."""

    NONE = "none"
    DISTANCES = "distances"


class FedavgSettings(Settings):
    """A sweep's settings and resources. `client_share`: one number, or one a client; a single client has all records.

    Defaults are those of the authors' code. `sampling` draws the batches of cells that clip, `plain_batches` says how
    those of plain SGD, which has no guarantee to prove, follow one another.
    """

    model: Choice[ImageModel]
    clients: Count
    client_share: Several[Annotated[float, Field(gt=0, le=1)]]
    batch_size: Count
    delta: Probability
    clip_norm: Positive
    learning_rate: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]
    sampling: Annotated[Choice[Sampling], among(Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED)] = (
        Sampling.POISSON
    )
    plain_batches: Choice[PlainBatches] = PlainBatches.FIXED
    client_records: Choice[ClientRecords] = ClientRecords.INDEPENDENT
    accountant: Choice[Accountant] = Accountant.PRV
    network: Choice[Architecture] = Architecture.AUTHORS
    pixels: Choice[Pixels] = Pixels.AUTHORS
    feature_norm: Choice[FeatureNorm] = FeatureNorm.LEARNT
    precision: Choice[Precision] = Precision.FLOAT32
    measure: Choice[Metric] = Metric.NONE
    device: str
    threads: Count
    memory_gb: Positive

    @field_validator("client_share", mode="before")
    @classmethod
    def _share_of_each(cls, value: Any, info: ValidationInfo) -> Any:
        """Return one share a client."""
        clients = info.data.get("clients", 1)
        if not isinstance(value, list | tuple):
            return (1.0,) if clients == 1 else (value,) * clients
        if len(value) != clients:
            raise ValueError(
                f"client_share: {len(value)} shares for {clients} clients; list one for each, or one number"
            )
        return value

    @field_validator("device")
    @classmethod
    def _is_there(cls, value: str) -> str:
        """Raise ValueError for a device that this machine lacks."""
        if value != "cpu" and not torch.cuda.is_available():
            raise ValueError(f"device: {value} is not there; set training.device to cpu")
        return value

    def shares(self, records: int, seed: int) -> list[NDArray[np.int64]]:
        """Return each client's indices into the `records` training records."""
        independent = self.client_records is ClientRecords.INDEPENDENT
        return random_shares(records, self.clients, self.client_share, seed, independent=independent)

    @property
    def memory_bytes(self) -> float:
        """Memory that the training may take, in bytes."""
        return self.memory_gb * 2**30


class FedavgCell(Settings):
    """One variant of a sweep: `local_epochs` has the epochs E_r of each round.

    local_epochs is given as a number for `rounds` rounds, or as a list with a number for each. epsilon inf adds no
    noise. clip is given where it differs from "clip exactly where there is noise": true for a run without noise.
    """

    epsilon: Epsilon
    rounds: Count | None = None
    local_epochs: Annotated[Several[Count], Field(min_length=1)]
    clip: bool | None = None

    @field_validator("local_epochs", mode="before")
    @classmethod
    def _epochs_of_each(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the epochs of each round."""
        rounds = info.data.get("rounds")
        return value if rounds is None or isinstance(value, list | tuple) else (value,) * rounds

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where keys do not go together."""
        if self.rounds not in (None, len(self.local_epochs)):
            raise ValueError(f"rounds: {self.rounds} are not the {len(self.local_epochs)} that local_epochs lists")
        if self.private and not self.clips:
            raise ValueError(f"clip: false has no privacy, but epsilon is {self.epsilon}; leave clip out")
        return self

    @property
    def clips(self) -> bool:
        """True where gradients are clipped."""
        return self.private if self.clip is None else self.clip

    @property
    def private(self) -> bool:
        """True where noise is added."""
        return not math.isinf(self.epsilon)

    def batches(self, settings: FedavgSettings, records: int) -> BatchSampler:
        """Return the sampler of the cell's batches, for a client with `records` records."""
        if self.clips:
            return BatchSampler(settings.sampling, settings.batch_size, records)
        fixed = settings.plain_batches is PlainBatches.FIXED
        return BatchSampler(Sampling.SHUFFLED, settings.batch_size, records, fixed_order=fixed)

    def columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cell that was `given` as table columns: its keys, rounds, and local_epochs_by_round (JSON list).

        local_epochs is a whole number in every table: 0 where it differs between rounds.
        """
        constant = len(set(self.local_epochs)) == 1
        return {
            **given,
            "local_epochs": self.local_epochs[0] if constant else 0,
            "rounds": len(self.local_epochs),
            "local_epochs_by_round": json.dumps(self.local_epochs),
        }
