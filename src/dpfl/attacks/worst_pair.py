"""Two neighbouring data sets that differ as much as a sampler lets an observer of every step see.

All gradients lie along one direction, in units of the clip norm. Where batch sizes are fixed, the other records (the
hostile mates) all contribute -1: a step without the record in question then sums to minus its batch size, which is
public, and the record shows as what it adds to that. Where batch sizes are random, mates would hide it: they are silent
and contribute nothing. Source: Chua et al. 2024, arXiv 2403.17673, for shuffled batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling

_FIXED_SIZE = {Sampling.SHUFFLED, Sampling.FIXED, Sampling.WITH_REPLACEMENT}
_LENGTH = 1e3
"""Length of an attacker's gradient over the clip norm: it is always clipped."""


@dataclass(frozen=True)
class WorstPair:
    """What records contribute in the worlds P and Q, in clip norms.

    The record in question contributes `canary[0]` in P and `canary[1]` in Q, where None means that Q has no such
    record; every other one contributes `mates`.
    """

    canary: tuple[float, float | None]
    mates: float

    @property
    def shifts(self) -> tuple[float, float]:
        """What a step that draws the record, or its empty slot, gains in P and in Q over a batch of mates alone."""
        here, there = self.canary
        return here - self.mates, (there or 0.0) - self.mates

    def gradients(self, records: int, trials: int, *, world: int, clip_norm: float) -> NDArray[np.float64]:
        """Return signed gradients along a direction, (trials, records), of P (world 0) or Q (world 1).

        In trial v the record in question is number v. All but zeros are a thousand times longer than `clip_norm`. P has
        `records` records, Q one less where it is removed. Raises ValueError for more trials than records.
        """
        if trials > records:
            raise ValueError(f"trials: {trials} trials need as many records, not {records}")
        own = self.canary[world]
        gradients = np.full((trials, records - (own is None)), _LENGTH * clip_norm * self.mates)
        if own is not None:
            gradients[np.arange(trials), np.arange(trials)] = _LENGTH * clip_norm * own
        return gradients


def worst_pair(sampling: Sampling, neighbouring: Neighbouring) -> WorstPair:
    """Return the pair for a sampler and a neighbouring relation."""
    other = {Neighbouring.ZERO_OUT: 0.0, Neighbouring.ADD_OR_REMOVE: None, Neighbouring.REPLACE_ONE: -1.0}
    return WorstPair((1.0, other[neighbouring]), -1.0 if sampling in _FIXED_SIZE else 0.0)
