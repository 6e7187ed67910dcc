"""Train stacked models by federated averaging: local epochs on every client, then the mean over clients."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.engine.per_record_gradients import StackedGradients, aligned
from dpfl.engine.sgd import SGD, StackedHyperparameters, accuracy_pct, base_noise, distances, references

if TYPE_CHECKING:
    import numpy as np

    from dpfl.engine.batches import BatchSampler


@dataclass(frozen=True)
class Schedule:
    """Rounds of each variant: its r-th ends after `local_epochs`[variant][r] more epochs (E_1 ... E_R)."""

    local_epochs: tuple[tuple[int, ...], ...]

    @property
    def epochs(self) -> tuple[int, ...]:
        """Epochs of each variant in all."""
        return tuple(sum(rounds) for rounds in self.local_epochs)

    def active(self, epoch: int) -> list[int]:
        """Return the variants that train in `epoch` (from 1)."""
        return [variant for variant, last in enumerate(self.epochs) if epoch <= last]

    def averaging(self, epoch: int) -> list[int]:
        """Return the variants that average after `epoch` (from 1)."""
        return [variant for variant, ends in enumerate(self._ends) if epoch in ends]

    def averaged(self, variant: int, epoch: int) -> tuple[int, ...]:
        """Return the epochs before `epoch` after which `variant` averaged."""
        return tuple(end for end in self._ends[variant] if end < epoch)

    @cached_property
    def _ends(self) -> list[list[int]]:
        """Return the last epoch of each round of each variant."""
        return [list(itertools.accumulate(rounds)) for rounds in self.local_epochs]


@dataclass
class State:
    """State of training after `epoch` epochs; a checkpoint stores it.

    `weights` and `velocity` have shape (clients, variants, parameters). `accuracy_pct[variant]` has an entry per round;
    `diverged[variant]` is True once an average had a weight that is not finite; `measured[variant]` has, if asked
    for, the distances of dpfl.engine.sgd, one entry per round each, and local_accuracy_pct, the
    mean accuracy of the clients' own models before the last average, as a list of one.
    """

    epoch: int
    weights: Tensor
    velocity: Tensor
    accuracy_pct: list[list[float]]
    diverged: list[bool]
    measured: list[dict[str, list[float]]]

    def plain(self) -> dict[str, Any]:
        """Return the state as plain data for a checkpoint."""
        return dict(vars(self))


@dataclass(frozen=True)
class FederatedAveraging:
    """bhaskar2025, Algorithm 1, for many variants at once; every client takes part in every round.

    `shares[client]`: indices of its records in `train` (inputs, labels); `test` likewise. `samplers[client]` draws its
    batches, from no more records than are public.
    `initial` (parameters,): the model before the first round; later rounds start at the plain mean over clients,
    whatever their sizes, with no momentum. The noise multipliers of `variants` have shape
    (clients, variants). Variants share batches and base noise, and the epochs before their first difference: as long as
    two with the same law have averaged at the same times, one is trained for both. All tensors are on one device.
    `measure`: fill `State.measured`.

    Formal guarantee: what a client sends is the result of DP-SGD on its own records (dpfl.engine.sgd); averaging is
    post-processing. A record of several clients is used by each of them, and its budgets compose. Each client's number
    of records is public (dpfl.engine.batches.BatchSampler).
    """

    module: nn.Module
    gradients: StackedGradients
    variants: StackedHyperparameters
    schedule: Schedule
    shares: list[NDArray[np.int64]]
    initial: Tensor
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    samplers: tuple[BatchSampler, ...]
    learning_rate: float
    momentum: float
    seed: int
    measure: bool = False

    def start(self) -> State:
        """Return the state before training: every client's variants at the initial model."""
        variants = len(self.schedule.local_epochs)
        weights = self.initial.repeat(len(self.shares), variants, 1)
        lists = [[] for _ in range(variants)]
        return State(0, weights, torch.zeros_like(weights), lists, [False] * variants, [{} for _ in range(variants)])

    def advance(self, state: State) -> list[int]:
        """Train one more epoch; return the variants that averaged after it, their accuracy measured."""
        state.epoch += 1
        alike = self.alike(state.epoch)
        for clients in self._blocks():
            self._epoch(state, clients, [same[0] for same in alike])
        for first, *others in alike:
            for other in others:
                state.weights[:, other] = state.weights[:, first]
                state.velocity[:, other] = state.velocity[:, first]
        averaging = self.schedule.averaging(state.epoch)
        if averaging:
            self._average(state, averaging)
        return averaging

    def alike(self, epoch: int) -> list[list[int]]:
        """Return the variants that train in `epoch` (from 1), in groups that are in the same state before it.

        Two are where clip norm and noise are the same and they have averaged after the same epochs so far.
        """
        groups: dict[tuple, list[int]] = {}
        clip_norms, noise = self.variants.clip_norms.tolist(), self.variants.noise_multipliers.T.tolist()
        for variant in self.schedule.active(epoch):
            law = clip_norms[variant], tuple(noise[variant]), self.schedule.averaged(variant, epoch)
            groups.setdefault(law, []).append(variant)
        return list(groups.values())

    def _average(self, state: State, averaging: list[int]) -> None:
        """Replace the models of some variants by their mean over clients, and measure it."""
        trained = state.weights[:, averaging]
        average = trained.mean(0)
        if self.measure:
            self._measure(state, trained, averaging)
        state.weights[:, averaging] = average
        state.velocity[:, averaging] = 0
        finite = torch.isfinite(average).all(1).tolist()
        accuracies = accuracy_pct(self.module, average, *self.test)
        for variant, accuracy, good in zip(averaging, accuracies, finite, strict=True):
            state.accuracy_pct[variant].append(accuracy)
            state.diverged[variant] |= not good

    def _measure(self, state: State, trained: Tensor, averaging: list[int]) -> None:
        """Measure the clients' own models, (clients, averaging, parameters), before they are averaged."""
        for variant, measured in zip(averaging, distances(trained, averaging, self._references), strict=True):
            for name, value in measured.items():
                state.measured[variant].setdefault(name, []).append(value)
        for index, variant in enumerate(averaging):
            if state.epoch == self.schedule.epochs[variant]:
                accuracies = accuracy_pct(self.module, trained[:, index], *self.test)
                state.measured[variant]["local_accuracy_pct"] = [sum(accuracies) / len(accuracies)]

    @cached_property
    def _references(self) -> list[dict[str, int]]:
        """Return the variants that each variant's distances are measured to."""
        return references(self.variants, self.schedule.local_epochs)

    def _blocks(self) -> list[list[int]]:
        """Return the clients that train together: one at a time on a CPU (cache), else neighbours with equal steps."""
        clients = range(len(self.shares))
        if self.train[0].device.type == "cpu":
            return [[client] for client in clients]
        return [list(block) for _, block in itertools.groupby(clients, lambda c: self.samplers[c].steps_per_epoch)]

    def _epoch(self, state: State, clients: list[int], chosen: list[int]) -> None:
        """Train the chosen variants of some clients through one epoch."""
        here = slice(clients[0], clients[-1] + 1)
        weights, velocity = aligned(state.weights[here, chosen]), state.velocity[here, chosen]
        batches = [self._batches(client, state.epoch) for client in clients]

        def noise(group: int, step: int) -> Tensor:
            address = {"seed": self.seed, "client": clients[group], "epoch": state.epoch, "step": step}
            return base_noise(weights.shape[-1], **address, dtype=weights.dtype, device=weights.device)

        variants = StackedHyperparameters(
            self.variants.clip_norms[chosen], self.variants.noise_multipliers[here, chosen]
        )
        sgd = SGD(self.gradients, variants, self.learning_rate, self.momentum)
        divisors = [self.samplers[client].divisor for client in clients]
        sgd.epoch(weights, velocity, self.train, batches, divisors, noise)
        state.weights[here, chosen], state.velocity[here, chosen] = weights, velocity

    def _batches(self, client: int, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of one client's epoch, as indices into `train`."""
        share = self.shares[client]
        drawn = self.samplers[client].epoch(epoch, seed=self.seed, client=client, records=len(share))
        return [share[rows] for rows in drawn]
