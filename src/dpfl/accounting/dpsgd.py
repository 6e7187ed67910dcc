"""Privacy of DP-SGD: many steps of the Gaussian mechanism on Poisson samples.

Three accountants: "rdp" and "prv" are Opacus's, "pld" is dp_accounting's. Report epsilon by "pld", the
tightest; "rdp" gives the noise that Opacus users train with. Opacus loads torch, so it is imported only by
the functions that ask for it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.neighbouring import Neighbouring

if TYPE_CHECKING:
    from opacus.accountants.accountant import IAccountant

INTERVAL = 1e-4
"""Grid of the privacy loss: finer is slower and, by rounding, no better."""
SEARCH_INTERVALS = (4e-3, 4e-4, INTERVAL)
"""Grids on which the calibration searches before it looks at `INTERVAL`: the first is thirty times faster."""
OPACUS_EPSILON_TOLERANCE = 1e-3
"""How far below the target Opacus's bisection may stop."""
PLD_EPSILON_TOLERANCE = 4e-6
"""How far below the target, relative to it, the PLD calibration may stop."""
ROOT_TOLERANCE = 3e-4
"""In log noise multiplier, on the coarse grid: what is left the finer grids mend."""
PRV_EPSILON_ERROR = 0.01
"""Error in epsilon that Opacus's PRV accountant allows itself, which fixes its mesh (Gopi et al. 2021)."""
PRV_MAX_POINTS = 5e7
"""Longest grid worth convolving: above it Opacus takes minutes and then answers inf."""
MAX_NOISE_MULTIPLIER = 1e6
MIN_NOISE_MULTIPLIER = 0.05

_RELATIONS = {
    Neighbouring.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Neighbouring.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Neighbouring.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}


