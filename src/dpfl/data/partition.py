"""Random partitions of the training records among clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.arguments import integer, real
from dpfl.randomness import generator

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
