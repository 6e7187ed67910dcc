"""From Renyi, concentrated and composed guarantees to (epsilon, delta), and to groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integers, reals


def zcdp_to_epsilon(rho: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """rho + 2 sqrt(rho ln(1/delta)): the epsilon of rho-zCDP at delta in (0, 1]; rho >= 0; shapes broadcast.

    Guarantee: a rho-zCDP mechanism is (epsilon, delta)-DP. Raises ValueError naming rho or delta. Source: bun2016, for
    vandijk2023 (5).
    """
    rho, log_inverse = reals("rho", rho, at_least=0), _log_inverse(delta)
    return (rho + 2 * np.sqrt(rho * log_inverse))[()]


def tcdp_to_epsilon(rho: ArrayLike, omega: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """The epsilon at delta in (0, 1] of omega-truncated rho-CDP: rho-zCDP's while its best order is below omega.

    rho + 2 sqrt(rho ln(1/delta)) if ln(1/delta) <= (omega - 1)^2 rho, else rho omega + ln(1/delta)/(omega - 1);
    0 at rho = 0, where the two laws are equal. rho >= 0, omega in (1, inf]; shapes broadcast. Guarantee: an
    omega-truncated rho-CDP mechanism is (epsilon, delta)-DP. Raises ValueError naming the argument. Source: bun2018,
    for vandijk2023 section 3.3.
    """
    rho, log_inverse = reals("rho", rho, at_least=0), _log_inverse(delta)
    omega = reals("omega", omega, above=1, infinite=True)
    last = np.minimum(omega, 1e100)  # its square stays finite; beyond every best order
    inside = (log_inverse <= (last - 1) ** 2 * rho) | (log_inverse == 0) | (rho == 0)
    truncated = rho * np.where(inside, 1.0, last) + log_inverse / (last - 1)
    return np.where(inside, rho + 2 * np.sqrt(rho * log_inverse), truncated)[()]


def rdp_to_epsilon(orders: ArrayLike, divergences: ArrayLike, delta: ArrayLike, *, tight: bool = False) -> NDArray:
    """The smallest epsilon at delta in (0, 1] over Renyi orders > 1 with their divergences >= 0, both of shape (k,).

    Each order gives divergence + ln(1/delta)/(order - 1), or with `tight` also + ln(1 - 1/order)
    - ln(order)/(order - 1). Never below 0; delta of any shape. Raises ValueError naming the argument. Guarantee: a
    mechanism with these Renyi divergences is (epsilon, delta)-DP. Source: mironov2017, Proposition 3; tight:
    canonne2020, Proposition 12.
    """
    orders = np.atleast_1d(reals("orders", orders, above=1))
    divergences = np.atleast_1d(reals("divergences", divergences, at_least=0, infinite=True))
    if not orders.size:
        raise ValueError("orders must hold at least one order")
    if orders.ndim != 1 or orders.shape != divergences.shape:
        raise ValueError(f"divergences must have the 1-D shape of orders, got {divergences.shape} and {orders.shape}")
    gain = np.log1p(-1 / orders) - np.log(orders) / (orders - 1) if tight else np.zeros_like(orders)
    epsilons = divergences + gain + _log_inverse(delta)[..., None] / (orders - 1)
    return np.maximum(np.min(epsilons, axis=-1), 0.0)[()]


def loss_tail(t: ArrayLike, rho: ArrayLike, omega: ArrayLike = np.inf) -> NDArray[np.float64]:
    """The bound on Pr[loss > t + rho] under omega-truncated rho-CDP (omega = inf: zCDP), t >= 0, rho > 0.

    e^{-t^2/(4 rho)} up to t = 2 rho (omega - 1), then e^{(omega - 1)^2 rho - (omega - 1) t}; shapes broadcast.
    Raises ValueError naming the argument. Source: vandijk2023 section 3.3.
    """
    t, rho = reals("t", t, at_least=0), reals("rho", rho, above=0)
    slope = np.minimum(reals("omega", omega, above=1, infinite=True) - 1, t / (2 * rho))
    return np.exp(-slope * (t - slope * rho))[()]


def gaussian_zcdp(mu: ArrayLike) -> NDArray[np.float64]:
    """rho = mu^2/2 of Gaussian noise with G_mu; mu >= 0, any shape. Raises ValueError naming mu.

    With mu = sqrt(E)/sigma it is vandijk2023's E/(2 sigma^2). That holds where every record is used exactly E
    times (shuffled epochs). Subsampled batches break it: a record may be used more often, which high orders
    see (`tradeoff.revealed_renyi` from order 2, `tradeoff.poisson_renyi` at high ones). Guarantee: such noise is
    rho-zCDP. Source: bun2016, Proposition 1.6; vandijk2023 section 4.7.
    """
    return (reals("mu", mu, at_least=0) ** 2 / 2)[()]


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
