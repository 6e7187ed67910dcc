"""Address randomness: key every draw by (seed, role, client, round, step) instead of streaming it.

A draw depends on its address alone: not on what was drawn before, on how runs are packed, or on resuming. The key is
128 bits wide everywhere, so two of 2^40 addresses share theirs with probability 2^-49. Never seed torch's CPU generator
with an address: it keeps 32 bits of a seed, and some of 2^17 addresses then repeat the draws of others.
"""

from __future__ import annotations

import hashlib
import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Role = Literal["partition", "initial_model", "batches", "noise", "participants", "split", "messages", "preparation"]

_CLOSE_TO_ONE = np.uint32(0xFFF00000)
_CHUNK = 2**16
"""Normal draws made at a time, so that their temporaries stay in a CPU's cache."""


def address_key(seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0) -> int:
    """Return the 128-bit key of an address; distinct addresses have distinct keys but for hash collisions."""
    text = f"{int(seed)}/{role}/{int(client)}/{int(round)}/{int(step)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """Return a fresh numpy generator for one address: Philox4x64 with the address's key, from counter 0.

    Source: Salmon et al. 2011 (salmon2011).
    """
    return np.random.Generator(np.random.Philox(key=address_key(seed, role, client, round, step)))


def standard_normal(
    out: NDArray[np.floating], seed: int, role: Role, client: int = 0, round: int = 0, step: int = 0
) -> None:
    """Fill `out`, a contiguous vector of float32 or float64, with N(0, 1) draws of one address.

    Same address, length, dtype: same bits on one machine; another processor's logarithm and cosine may differ in the
    last bit. float64: numpy's ziggurat on `generator`. float32: Box and Muller's transform of the same Philox stream,
    32 bits a uniform number, in half the ziggurat's time; magnitudes end at sqrt(66 ln 2) = 6.76, which a normal draw
    exceeds with probability 1.4e-11. Raises ValueError for another dtype or shape.
    """
    if out.ndim != 1 or not out.flags.c_contiguous or out.dtype not in (np.float32, np.float64):
        raise ValueError(f"out is {out.dtype} of shape {out.shape}; it must be a contiguous float32 or float64 vector")
    draw = generator(seed, role, client, round, step)
    if out.dtype == np.float64:
        draw.standard_normal(out=out)
        return
    for first in range(0, len(out), _CHUNK):
        _box_muller(out[first : first + _CHUNK], draw.bit_generator)


def _box_muller(out: NDArray[np.float32], bits: np.random.BitGenerator) -> None:
    """Fill `out` with r cos(a) in its first half and r sin(a) in its second, r = sqrt(-2 ln u)."""
    pairs = -(-len(out) // 2)
    words = bits.random_raw(pairs).view(np.uint32)
    radius = words[:pairs].astype(np.float32)
    radius += np.float32(0.5)  # u = (word + 1/2) / 2^32 is never 0
    radius *= np.float32(2.0**-32)
    np.log(radius, out=radius)
    radius *= np.float32(-2.0)
    # Close to 1 single precision rounds u, to 1 itself for the last 128 words: the few there are taken exactly.
    close = np.flatnonzero(words[:pairs] >= _CLOSE_TO_ONE)
    radius[close] = -2.0 * np.log1p(-(2.0**32 - 0.5 - words[close]) * 2.0**-32)
    np.sqrt(radius, out=radius)
    angle = words[pairs:].view(np.int32).astype(np.float32)
    angle *= np.float32(math.pi * 2.0**-31)
    np.multiply(radius, np.cos(angle), out=out[:pairs])
    rest = len(out) - pairs
    np.multiply(radius[:rest], np.sin(angle[:rest]), out=out[pairs:])
