"""Federated averaging of stacked models: local epochs on every client, then the mean over clients."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting.relations import Sampling
from dpfl.engine.batches import epoch_batches, expected_batch_size, steps_per_epoch
from dpfl.engine.evaluation import accuracy_pct
from dpfl.engine.gradients import StackedGradients
from dpfl.engine.layout import Layout
from dpfl.engine.sgd import SGD, Variants
from dpfl.mechanisms.noise import base_noise


@dataclass(frozen=True)
class Schedule:
    """When each variant averages: after every `local_epochs`[variant] epochs, `rounds`[variant] times."""

    local_epochs: tuple[int, ...]
    rounds: tuple[int, ...]

    @property
    def epochs(self) -> tuple[int, ...]:
        """Epochs of each variant in all: local epochs times rounds."""
        return tuple(local * rounds for local, rounds in zip(self.local_epochs, self.rounds, strict=True))

    def active(self, epoch: int) -> list[int]:
        """Return the variants that train in `epoch` (from 1)."""
        return [variant for variant, last in enumerate(self.epochs) if epoch <= last]

    def averaging(self, epoch: int) -> list[int]:
        """Return the variants that average after `epoch` (from 1)."""
        return [variant for variant in self.active(epoch) if epoch % self.local_epochs[variant] == 0]


@dataclass
class State:
    """Where training stands after `epoch` epochs; what a checkpoint holds of a run.

    `weights` and `velocity` have shape (clients, variants, parameters). `accuracy_pct[variant]` has an entry a round;
    `diverged[variant]` tells whether an average ever had a weight that is not finite.
    """

    epoch: int
    weights: Tensor
    velocity: Tensor
    accuracy_pct: list[list[float]]
    diverged: list[bool]

    def plain(self) -> dict[str, Any]:
        """Return the state as plain data for a checkpoint."""
        return dict(vars(self))


@dataclass(frozen=True)
class FederatedAveraging:
    """bhaskar2025, Algorithm 1, for many variants at once; every client takes part in every round.

    `shares[client]`: indices of its records in `train` (inputs, labels); `test` likewise. Clients start each round at
    the global model with no momentum. Variants share batches and base noise. All tensors lie on one device.

    Formal guarantee: what a client sends is the result of DP-SGD on its own records (dpfl.engine.sgd); averaging is
    post-processing. A record that lies with several clients is used by each of them, and its budgets compose.
    """

    module: nn.Module
    gradients: StackedGradients
    variants: Variants
    schedule: Schedule
    shares: list[NDArray[np.int64]]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    batch_size: int
    sampling: Sampling
    learning_rate: float
    momentum: float
    seed: int

    def start(self) -> State:
        """Return the state before training: the module's weights, the same for every client and variant."""
        inputs = self.train[0]
        parameters = {name: value.detach() for name, value in self.module.named_parameters()}
        initial = Layout.of(self.module).flatten(parameters).to(inputs.device, inputs.dtype)
        variants = len(self.schedule.rounds)
        weights = initial.repeat(len(self.shares), variants, 1)
        return State(0, weights, torch.zeros_like(weights), [[] for _ in range(variants)], [False] * variants)

    def advance(self, state: State) -> list[int]:
        """Train one more epoch; return the variants that averaged after it, their accuracy measured."""
        state.epoch += 1
        active = self.schedule.active(state.epoch)
        for clients in self._blocks():
            self._epoch(state, clients, active)
        averaging = self.schedule.averaging(state.epoch)
        if averaging:
            average = state.weights[:, averaging].mean(0)
            state.weights[:, averaging] = average
            state.velocity[:, averaging] = 0
            finite = torch.isfinite(average).all(1).tolist()
            accuracies = accuracy_pct(self.module, average, *self.test)
            for variant, accuracy, good in zip(averaging, accuracies, finite, strict=True):
                state.accuracy_pct[variant].append(accuracy)
                state.diverged[variant] |= not good
        return averaging

    def _blocks(self) -> list[list[int]]:
        """Return the clients that train together: one at a time on a CPU (cache), else all with as many steps."""
        clients = range(len(self.shares))
        if self.train[0].device.type == "cpu":
            return [[client] for client in clients]
        steps = [steps_per_epoch(len(share), self.batch_size) for share in self.shares]
        return [list(block) for _, block in itertools.groupby(clients, key=steps.__getitem__)]

    def _epoch(self, state: State, clients: list[int], active: list[int]) -> None:
        """Train the active variants of some clients through one epoch."""
        here = slice(clients[0], clients[-1] + 1)
        weights, velocity = state.weights[here, active], state.velocity[here, active]
        shares = [self.shares[client] for client in clients]
        batches = [
            [share[rows] for rows in self._rows(len(share), client, state.epoch)]
            for share, client in zip(shares, clients, strict=True)
        ]

        def noise(group: int, step: int) -> Tensor:
            address = {"seed": self.seed, "client": clients[group], "epoch": state.epoch, "step": step}
            return base_noise(weights.shape[-1], **address, dtype=weights.dtype, device=weights.device)

        sgd = SGD(self.gradients, self.variants[active], self.learning_rate, self.momentum)
        expected = [expected_batch_size(len(share), self.batch_size) for share in shares]
        sgd.epoch(weights, velocity, self.train, batches, expected, noise)
        state.weights[here, active], state.velocity[here, active] = weights, velocity

    def _rows(self, records: int, client: int, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of one client's epoch."""
        return epoch_batches(records, self.batch_size, self.sampling, seed=self.seed, client=client, epoch=epoch)
