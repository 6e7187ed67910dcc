"""Mean noisy gradients of runs of very many rounds, for lowy2021's algorithms in the settings of its theorems.

Theorem 2.1 asks for M n rounds and more. So draws are made for BLOCK rounds at once, one address (seed, role, block)
for all clients and repetitions, and only what the server uses is drawn: the mean of the M_r clients' noise, which is
N(0, noise_std^2 / M_r). Where the loss is quadratic or linear, a block's gradients come from its records' moments.
Nothing is clipped: the caller's problem bounds every gradient in the ball, on which every model is projected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.convex import problems
from dpfl.convex.federated_rounds import Aggregate, Hyperparameters, Protocol, Trials
from dpfl.convex.problems import Array, Linear, Square
from dpfl.randomness import generator

BLOCK = 32
"""Rounds that one address covers. Another number would be another draw of the same law."""


@dataclass(frozen=True)
class _Block:
    """Draws of BLOCK rounds. noise, pull (rounds, trials, repetitions, features); curvature (..., features, features).

    A quadratic round's gradient is curvature @ w - pull (no curvature where the loss is linear). Of other losses,
    `records` (rounds, trials, repetitions, clients, K) are those of the round and `share` (rounds, trials, repetitions,
    clients) each client's part in the mean.
    """

    noise: Array
    curvature: Array | None
    pull: Array | None
    records: NDArray[np.int64] | None
    share: Array | None


class MeanGradients:
    """The participants' mean noisy gradient in every round: a NoisyGradientSource (dpfl.convex.minibatch_sgd).

    Sampling: FULL batches; K records of each client WITH_REPLACEMENT; FIXED with K = 1 is one pass, in which client i
    shows in round r the r-th record of a permutation of its own, addressed (seed, "batches", i) and shared by the
    repetitions. All clients have equally many records. Trials of one seed share their draws.
    Formal guarantee: a message has sensitivity 2 L / K to the replacement of one drawn record, for gradients of at most
    L in the ball; in one pass a record moves one message only (lowy2021 Theorem 2.2).
    Raises ValueError where the protocol does not fit the trials, clips a mean, sums the messages, or a model is not
    projected.
    """

    def __init__(self, trials: Trials, points: Hyperparameters, protocol: Protocol) -> None:
        protocol.fits(trials)
        sizes = np.diff(trials.starts)
        if np.ptp(sizes):
            raise ValueError(f"starts: the clients' records differ in number, {sizes.min()} to {sizes.max()}")
        if protocol.aggregate is not Aggregate.MEAN:
            raise ValueError(f"aggregate must be MEAN, got {protocol.aggregate!r}")
        if points.radius is None or not np.all(np.isfinite(points.radius)):
            raise ValueError("radius must be finite for every model: in the ball alone gradients are bounded")
        self.trials, self.points, self.protocol = trials, points, protocol
        self.clients, self.records = trials.clients, int(sizes[0])
        features = trials.x.shape[-1]
        self.shape = (len(trials.seeds), protocol.repetitions, features, len(points.step_size))
        self._x = trials.x.reshape(len(trials.seeds), self.clients, self.records, features)
        self._y = trials.y.reshape(self._x.shape[:-1])
        self._seeds, self._twin = np.unique(np.asarray(trials.seeds), return_inverse=True)
        self._alike = bool(np.all(self._y == 1.0))  # linear losses' targets, which need not be looked up
        self._quadratic = isinstance(protocol.loss, Square | Linear)
        self._everyone = protocol.participation.sizes == (self.clients,)
        self._order = self._one_pass_order() if protocol.sampling is Sampling.FIXED else None
        self._own = self._moments(self._x, self._y) if protocol.sampling is Sampling.FULL and self._quadratic else None
        self._number, self._block = -1, None

    def at(self, weights: Array, round: int) -> Array:
        """Return the round's mean noisy gradient at `weights`, both (trials, repetitions, features, models)."""
        number, place = divmod(round, BLOCK)
        if number != self._number:
            self._number, self._block = number, self._draw(number)
        block = self._block
        assert block is not None
        if self._quadratic:
            assert block.pull is not None
            total = block.noise[place][..., None] * self.points.noise_std - block.pull[place][..., None]
            if block.curvature is not None:
                total += block.curvature[place] @ weights
        else:
            total = block.noise[place][..., None] * self.points.noise_std + self._drawn(weights, block, place)
        if self.points.regularisation is not None:
            total += self.points.regularisation * weights
        return total

    def _draw(self, number: int) -> _Block:
        """Return the draws of one block of rounds."""
        size, features = (BLOCK, self.protocol.repetitions), self.shape[2]
        share = None if self._everyone else self._per_seed(lambda seed: self._shares(seed, number, size))
        noise = self._per_seed(lambda seed: generator(seed, "noise", round=number).standard_normal((*size, features)))
        noise *= self.clients**-0.5 if share is None else np.sqrt(share.max(axis=-1))[..., None]
        if self._own is not None:
            return _Block(noise, *self._full_moments(share), None, share)
        records = self._records(number, size)
        if not self._quadratic:
            return _Block(noise, None, None, records, share)
        flat, batch = (*records.shape[:3], self.clients * records.shape[-1]), records.shape[-1]
        x = self._taken(self._x, records).reshape(*flat, features)
        y = np.ones(flat[-1]) if self._alike else self._taken(self._y, records).reshape(flat)
        weights = None if share is None else np.repeat(share[: len(records)], batch, axis=-1) / batch
        return _Block(noise, *self._moments(x, y, weights), None, None)

    def _taken(self, part: Array, records: NDArray[np.int64]) -> Array:
        """Return x or y of records (..., trials, repetitions, clients, K), by one index: it is where the time goes."""
        first = np.arange(len(self._twin))[:, None, None, None] * self.clients + np.arange(self.clients)[:, None]
        return part.reshape(-1, *part.shape[3:]).take(first * self.records + records, axis=0)

    def _per_seed(self, draw: Callable[[int], NDArray]) -> NDArray:
        """Return draw(seed) of every trial, its rounds first: (rounds, trials, ...)."""
        return np.stack([draw(int(seed)) for seed in self._seeds], axis=1)[:, self._twin]

    def _shares(self, seed: int, number: int, size: tuple[int, int]) -> Array:
        """Return 1/M_r for who takes part and 0 for the others, (rounds, repetitions, clients)."""
        sizes = np.asarray(self.protocol.participation.sizes)
        source = generator(seed, "participants", round=number)
        count = sizes[source.integers(len(sizes), size=size)][..., None]
        rank = np.argsort(np.argsort(source.random((*size, self.clients)), axis=-1), axis=-1)
        return (rank < count) / count

    def _records(self, number: int, size: tuple[int, int]) -> NDArray[np.int64]:
        """Return the records of every client in a block, (rounds, trials, repetitions, clients, K)."""
        shape = (*size, self.clients, self.protocol.batch_size)
        if self.protocol.sampling is Sampling.WITH_REPLACEMENT:
            return self._per_seed(
                lambda seed: generator(seed, "batches", round=number).integers(self.records, size=shape)
            )
        every = np.arange(self.records)[:, None, None]
        if self._order is not None:  # (rounds, trials, clients, 1), its repetitions alike
            every = np.moveaxis(self._order[..., number * BLOCK : (number + 1) * BLOCK], -1, 0)[:, :, None, :, None]
            return np.broadcast_to(every, (len(every), len(self._twin), *shape[1:]))
        return np.broadcast_to(every.ravel(), (BLOCK, len(self._twin), *shape[1:]))

    def _one_pass_order(self) -> NDArray[np.int64]:
        """Return which record of each client is shown in which round, (trials, clients, rounds): never one twice."""
        rounds, size = self.protocol.rounds, self.protocol.batch_size
        if size != 1:
            raise ValueError(f"batch_size is {size}; one pass takes 1 record a round")
        if rounds > self.records:
            raise ValueError(f"rounds: {rounds} exceed the {self.records} records of a client")
        each = [
            [
                generator(int(seed), "batches", client).permutation(self.records)[:rounds]
                for client in range(self.clients)
            ]
            for seed in self._seeds
        ]
        return np.asarray(each)[self._twin]

    def _moments(self, x: Array, y: Array, weights: Array | None = None) -> tuple[Array | None, Array]:
        """Return the mean of x x^T, None where the loss is linear, and that of y x, over the records' axis."""
        weighted = y / x.shape[-2] if weights is None else y * weights
        pull = np.squeeze(weighted[..., None, :] @ x, axis=-2)
        if isinstance(self.protocol.loss, Linear):
            return None, pull
        shares = x / x.shape[-2] if weights is None else x * weights[..., None]
        return np.swapaxes(x, -1, -2) @ shares, pull

    def _full_moments(self, share: Array | None) -> tuple[Array | None, Array]:
        """Return a block's curvature and pull of full batches: the clients' own moments, in their shares."""
        if share is None:
            share = np.full((1, 1, 1, self.clients), 1.0 / self.clients)
        assert self._own is not None
        curvature, pull = self._own
        mixed = [None if part is None else np.einsum("rtpc,tc...->rtp...", share, part) for part in (curvature, pull)]
        return cast(
            "tuple[Array | None, Array]",
            tuple(part if part is None else np.broadcast_to(part, (BLOCK, *part.shape[1:])) for part in mixed),
        )

    def _drawn(self, weights: Array, block: _Block, place: int) -> Array:
        """Return the mean gradient of the round's records, of any loss."""
        if self.protocol.sampling is Sampling.FULL:
            x, y = self._x[:, None], self._y[:, None]
        else:
            assert block.records is not None
            x, y = (self._taken(part, block.records[place]) for part in (self._x, self._y))
        x, y = x.reshape(*x.shape[:2], -1, x.shape[-1]), y.reshape(*y.shape[:2], -1)
        slopes = self.protocol.loss.derivative(problems.scores(weights, x), y[..., None])
        batch = x.shape[-2] // self.clients
        if block.share is None:
            return np.swapaxes(x, -1, -2) @ slopes / x.shape[-2]
        return np.swapaxes(x, -1, -2) @ (slopes * np.repeat(block.share[place] / batch, batch, axis=-1)[..., None])
