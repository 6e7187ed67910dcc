"""Shuffled epochs: lower and upper bounds for a fresh permutation cut into batches, when every step is seen.

In units of the clip norm. Lower bound: all other records contribute -1, the record in question +1, as in the worst pair
of chua2024. A batch of b records then sums to -b, but for the one with the record. b is public, so every step is
shifted by it: the record's batch, uniform over the records' positions, then has mean 2, or 1 once it is zeroed out, or
0 once it is a -1 as well; all other batches have mean 0. The observer keeps only the largest step of an epoch. With T
steps and Phi_m the distribution function of N(m, sigma^2), its distribution function is Phi_0^(T-1) Phi_m, with m = 2
against m = 1 (zero_out) or m = 0 (replace_one). Under add_or_remove n records are compared with n - 1: if both make T
steps, only the last batch differs in size, and the first T - 1 batches of B are full in both. Their largest step has
distribution function (1 - w) Phi_0^(T-1) + w Phi_0^(T-2) Phi_2, w = (T - 1) B / n, against Phi_0^(T-1).
Of an epoch that is cut short after s < T steps the observer keeps the largest of those: the record is in one of them
with chance w = s B / n, so P has the distribution function (1 - w) Phi_0^s + w Phi_0^(s-1) Phi_2, and Q the same with
its m. One step alone is a batch without replacement: `fixed_batches`.
Any event of that statistic is a line under the privacy profile, so cutting it into cells only loses; the epochs are
independent, so they compose.

Upper bound: given all permutations, a zeroed record moves one step per epoch by 1, a replaced one by 2: Gaussian DP
with mu = sqrt(E)/sigma and 2 sqrt(E)/sigma. A removed record would shift all batches behind it; but a uniform
permutation of n - 1 records is one of n records with the record's place filled by the last one. So coupled, the
record's step moves by 2 and the last step by 1: mu = sqrt(5 E)/sigma. (If it is in the last batch already, it moves
that step by 1 only.)
Where n = k B + 1 the removal takes a step of every epoch away, and no bound is possible: the number of steps is seen.
Before the last step of the first epoch it is not: there the record's step alone moves, by 2. With one batch per epoch
all is as for full batches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from dpfl.accounting.composition import largest_below
from dpfl.accounting.loss_grids import GridLaw, fitting_grid, from_atoms
from dpfl.accounting.neighbouring import Neighbouring

Array = NDArray[np.float64]

_CELLS = 200_000


def unamplified_mu(noise_multiplier: float, steps: int, epochs: int, neighbouring: Neighbouring) -> float:
    """Return the mu of `epochs` shuffled epochs of `steps` steps each, without amplification; see the module.

    add_or_remove: for a data set whose number of steps the removal leaves as it is. Arguments are not checked.
    Guarantee: mu-Gaussian DP against an observer of every step. Source: derived in the module.
    """
    if neighbouring is Neighbouring.ZERO_OUT or (steps == 1 and neighbouring is Neighbouring.ADD_OR_REMOVE):
        squared = 1
    else:
        squared = 4 if neighbouring is Neighbouring.REPLACE_ONE else 5
    return math.sqrt(squared * epochs) / noise_multiplier


def worst_pair_epsilon(
    *,
    noise_multiplier: float,
    batch_size: int,
    records: int,
    epochs: int,
    delta: float,
    neighbouring: Neighbouring,
    seen: int | None = None,
) -> float:
    """Return an epsilon that `epochs` shuffled epochs exceed at `delta`, by the module's pair and statistic.

    `seen`: the steps of the one epoch, if it is cut short. Guarantee: the run is not (e, delta)-DP under `neighbouring`
    for any e below, against an observer of every step.
    Rounding is bounded and counted on the safe side. Arguments are not checked; at least two steps per epoch.
    Source: chua2024 (the pair); the statistic is derived in the module.
    """
    laws = epoch_laws(noise_multiplier, batch_size, records, epochs, delta, neighbouring, seen)
    return largest_below(laws, epochs, delta)


def epoch_laws(
    noise_multiplier: float,
    batch_size: int,
    records: int,
    epochs: int,
    delta: float,
    neighbouring: Neighbouring,
    seen: int | None = None,
) -> tuple[GridLaw, GridLaw]:
    """Return laws, P||Q and Q||P, below that of one epoch's loss; `epochs` and `delta` only set the grid.

    `seen`: after how many steps, fewer than an epoch has, it is cut short.

    Source: derived in the module.
    """
    shift, steps = 1 / noise_multiplier, math.ceil(records / batch_size)
    none_fewer = neighbouring is not Neighbouring.ADD_OR_REMOVE
    share = 1.0 if none_fewer else (steps - 1) * batch_size / records
    if seen is not None:
        share = seen * batch_size / records
    steps = steps if seen is None else seen if none_fewer else seen + 1  # the last one of an epoch is not compared

    def log_below(z: Array, other: bool) -> Array:
        """The logarithm of the largest step's distribution function: of Q if `other`, else of P."""
        none = log_ndtr(z)
        mean = 2.0 if not other else 1.0 if neighbouring is Neighbouring.ZERO_OUT else 0.0
        moved = log_ndtr(z - mean * shift) - none
        if share < 1:
            moved = np.log1p(share * np.expm1(moved))
        return (steps if none_fewer else steps - 1) * none + moved

    log_tail = math.log(delta) - math.log(epochs) - 7
    far = -float(ndtri_exp(log_tail - math.log(steps)))
    near = float(ndtri_exp(log_tail / steps)) if steps > 1 else -far
    z = np.linspace(near - 1, far + 2 * shift + 1, _CELLS)
    heads, tails = [], []
    for other in (False, True):
        logs = log_below(z, other)
        heads.append(np.exp(logs))
        tails.append(-np.expm1(logs))
    # Each law's cells by its own nearer end: a tail of 1 - 1e-16 has no digits left for small cells.
    p_cell, q_cell = (
        np.where(head[1:] < 0.5, np.diff(head), -np.diff(tail)) for head, tail in zip(heads, tails, strict=True)
    )
    support = (p_cell > 1e-290) & (q_cell > 1e-290)
    p_cell, q_cell = p_cell[support], q_cell[support]
    return from_atoms(fitting_grid(p_cell, q_cell, epochs), p_cell, q_cell)
