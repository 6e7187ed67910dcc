"""Divide the training records among clients: at random, by labels, in blocks of a sorted table, by pairs of digits.

Blocks are heterogeneous clients: contiguous blocks of a table sorted by its target, split into train and test in each
trial, the protocol of lowy2021's insurance regression (Fig. 2). Pairs are the protocol of its MNIST experiment, and a
corrected one: client (e, o) classifies its even digit e against its odd digit o, so ten digits make 25 clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.numerics import integer, real
from dpfl.errors import InputError
from dpfl.randomness import generator

if TYPE_CHECKING:
    from dpfl.data.loading import TableData

# Ten shares of 0.1 add up to 1, though their float product may exceed 1 by a rounding error.
_ROUNDING = 1e-9


def random_shares(
    records: int, clients: int, share: float | Sequence[float], seed: int, *, independent: bool = False
) -> list[NDArray[np.int64]]:
    """Return, for each client, the indices of its floor(share * records) records, each index at most once.

    `share` is one number for all clients or one a client. If `independent`, or if the shares add up to more than 1, the
    clients overlap: each draws its own share of all records from the address (seed, "partition", client). Otherwise
    they are disjoint slices of one permutation, from client 0's address.

    Raises ValueError unless records and clients are integers of at least 1, there is a share a client, each in (0, 1],
    and no share is empty.
    """
    records, clients = integer("records", records, at_least=1), integer("clients", clients, at_least=1)
    shares = list(share) if isinstance(share, Sequence) else [share] * clients
    if len(shares) != clients:
        raise ValueError(f"share must be one number or one a client, got {len(shares)} for {clients} clients")
    shares = [real("share", each, above=0, at_most=1) for each in shares]
    sizes = [int(each * records + _ROUNDING) for each in shares]
    if 0 in sizes:
        raise ValueError(f"share must give each client at least one of the {records} records, got {min(shares)}")
    if independent or sum(shares) > 1 + _ROUNDING:
        return [generator(seed, "partition", client).permutation(records)[:size] for client, size in enumerate(sizes)]
    order = generator(seed, "partition").permutation(records)
    return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])


# Shares that depend on the labels: what makes clients differ in one's own data.

_SHARDS_STEP, _DIRICHLET_STEP = 1, 2
"""Steps of the address (seed, "partition") whose step 0 draws shares at random."""


def label_shards(labels: NDArray[np.int64], clients: int, shards: int, seed: int) -> list[NDArray[np.int64]]:
    """Return, for each client, the indices of its records: `shards` shards of the records sorted by `labels` (n,).

    The records, in random order within a label, are cut into clients * shards pieces whose sizes differ by 1 at most;
    every client has as many of them, at random. Every record is some client's. Raises InputError where there are more
    shards than records. Source: mcmahan2017, section 3.
    """
    clients, shards = integer("clients", clients, at_least=1), integer("shards", shards, at_least=1)
    if clients * shards > len(labels):
        raise InputError(f"partition: {clients} clients with {shards} shards each need more than {len(labels)} records")
    draw = generator(seed, "partition", step=_SHARDS_STEP)
    order = draw.permutation(len(labels))
    pieces = np.array_split(order[np.argsort(labels[order], kind="stable")], clients * shards)
    hands = draw.permutation(clients * shards).reshape(clients, shards)
    return [np.concatenate([pieces[piece] for piece in hand]) for hand in hands]


def dirichlet_shares(
    labels: NDArray[np.int64], clients: int, concentration: float, seed: int
) -> list[NDArray[np.int64]]:
    """Return, for each client, the indices of its records: each label's are dealt in proportions of a Dirichlet law.

    A label's proportions follow the symmetric Dirichlet law over clients with parameter `concentration` > 0: small ones
    give a label to few clients, large ones divide it evenly. Its records, in random order, are cut there, rounded down.
    Every record of `labels` (n,) is some client's. Raises InputError where a client is left without a record.
    Source: yurochkin2019, section 4.
    """
    clients = integer("clients", clients, at_least=1)
    concentration = real("concentration", concentration, above=0)
    draw = generator(seed, "partition", step=_DIRICHLET_STEP)
    hands: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        places = draw.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(draw.dirichlet(np.full(clients, concentration)))[:-1]
        for hand, piece in zip(hands, np.split(places, (ends * len(places) + _ROUNDING).astype(int)), strict=True):
            hand.append(piece)
    shares = [np.concatenate(hand) for hand in hands]
    if empty := [client for client, share in enumerate(shares) if not len(share)]:
        raise InputError(
            f"partition: dirichlet:{concentration:g} leaves client {empty[0]} of {clients} without records; take fewer "
            "clients, a larger parameter or another seed"
        )
    return shares


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


Places = NDArray[np.int64]

_DEAL_STEP = 1
"""A digit's images are dealt to its clients at step 1 of the address at whose step 0 a client's are split."""


class Split(StrEnum):
    """Ways to assign images to clients."""

    PUBLISHED = "published"
    """Draws with replacement from images that all clients of a digit share: test images are trained on as well."""
    DISJOINT = "disjoint"
    """Every image is assigned to one client at most, to train or to test on."""


@dataclass(frozen=True)
class DigitPairs:
    """The clients of digits 0 to digits - 1, and the images that each digit deals to them.

    A client has `images_per_digit` of either digit before the split. `pools[digit]` are the places, among all images,
    that may be dealt: the digit's first images_per_digit, or as many for each of its clients (DISJOINT).
    """

    images_per_digit: int
    split: Split
    pools: tuple[Places, ...]

    @classmethod
    def of(cls, labels: Places, digits: int, images_per_digit: int, split: Split) -> DigitPairs:
        """Return the clients; raises InputError where a digit has too few images, or digits is odd or below 2."""
        if digits < 2 or digits % 2:
            raise InputError(f"digits is {digits}; as many even as odd digits make pairs: take 2, 4, 6, 8 or 10")
        needed = images_per_digit * (digits // 2 if split is Split.DISJOINT else 1)
        pools = []
        for digit in range(digits):
            places = np.flatnonzero(labels == digit)
            if len(places) < needed:
                raise InputError(
                    f"images_per_digit: {images_per_digit} ({split} split) needs {needed} training images of digit "
                    f"{digit}, there are {len(places)}"
                )
            pools.append(places[:needed])
        return cls(images_per_digit, split, tuple(pools))

    @property
    def clients(self) -> list[tuple[int, int]]:
        """The (even, odd) digits of every client, even outside."""
        digits = range(len(self.pools))
        return [(even, odd) for even in digits[::2] for odd in digits[1::2]]

    @property
    def dealt(self) -> Places:
        """All places that any trial deals, in ascending order."""
        return np.sort(np.concatenate(self.pools))

    def deal(self, seed: int) -> list[Places]:
        """Return the places of every client; a trial tests on the first of them."""
        each = self.images_per_digit
        if self.split is Split.PUBLISHED:
            both = [np.concatenate([self.pools[even], self.pools[odd]]) for even, odd in self.clients]
            return [
                pool[generator(seed, "split", client).integers(len(pool), size=len(pool))]
                for client, pool in enumerate(both)
            ]
        hands = [
            generator(seed, "split", digit, step=_DEAL_STEP).permutation(pool).reshape(-1, each)
            for digit, pool in enumerate(self.pools)
        ]
        places = [np.concatenate([hands[even][odd // 2], hands[odd][even // 2]]) for even, odd in self.clients]
        return [generator(seed, "split", client).permutation(own) for client, own in enumerate(places)]

    def trial(self, x: Array, seed: int) -> Trial:
        """Return the trial `seed` of features x (images, d); targets are 1 for the even digit, -1 for the odd one.

        A fifth of every client's records, rounded up, is for testing; there is no constant column.
        """
        even = np.zeros(len(x))
        for digit, pool in enumerate(self.pools):
            even[pool] = 1.0 if digit % 2 == 0 else -1.0
        cut = held_back(2 * self.images_per_digit)
        hands = self.deal(seed)
        test = np.concatenate([hand[:cut] for hand in hands])
        train = np.concatenate([hand[cut:] for hand in hands])
        starts = np.arange(len(hands) + 1) * (2 * self.images_per_digit - cut)
        return Trial(x[train], even[train], x[test], even[test], starts)