def epsilon(
    *,
    noise_multiplier: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    accountant: str = "pld",
    neighbouring: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `steps` Poisson-subsampled Gaussian steps; array arguments broadcast.

    `noise_multiplier` > 0 is the noise's standard deviation over the norm bound of ONE record's contribution,
    under every relation: replacing a record moves a sum by twice that bound, and the accountant, not the
    caller, accounts for it. `sample_rate` in (0, 1], whole `steps` >= 0, `delta` in (0, 1).
    Guarantee: (epsilon, delta)-DP under `neighbouring`; each accountant's answer is an upper bound, up to
    rounding. "rdp" (Mironov et al. 2019) and "prv" (Gopi et al. 2021) know add_or_remove and zero_out, which
    share their dominating pair; "pld" (Doroshenko et al. 2022, connect the dots) knows replace_one as well.
    Raises ValueError naming the argument.
    """
    relation = member("neighbouring", Neighbouring, neighbouring)
    spent = _accountant(accountant)
    if relation is Neighbouring.REPLACE_ONE and spent is not _pld_epsilon:
        raise ValueError(f"neighbouring 'replace_one' is not known to accountant {accountant!r}: use 'pld'")

    def one(noise_multiplier: float, sample_rate: float, steps: float, delta: float) -> float:
        sigma = real("noise_multiplier", noise_multiplier, above=0)
        rate = real("sample_rate", sample_rate, above=0, at_most=1)
        count = integer("steps", steps)
        failure = real("delta", delta, above=0, below=1)
        return spent(sigma, rate, count, failure, relation) if count else 0.0

    return elementwise(one, noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps, delta=delta)


def noise_multiplier(
    *,
    target_epsilon: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    accountant: str = "rdp",
) -> float | NDArray[np.float64]:
    """Return the least noise multiplier that spends at most `target_epsilon`; array arguments broadcast.

    "rdp" and "prv" are the answers of Opacus's get_noise_multiplier, a bisection that stops within 1e-3 below
    the target; "pld" stops within 4e-6 of it, relative. `target_epsilon` > 0, `sample_rate` in (0, 1], whole
    `steps` >= 1, `delta` in (0, 1). Guarantee: with that noise `epsilon` by the same accountant, under add_or_remove,
    is at most `target_epsilon`. Source: `epsilon`, solved for the noise.
    Raises ValueError naming the argument, `target_epsilon` also where no noise multiplier between 0.05 and
    1e6 meets it: the RDP accountant of Opacus cannot get below ln(1/delta)/62, say.
    """
    _accountant(accountant)

    def one(target_epsilon: float, sample_rate: float, steps: float, delta: float) -> float:
        target = real("target_epsilon", target_epsilon, above=0)
        rate = real("sample_rate", sample_rate, above=0, at_most=1)
        count = integer("steps", steps, at_least=1)
        failure = real("delta", delta, above=0, below=1)
        if accountant == "pld":
            return _calibrate_pld(target, rate, count, failure)
        return _calibrate_opacus(target, rate, count, failure, accountant)

    return elementwise(one, target_epsilon=target_epsilon, sample_rate=sample_rate, steps=steps, delta=delta)


def _pld_epsilon(
    sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring, interval: float = INTERVAL
) -> float:
    """Epsilon by composing the pessimistic privacy loss distribution."""
    pld = _step_loss(sigma, rate, relation, interval)
    # The library counts cut tails as lost; its own 1e-15 would swamp the smallest deltas.
    composed = pld.self_compose(steps, tail_mass_truncation=min(1e-15, 1e-6 * delta))
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=1)  # what asks for many steps or deltas of one mechanism asks for them in a row
def _step_loss(sigma: float, rate: float, relation: Neighbouring, interval: float) -> PrivacyLossDistribution:
    """The privacy loss distribution of one step."""
    # Little noise means losses in the hundreds: there the grid follows their size, or memory runs out.
    largest_loss = 0.5 / sigma**2 + 8 / sigma
    return privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=interval * max(1.0, largest_loss / 30),
        neighboring_relation=_RELATIONS[relation],
    )


def _rdp_epsilon(sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Epsilon by Opacus's Renyi accountant at its own orders."""
    from opacus.accountants import RDPAccountant

    return _opacus_epsilon(RDPAccountant(), sigma, rate, steps, delta)


def _prv_epsilon(sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Upper end of epsilon by Opacus's accountant of privacy random variables (error 0.01)."""
    from opacus.accountants import PRVAccountant

    mesh = PRV_EPSILON_ERROR / math.sqrt(steps * math.log(12e3 / delta) / 2)
    if 2 * _rdp_epsilon(sigma, rate, steps, delta, relation) > PRV_MAX_POINTS * mesh:
        raise ValueError(f"noise_multiplier {sigma} is too small for the grid of accountant 'prv': use 'pld'")
    try:
        return _opacus_epsilon(PRVAccountant(), sigma, rate, steps, delta)
    except RuntimeError as problem:  # raised where its lower estimate of delta is negative or above 1
        raise ValueError(f"delta {delta} is out of the range of accountant 'prv': use 'pld'") from problem


def _opacus_epsilon(accountant: IAccountant, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of one phase by an Opacus accountant; RDP conversions below zero are rounded up to it."""
    accountant.history = [(sigma, rate, steps)]
    with _harmless_opacus_warnings():
        return max(0.0, float(accountant.get_epsilon(delta)))


_ACCOUNTANTS: dict[str, Callable[..., float]] = {"rdp": _rdp_epsilon, "prv": _prv_epsilon, "pld": _pld_epsilon}


def _accountant(name: str) -> Callable[..., float]:
    """Return the accountant called `name`. Raises ValueError naming the argument `accountant`."""
    if not isinstance(name, str) or name not in _ACCOUNTANTS:
        raise ValueError(f"accountant must be one of {', '.join(map(repr, _ACCOUNTANTS))}, got {name!r}")
    return _ACCOUNTANTS[name]


def _calibrate_opacus(target: float, rate: float, steps: int, delta: float, accountant: str) -> float:
    """Opacus's own bisection, with its one complaint turned into ours."""
    from opacus.accountants.utils import get_noise_multiplier

    with _harmless_opacus_warnings():
        try:
            return float(
                get_noise_multiplier(
                    target_epsilon=target,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant=accountant,
                    epsilon_tolerance=OPACUS_EPSILON_TOLERANCE,
                )
            )
        except ValueError as problem:
            if "budget is too low" not in str(problem):
                raise
            raise _out_of_reach(target) from problem


def _calibrate_pld(target: float, rate: float, steps: int, delta: float) -> float:
    """Calibrate from the coarsest grid that is fine enough for so small a target."""

    @cache
    def spent(log_sigma: float, interval: float) -> float:
        return _pld_epsilon(math.exp(log_sigma), rate, steps, delta, Neighbouring.ADD_OR_REMOVE, interval)

    for interval in SEARCH_INTERVALS:
        found = _solve_from_grid(spent, interval, target)
        if found is not None:
            return math.exp(found)
    raise _out_of_reach(target)


def _solve_from_grid(spent: Callable[[float, float], float], interval: float, target: float) -> float | None:
    """Solve on that grid, foretell what `INTERVAL` will say, and mend by Newton steps: one or two fine looks.

    `spent` maps log noise multiplier and grid to epsilon. None where the grid cannot tell so small a target.
    """
    aim = target * (1 - PLD_EPSILON_TOLERANCE / 2)
    root = _root(lambda x: spent(x, interval) - aim, target)
    if root is None:
        return None
    middle = max(interval / 4, INTERVAL)
    slope = (spent(root + 1e-3, middle) - spent(root, middle)) / 1e-3
    if middle > INTERVAL:
        share = (middle**2 - INTERVAL**2) / (interval**2 - middle**2)
        for _ in range(2):  # a grid's excess over the truth goes with its square
            at_middle = spent(root, middle)
            excess = share * (spent(root, interval) - at_middle)
            root += float(np.clip((aim + excess - at_middle) / slope, -0.5, 0.5))
    return _mend(lambda x: spent(x, INTERVAL), root, slope, target)


def _mend(spent: Callable[[float], float], start: float, slope: float, target: float) -> float | None:
    """Secant steps from `start` to where `spent` is at most `target` and within tolerance; None if they stray."""
    aim = target * (1 - PLD_EPSILON_TOLERANCE / 2)
    here, value = start, spent(start)
    for _ in range(20):
        if 0 <= target - value <= PLD_EPSILON_TOLERANCE * target:
            return here
        there = here + (aim - value) / slope
        if abs(there - start) > 0.5:
            return None
        next_value = spent(there)
        if next_value != value:
            slope = (next_value - value) / (there - here)
        here, value = there, next_value
    return None


def _root(falling: Callable[[float], float], target: float) -> float | None:
    """The log noise multiplier where `falling` is 0; None above the range. Raises ValueError below it."""
    start = 0.0
    direction = 1 if falling(start) > 0 else -1
    while math.log(MIN_NOISE_MULTIPLIER) <= start <= math.log(MAX_NOISE_MULTIPLIER):
        end = start + 0.7 * direction
        if direction * falling(end) <= 0:
            return brentq(falling, min(start, end), max(start, end), xtol=ROOT_TOLERANCE)
        start = end
    if direction < 0:
        raise _out_of_reach(target)
    return None


def _out_of_reach(target: float) -> ValueError:
    """The error for a budget that no noise multiplier in range meets."""
    return ValueError(f"target_epsilon {target} is met by no noise multiplier that this accountant can tell")


@contextmanager
def _harmless_opacus_warnings() -> Iterator[None]:
    """Silence what Opacus says in passing: an end of its list of orders, and 0/0 where a density is masked to 0."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        warnings.filterwarnings("ignore", message="Optimal order is the (smallest|largest) alpha")
        yield
