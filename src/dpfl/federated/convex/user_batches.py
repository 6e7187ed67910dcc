"""Which users' records each round of a projected algorithm reads: addressed draws from a table of records.

Every source maps a block number to the records of BLOCK rounds, shape (seeds, BLOCK, batch, ...), for
dpfl.federated.convex.steps.iterates. A round beyond the last repeats the first ones and is never reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.relations import Sampling
from dpfl.engine.randomness import generator
from dpfl.federated.convex.steps import BLOCK
from dpfl.models.glm import Records


class Draw(StrEnum):
    """How the users of a round come about."""

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
        by_draw = {Draw.FRESH: Sampling.FIXED, Draw.WITH_REPLACEMENT: Sampling.WITH_REPLACEMENT}
        return by_draw.get(self, Sampling.SHUFFLED)

    @property
    def once(self) -> bool:
        """Whether each user takes part exactly once."""
        return self in (Draw.NEW_USERS, Draw.ONE_PASS)


def batches(records: Records, draw: Draw, seeds: Sequence[int], users: int, size: int) -> Callable[[int], Records]:
    """Return the source of batches of `size` among the first `users` of the records (all of them for NEW_USERS).

    Uniform in every case, independent over seeds; blocks are independent but for the partition of ONE_PASS.
    """
    if draw is Draw.ONE_PASS:
        return _partition(records, seeds, users, size)
    population = len(records.norms) if draw is Draw.NEW_USERS else users

    def block_of(block: int) -> Records:
        draws = [generator(seed, "batches", round=block) for seed in seeds]
        if draw is Draw.FRESH:
            rows = [[each.choice(population, size, replace=False) for _ in range(BLOCK)] for each in draws]
        else:
            rows = [each.integers(0, population, size=(BLOCK, size)) for each in draws]
        return records[(np.array(rows),)]

    return block_of


def in_order(records: Records, orders: NDArray[np.int64]) -> Callable[[int], Records]:
    """Return the source that takes single records in given orders (seeds, records): PNSGD's."""
    return _rows(records, orders[:, :, None])


def _partition(records: Records, seeds: Sequence[int], users: int, size: int) -> Callable[[int], Records]:
    """Return the source that cuts one permutation a seed into batches."""
    orders = np.stack([generator(seed, "partition").permutation(users) for seed in seeds])
    return _rows(records, orders.reshape(len(seeds), users // size, size))


def _rows(records: Records, rows: NDArray[np.int64]) -> Callable[[int], Records]:
    """Return the source that reads the rows (seeds, rounds, batch) block by block."""

    def block_of(block: int) -> Records:
        rounds = np.arange(block * BLOCK, (block + 1) * BLOCK) % rows.shape[1]
        return records[(rows[:, rounds],)]

    return block_of
