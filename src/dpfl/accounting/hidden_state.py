"""Epsilon of the last iterate of noisy gradient descent on convex losses: the least of the known bounds.

One noisy gradient step as seen by the accountant: how far it contracts, and its noise and set in units of the shift.
The step is w <- project(w - (step_size/batch_size) (sum over the batch of grad f_i(w) + lipschitz noise_multiplier Z)).
A record moves that sum by at most `sensitivity` times lipschitz. In units of that shift the noise of a step has
standard deviation noise_multiplier/sensitivity.

The cheapest way to absorb a record's shifts into the noise of later steps: the problem behind shifted interpolation.
Each use of the record moves two coupled runs apart by at most one unit; each step contracts their distance by c; an
auxiliary run absorbs a_k of the distance in step k, which costs a_k^2 in mu^2 (in units of the step's noise). A
distance can be absorbed only once it is there. With A_k the absorbed and S_k the present shift, both carried to the
last step by powers of c, and W_k = sum_{j<=k} c^(2(m-j)), the least cost is the energy sum (dA)^2/dW of the greatest
convex minorant of S over W. S is constant between uses, and over a periodic stretch its corners are concave, so four
segments suffice.

The last iterate of noisy SGD on batches of fixed size, drawn without replacement, independently in every step. A
restart at distance z leaves `late` steps. Each spends a share of its noise's variance on hiding its part of z (a
Gaussian), and the rest on hiding whether and how the record took part (C_p of a Gaussian). Any number of late steps and
any share give a valid bound; both are searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.accounting.contraction.kernels import geometric
from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.accounting.numerics import (
    Array,
    by_element,
    exponential,
    falling_zero,
    integer,
    integers,
    member,
    power,
    real,
    reals,
    require_at_most,
)
from dpfl.accounting.sampler_accountants import unamplified
from dpfl.accounting.samplers import Accountable, FixedBatches, FullBatch, ShuffledEpochs
from dpfl.accounting.tradeoff import privacy_loss

# Privacy of the last iterate alone, for convex losses: contraction, shifted interpolation, and the least of them.

__all__ = [
    "Batches",
    "Bound",
    "LastIterate",
    "diameter_in_shifts",
    "last_iterate_epsilon",
    "shifted_interpolation_mu",
    "step_contraction",
]


# Convex losses without clipping, of which only the last iterate is seen: what a guarantee gains from hidden steps.

_SHUFFLED, _UNIFORM, _FULL = "shuffled_epochs", "fixed_without_replacement", "full_batch"
_PROOFS = {
    "composition": "composition of all iterates",
    "contraction": "contraction (asoodeh2020, Theorem 4) after the last use",
    "shifted_interpolation": "shifted interpolation (bok2024)",
    "contraction_and_shifts": "contraction or shifted interpolation, by place of the last use",
}


@dataclass(frozen=True)
class ConvexProblem:
    """Losses and steps w <- project(w - learning_rate (noisy sum of a batch's gradients) / divisor).

    The mean loss of every batch is convex, `smoothness`-smooth (> 0) and `strong_convexity`-strongly convex (from 0 to
    smoothness; a public regulariser counts); a record's gradient is at most `lipschitz` > 0 long by itself: a CLIPPED
    gradient need not contract, and no such problem may be stated for it. `learning_rate` is in (0, 2/smoothness].
    `project` is on a convex set of `diameter` > 0 (inf: none). The divisor is the batch size, of a shorter last batch
    too, and the same for neighbouring data sets; `records` is that of a full batch, needed where the diameter is
    finite. Raises ValueError naming the field.
    """

    smoothness: float
    learning_rate: float
    lipschitz: float
    strong_convexity: float = 0.0
    diameter: float = math.inf
    records: int | None = None

    def __post_init__(self) -> None:
        smoothness = real("smoothness", self.smoothness, above=0)
        real("learning_rate", self.learning_rate, above=0, at_most=2 / smoothness)
        real("lipschitz", self.lipschitz, above=0)
        real("strong_convexity", self.strong_convexity, at_least=0, at_most=smoothness)
        real("diameter", self.diameter, above=0, infinite=True)
        if self.records is not None:
            integer("records", self.records, at_least=1)

    @property
    def attained(self) -> bool:
        """True where a quadratic attains shifted interpolation under full batches: without a set, if a step contracts
        by 1 - learning_rate strong_convexity. Longer steps turn around, and the shifts of a record cancel.
        """
        stretch = self.learning_rate * (self.smoothness + self.strong_convexity)
        return math.isinf(self.diameter) and stretch <= 2

    def last_iterate(
        self, sampler: Accountable, *, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring
    ) -> tuple[float, str] | None:
        """Return an epsilon of the last iterate alone and its proof; None where the sampler and relation have none.

        `noise_multiplier` is the noise's standard deviation on a batch's sum over `lipschitz`. Guarantee and sources:
        `last_iterate_epsilon`. Raises ValueError naming `records` where it is needed.
        """
        batches, size, records = self._batches(sampler)
        unproven = neighbouring is Neighbouring.ADD_OR_REMOVE and batches != _FULL
        if batches is None or unproven or (batches == _UNIFORM and delta < LEAST_DELTA):
            return None
        found = last_iterate_epsilon(
            batches=batches,
            steps=steps,
            records=records,
            batch_size=size,
            noise_multiplier=noise_multiplier,
            delta=delta,
            step_size=self.learning_rate,
            smoothness=self.smoothness,
            lipschitz=self.lipschitz,
            strong_convexity=self.strong_convexity,
            diameter=self.diameter,
            neighbouring=neighbouring,
        )
        return found.epsilon, f"last iterate of convex losses: {_PROOFS[found.bound]}"

    def last_iterate_mu(
        self, sampler: Accountable, *, noise_multiplier: float, steps: int, neighbouring: Neighbouring
    ) -> float | None:
        """Return a mu of Gaussian DP of the last iterate of full batches, wherever the first one is; else None.

        Guarantee and source: `shifted_interpolation_mu`. Raises ValueError naming `records` where it is needed.
        """
        if not isinstance(sampler, FullBatch):
            return None
        _, size, _ = self._batches(sampler)
        diameter = diameter_in_shifts(
            self.diameter,
            step_size=self.learning_rate,
            lipschitz=self.lipschitz,
            batch_size=size,
            neighbouring=neighbouring,
        )
        mu = shifted_interpolation_mu(
            steps=steps,
            contraction=step_contraction(self.learning_rate, self.smoothness, self.strong_convexity),
            noise_over_shift=noise_multiplier / MOVES[neighbouring],
            diameter_over_shift=diameter,
        )
        return float(mu)

    def _batches(self, sampler: Accountable) -> tuple[str | None, int, int]:
        """The sampler's name among the hidden-state bounds, the batch size and the number of records."""
        match sampler:
            case FullBatch():
                if self.records is None and math.isfinite(self.diameter):
                    raise ValueError("convex: records must be given for full batches on a set of finite diameter")
                size = self.records or 1
                return _FULL, size, size
            case ShuffledEpochs(batch_size=size, records=records):
                return _SHUFFLED, size, records
            case FixedBatches(batch_size=size, records=records):
                return _UNIFORM, size, records
        return None, 1, 1


# One noisy gradient step as seen by the accountant: how far it contracts, and its noise and set in units of the shift.


def step_contraction(step_size: ArrayLike, smoothness: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Return c = max(|1 - eta m|, |1 - eta M|), the Lipschitz constant of w -> w - eta grad f(w); shapes broadcast.

    eta = `step_size` in (0, 2/M], M = `smoothness` > 0, m = `strong_convexity` in [0, M]. c is in [0, 1], is 1 for a
    convex loss (m = 0) and at eta = 2/M, and is attained by a quadratic. Never above `contraction.contraction_factor`
    where both are defined. Raises ValueError naming the argument. Source: bok2024,
    section 4, NoisyGD.
    """
    eta = reals("step_size", step_size, above=0)
    smoothness = reals("smoothness", smoothness, above=0)
    strong_convexity = reals("strong_convexity", strong_convexity, at_least=0)
    require_at_most("strong_convexity", strong_convexity, "smoothness", smoothness)
    require_at_most("step_size", eta, "2/smoothness", 2 / smoothness * (1 + 1e-15))
    return np.clip(np.maximum(1 - eta * strong_convexity, eta * smoothness - 1), 0.0, 1.0)[()]


def diameter_in_shifts(
    diameter: ArrayLike, *, step_size: ArrayLike, lipschitz: ArrayLike, batch_size: ArrayLike, neighbouring: str
) -> Array:
    """Return D batch_size/(step_size lipschitz sensitivity): the set's diameter over the shift of one step.

    `diameter` > 0 or inf (no projection), `step_size` and `lipschitz` > 0, integer `batch_size` >= 1 (the divisor of
    the sum); shapes broadcast. Sensitivity 1 for zero_out and add_or_remove, 2 for replace_one. Raises ValueError
    naming the argument. Source: the ratio D b/(eta L) of bok2024, section 4, constrained theorems.
    """
    shift = reals("step_size", step_size, above=0) * reals("lipschitz", lipschitz, above=0)
    shift = shift * MOVES[member("neighbouring", Neighbouring, neighbouring)]
    return (
        reals("diameter", diameter, above=0, infinite=True) * integers("batch_size", batch_size, at_least=1) / shift
    )[()]


# The cheapest way to absorb a record's shifts into the noise of later steps: the problem behind shifted interpolation.

_GRID = 400  # restarts looked at in one pass


def least_energy(
    contraction: float, uses: ArrayLike, *, period: int, gap: ArrayLike, tail: ArrayLike, start: float
) -> Array:
    """Return the least sum of squared absorptions after a restart; `uses`, `gap` and `tail` broadcast.

    At the restart the runs are `start` apart. Then come `uses` >= 0 uses, each `period` steps after the one before but
    the last, which comes `gap` in 1..period steps after it, and `tail` steps without the record. inf where start > 0
    and no step is left. Arguments are not checked. Source: derived; see the module; at start 0 and gap = period,
    tail 0 it is mu^2 of bok2024, section 4: NoisyGD (period 1), Theorem 4.5.
    """
    uses, gap, tail = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (uses, gap, tail)))
    lengths, rises = _segments(contraction, uses, period, gap, tail, start)
    remaining = np.cumsum(lengths[::-1], axis=0)[::-1] - lengths
    log_squared = _log_squared(contraction)
    terms = geometric(log_squared, (1 - contraction) * (1 + contraction), lengths)
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
    train = geometric(log_period, loss, np.where(many, uses - 2.0, 0.0))
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


# Gaussian DP of the last iterate of noisy gradient descent: full batches, and batches in a fixed cyclic order.


def shifted_interpolation_mu(
    *,
    steps: ArrayLike,
    contraction: ArrayLike,
    noise_over_shift: ArrayLike,
    diameter_over_shift: ArrayLike = math.inf,
    steps_per_epoch: ArrayLike = 1,
) -> float | NDArray[np.float64]:
    """Return mu such that the last iterate is mu-Gaussian-DP; array arguments broadcast.

    The record is used once every `steps_per_epoch` steps (1: full batches), at worst in the last step of all.
    `contraction` c in [0, 1] is that of a step (`step_contraction`; 1 for convex losses); `noise_over_shift` > 0 the
    noise of a step over the shift that the record causes (noise_multiplier for zero_out, half of it for replace_one);
    `diameter_over_shift` > 0 that of the convex set projected on (`diameter_in_shifts`), inf for none.

    Formal guarantee: T(X_t, X'_t) >= G_mu for neighbours, in both orders, if the loss of each batch of ONE of the two
    data sets has c-Lipschitz gradient steps. No clipping may be active: a clipped gradient need not contract.
    Exact for full batches without projection where c = 1 - eta m (a quadratic attains it); never above composition,
    sqrt(ceil(steps/steps_per_epoch))/noise_over_shift. 0 at steps = 0. Raises ValueError naming the argument.

    Source: bok2024, section 4: NoisyGD (strongly convex; convex, constrained) and
    NoisyCGD (Theorem 4.5; convex, constrained), each with the shifts and the restart of least cost, found
    numerically; the constrained theorems' closed forms are larger and need enough steps.
    """

    def one(
        steps: float,
        contraction: float,
        noise_over_shift: float,
        diameter_over_shift: float,
        steps_per_epoch: float,
    ) -> float:
        count, period = integer("steps", steps), integer("steps_per_epoch", steps_per_epoch, at_least=1)
        factor = real("contraction", contraction, at_least=0, at_most=1)
        noise = real("noise_over_shift", noise_over_shift, above=0)
        diameter = real("diameter_over_shift", diameter_over_shift, above=0, infinite=True)
        if count == 0:
            return 0.0
        uses = -(-count // period)
        return math.sqrt(float(place_energy(factor, uses, period=period, diameter=diameter))) / noise

    return by_element(
        one,
        steps=steps,
        contraction=contraction,
        noise_over_shift=noise_over_shift,
        diameter_over_shift=diameter_over_shift,
        steps_per_epoch=steps_per_epoch,
    )


def place_energy(
    contraction: float,
    uses: int,
    *,
    period: int,
    diameter: float,
    gap: ArrayLike | None = None,
    tail: ArrayLike = 0,
) -> NDArray[np.float64]:
    """Return mu^2 at noise_over_shift 1 of a record used `uses` >= 1 times, by where its last use falls.

    `gap` (1..period, default period): steps from the use before to the last one; `tail` >= 0: steps after it; they
    broadcast. The restart is sought for the worst of them and tried for all, as well as none, one before the last
    use and one after it. Arguments are not checked. Source: as `shifted_interpolation_mu`.
    """
    gap = np.asarray(period if gap is None else gap)
    energy = least_energy(contraction, uses, period=period, gap=gap, tail=tail, start=0.0)
    if math.isinf(diameter):
        return energy
    worst = {"gap": int(np.max(gap)), "tail": int(np.min(tail))}
    best = best_restart(contraction, uses, period=period, diameter=diameter, **worst)
    for restart in {best, 0, min(1, uses - 1)}:
        restarted = least_energy(contraction, restart, period=period, gap=gap, tail=tail, start=diameter)
        energy = np.minimum(energy, restarted)
    return energy


# The last iterate of shuffled epochs whose permutations stay secret: a mean over where the last use falls.


@dataclass(frozen=True)
class LastUse:
    """Possible steps of a record's last use: arrays of one length, one element per step.

    `chance` sums to the chance that the record is used at all; `shifted_mu` is mu of shifted interpolation over all
    steps, `used_mu` that up to the last use, `tail` the steps after it.
    """

    chance: Array
    shifted_mu: Array
    used_mu: Array
    tail: Array


def last_use(
    *,
    steps: int,
    steps_per_epoch: int,
    short_batch: float,
    contraction: float,
    noise_over_shift: float,
    diameter_over_shift: float,
) -> LastUse:
    """Return the places of the last use of a record in `steps` >= 1 steps of freshly shuffled epochs.

    `short_batch` in (0, 1] is the size of an epoch's last batch over that of the others. Earlier uses are put where
    they cost most, at the end of their epochs: moving a use to a later step never lowers the cost. The other arguments
    are those of `shifted_interpolation_mu`, one number each, and are not checked here.
    Source: derived; the mixture over permutations, none of which depends on the data.
    """
    epochs, rest = divmod(steps, steps_per_epoch)
    share = np.ones(steps_per_epoch)
    share[-1] = short_batch
    share /= share.sum()
    parts = []
    for uses, length, behind, chance in (
        (epochs, steps_per_epoch, rest, 1 - share[:rest].sum()),
        (epochs + 1, rest, 0, 1.0),
    ):
        if not uses or not length:
            continue
        gap = np.arange(1, length + 1)
        tail = length - gap + behind
        place = {"period": steps_per_epoch, "diameter": diameter_over_shift, "gap": gap}
        used = place_energy(contraction, uses, **place)
        shifted = place_energy(contraction, uses, **place, tail=tail)
        parts.append((chance * share[:length], np.minimum(shifted, used), used, tail.astype(np.float64)))
    chances, shifted, used, tails = (np.concatenate(column) for column in zip(*parts, strict=True))
    return LastUse(chances, np.sqrt(shifted) / noise_over_shift, np.sqrt(used) / noise_over_shift, tails)


def shuffled_delta(epsilon: float, places: LastUse, *, link: float, bound: str = "minimum") -> float:
    """Return the delta at `epsilon` >= 0 of the last iterate after shuffled epochs with secret permutations.

    `link` is contraction diameter/noise: how far apart two models may enter a step, in units of its noise; inf without
    projection. `bound`: "shifted" takes theta(epsilon, shifted_mu) at each place, "contraction"
    theta(epsilon, used_mu) theta(epsilon, link)^tail, "minimum" the smaller of both at each place.
    Formal guarantee: (epsilon, delta)-DP in both orders; the divergence is jointly convex, so a mixture over the place,
    whose law does not depend on the data, has at most the mean. Raises ValueError naming bound.
    Source: derived; the tail by contraction is asoodeh2020 Theorems 2 and 4, the shifts are bok2024.
    """
    logs = {}
    if bound in ("shifted", "minimum"):
        logs["shifted"] = gaussian_dp.log_divergence(epsilon, places.shifted_mu)
    if bound in ("contraction", "minimum"):
        log_link = gaussian_dp.log_divergence(epsilon, link)
        logs["contraction"] = gaussian_dp.log_divergence(epsilon, places.used_mu) + power(log_link, places.tail)
    if not logs:
        raise ValueError(f"bound must be one of 'shifted', 'contraction', 'minimum', got {bound!r}")
    return float(np.sum(places.chance * np.exp(np.min(list(logs.values()), axis=0))))


def shuffled_epsilon(delta: float, places: LastUse, *, link: float, bound: str = "minimum") -> float:
    """Return the least epsilon >= 0 at which `shuffled_delta` is at most `delta` in (0, 1), within 1e-9 above it.

    Formal guarantee: that of `shuffled_delta`. Source: the inverse of `shuffled_delta`.
    """

    def excess(epsilon: float) -> float:
        spent = shuffled_delta(epsilon, places, link=link, bound=bound)
        return math.log(max(spent, 1e-300)) - math.log(delta)

    most = gaussian_dp.epsilon_or_inf(delta, float(places.used_mu.max()))
    return falling_zero(excess, most, xtol=1e-10) if math.isfinite(most) else most


# The last iterate of noisy SGD on batches of fixed size, drawn without replacement, independently in every step.

LEAST_DELTA = 1e-10
"""Below it the rounding of the composed loss distribution is no longer far from delta."""
_SHARES = np.concatenate([np.geomspace(1e-3, 0.1, 15), np.linspace(0.12, 0.9, 27)])
_LATE_STEPS = 128  # numbers of late steps in the search
_LEAPS = (16, 8, 4, 2, 1)  # of the search, on the grid of late steps and shares
_CELLS = 100_000  # most cells of the loss grid
_SEARCH_CELLS = 15_000  # while searching
_TAIL_MASS = 1e-14
_LARGEST_GRID_MU = 1e12
"""Largest distance of two Gaussians, in deviations, whose losses the grid holds."""


@dataclass(frozen=True)
class UniformSteps:
    """Noisy SGD in units of lipschitz: `sample_rate` is the batch's share, `diameter` the set's (inf: none).

    `sensitivity` is by how much the record moves a sum of gradients (1 or 2), which bounds how far two runs drift.
    """

    steps: int
    sample_rate: float
    contraction: float
    noise_multiplier: float
    sensitivity: float
    diameter: float

    def split(self, late: int, share: float) -> RestartSplit:
        """Return the Gaussians of a restart `late` < steps steps before the end, with that share of the noise."""
        with np.errstate(divide="ignore"):
            log_factor = np.log(np.float64(self.contraction))
        gap = 1 - self.contraction
        distance = min(self.sensitivity * float(geometric(log_factor, gap, self.steps - late)), self.diameter)
        spread = float(geometric(2 * log_factor, gap * (1 + self.contraction), late))
        shift = distance * self.contraction**late / math.sqrt(spread * share) / self.noise_multiplier
        return RestartSplit(
            late, MOVES[Neighbouring.REPLACE_ONE] / (self.noise_multiplier * math.sqrt(1 - share)), shift
        )

    def composition(self) -> RestartSplit:
        """Return all steps with all their noise: no amplification by hiding."""
        return RestartSplit(self.steps, MOVES[Neighbouring.REPLACE_ONE] / self.noise_multiplier, 0.0)


@dataclass(frozen=True)
class RestartSplit:
    """C_p(G_batch_mu) composed `late_steps` times, and once G_shift_mu."""

    late_steps: int
    batch_mu: float
    shift_mu: float


def restart_epsilon(run: UniformSteps, delta: float) -> float:
    """Return epsilon at `delta` by the best restart of `run`; inf where it has one step, or rounding outweighs delta.

    A compass search from the restart that a central limit prefers; deterministic. Formal guarantee: (epsilon, delta)-DP
    of the last iterate in both orders, for a record replaced or zeroed out and batch losses with contraction-Lipschitz
    gradient steps in one of the data sets, no clipping active.
    Source: bok2024, section 4, NoisySGD (strongly convex and constrained), whose
    shares and shifts are fixed where these are chosen.
    """
    if run.steps < 2:
        return math.inf
    late = np.unique(np.rint(np.geomspace(1, run.steps - 1, _LATE_STEPS)).astype(np.int64))

    @cache
    def cost(i: int, j: int) -> float:
        return split_epsilon(run.split(int(late[i]), float(_SHARES[j])), run.sample_rate, delta, cells=_SEARCH_CELLS)

    i, j = _compass(cost, _start(run, late), (late.size, _SHARES.size))
    fine = split_epsilon(run.split(int(late[i]), float(_SHARES[j])), run.sample_rate, delta)
    return min(fine, cost(i, j))  # rounding may outweigh delta on the finer grid alone


def _start(run: UniformSteps, late: NDArray[np.integer]) -> tuple[int, int]:
    """The place in the grid with the least mu by the central limit of C_p, at most that of full batches."""
    splits = [[run.split(int(count), float(share)) for share in _SHARES] for count in late]
    shift = np.array([[split.shift_mu for split in row] for row in splits])
    batch = np.array([[split.batch_mu for split in row] for row in splits])
    limit = tradeoff.clt_mu(run.sample_rate, late[:, None], 1 / batch)
    total = np.hypot(np.fmin(limit, batch * np.sqrt(late)[:, None]), shift)
    row, column = np.unravel_index(np.argmin(total), total.shape)
    return int(row), int(column)


def _compass(cost: Callable[[int, int], float], start: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """The place of the least cost found by leaps of falling length along both axes."""
    here, best = start, cost(*start)
    for leap in _LEAPS:
        moved = True
        while moved:
            around = [(here[0] + di * leap, here[1] + dj * leap) for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1))]
            inside = [place for place in around if 0 <= place[0] < shape[0] and 0 <= place[1] < shape[1]]
            values = {place: cost(*place) for place in inside}
            nearest = min(values, key=values.__getitem__)
            moved = values[nearest] < best * (1 - 3e-4)
            if moved:
                here, best = nearest, values[nearest]
    return here


def split_epsilon(split: RestartSplit, sample_rate: float, delta: float, *, cells: int = _CELLS) -> float:
    """Return epsilon at `delta` >= LEAST_DELTA of the pair of `split`, batches drawn at `sample_rate` in (0, 1].

    `cells`: most cells of the loss grid. Loss distributions are rounded to the safe side (connect the dots), and what
    their transforms may round counts as infinite loss: inf where that outweighs delta, which the least delta may do
    from some 10^4 steps on, and beyond `_LARGEST_GRID_MU`. Formal guarantee: that of
    `restart_epsilon`, for this restart. Source: vandijk2023 section 4.2 for C_p; doroshenko2022 for the grid.
    """
    if sample_rate == 1:
        mu = gaussian_dp.compose([math.sqrt(split.late_steps) * split.batch_mu, split.shift_mu])
        return gaussian_dp.epsilon_or_inf(delta, float(mu))
    if max(split.batch_mu, split.shift_mu) > _LARGEST_GRID_MU:
        return math.inf
    batch = privacy_loss.subsampled_tails(privacy_loss.gaussian_tails(split.batch_mu), sample_rate)
    laws = [(batch, split.late_steps)]
    if split.shift_mu > 0:
        laws.append((privacy_loss.gaussian_tails(split.shift_mu), 1))
    step, reaches = _grid(laws, cells)
    with np.errstate(over="ignore"):  # ratios of tails all but empty
        losses = [privacy_loss.connected_dots(law, step, reach) for (law, _), reach in zip(laws, reaches, strict=True)]
        pld = privacy_loss.added([(loss, count) for loss, (_, count) in zip(losses, laws, strict=True)], _TAIL_MASS)
        return float(privacy_loss.PrivacyLoss.of(pld).epsilon(delta))


def _grid(laws: list[tuple[privacy_loss.Tails, int]], cells: int) -> tuple[float, list[float]]:
    """The step of the common loss grid, a small share of the spreads in it, and how far each law reaches."""
    reaches = [privacy_loss.largest_loss(law, _TAIL_MASS / count) for law, count in laws]
    spreads = [privacy_loss.loss_std(law, reach) for (law, _), reach in zip(laws, reaches, strict=True)]
    total = math.hypot(*(spread * math.sqrt(count) for spread, (_, count) in zip(spreads, laws, strict=True)))
    longest = max(reaches) + total**2 + 16 * total
    return max(min(*spreads, 0.2 * total) / 200, longest / cells), reaches


class Batches(StrEnum):
    """Choice of a step's batch."""

    FULL = "full_batch"
    """All records in every step."""
    CYCLIC = "cyclic"
    """The records cut into batches once, in a public order, and used in turn."""
    SHUFFLED = "shuffled_epochs"
    """A fresh secret permutation for each epoch, cut into batches."""
    UNIFORM = "fixed_without_replacement"
    """A fresh batch of fixed size for each step."""


class Bound(StrEnum):
    """Proof behind an epsilon."""

    COMPOSITION = "composition"
    """Every iterate published."""
    CONTRACTION = "contraction"
    """The last use by shifted interpolation, the steps after it by asoodeh2020's contraction (Theorem 4)."""
    SHIFTED_INTERPOLATION = "shifted_interpolation"
    """bok2024."""
    CONTRACTION_AND_SHIFTS = "contraction_and_shifts"
    """The smaller of the two at each place of the last use."""


@dataclass(frozen=True)
class LastIterate:
    """The least `epsilon`, the `bound` that gave it, and the epsilons of all bounds that apply."""

    epsilon: float
    bound: Bound
    bounds: Mapping[Bound, float]


@dataclass(frozen=True)
class _Run:
    """Checked arguments, in units of the shift of one step."""

    steps: int
    steps_per_epoch: int
    delta: float
    contraction: float
    noise: float
    diameter: float
    sensitivity: float
    sample_rate: float
    short_batch: float


def last_iterate_epsilon(  # noqa: PLR0913
    *,
    batches: Batches | str,
    steps: int,
    records: int,
    batch_size: int,
    noise_multiplier: float,
    delta: float,
    step_size: float,
    smoothness: float,
    lipschitz: float,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
) -> LastIterate:
    """Return the least proven epsilon at `delta` of the last iterate only, with the bound that gave it.

    A step is w <- project(w - (step_size/batch_size)(sum of grad f_i(w) + noise_multiplier lipschitz Z)), the sum over
    the batch, Z standard normal; there are `steps` >= 0. `project` is on a convex set of `diameter` > 0 (inf: none).
    The mean loss of every batch is convex, `smoothness`-smooth and `strong_convexity`-strongly convex (a public
    regulariser counts); the gradient of a record's part is at most `lipschitz` long WITHOUT clipping, since a clipped
    gradient need not contract. `step_size` <= 2/smoothness. `batch_size` must be `records` for full batches; where it
    does not divide it, the last batch of a cycle or epoch is shorter, with the same divisor and less strong convexity.
    `delta` in (0, 1), for fixed_without_replacement at least 1e-10.

    Formal guarantee: (epsilon, delta)-DP of the last iterate for the relation `neighbouring`, n public, all other
    iterates, permutations and batches secret (the order is public for cyclic), the start independent of the data.
    add_or_remove is known for full batches with a constant divisor only. At steps = 0 the epsilon is 0. Poisson batches
    are refused: a large one need not contract. Raises ValueError naming the argument.
    Source: bok2024, section 4; asoodeh2020 Theorem 4; for shuffled epochs derived.
    """
    kind = member("batches", Batches, batches)
    relation = member("neighbouring", Neighbouring, neighbouring)
    count = integer("steps", steps)
    per_epoch = _steps_per_epoch(kind, relation, records, batch_size)
    sensitivity, short = MOVES[relation], _short_batch(kind, records, batch_size)
    smoothness = real("smoothness", smoothness, above=0)
    convexity = short * real("strong_convexity", strong_convexity, at_least=0, at_most=smoothness)
    diameter_over_shift = diameter_in_shifts(
        diameter, step_size=step_size, lipschitz=lipschitz, batch_size=batch_size, neighbouring=relation
    )
    run = _Run(
        steps=count,
        steps_per_epoch=per_epoch,
        delta=real("delta", delta, above=0, below=1),
        contraction=float(step_contraction(step_size, smoothness, convexity)),
        noise=real("noise_multiplier", noise_multiplier, above=0) / sensitivity,
        diameter=float(diameter_over_shift),
        sensitivity=sensitivity,
        sample_rate=batch_size / records,
        short_batch=short,
    )
    bounds = _BOUNDS[kind](run) if count else {Bound.COMPOSITION: 0.0}
    least = min(bounds, key=bounds.__getitem__)
    return LastIterate(bounds[least], least, bounds)


def _steps_per_epoch(kind: Batches, relation: Neighbouring, records: int, batch_size: int) -> int:
    """Steps between two uses of a record. Raises ValueError naming records, batch_size or neighbouring."""
    records, batch_size = integer("records", records, at_least=1), integer("batch_size", batch_size, at_least=1)
    if batch_size > records:
        raise ValueError(f"batch_size must be at most records = {records}, got {batch_size}")
    if kind is Batches.FULL and batch_size != records:
        raise ValueError(f"batch_size must be records = {records} for full batches, got {batch_size}")
    if kind is not Batches.FULL and relation is Neighbouring.ADD_OR_REMOVE:
        raise ValueError("neighbouring 'add_or_remove' is not proven here: removing a record moves the batches' cuts")
    return -(-records // batch_size) if kind in (Batches.CYCLIC, Batches.SHUFFLED) else 1


def _short_batch(kind: Batches, records: int, batch_size: int) -> float:
    """The size of the last batch of a cycle or epoch over batch_size: 1 where all batches have the same size."""
    rest = records % batch_size if kind in (Batches.CYCLIC, Batches.SHUFFLED) else 0
    return rest / batch_size if rest else 1.0


def _in_order(run: _Run) -> dict[Bound, float]:
    """Bounds for full and cyclic batches, whose last step uses the record at worst."""
    mu = shifted_interpolation_mu(
        steps=run.steps,
        contraction=run.contraction,
        noise_over_shift=run.noise,
        diameter_over_shift=run.diameter,
        steps_per_epoch=run.steps_per_epoch,
    )
    return {Bound.COMPOSITION: _composed(run), Bound.SHIFTED_INTERPOLATION: unamplified(float(mu), run.delta).epsilon}


def _shuffled(run: _Run) -> dict[Bound, float]:
    """Bounds for shuffled epochs, as means over the place of the last use."""
    last_uses = last_use(
        steps=run.steps,
        steps_per_epoch=run.steps_per_epoch,
        short_batch=run.short_batch,
        contraction=run.contraction,
        noise_over_shift=run.noise,
        diameter_over_shift=run.diameter,
    )
    link = run.contraction * run.diameter / run.noise if run.contraction else 0.0
    names = {
        Bound.SHIFTED_INTERPOLATION: "shifted",
        Bound.CONTRACTION: "contraction",
        Bound.CONTRACTION_AND_SHIFTS: "minimum",
    }
    epsilons = {bound: shuffled_epsilon(run.delta, last_uses, link=link, bound=name) for bound, name in names.items()}
    return {Bound.COMPOSITION: _composed(run)} | epsilons


def _uniform(run: _Run) -> dict[Bound, float]:
    """Bounds for fresh batches of fixed size. Raises ValueError naming delta."""
    real("delta", run.delta, at_least=LEAST_DELTA)
    steps = UniformSteps(
        steps=run.steps,
        sample_rate=run.sample_rate,
        contraction=run.contraction,
        noise_multiplier=run.noise * run.sensitivity,
        sensitivity=run.sensitivity,
        diameter=run.diameter * run.sensitivity,
    )
    alone = split_epsilon(steps.composition(), run.sample_rate, run.delta)
    return {Bound.COMPOSITION: alone, Bound.SHIFTED_INTERPOLATION: restart_epsilon(steps, run.delta)}


def _composed(run: _Run) -> float:
    """Epsilon with every iterate published: a record is used once every steps_per_epoch steps."""
    uses = -(-run.steps // run.steps_per_epoch)
    return unamplified(math.sqrt(uses) / run.noise, run.delta).epsilon


_BOUNDS = {Batches.FULL: _in_order, Batches.CYCLIC: _in_order, Batches.SHUFFLED: _shuffled, Batches.UNIFORM: _uniform}
