"""Projected noisy SGD, many runs at once: the steps that asoodeh2021's Algorithm 1 and asoodeh2020's PNSGD share.

A stack is seeds x models. The models of a seed see the same records and the same base noise, each scaled to its own:
every run keeps its own law, and comparisons are paired. Randomness is addressed by (seed, role, block of rounds), so a
run of fewer rounds is the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.contraction.pnsgd import Law
from dpfl.accounting.samplers import Sampling
from dpfl.convex.problems import Array, FactoredRecords, Loss, clipped_gradient_sums
from dpfl.mechanisms import project
from dpfl.randomness import generator

BLOCK = 32
"""Rounds whose draws share an address."""


@dataclass(frozen=True)
class ProjectedHyperparameters:
    """The stacked models, leading axis `models` everywhere.

    step_size (models, rounds); noise_std (models,) of a round's mean gradient, in the gradient's unit; radius
    (models,) of the ball; regularisation (models,) the weight of |w|^2/2, whose gradient no record moves.
    """

    step_size: Array
    noise_std: Array
    radius: Array
    regularisation: Array

    @property
    def rounds(self) -> int:
        """The number of rounds that the schedules cover."""
        return self.step_size.shape[1]


def projected_sgd(
    loss: Loss,
    batches: Callable[[int], FactoredRecords],
    seeds: Sequence[int],
    points: ProjectedHyperparameters,
    *,
    clip_norm: float,
    law: Law = Law.GAUSSIAN,
) -> Iterator[Array]:
    """Yield the models after each round from w = 0, shape (seeds, features, models); the next round overwrites them.

    `batches`(block) gives the records of BLOCK rounds, direction (seeds, BLOCK, batch, features). A round:
    w <- projection(w - eta_t (mean of the clipped gradients + regularisation w + noise_std z_t)). The noise z_t
    is one draw: m users who each add sigma times a Gaussian make a mean of scale sigma/sqrt(m), the same law.
    Source: asoodeh2021 Algorithm 1; with one record per round asoodeh2020 eq. (12).
    Formal guarantee: replacing one of m records moves a round's mean gradient by at most 2 clip_norm/m.
    """
    features, models = batches(0).direction.shape[-1], len(points.noise_std)
    weights = np.zeros((len(seeds), features, models))
    step = np.empty_like(weights)
    for round in range(points.rounds):
        index = round % BLOCK
        if index == 0:
            block = batches(round // BLOCK)
            noise = base_noise(seeds, round // BLOCK, features, law)
            size = block.norms.shape[-1]
            lengths = np.empty((len(seeds), size, models))
        clipped_gradient_sums(loss, weights, block[:, index], clip_norm, lengths, out=step)
        step /= size
        step += points.regularisation * weights
        step += noise[:, index, :, None] * points.noise_std
        step *= points.step_size[:, round]
        weights = project(weights - step, points.radius)
        yield weights


def base_noise(seeds: Sequence[int], block: int, features: int, law: Law) -> Array:
    """Return the unscaled noise of one block of rounds, (seeds, BLOCK, features): N(0, 1) or Laplace of scale 1."""
    draws = [generator(seed, "noise", round=block) for seed in seeds]
    name = "standard_normal" if law is Law.GAUSSIAN else "laplace"
    return np.stack([getattr(draw, name)(size=(BLOCK, features)) for draw in draws])


def models_at(models: Iterator[Array], stops: NDArray[np.int64], progress: Callable[[], None]) -> Array:
    """Return the models at the rounds `stops` (seeds, models, stops), counted from 1: (seeds, stops, features, models).

    Runs `models` (as `iterates` yields them) up to the last stop. `progress` is called after every round.
    """
    last = int(stops.max())
    collected = None
    for round, weights in enumerate(models, start=1):
        if collected is None:
            collected = np.empty((stops.shape[0], stops.shape[2], *weights.shape[1:]))
        seed, model, stop = np.nonzero(stops == round)
        collected[seed, stop, :, model] = weights[seed, :, model]
        progress()
        if round == last:
            break
    assert collected is not None
    return collected


def stratified_stops(seed: int, first: int, last: int, draws: int) -> NDArray[np.int64]:
    """Return `draws` rounds of {first..last} in ascending order, one alone where first = last.

    Draw k is at the quantile (k + u_k)/draws of the uniform law, u_k uniform on [0, 1): any one of them, taken at
    random, is uniform on {first..last}, so that a mean over them has the mean over the law, with less variance.
    """
    if first == last:
        return np.array([last])
    quantiles = (np.arange(draws) + generator(seed, "split").random(draws)) / draws
    return first + np.floor(quantiles * (last - first + 1)).astype(np.int64)


class UserSampling(StrEnum):
    """Choice of a round's users."""

    NEW_USERS = "new_users"
    """Every user is new, with a record drawn from the table as if it were the population."""
    ONE_PASS = "one_pass"
    """The table's records are the users; a secret random partition gives each of them one round."""
    FRESH = "fresh"
    """A new batch of m different users every round, drawn from all."""
    WITH_REPLACEMENT = "with_replacement"
    """Each of the round's m slots is drawn from all users."""

    @property
    def sampling(self) -> Sampling:
        """The sampling of a privacy statement."""
        by_draw = {UserSampling.FRESH: Sampling.FIXED, UserSampling.WITH_REPLACEMENT: Sampling.WITH_REPLACEMENT}
        return by_draw.get(self, Sampling.SHUFFLED)

    @property
    def once(self) -> bool:
        """True where each user takes part exactly once."""
        return self in (UserSampling.NEW_USERS, UserSampling.ONE_PASS)


def batches(
    records: FactoredRecords, draw: UserSampling, seeds: Sequence[int], users: int, size: int
) -> Callable[[int], FactoredRecords]:
    """Return the source of batches of `size` among the first `users` of the records (all of them for NEW_USERS).

    Uniform in every case, independent over seeds; blocks are independent but for the partition of ONE_PASS.
    """
    if draw is UserSampling.ONE_PASS:
        return _partition(records, seeds, users, size)
    population = len(records.norms) if draw is UserSampling.NEW_USERS else users

    def block_of(block: int) -> FactoredRecords:
        draws = [generator(seed, "batches", round=block) for seed in seeds]
        if draw is UserSampling.FRESH:
            rows = [[each.choice(population, size, replace=False) for _ in range(BLOCK)] for each in draws]
        else:
            rows = [each.integers(0, population, size=(BLOCK, size)) for each in draws]
        return records[(np.array(rows),)]

    return block_of


def _partition(
    records: FactoredRecords, seeds: Sequence[int], users: int, size: int
) -> Callable[[int], FactoredRecords]:
    """Return the source that cuts one permutation per seed into batches."""
    orders = np.stack([generator(seed, "partition").permutation(users) for seed in seeds])
    return _rows(records, orders.reshape(len(seeds), users // size, size))


def _rows(records: FactoredRecords, rows: NDArray[np.int64]) -> Callable[[int], FactoredRecords]:
    """Return the source that reads the rows (seeds, rounds, batch) block by block."""

    def block_of(block: int) -> FactoredRecords:
        if block * BLOCK >= rows.shape[1]:
            raise ValueError(f"rounds: there are batches for {rows.shape[1]} only; no record may be used again")
        # The rows that fill the last block are never asked for.
        rounds = np.arange(block * BLOCK, (block + 1) * BLOCK) % rows.shape[1]
        return records[(rows[:, rounds],)]

    return block_of
