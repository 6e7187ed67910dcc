"""What the settings and cells of a private federated learning sweep mean."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError
from dpfl.experiments.shared.settings import _choice
from dpfl.grid.sweep import Sweep, is_private
from dpfl.models.image_models import TANH, ImageModel, Normalisation, image_model


class Initialisation(StrEnum):
    """Where the clients' first round starts; every later one starts at the average."""

    COMMON = "common"
    PER_CLIENT = "per_client"


class Accountant(StrEnum):
    """What calibrates the noise, see dpfl.accounting.dpsgd."""

    RDP = "rdp"  # Opacus's own default at the time: the paper does not name one, and its numbers fit
    PRV = "prv"
    PLD = "pld"


class Metric(StrEnum):
    """What is measured beside accuracy."""

    NONE = "none"
    DISTANCES = "distances"


@dataclass(frozen=True)
class FedavgSettings:
    """A sweep's settings and resources. `client_share` has one entry a client.

    `sampling` draws the batches of cells that clip; plain SGD, which has no guarantee to prove, shuffles epochs.
    """

    model: ImageModel
    clients: int
    client_share: tuple[float, ...]
    batch_size: int
    delta: float
    clip_norm: float
    learning_rate: float
    momentum: float
    sampling: Sampling
    initialisation: Initialisation
    accountant: Accountant
    normalisation: Normalisation
    tempered_sigmoid: tuple[float, float, float]
    measure: Metric
    device: torch.device
    threads: int
    memory_bytes: float

    @classmethod
    def of(cls, sweep: Sweep) -> FedavgSettings:
        """Read `sweep`; raises InputError naming the first setting that cannot be used.

        Settings that may be left out: sampling (poisson), accountant (rdp), normalisation (channel), measure (none),
        tempered_sigmoid ([2, 2, 1]: scale, inverse temperature and offset, which is tanh).
        """
        given, machine = sweep.settings, sweep.resources
        if machine["device"] != "cpu" and not torch.cuda.is_available():
            raise InputError(f"device: {machine['device']} is not there; set training.device to cpu")
        clients = int(given["clients"])
        return cls(
            model=image_model(given["model"]),
            clients=clients,
            client_share=_shares(given["client_share"], clients),
            batch_size=int(given["batch_size"]),
            delta=float(given["delta"]),
            clip_norm=float(given["clip_norm"]),
            learning_rate=float(given["learning_rate"]),
            momentum=float(given["momentum"]),
            sampling=_choice(given, "sampling", Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED),
            initialisation=_choice(given, "initialisation", *Initialisation),
            accountant=_choice(given, "accountant", *Accountant),
            normalisation=_choice(given, "normalisation", *Normalisation),
            tempered_sigmoid=_three_numbers(given, "tempered_sigmoid", TANH),
            measure=_choice(given, "measure", *Metric),
            device=torch.device(machine["device"]),
            threads=int(machine["threads"]),
            memory_bytes=float(machine["memory_gb"]) * 2**30,
        )


@dataclass(frozen=True)
class FedavgCell:
    """What one variant of a sweep does: `local_epochs` has the epochs E_r of each round."""

    epsilon: float
    local_epochs: tuple[int, ...]
    clips: bool
    given: Mapping[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FedavgCell:
        """Read a cell of the grid; raises InputError where it cannot be used.

        Keys: epsilon (infinite: no noise); local_epochs, a whole number for `rounds` rounds, or a list with a number
        for each round; and, where it differs from "clip exactly where there is noise", clip: true for a run that
        clips without noise.
        """
        schedule = given["local_epochs"]
        if not isinstance(schedule, list | tuple):
            schedule = [schedule] * given["rounds"]
        if not schedule or any(type(epochs) is not int or epochs < 1 for epochs in schedule):
            raise InputError(f"local_epochs: {given['local_epochs']} should be whole numbers from 1, one a round")
        if given.get("rounds", len(schedule)) != len(schedule):
            raise InputError(f"rounds: {given['rounds']} are not the {len(schedule)} that local_epochs lists")
        clips = given.get("clip", is_private(given))
        if is_private(given) and not clips:
            raise InputError(f"clip: false has no privacy, but epsilon is {given['epsilon']}; leave clip out")
        return cls(float(given["epsilon"]), tuple(schedule), clips, given)

    @property
    def private(self) -> bool:
        """Whether noise is added."""
        return not math.isinf(self.epsilon)

    def sampling(self, settings: FedavgSettings) -> Sampling:
        """Return how the cell's batches are drawn."""
        return settings.sampling if self.clips else Sampling.SHUFFLED

    def columns(self) -> dict[str, Any]:
        """Return the cell as table columns: its keys, rounds, and local_epochs_by_round (JSON list).

        local_epochs is a whole number in every table: 0 where it differs between rounds.
        """
        constant = len(set(self.local_epochs)) == 1
        return {
            **self.given,
            "local_epochs": self.local_epochs[0] if constant else 0,
            "rounds": len(self.local_epochs),
            "local_epochs_by_round": json.dumps(self.local_epochs),
        }


def _shares(given: float | list[float], clients: int) -> tuple[float, ...]:
    """Return each client's share of the records; a single client has them all unless a list says otherwise."""
    if not isinstance(given, list | tuple):
        return (1.0,) if clients == 1 else (float(given),) * clients
    if len(given) != clients:
        raise InputError(f"client_share: {len(given)} shares for {clients} clients; list one for each, or one number")
    return tuple(float(share) for share in given)


def _three_numbers(given: Mapping[str, Any], name: str, default: tuple[float, ...]) -> tuple[float, float, float]:
    """Return a setting of three numbers."""
    values = tuple(float(value) for value in given.get(name, default))
    if len(values) != 3:
        raise InputError(f"{name}: {list(values)} should be three numbers")
    return values
