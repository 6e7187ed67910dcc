"""Privacy of DP-SGD: many steps of the Gaussian mechanism on Poisson samples.

Three accountants: "pld" is `poisson_gaussian`, with certified rounding; "rdp" and "prv" are Opacus's. Report epsilon
by "pld", the tightest; "prv" gives the noise that `make_private_with_epsilon` of Opacus trains with. Opacus loads
torch, so it is imported only by the functions that ask for it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import gaussian_dp, poisson_gaussian
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import by_element, integer, integers, least_noise, member, real, reals

if TYPE_CHECKING:
    from opacus.accountants.accountant import IAccountant


# From concentrated and composed guarantees to (epsilon, delta), and to groups.


def zcdp_to_epsilon(rho: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """rho + 2 sqrt(rho ln(1/delta)): the epsilon of rho-zCDP at delta in (0, 1]; rho >= 0; shapes broadcast.

    The form that vandijk2023 prints; `zero_concentrated.zcdp_epsilon` is tighter. Guarantee: a rho-zCDP mechanism is
    (epsilon, delta)-DP. Raises ValueError naming rho or delta. Source: bun2016, for vandijk2023 (5).
    """
    rho, log_inverse = reals("rho", rho, at_least=0), _log_inverse(delta)
    return (rho + 2 * np.sqrt(rho * log_inverse))[()]


def advanced_composition(
    epsilon: ArrayLike, delta: ArrayLike, rounds: ArrayLike, slack: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(epsilon, delta) of `rounds` adaptive (epsilon, delta)-DP rounds, with `slack` added to the failure.

    (sqrt(2 k ln(1/slack)) epsilon + k epsilon (e^epsilon - 1)/2, k delta + slack), the latter cut at 1.
    epsilon >= 0, delta in [0, 1], rounds >= 1, slack in (0, 1]; shapes broadcast; epsilon is inf where it
    overflows. Raises ValueError naming the argument. Source: vandijk2023 section 3.2.
    """
    epsilon, delta = reals("epsilon", epsilon, at_least=0), reals("delta", delta, at_least=0, at_most=1)
    rounds, slack = integers("rounds", rounds, at_least=1), reals("slack", slack, above=0, at_most=1)
    with np.errstate(over="ignore"):
        drift = rounds * epsilon * np.expm1(epsilon) / 2
    deviation = np.sqrt(-2 * rounds * np.log(slack)) * epsilon
    return (deviation + drift)[()], np.minimum(rounds * delta + slack, 1.0)[()]


