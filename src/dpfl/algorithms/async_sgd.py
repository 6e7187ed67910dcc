"""Asynchronous DP-SGD on a stack of models: carries out what the event simulation lists (vandijk2023, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting.samplers import Sampling
from dpfl.algorithms.async_events import EndRound, EvaluateEvent, GradientEvent, Interrupt, Program, ServerStep
from dpfl.engine.evaluation import accuracy_pct
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import GradientRule, without_overflow
from dpfl.errors import InputError
from dpfl.mechanisms.noise import arsinh_noise, base_noise
from dpfl.mechanisms.sparsification import largest_entries
from dpfl.randomness import generator


@dataclass(frozen=True)
class NoiseSchedule:
    """Settings that differ between the stacked models, by round.

    clip_norms > 0 (infinite: none), noise_std >= 0 (of the Gaussian noise on a batch's sum), arsinh_scales > 0
    (infinite: Gaussian noise as it is) and step_sizes >= 0 have shape (rounds, variants); kept_shares in (0, 1] holds
    one number per variant: the share of an update's entries that is sent.
    """

    clip_norms: Tensor
    noise_std: Tensor
    arsinh_scales: Tensor
    step_sizes: Tensor
    kept_shares: tuple[float, ...]


@dataclass(frozen=True)
class Federation:
    """Clients and their data. `shares[client]`: its records in `train` (inputs, labels); `test` likewise.

    The length of a share is the client's number of records, which is public: neighbours differ in one record's content
    (zero_out or replace_one), so sample rate, divisor and number of rounds are the same for both.
    `mix[client]` >= 0 is the server's weight of the client's updates; 1/clients each is their mean. A round's noisy sum
    is divided by `batch_sizes[round]`: the batch's size where it is fixed, its expectation else.
    """

    module: nn.Module
    rule: GradientRule
    shares: list[NDArray[np.int64]]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    mix: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    sampling: Sampling
    seed: int

    def batch(self, client: int, round: int) -> Tensor:
        """Return the round's records as indices into `train`."""
        share = self.shares[client]
        address = {"seed": self.seed, "client": client, "round": round}
        return torch.from_numpy(share[round_batch(len(share), self.batch_sizes[round], self.sampling, **address)])


@dataclass(frozen=True)
class Trained:
    """The server's last models (variants, parameters), and the accuracy of each variant after each epoch."""

    weights: Tensor
    accuracy_pct: list[list[float]]


def replay(federation: Federation, program: Program, postures: NoiseSchedule, tick: Callable[[], None]) -> Trained:
    """Carry out `program` for every variant at once, from the module's weights; `tick` is called after each round.

    A round: U = sum of clipped gradients + noise; the client steps by step_size U / batch size, and sends U / batch
    size, its small entries dropped. The server steps by the mix of what a window brought, each update with its
    own round's step size. Variants share batches and base noise, and each keeps its own law.

    Formal guarantee: a client releases its noisy sums alone. Delay, loss, order, interrupts, windows, weights and
    compression are post-processing of earlier releases, or depend on no record: every round's guarantee holds whatever
    model it starts from, and the run's is their composition, as in a synchronous run.
    """
    executor = _Executor(federation, program, postures)
    for operation in program.operations:
        match operation:
            case GradientEvent():
                executor.gradients(operation)
            case EndRound():
                executor.end_round(operation)
                tick()
            case ServerStep():
                executor.server_step(operation)
            case Interrupt():
                executor.interrupt(operation)
            case EvaluateEvent():
                executor.measure()
    return Trained(executor.server, [list(each) for each in zip(*executor.accuracies, strict=True)])


class _Executor:
    """The models of clients and server, all variants of each in one tensor (variants, parameters)."""

    def __init__(self, federation: Federation, program: Program, postures: NoiseSchedule):
        self.federation, self.postures = federation, postures
        inputs = federation.train[0]
        parameters = {name: value.detach() for name, value in federation.module.named_parameters()}
        initial = ParameterVector.of(federation.module).flatten(parameters).to(inputs.device, inputs.dtype)
        self.server = initial.repeat(len(postures.kept_shares), 1)
        self.clients = [self.server.clone() for _ in federation.shares]
        self.sums = [torch.zeros_like(self.server) for _ in federation.shares]
        self.batches: list[tuple[int, Tensor] | None] = [None] * len(federation.shares)
        self.sent: dict[tuple[int, int], Tensor] = {}
        self.version, self.uses = 0, dict(program.uses)
        self.published: dict[int, Tensor] = {}
        self.accuracies: list[list[float]] = []

    def gradients(self, part: GradientEvent) -> None:
        """Add the clipped gradients of a part of the round's batch."""
        client, cached = part.client, self.batches[part.client]
        if cached is None or cached[0] != part.round:
            self.batches[client] = cached = (part.round, self.federation.batch(client, part.round))
        rows = cached[1][round(part.start * len(cached[1])) : round(part.stop * len(cached[1]))]
        if not len(rows):
            return
        inputs, labels = self.federation.train
        x = inputs[rows]
        batch = (x, labels[rows], torch.ones(len(rows), dtype=x.dtype))
        clip_norms = self.postures.clip_norms[part.round]
        rule, weights = self.federation.rule, self.clients[client]
        sums = rule.clipped_sums(weights, batch, clip_norms)[None]
        self.sums[client] += without_overflow(rule, sums, weights[None], tuple(p[None] for p in batch), clip_norms)[0]

    def end_round(self, end: EndRound) -> None:
        """Add noise, step locally, send."""
        update = self.sums[end.client]
        noise_std = self.postures.noise_std[end.round][:, None]
        if bool((noise_std > 0).any()):
            address = {"seed": self.federation.seed, "client": end.client, "epoch": end.round, "step": 0}
            draws = base_noise(update.shape[1], **address, dtype=update.dtype, device=update.device)
            update += arsinh_noise(draws * noise_std, self.postures.arsinh_scales[end.round][:, None])
        step = update * (self.postures.step_sizes[end.round] / self.federation.batch_sizes[end.round])[:, None]
        self.clients[end.client] -= step
        if end.delivered:
            self.sent[end.client, end.round] = self._compressed(step)
        update.zero_()

    def _compressed(self, step: Tensor) -> Tensor:
        """Drop small entries; a variant's step size is one number, so the same ones as in the update itself."""
        shares = self.postures.kept_shares
        if all(share == 1 for share in shares):
            return step
        return torch.stack([largest_entries(one, share) for one, share in zip(step, shares, strict=True)])

    def server_step(self, window: ServerStep) -> None:
        """Add the mix of what arrived; keep the model where a client will receive it."""
        for client, number in window.updates:
            self.server.sub_(self.sent.pop((client, number)), alpha=self.federation.mix[client])
        self.version += 1
        if self.version in self.uses:
            self.published[self.version] = self.server.clone()

    def interrupt(self, message: Interrupt) -> None:
        """Replace the client's model."""
        self.clients[message.client] = self.published[message.version].clone()
        self.uses[message.version] -= 1
        if not self.uses[message.version]:
            del self.published[message.version]

    def measure(self) -> None:
        """Look at the server's model."""
        self.accuracies.append(accuracy_pct(self.federation.module, self.server, *self.federation.test))


def round_batch(
    public_records: int, batch_size: int, sampling: Sampling, *, seed: int, client: int, round: int
) -> NDArray[np.int64]:
    """Return indices into a client's `public_records` records, in random order, addressed by (seed, client, round).

    FIXED: `batch_size` of them, uniform without replacement. POISSON: each by its own coin of chance batch_size /
    public_records, so that a batch has any size, zero included. Raises InputError for another sampling, or batch_size
    above public_records.
    Formal guarantee: the sampler of Poisson(batch_size / public_records) or FixedBatches(batch_size, public_records)
    for neighbours with the same number of records (zero_out, replace_one); none for add_or_remove, whose neighbours
    would be sampled at different rates.
    Source: vandijk2023, sections 2.2 and 2.3.
    """
    if not 1 <= batch_size <= public_records:
        raise InputError(f"batch_size: is {batch_size}, must be from 1 to a client's {public_records} records")
    draw = generator(seed, "batches", client, round)
    if sampling is Sampling.FIXED:
        return draw.choice(public_records, batch_size, replace=False)
    if sampling is Sampling.POISSON:
        return draw.permutation(np.flatnonzero(draw.random(public_records) < batch_size / public_records))
    raise InputError(f"sampling: {sampling} is not done here, should be {Sampling.FIXED} or {Sampling.POISSON}")
