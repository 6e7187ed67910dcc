"""The last iterate of noisy SGD on batches of fixed size, drawn without replacement, independently in every step.

A restart at distance z leaves `late` steps. Each spends a share of its noise's variance on hiding its part of z (a
Gaussian), and the rest on hiding whether and how the record took part (C_p of a Gaussian). Any number of late steps
and any share give a valid bound; both are searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from dp_accounting.pld.pld_pmf import PLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.accounting.contraction.geometric import geometric
from dpfl.accounting.hidden_state.gradient_step import REPLACEMENT
from dpfl.accounting.tradeoff import privacy_loss

Array = NDArray[np.float64]

LEAST_DELTA = 1e-10
"""Below it the rounding of the composed loss distribution is no longer far from delta."""
_SLACK = 1e-12  # in delta, for the rounding of the transforms
_SHARES = np.concatenate([np.geomspace(1e-3, 0.1, 15), np.linspace(0.12, 0.9, 27)])
_LATE_STEPS = 128  # numbers of late steps in the search
_LEAPS = (16, 8, 4, 2, 1)  # of the search, on the grid of late steps and shares
_CELLS = 100_000  # most cells of the loss grid
_SEARCH_CELLS = 15_000  # while searching
_TAIL_MASS = 1e-14


@dataclass(frozen=True)
class UniformSteps:
    """Noisy SGD in units of lipschitz: `sample_rate` the batch's share, `diameter` that of the set (inf: none).

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
        gap = np.float64(1 - self.contraction)
        distance = min(
            self.sensitivity * float(geometric(log_factor, gap, np.float64(self.steps - late))), self.diameter
        )
        spread = float(geometric(2 * log_factor, gap * (1 + self.contraction), np.float64(late)))
        shift = distance * self.contraction**late / math.sqrt(spread * share) / self.noise_multiplier
        return RestartSplit(late, REPLACEMENT / (self.noise_multiplier * math.sqrt(1 - share)), shift)

    def composition(self) -> RestartSplit:
        """Return all steps with all their noise: no amplification by hiding."""
        return RestartSplit(self.steps, REPLACEMENT / self.noise_multiplier, 0.0)


@dataclass(frozen=True)
class RestartSplit:
    """C_p(G_batch_mu) composed `late_steps` times, and once G_shift_mu."""

    late_steps: int
    batch_mu: float
    shift_mu: float


def restart_epsilon(run: UniformSteps, delta: float) -> float:
    """Return epsilon at `delta` by the best restart of `run`; inf where it has one step only.

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
    return split_epsilon(run.split(int(late[i]), float(_SHARES[j])), run.sample_rate, delta)


def _start(run: UniformSteps, late: Array) -> tuple[int, int]:
    """The place in the grid with the least mu by the central limit of C_p, at most that of full batches."""
    splits = [[run.split(int(count), float(share)) for share in _SHARES] for count in late]
    shift = np.array([[split.shift_mu for split in row] for row in splits])
    batch = np.array([[split.batch_mu for split in row] for row in splits])
    limit = tradeoff.clt_mu(run.sample_rate, late[:, None], 1 / batch)
    total = np.hypot(np.fmin(limit, batch * np.sqrt(late)[:, None]), shift)
    return tuple(int(place) for place in np.unravel_index(np.argmin(total), total.shape))


def _compass(cost: Callable[[int, int], float], start: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """The place of the least cost found by leaps of falling length along both axes."""
    here, best = start, cost(*start)
    for leap in _LEAPS:
        moved = True
        while moved:
            around = [(here[0] + di * leap, here[1] + dj * leap) for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1))]
            inside = [place for place in around if 0 <= place[0] < shape[0] and 0 <= place[1] < shape[1]]
            values = {place: cost(*place) for place in inside}
            nearest = min(values, key=values.get)
            moved = values[nearest] < best * (1 - 3e-4)
            if moved:
                here, best = nearest, values[nearest]
    return here


def split_epsilon(split: RestartSplit, sample_rate: float, delta: float, *, cells: int = _CELLS) -> float:
    """Return epsilon at `delta` >= LEAST_DELTA of the pair of `split`, batches drawn at `sample_rate` in (0, 1].

    `cells`: most cells of the loss grid. Loss distributions are rounded to the safe side (connect the dots), and delta
    is lowered by 1e-12 for what their transforms round. Formal guarantee: that of `restart_epsilon`, for this restart.
    Source: vandijk2023 section 4.2 for C_p; doroshenko2022 for the grid.
    """
    if sample_rate == 1:
        mu = gaussian_dp.compose([math.sqrt(split.late_steps) * split.batch_mu, split.shift_mu])
        return float(gaussian_dp.epsilon(delta, mu))
    batch = privacy_loss.subsampled_tails(privacy_loss.gaussian_tails(split.batch_mu), sample_rate)
    laws = [(batch, split.late_steps)]
    if split.shift_mu > 0:
        laws.append((privacy_loss.gaussian_tails(split.shift_mu), 1))
    step, reaches = _grid(laws, cells)
    pmf: PLDPmf | None = None
    with np.errstate(over="ignore"):  # Chernoff bounds that overflow are left out; ratios of tails all but empty
        for (law, count), reach in zip(laws, reaches, strict=True):
            once = privacy_loss.connected_dots(law, step, reach)
            part = once if count == 1 else once.self_compose(count, tail_mass_truncation=_TAIL_MASS)
            pmf = part if pmf is None else pmf.compose(part, tail_mass_truncation=_TAIL_MASS)
        return float(privacy_loss.PrivacyLoss.of(PrivacyLossDistribution(pmf)).epsilon(delta - _SLACK))


def _grid(laws: list[tuple[privacy_loss.Tails, int]], cells: int) -> tuple[float, list[float]]:
    """The step of the common loss grid, a small share of the spreads in it, and how far each law reaches."""
    reaches = [privacy_loss.largest_loss(law, _TAIL_MASS / count) for law, count in laws]
    spreads = [privacy_loss.loss_std(law, reach) for (law, _), reach in zip(laws, reaches, strict=True)]
    total = math.hypot(*(spread * math.sqrt(count) for spread, (_, count) in zip(spreads, laws, strict=True)))
    longest = max(reaches) + total**2 + 16 * total
    return max(min(*spreads, 0.2 * total) / 200, longest / cells), reaches
