"""Heterogeneous clients: contiguous blocks of a table sorted by its target, split into train and test in each trial.

The protocol of lowy2021's insurance regression (Fig. 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.data.loading import TableData
from dpfl.errors import InputError
from dpfl.randomness import generator

Array = NDArray[np.float64]

TEST_SHARE = 0.2
"""Part of a client's records that a trial tests on, rounded up."""


@dataclass(frozen=True)
class Trial:
    """One split of all clients' records: x (records, features), y; client c trains on starts[c] to starts[c+1] - 1."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    starts: NDArray[np.int64]


def client_blocks(records: int, clients: int) -> list[range]:
    """Return every client's places in the order of the target: contiguous blocks of ceil(records / clients).

    Raises InputError where a client is left with fewer than two records, one to train and one to test on.
    """
    size = math.ceil(records / clients)
    blocks = [range(size * client, max(size * client, min(size * (client + 1), records))) for client in range(clients)]
    for client, block in enumerate(blocks):
        if len(block) < 2:
            raise InputError(
                f"clients: {clients} blocks of {size} out of {records} records leave client {client} with "
                f"{len(block)}; every client needs 2 or more, so take fewer clients"
            )
    return blocks


def held_back(records: int) -> int:
    """Return the number of a client's records on which a trial tests."""
    return math.ceil(TEST_SHARE * records)


def split(table: TableData, clients: int, standardise: list[str], seed: int) -> Trial:
    """Return the trial `seed`: a fresh split of every client's records, drawn without regard to the other clients.

    The columns named in `standardise` are shifted and scaled by mean and standard deviation of the client's own
    training records. Raises InputError for a column that is unknown, or constant where it is to be scaled.
    """
    names = list(table.columns)
    unknown = [name for name in standardise if name not in names]
    if unknown:
        raise InputError(f"standardise: the table has no column {unknown[0]}; it has {', '.join(names)}")
    columns = [1 + names.index(name) for name in standardise]
    x = np.column_stack([np.ones(len(table.y)), table.x])
    order = np.argsort(table.y, kind="stable")
    train, test = [], []
    for client, block in enumerate(client_blocks(len(order), clients)):
        places = generator(seed, "split", client).permutation(order[block.start : block.stop])
        test.append(places[: held_back(len(places))])
        train.append(places[held_back(len(places)) :])
        for name, column in zip(standardise, columns, strict=True):
            own = x[train[-1], column]
            if np.ptp(own) == 0:
                raise InputError(f"standardise: {name} is constant among the training records of client {client}")
            x[places, column] = (x[places, column] - own.mean()) / own.std()
    y = np.asarray(table.y, dtype=np.float64)
    training, testing = np.concatenate(train), np.concatenate(test)
    return Trial(x[training], y[training], x[testing], y[testing], starts=np.cumsum([0, *map(len, train)]))
