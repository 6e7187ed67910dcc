"""Asynchronous DP-SGD on a stack of models: carries out what the event simulation lists (vandijk2023, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting.numerics import real
from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous.events import (
    EndRound,
    EvaluateEvent,
    GradientEvent,
    Interrupt,
    Network,
    Operation,
    Program,
    ServerStep,
    simulate,
)
from dpfl.engine.per_record_gradients import Batch, LinearGradients, ParameterVector, without_overflow
from dpfl.engine.sgd import accuracy_pct, arsinh_noise, base_noise
from dpfl.errors import InputError
from dpfl.mechanisms import clip_factors
from dpfl.randomness import generator

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True)
class NoiseSchedule:
    """Settings that differ between the stacked models, by round.

    clip_norms > 0 (infinite: none), noise_std >= 0 (of the Gaussian noise on a batch's sum), arsinh_scales > 0
    (infinite: Gaussian noise as it is) and step_sizes >= 0 have shape (rounds, variants). One number per variant:
    kept_shares in (0, 1], the share of an update's entries that is sent; batch_clips, whether the batch's mean gradient
    is clipped in place of each record's (noise_std is then on that mean); adaptive_clips, None or how the clip norm
    follows the records' norms.
    """

    clip_norms: Tensor
    noise_std: Tensor
    arsinh_scales: Tensor
    step_sizes: Tensor
    kept_shares: tuple[float, ...]
    batch_clips: tuple[bool, ...]
    adaptive_clips: tuple[AdaptiveClip | None, ...]


@dataclass(frozen=True)
class AdaptiveClip:
    """A clip norm that follows a quantile of the records' gradient norms, and the noise that hides their count.

    After a round whose batch had b records of norm at most C, C becomes C exp(-rate ((b + count_std N)/m - quantile)),
    N standard normal. quantile in [0, 1], rate >= 0, count_std >= 0 in records.
    Formal guarantee: b moves by at most 1 when a record is replaced, so a round releases sum and count, one Gaussian
    mechanism with mu^2 = (2C/noise_std)^2 + 1/count_std^2 (fixed batches, one record replaced); C comes from earlier
    releases alone. Source: vandijk2023, sections 2.6 and 5.2; andrew2021, section 2.
    """

    quantile: float
    rate: float
    count_std: float


@dataclass(frozen=True)
class Federation:
    """Clients and their data. `shares[client]`: its records in `train` (inputs, labels); `test` likewise.

    The length of a share is the client's number of records, which is public: neighbours differ in one record's content
    (zero_out or replace_one), so sample rate, divisor and number of rounds are the same for both.
    `mix[client]` >= 0 is the server's weight of the client's updates; 1/clients each is their mean. With `judges` the
    server weighs clients by what they sent instead (`judged_weights`), and `mix` is not used. A round's noisy sum is
    divided by `batch_sizes[round]`: the batch's size where it is fixed, its expectation else. `normalise`, if any, maps
    the inputs of a whole batch (n, features) to what the model reads: if that depends on the batch, each clipped
    gradient does on every record of it, and no guarantee holds.
    """

    module: nn.Module
    rule: LinearGradients
    shares: list[NDArray[np.int64]]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    mix: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    sampling: Sampling
    seed: int
    judges: bool = False
    normalise: Callable[[Tensor], Tensor] | None = None

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


Observer = Callable[[int, int, Tensor], None]
"""Is given (client, round, noisy sums of shape (variants, parameters)) of every round, before the update is sent."""


def replay(
    federation: Federation,
    program: Program,
    postures: NoiseSchedule,
    tick: Callable[[], None],
    observe: Observer | None = None,
) -> Trained:
    """Carry out `program` for every variant at once, from the module's weights; `tick` is called after each round.

    A round: U = sum of clipped gradients + noise; the client steps by step_size U / batch size, and sends U / batch
    size, its small entries dropped. The server steps by the mix of what a window brought, each update with its
    own round's step size. Variants share batches and base noise, and each keeps its own law.

    Formal guarantee: a client releases its noisy sums alone (and noisy counts, see AdaptiveClip). Delay, loss, order,
    interrupts, windows, weights and compression are post-processing of earlier releases, or depend on no record: every
    round's guarantee holds whatever model it starts from, and the run's is their composition, as in a synchronous run.
    """
    executor = _Executor(federation, postures, tick, observe, dict(program.uses))
    for operation in program.operations:
        executor.carry_out(operation)
    return executor.trained()


def run_guarded(
    federation: Federation,
    network: Network,
    postures: NoiseSchedule,
    tick: Callable[[], None],
    *,
    lengths: Sequence[Fraction],
    epochs: int,
    observe: Observer | None = None,
) -> tuple[Trained, Program]:
    """Train where clients wait for a model once theirs is too far from the last one received: one variant at a time.

    `lengths` and `epochs` as in `simulate`, other arguments as in `replay`. Raises ValueError for several variants.
    Formal guarantee: that of `replay`. A client's model is a function of its own noisy sums and of models received, so
    when it waits, and what that does to the order and the times of messages, is post-processing too; the number of
    rounds is fixed.
    Source: vandijk2023, section 2.2.
    """
    if len(postures.kept_shares) != 1:
        raise ValueError(f"postures: {len(postures.kept_shares)} variants; with max_distance each has its own order")
    executor = _Executor(federation, postures, tick, observe, None)
    program = simulate(
        network, clients=len(federation.shares), lengths=lengths, epochs=epochs, seed=federation.seed, models=executor
    )
    return executor.trained(), program


def judged_weights(heard: Tensor) -> Tensor:
    """Return the server's weights (clients, variants), from the sums of what each client sent (clients, variants, p).

    A client weighs as much as its sum points where those of the others together point: by the cosine, 0 where that is
    negative; weights sum to 1, and are equal where every cosine is 0. Formal guarantee: post-processing of messages.
    Source: vandijk2023, section 2.4, which leaves open how the server judges whose data are better.
    """
    others = heard.sum(0) - heard
    lengths = (heard.norm(dim=2) * others.norm(dim=2)).clamp(min=torch.finfo(heard.dtype).tiny)
    cosines = ((heard * others).sum(2) / lengths).clamp(min=0)
    total = cosines.sum(0)
    return torch.where(total > 0, cosines / total.clamp(min=torch.finfo(heard.dtype).tiny), 1 / len(heard))


class _Executor:
    """The models of clients and server, all variants of each in one tensor (variants, parameters).

    `uses`: how many interrupts install each of the server's models; None keeps them all, where nobody knows before.
    """

    def __init__(
        self,
        federation: Federation,
        postures: NoiseSchedule,
        tick: Callable[[], None],
        observe: Observer | None,
        uses: dict[int, int] | None,
    ) -> None:
        self.federation, self.postures, self.tick, self.observe = federation, postures, tick, observe
        inputs = federation.train[0]
        parameters = {name: value.detach() for name, value in federation.module.named_parameters()}
        initial = ParameterVector.of(federation.module).flatten(parameters).to(inputs.device, inputs.dtype)
        self.server = initial.repeat(len(postures.kept_shares), 1)
        self.clients = [self.server.clone() for _ in federation.shares]
        self.received = [self.server.clone() for _ in federation.shares]
        self.sums = [torch.zeros_like(self.server) for _ in federation.shares]
        self.batches: list[tuple[int, Tensor, Tensor] | None] = [None] * len(federation.shares)
        self.sent: dict[tuple[int, int], Tensor] = {}
        self.heard = (
            torch.stack([torch.zeros_like(self.server)] * len(federation.shares)) if federation.judges else None
        )
        self.version, self.uses = 0, uses
        self.published: dict[int, Tensor] = {0: self.server.clone()}
        self.accuracies: list[list[float]] = []
        self.batch_clips = torch.tensor(postures.batch_clips)
        self.adapts = any(postures.adaptive_clips)
        self.scales = [torch.ones(len(self.server), dtype=inputs.dtype) for _ in federation.shares]
        self.within = [torch.zeros(len(self.server), dtype=inputs.dtype) for _ in federation.shares]

    def trained(self) -> Trained:
        """Return what came out."""
        return Trained(self.server, [list(each) for each in zip(*self.accuracies, strict=True)])

    def carry_out(self, operation: Operation) -> None:
        """Carry out one operation."""
        match operation:
            case GradientEvent():
                self.gradients(operation)
            case EndRound():
                self.end_round(operation)
                self.tick()
            case ServerStep():
                self.server_step(operation)
            case Interrupt():
                self.interrupt(operation)
            case EvaluateEvent():
                self.measure()

    def distance(self, client: int) -> float:
        """Return how far the client's model is from the last one received."""
        return float((self.clients[client] - self.received[client]).norm())

    def clip_norms(self, client: int, round: int) -> Tensor:
        """Return the clip norms (variants,) that hold for the client's round."""
        return self.postures.clip_norms[round] * self.scales[client]

    def _batch(self, part: GradientEvent) -> tuple[int, Tensor, Tensor]:
        """Return the round, inputs and labels of the client's whole batch, drawn once."""
        cached = self.batches[part.client]
        if cached is None or cached[0] != part.round:
            rows = self.federation.batch(part.client, part.round)
            x, y = (each[rows] for each in self.federation.train)
            normalise = self.federation.normalise
            cached = (part.round, normalise(x) if normalise and len(x) else x, y)
            self.batches[part.client] = cached
        return cached

    def gradients(self, part: GradientEvent) -> None:
        """Add the clipped gradients of a part of the round's batch."""
        _, x, y = self._batch(part)
        rows = slice(round(part.start * len(x)), round(part.stop * len(x)))
        x, y = x[rows], y[rows]
        if not len(x):
            return
        batch = (x, y, torch.ones(len(x), dtype=x.dtype))
        norms = self.clip_norms(part.client, part.round)
        rule, weights = self.federation.rule, self.clients[part.client]
        if self.adapts:
            self.within[part.client] += (gradient_norms(rule, weights, x, y) <= norms[:, None]).sum(1)
        clip_norms = torch.where(self.batch_clips, math.inf, norms)
        sums = rule.clipped_sums(weights, batch, clip_norms)[None]
        self.sums[part.client] += without_overflow(
            rule, sums, weights[None], cast("Batch", tuple(p[None] for p in batch)), clip_norms
        )[0]

    def end_round(self, end: EndRound) -> None:
        """Clip the mean where that is clipped, add noise, step locally, send."""
        update, size = self.sums[end.client], self.federation.batch_sizes[end.round]
        if bool(self.batch_clips.any()):
            clipped = clipped_mean(update, size, self.clip_norms(end.client, end.round))
            update.copy_(torch.where(self.batch_clips[:, None], clipped, update))
        noise_std = (self.postures.noise_std[end.round] * self.scales[end.client])[:, None]
        address = {"seed": self.federation.seed, "client": end.client, "epoch": end.round, "step": 0}
        if bool((noise_std > 0).any()):
            draws = base_noise(update.shape[1], **address, dtype=update.dtype, device=update.device)
            noise = arsinh_noise(draws * noise_std, self.postures.arsinh_scales[end.round][:, None])
            update += torch.where(self.batch_clips[:, None], size * noise, noise)
        if self.observe is not None:
            self.observe(end.client, end.round, update)
        step = update * (self.postures.step_sizes[end.round] / size)[:, None]
        self.clients[end.client] -= step
        if end.delivered:
            self.sent[end.client, end.round] = self._compressed(step)
        update.zero_()
        if self.adapts:
            self._adapt(end, size)

    def _adapt(self, end: EndRound, size: int) -> None:
        """Move the clip norms by the noisy share of records whose gradient was within them."""
        draw = generator(self.federation.seed, "noise", end.client, end.round, 1).standard_normal()
        for variant, rule in enumerate(self.postures.adaptive_clips):
            if rule is not None:
                share = (float(self.within[end.client][variant]) + rule.count_std * draw) / size
                self.scales[end.client][variant] *= math.exp(-rule.rate * (share - rule.quantile))
        self.within[end.client].zero_()

    def _compressed(self, step: Tensor) -> Tensor:
        """Drop small entries; a variant's step size is one number, so the same ones as in the update itself."""
        shares = self.postures.kept_shares
        if all(share == 1 for share in shares):
            return step
        return torch.stack([largest_entries(one, share) for one, share in zip(step, shares, strict=True)])

    def server_step(self, window: ServerStep) -> None:
        """Add the mix of what arrived; keep the model where a client will receive it."""
        messages = [(client, self.sent.pop((client, number))) for client, number in window.updates]
        if self.heard is not None:
            for client, message in messages:
                self.heard[client] += message
            weights = judged_weights(self.heard)
            for client, message in messages:
                self.server -= weights[client][:, None] * message
        else:
            for client, message in messages:
                self.server.sub_(message, alpha=self.federation.mix[client])
        self.version += 1
        if self.uses is None or self.version in self.uses:
            self.published[self.version] = self.server.clone()

    def interrupt(self, message: Interrupt) -> None:
        """Replace the client's model."""
        self.received[message.client] = self.published[message.version]
        self.clients[message.client] = self.published[message.version].clone()
        if self.uses is not None:
            self.uses[message.version] -= 1
            if not self.uses[message.version]:
                del self.published[message.version]

    def measure(self) -> None:
        """Look at the server's model."""
        self.accuracies.append(accuracy_pct(self.federation.module, self.server, *self.federation.test))


def gradient_norms(rule: LinearGradients, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the norms (variants, n) of the records' gradients at `weights` (variants, parameters) of a linear model.

    The closed form of dpfl.engine.per_record_gradients: |gradient of the loss at the logits| sqrt(|x|^2 + 1).
    """
    matrix, bias = weights.split([rule.output_size * rule.input_size, rule.output_size], dim=1)
    logits = matrix.unflatten(1, (rule.output_size, rule.input_size)) @ x.T + bias[:, :, None]
    return rule.logit_gradients(logits, y).norm(dim=1) * (x.square().sum(1) + 1).sqrt()


def clipped_mean(sums: Tensor, size: int, clip_norms: Tensor) -> Tensor:
    """Return `size` times the mean gradients, sums (variants, p) / size, scaled to norms of at most clip_norms.

    Sums that are not finite become 0. Formal guarantee: two batches of any records differ by at most 2 clip_norm times
    `size`, so with noise of 2 clip_norm sigma on the mean a round is G_{1/sigma}-DP for a record of the batch replaced.
    Source: vandijk2023, section 5.2 ("batch clipping").
    """
    factors = clip_factors((sums / size).norm(dim=1), clip_norms)[:, None]
    return (sums * factors).where(factors.isfinite(), 0.0)


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


def largest_entries(update: Tensor, kept_share: float) -> Tensor:
    """Return `update` (..., n) with its ceil(kept_share * n) entries of largest magnitude, the others 0.

    `kept_share` in (0, 1]; 1 returns `update` itself. Of equal magnitudes at the edge, torch.topk decides.
    Raises ValueError naming kept_share. Source: vandijk2023, section 2.4 (footnote).

    Formal guarantee: post-processing, so applied to a noisy update it costs no privacy. Applied before the noise it
    would have no bounded sensitivity.
    """
    share = real("kept_share", kept_share, above=0, at_most=1)
    if share == 1:
        return update
    kept = math.ceil(share * update.shape[-1])
    indices = update.abs().topk(kept, dim=-1, sorted=False).indices
    return torch.zeros_like(update).scatter_(-1, indices, update.gather(-1, indices))
