"""Addressed randomness: every draw is keyed by (seed, role, client, round, step), none is streamed.

A draw depends on its address alone: not on what was drawn before, on how runs are packed, or on resuming.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

Role = Literal["partition", "initial_model", "batches", "noise", "participants", "split", "messages", "preparation"]


def address_key(seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0) -> int:
    """Return the 128-bit key of an address; distinct addresses have distinct keys but for hash collisions."""
    text = f"{int(seed)}/{role}/{int(client)}/{int(round)}/{int(step)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """Return a fresh numpy generator (Philox, counter-based) for one address."""
    return np.random.Generator(np.random.Philox(key=address_key(seed, role, client, round, step)))


def torch_seed(seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0) -> int:
    """Return the seed, in [0, 2**63), that a torch.Generator on any device takes for one address."""
    return address_key(seed, role, client, round, step) >> 65
