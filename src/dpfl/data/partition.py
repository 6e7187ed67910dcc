"""Partitions: which records each client holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.arguments import scalar, whole
from dpfl.engine.randomness import generator

# Ten shares of 0.1 are one whole, though their float product may exceed 1 by a rounding error.
_ROUNDING = 1e-9


def random_shares(records: int, clients: int, share: float, seed: int) -> list[NDArray[np.int64]]:
    """Return, for each client, the indices of its floor(share * records) records, each index at most once.

    Where clients * share > 1 the clients overlap: each draws its own share of all records, independently, from the
    address (seed, "partition", client). Otherwise they are disjoint slices of one permutation, from client 0's address.

    Raises ValueError unless records and clients are whole and at least 1, share is in (0, 1], and no share is empty.
    """
    records, clients = whole("records", records, at_least=1), whole("clients", clients, at_least=1)
    share = scalar("share", share, above=0, at_most=1)
    size = int(share * records + _ROUNDING)
    if size == 0:
        raise ValueError(f"share must give each client at least one of the {records} records, got {share}")
    if clients * share > 1 + _ROUNDING:
        return [generator(seed, "partition", client).permutation(records)[:size] for client in range(clients)]
    order = generator(seed, "partition").permutation(records)
    return [order[client * size : (client + 1) * size] for client in range(clients)]