def group_delta(epsilon: ArrayLike, delta: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """The delta at g epsilon for groups of g records: delta (e^{g epsilon} - 1)/(e^epsilon - 1), tight.

    epsilon >= 0, delta in [0, 1], integer g >= 1; shapes broadcast. Not cut at 1; inf where it overflows. Guarantee: an
    (epsilon, delta)-DP mechanism is (g epsilon, this)-DP for groups of g records. Raises ValueError naming the
    argument. Source: g-fold use of the definition (3) of vandijk2023.
    """
    epsilon, delta, g = _group(epsilon, delta, g)
    some = np.where(epsilon > 0, epsilon, 1.0)
    ratio = np.where(epsilon > 0, np.expm1(-g * some) / np.expm1(-some), g)
    return _grown(delta * ratio, (g - 1) * epsilon)


def group_delta_bound(epsilon: ArrayLike, delta: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """The usual bound g e^{(g - 1) epsilon} delta on `group_delta`; arguments and errors as there.

    Guarantee: that of `group_delta`. Source: vandijk2023 section 3.2, with the epsilon that its exponent lacks.
    """
    epsilon, delta, g = _group(epsilon, delta, g)
    return _grown(delta * g, (g - 1) * epsilon)


def _log_inverse(delta: ArrayLike) -> NDArray[np.float64]:
    """ln(1/delta) of a checked delta."""
    return -np.log(reals("delta", delta, above=0, at_most=1))


def _group(epsilon: ArrayLike, delta: ArrayLike, g: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Checked epsilon, delta and group size."""
    return (
        reals("epsilon", epsilon, at_least=0),
        reals("delta", delta, at_least=0, at_most=1),
        integers("g", g, at_least=1),
    )


def _grown(factor: NDArray, exponent: NDArray) -> NDArray[np.float64]:
    """factor e^exponent: inf on overflow, 0 where the factor is."""
    with np.errstate(over="ignore"):
        growth = np.exp(exponent)
    return np.where(factor > 0, np.where(factor > 0, factor, 1.0) * growth, 0.0)[()]


OPACUS_EPSILON_TOLERANCE = 0.01
"""Most that Opacus's bisection may stop below the target: its own default."""
PLD_EPSILON_TOLERANCE = 4e-6
"""Most that the PLD calibration may stop below the target, relative to it."""
PRV_EPSILON_ERROR = 0.01
"""Error in epsilon that Opacus's PRV accountant allows itself, which fixes its mesh (gopi2021)."""
PRV_MAX_POINTS = 5e7
"""Longest grid worth convolving: above it Opacus takes minutes and then answers inf."""
_OPACUS_NOISE = 1e-150, 1e150
LEAST_DELTA = {"pld": poisson_gaussian.LEAST_DELTA, "rdp": 1e-290, "prv": 1e-10}
"""Smallest delta that an accountant serves: the transforms of Opacus's PRV accountant round by some 1e-13 of mass."""
NOISE_MULTIPLIERS = (0.05, 1e6)
"""Range that the PLD calibration searches."""


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
    caller, accounts for it. `sample_rate` in (0, 1], integer `steps` >= 0, `delta` in (0, 1).
    Guarantee: (epsilon, delta)-DP under `neighbouring`; "pld" and "rdp" answer with an upper bound, up to
    rounding. "prv" answers for the removal alone: that it also bounds the addition is not proven for it.
    Sources: "rdp" (mironov2019) and "prv" (gopi2021) know add_or_remove and zero_out, which
    share their dominating pair; "pld" (doroshenko2022, connect the dots; `poisson_gaussian`) knows replace_one
    as well and counts its rounding in. Raises ValueError naming the argument, `delta` below `LEAST_DELTA` too.
    """
    relation = _checked_relation(neighbouring, accountant)
    spent = _ACCOUNTANTS[accountant]

    def one(noise_multiplier: float, sample_rate: float, steps: float, delta: float) -> float:
        sigma = real("noise_multiplier", noise_multiplier, above=0)
        rate = real("sample_rate", sample_rate, above=0, at_most=1)
        count = integer("steps", steps)
        failure = _served_delta(delta, accountant)
        return spent(sigma, rate, count, failure, relation) if count else 0.0

    return by_element(one, noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps, delta=delta)


def noise_multiplier(
    *,
    target_epsilon: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    accountant: str = "rdp",
    neighbouring: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
) -> float | NDArray[np.float64]:
    """Return the least noise multiplier that spends at most `target_epsilon`; array arguments broadcast.

    "rdp" and "prv" are the answers of Opacus's get_noise_multiplier, a bisection that stops within 0.01 below
    the target; "pld" stops within 4e-6 of it, relative, and answers 0.05 where less noise would do as well.
    `target_epsilon` > 0, `sample_rate` in (0, 1], integer `steps` >= 1, `delta` in (0, 1), `neighbouring` as for
    `epsilon`. Guarantee: with that noise `epsilon` by the same accountant, under `neighbouring`, is at most
    `target_epsilon`. Source: `epsilon`, solved for the noise.
    Raises ValueError naming the argument, `target_epsilon` also if no noise multiplier up to 1e6 meets it: the
    RDP accountant of Opacus cannot get below (ln(1/delta) - ln 63)/62 - ln(63/62), say: 0.103 at delta = 1e-5.
    """
    relation = _checked_relation(neighbouring, accountant)

    def one(target_epsilon: float, sample_rate: float, steps: float, delta: float) -> float:
        target = real("target_epsilon", target_epsilon, above=0)
        rate = real("sample_rate", sample_rate, above=0, at_most=1)
        count = integer("steps", steps, at_least=1)
        failure = _served_delta(delta, accountant)
        if accountant == "pld":
            return _calibrate_pld(target, rate, count, failure, relation)
        return _calibrate_opacus(target, rate, count, failure, accountant)

    return by_element(one, target_epsilon=target_epsilon, sample_rate=sample_rate, steps=steps, delta=delta)


def _pld_epsilon(sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Upper end of epsilon by the composed privacy loss."""
    return poisson_gaussian.epsilon_upper(
        noise_multiplier=sigma, sample_rate=rate, steps=steps, delta=delta, neighbouring=relation
    )


def _rdp_epsilon(sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Epsilon by Opacus's Renyi accountant at its own orders. Raises ValueError for a noise beyond it."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not _OPACUS_NOISE[0] <= sigma <= _OPACUS_NOISE[1]:
        raise ValueError(f"noise_multiplier {sigma} is out of the range of accountants 'rdp' and 'prv': use 'pld'")
    with _harmless_opacus_warnings():
        divergences = (_step_divergences(sigma, rate) * steps).tolist()
        spent, _ = get_privacy_spent(orders=RDPAccountant.DEFAULT_ALPHAS, rdp=divergences, delta=delta)
    return max(0.0, float(spent))


@lru_cache(maxsize=256)
def _step_divergences(sigma: float, rate: float) -> NDArray[np.float64]:
    """Renyi divergence of one step at Opacus's orders, most of what its accountant computes."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    return np.asarray(compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=RDPAccountant.DEFAULT_ALPHAS))


def _prv_epsilon(sigma: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Upper end of epsilon by Opacus's accountant of privacy random variables (error 0.01)."""
    from opacus.accountants import PRVAccountant

    mesh = PRV_EPSILON_ERROR / math.sqrt(steps * math.log(12e3 / delta) / 2)
    if 2 * _rdp_epsilon(sigma, rate, steps, delta, relation) > PRV_MAX_POINTS * mesh:
        raise ValueError(f"noise_multiplier {sigma} is too small for the grid of accountant 'prv': use 'pld'")
    try:
        return _opacus_epsilon(PRVAccountant(), sigma, rate, steps, delta)
    except RuntimeError as problem:  # raised where its lower estimate of delta is negative or above 1
        raise _beyond_prv(delta) from problem


def _opacus_epsilon(accountant: IAccountant, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of one phase by an Opacus accountant; RDP conversions below zero are rounded up to it."""
    accountant.history = [(sigma, rate, steps)]
    with _harmless_opacus_warnings():
        return max(0.0, float(accountant.get_epsilon(delta)))


_ACCOUNTANTS: dict[str, Callable[..., float]] = {"rdp": _rdp_epsilon, "prv": _prv_epsilon, "pld": _pld_epsilon}


def _checked_relation(neighbouring: Neighbouring | str, accountant: str) -> Neighbouring:
    """Return the relation, if `accountant` is one and knows it. Raises ValueError naming the argument."""
    relation = member("neighbouring", Neighbouring, neighbouring)
    if not isinstance(accountant, str) or accountant not in _ACCOUNTANTS:
        raise ValueError(f"accountant must be one of {', '.join(map(repr, _ACCOUNTANTS))}, got {accountant!r}")
    if accountant != "pld" and find_spec("opacus") is None:
        raise ValueError(f"accountant {accountant!r} needs opacus (pip install 'dpfl[pipeline]'): or use 'pld'")
    if relation is Neighbouring.REPLACE_ONE and accountant != "pld":
        raise ValueError(f"neighbouring 'replace_one' is not known to accountant {accountant!r}: use 'pld'")
    return relation


def _served_delta(delta: float, accountant: str) -> float:
    """Return the delta, if the accountant supports it. Raises ValueError naming `delta`."""
    failure, least = real("delta", delta, above=0, below=1), LEAST_DELTA[accountant]
    if failure < least:
        raise ValueError(f"delta must be at least {least:g} for accountant {accountant!r}, got {failure:g}")
    return failure


def _calibrate_opacus(target: float, rate: float, steps: int, delta: float, accountant: str) -> float:
    """Opacus's own bisection, with its two complaints turned into ours."""
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
        except RuntimeError as problem:
            raise _beyond_prv(delta) from problem
        except ValueError as problem:
            if "budget is too low" not in str(problem):
                raise
            raise _out_of_reach(target) from problem


def _calibrate_pld(target: float, rate: float, steps: int, delta: float, relation: Neighbouring) -> float:
    """Calibrate by secant steps from the central limit's answer: Gaussian DP with mu^2 = q^2 T (e^(1/sigma^2) - 1)."""
    lowest, highest = (math.log(end) for end in NOISE_MULTIPLIERS)
    moves = 2 if relation is Neighbouring.REPLACE_ONE else 1
    mu = float(gaussian_dp.mu(target, delta)) / (moves * rate * math.sqrt(steps))
    start = -0.5 * math.log(math.log1p(min(mu, 1e150) ** 2))

    def excess(log_sigma: float) -> float:
        spent = _pld_epsilon(math.exp(log_sigma), rate, steps, delta, relation)
        return math.log(spent / target) if spent > 0 else -math.inf

    result = least_noise(
        excess, start, slope=-1.0, room=PLD_EPSILON_TOLERANCE, longest=0.7, low=lowest, high=highest, tries=60
    )
    if result is None:
        raise _out_of_reach(target)
    return math.exp(result)


def _beyond_prv(delta: float) -> ValueError:
    """The error for a delta that Opacus's PRV accountant cannot answer for."""
    return ValueError(f"delta {delta} is out of the range of accountant 'prv': use 'pld'")


def _out_of_reach(target: float) -> ValueError:
    """The error for a budget that no noise multiplier in range meets."""
    return ValueError(f"target_epsilon {target} is met by no noise multiplier that this accountant can tell")


@contextmanager
def _harmless_opacus_warnings() -> Iterator[None]:
    """Silence what Opacus says in passing: an end of its list of orders, and 0/0 where a density is masked to 0."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        warnings.filterwarnings("ignore", message="Optimal order is the (smallest|largest) alpha")
        yield
