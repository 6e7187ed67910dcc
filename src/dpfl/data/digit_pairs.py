"""Clients with one even and one odd digit each: the protocol of lowy2021's MNIST experiment, and a corrected one.

Client (e, o) classifies its even digit e against its odd digit o; with ten digits there are 25 such clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dpfl.data.non_iid_blocks import Trial, held_back
from dpfl.errors import InputError
from dpfl.randomness import generator

Array = NDArray[np.float64]
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
