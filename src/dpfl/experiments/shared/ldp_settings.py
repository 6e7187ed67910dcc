"""Settings of an experiment without a trusted server, checked: protocols, mechanisms, and the grid to choose from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfl.accounting import isrl_dp
from dpfl.accounting.samplers import Sampling
from dpfl.algorithms import local_sgd, minibatch_sgd
from dpfl.engine.federated_rounds import Clipping, Hyperparameters, Participation, Protocol
from dpfl.errors import InputError
from dpfl.experiments.shared.ldp_noise import ClientMessages, NoiseRule
from dpfl.experiments.shared.settings import choice, positive_float, positive_int
from dpfl.grid.sweep import is_private
from dpfl.models.glm import Array, Loss

RUN = {"minibatch": minibatch_sgd.averaged_minibatch_sgd, "local": local_sgd.averaged_local_sgd}
"""The algorithms that a cell may name."""


@dataclass(frozen=True)
class ClientCounts:
    """What an experiment's data decide: clients, each one's records before the split, and the fewest it trains on."""

    clients: int
    before_split: int
    training: int


@dataclass(frozen=True)
class LdpSettings:
    """A sweep's settings, checked. step_sizes by algorithm and clip_norms span the grid that a run is chosen from.

    Every client adds the same noise, calibrated to the client with the fewest training records.
    """

    protocol: Protocol
    clients: int
    records: int
    delta: float
    noise: NoiseRule
    step_sizes: dict[str, Array]
    clip_norms: Array
    divergence_loss: float

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], cells: Iterable[Mapping[str, Any]], loss: Loss, records: ClientCounts
    ) -> LdpSettings:
        """Return the plan; raises InputError naming the setting or the cell's key that cannot be used.

        batch_size "published" is the K of the authors' scripts at the setting largest_epsilon, the same for every
        cell; as in their experiments it counts a client's records before the split, which makes it larger than
        lowy2021's Theorem 2.1 asks for. A whole number is taken as it is.
        """
        if settings["delta"] != "1/n^2":
            raise InputError(f"delta is {settings['delta']!r} in the settings; it must be '1/n^2'")
        noise = choice(settings, "noise", NoiseRule)
        rounds = positive_int(settings, "rounds")
        protocol = Protocol(
            loss=loss,
            rounds=rounds,
            participation=Participation((positive_int(settings, "participating", at_most=records.clients),)),
            batch_size=_batch_size(settings, noise, rounds, records),
            repetitions=positive_int(settings, "repetitions"),
            last_iterates=positive_int(settings, "last_iterates", at_most=rounds),
            sampling=choice(settings, "sampling", Sampling, (Sampling.WITH_REPLACEMENT, Sampling.FIXED)),
            clipping=choice(settings, "clipping", Clipping),
        )
        plan = cls(
            protocol=protocol,
            clients=records.clients,
            records=records.training,
            delta=1.0 / records.training**2,
            noise=noise,
            step_sizes=_step_sizes(settings),
            clip_norms=_clip_norms(settings),
            divergence_loss=positive_float(settings, "divergence_loss"),
        )
        for cell in cells:
            plan._check_cell(cell, positive_float(settings, "largest_epsilon"))
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

    def points(self, cell: Mapping[str, Any], noise_multiplier: float) -> Hyperparameters:
        """Return the cell's grid, step sizes outside, clip norms inside; only without privacy may a norm be inf."""
        clips = self.clip_norms[np.isfinite(self.clip_norms)] if is_private(cell) else self.clip_norms
        steps, clips = (part.ravel() for part in np.meshgrid(self.step_sizes[cell["algorithm"]], clips, indexing="ij"))
        if not is_private(cell):
            return Hyperparameters(steps, clips, np.zeros_like(steps))
        return Hyperparameters(steps, clips, noise_multiplier * clips / self.messages(cell["algorithm"]).share)

    def _check_cell(self, cell: Mapping[str, Any], largest_epsilon: float) -> None:
        """Raise InputError where a cell's algorithm or epsilon cannot be used."""
        algorithm, epsilon = cell["algorithm"], cell["epsilon"]
        if algorithm not in RUN:
            raise InputError(f"algorithm is {algorithm!r} in a cell; it must be one of {', '.join(RUN)}")
        if not epsilon > 0:
            raise InputError(f"epsilon is {epsilon!r} in a cell; it must be above 0 (inf: no privacy)")
        if not is_private(cell):
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


def _batch_size(settings: Mapping[str, Any], noise: NoiseRule, rounds: int, records: ClientCounts) -> int:
    """The K of every round, at least 1, and without replacement at most n."""
    size = settings["batch_size"]
    if size == "published":
        client = {
            "epsilon": positive_float(settings, "largest_epsilon"),
            "rounds": rounds,
            "records": records.before_split,
        }
        if noise is NoiseRule.MOMENTS:
            least = isrl_dp.least_batch_moments(**client)
        else:
            least = isrl_dp.least_batch_advanced(**client, delta=1.0 / records.before_split**2)
        size = math.floor(least)
        if size < 1:
            raise InputError(f"largest_epsilon: {settings['largest_epsilon']} gives a batch of K = 0 records; raise it")
    elif not isinstance(size, int) or size < 1:
        raise InputError(f"batch_size is {size!r} in the settings; it must be 'published' or a whole number above 0")
    if settings["sampling"] == Sampling.FIXED and size > records.training:
        raise InputError(
            f"batch_size: K = {size} records without replacement exceed the {records.training} that a client trains on"
        )
    return size


def _step_sizes(settings: Mapping[str, Any]) -> dict[str, Array]:
    """The step sizes of each algorithm, exp of equally spaced exponents (first, last, count)."""
    return {name: np.exp(np.linspace(*exponents)) for name, exponents in settings["step_exponents"].items()}


def _clip_norms(settings: Mapping[str, Any]) -> Array:
    """The clip norms; raises InputError where one is not above 0, or none is finite."""
    clips = np.array(settings["clip_norms"], dtype=np.float64)
    if not (np.all(clips > 0) and np.any(np.isfinite(clips))):
        raise InputError(f"clip_norms is {settings['clip_norms']} in the settings; it must list numbers above 0")
    return clips
