"""The cheapest way to absorb a record's shifts into the noise of later steps: the problem behind shifted interpolation.

Each use of the record moves two coupled runs apart by at most one unit; each step contracts their distance by c; an
auxiliary run absorbs a_k of the distance in step k, which costs a_k^2 in mu^2 (in units of the step's noise). A
distance can be absorbed only once it is there. With A_k the absorbed and S_k the present shift, both carried to the
last step by powers of c, and W_k = sum_{j<=k} c^(2(m-j)), the least cost is the energy sum (dA)^2/dW of the greatest
convex minorant of S over W. S is constant between uses, and over a periodic stretch its corners are concave, so four
segments suffice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.contraction.geometric import geometric
from dpfl.accounting.contraction.stable_arithmetic import exponential, power

Array = NDArray[np.float64]
_GRID = 400  # restarts looked at in one pass


def least_energy(
    contraction: float, uses: ArrayLike, *, period: int, gap: ArrayLike, tail: ArrayLike, start: float
) -> Array:
    """Return the least sum of squared absorptions after a restart; `uses`, `gap` and `tail` broadcast.

    At the restart the runs are `start` apart. Then come `uses` >= 0 uses, each `period` steps after the one before but
    the last, which comes `gap` in 1..period steps after it, and `tail` steps without the record. inf where start > 0
    and no step is left. Arguments are not checked. Source: derived (module docstring); at start 0 and gap = period,
    tail 0 it is mu^2 of bok2024, section 4: NoisyGD (period 1), Theorem 4.5.
    """
    uses, gap, tail = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (uses, gap, tail)))
    lengths, rises = _segments(contraction, uses, period, gap, tail, start)
    remaining = np.cumsum(lengths[::-1], axis=0)[::-1] - lengths
    log_squared = _log_squared(contraction)
    terms = geometric(log_squared, np.float64(1 - contraction) * (1 + contraction), lengths)
    return _minorant_energy(exponential(power(log_squared, remaining)) * terms, rises)


def _segments(
    contraction: float, uses: Array, period: int, gap: Array, tail: Array, start: float
) -> tuple[Array, Array]:
    """Lengths in steps and rises of S over the four segments, shape (4, ...): before the first use, up to the last
    but one, up to the last, and from there to the end."""
    log_factor = 0.5 * _log_squared(contraction)
    many, one, none = uses >= 2, uses == 1, uses == 0
    first = np.where(many, period - 1.0, np.where(one, gap - 1.0, tail))
    regular = np.where(many, (uses - 2.0) * period, 0.0)
    lengths = np.stack([first, regular, np.where(many, gap, 0.0), np.where(none, 0.0, tail + 1.0)])
    total = lengths.sum(axis=0)
    log_period, loss = power(log_factor, np.float64(period)), 1 - contraction ** np.float64(period)
    train = geometric(log_period, np.float64(loss), np.where(many, uses - 2.0, 0.0))
    rises = np.stack(
        [
            start * exponential(power(log_factor, total)),
            np.where(many, exponential(power(log_factor, gap + tail + period)) * train, 0.0),
            np.where(many, exponential(power(log_factor, gap + tail)), 0.0),
            np.where(none, 0.0, exponential(power(log_factor, tail))),
        ]
    )
    return lengths, rises


def _log_squared(contraction: float) -> NDArray[np.float64]:
    """2 log c without a warning at c = 0."""
    with np.errstate(divide="ignore"):
        return 2.0 * np.log(np.float64(contraction))


def _minorant_energy(widths: Array, rises: Array) -> Array:
    """sum (slope^2 width) of the greatest convex minorant, by the min-max formula of isotonic regression."""
    across = np.concatenate([np.zeros_like(widths[:1]), np.cumsum(widths, axis=0)])
    along = np.concatenate([np.zeros_like(rises[:1]), np.cumsum(rises, axis=0)])
    count, energy = len(widths), np.zeros(widths.shape[1:])
    for i in range(count):
        slope = np.full(energy.shape, -np.inf)
        for a in range(i + 1):
            slope = np.maximum(slope, np.min([_slope(across, along, a, b) for b in range(i + 1, count + 1)], axis=0))
        energy = energy + np.where(widths[i] > 0, widths[i] * np.where(widths[i] > 0, slope, 0.0) ** 2, 0.0)
    stranded = (across[-1] == 0) & (along[-1] > 0)
    return np.where(stranded, np.inf, energy)


def _slope(across: Array, along: Array, a: int, b: int) -> Array:
    """Slope from corner a to corner b; inf where they share their abscissa."""
    width = across[b] - across[a]
    return np.where(width > 0, (along[b] - along[a]) / np.where(width > 0, width, 1.0), np.inf)


def best_restart(contraction: float, uses: int, *, period: int, gap: int, tail: int, diameter: float) -> int:
    """Return after which number of last uses, 0..uses - 1, a restart at distance `diameter` costs least.

    Exact where the cost has one valley in that number; any answer gives a valid bound. Source: the choice of tau in
    the constrained theorems of bok2024, section 4.
    """
    low, high = 0, uses - 1
    while True:
        grid = np.unique(np.rint(np.geomspace(low + 1, high + 1, _GRID)).astype(np.int64) - 1)
        energies = least_energy(contraction, grid, period=period, gap=gap, tail=tail, start=diameter)
        index = int(np.argmin(energies))
        near_low, near_high = int(grid[max(index - 1, 0)]), int(grid[min(index + 1, grid.size - 1)])
        if near_high - near_low <= 2 or (near_low, near_high) == (low, high):
            return int(grid[index])
        low, high = near_low, near_high
