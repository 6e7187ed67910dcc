"""Closed-form amplification by shuffling as the papers print it, each with the condition that it needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import real, wholes

Array = NDArray[np.float64]
_NEWTON_STEPS = 60  # enough where two roots meet and each step only halves the distance


def clones_epsilon_as_printed(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike, delta0: ArrayLike = 0.0) -> Array:
    """Return ln(1 + tanh(e0/2) (8 sqrt(e^e0 ln(4/d)/n) + 8 e^e0/n)), e0 = `epsilon0` of each report.

    The theorem spends d + (e^epsilon + 1)(1 + e^-e0 / 2) n `delta0` in all, for any d. Here d is the largest that
    keeps this within `delta`, which makes epsilon the least that the theorem gives: epsilon falls in d. A search
    over a grid of d ends above it. `n` >= 1, `epsilon0` >= 0, `delta` in (0, 1), `delta0` >= 0 of reports that are
    (epsilon0, delta0)-DP; arrays broadcast. May exceed `epsilon0`.
    Source: Feldman, McMillan, Talwar 2021, Theorems 3.1 and 3.8, under epsilon0 <= ln(n / (16 ln(2/d))).
    Raises ValueError naming the argument, `epsilon0` where that condition fails and `delta0` where no d fits.
    """
    n, epsilon0, delta = _checked(n, epsilon0, delta)
    failures = (1 + np.exp(-epsilon0) / 2) * n * real("delta0", delta0, at_least=0)
    power = np.exp(epsilon0)
    root, rest = 8 * np.tanh(epsilon0 / 2) * np.sqrt(power / n), 8 * np.tanh(epsilon0 / 2) * power / n
    # In g = e^epsilon - 1 the equation reads g = root sqrt(ln(4/d)) + rest with d = delta - (g + 2) failures. Its
    # right side is convex and rises, so Newton's steps from g = 0 rise to its least root and never pass it.
    growth = np.float64(0.0)
    for _ in range(_NEWTON_STEPS):
        left = delta - (growth + 2) * failures
        _require_room(left > 0)
        _require(power * 16 * np.log(2 / left) <= n, "ln(n / (16 ln(2/delta)))")
        logs = np.sqrt(np.log(4 / left))
        slope = root * failures / (2 * left * logs)
        _require_room(slope < 1)
        step = np.maximum(root * logs + rest - growth, 0) / (1 - slope)
        growth = growth + step
        if np.all(step <= 1e-16 * growth):
            break
    return np.log1p(growth)


def restricted_clones_epsilon_as_printed(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike) -> Array:
    """Return ln(1 + (e^e0 - 1)(4 sqrt(2 ln(4/delta) / ((e^e0 + 1) n)) + 4/n)), e0 = `epsilon0` of each pure report.

    Arguments as for clones_epsilon_as_printed. Caveat: only for the restricted class that
    clones.restricted_clones_epsilon describes; never for Gaussians.
    Source: Feldman, McMillan, Talwar 2023, Theorem 3.1, under epsilon0 <= ln(n / (8 ln(2/delta)) - 1).
    Raises ValueError naming the argument, `epsilon0` where that condition fails.
    """
    n, epsilon0, delta = _checked(n, epsilon0, delta)
    _require((np.exp(epsilon0) + 1) * 8 * np.log(2 / delta) <= n, "ln(n / (8 ln(2/delta)) - 1)")
    root = np.sqrt(2 * np.log(4 / delta) / ((np.exp(epsilon0) + 1) * n))
    return np.log1p(np.expm1(epsilon0) * (4 * root + 4 / n))


def least_reports(*, clients_per_round: ArrayLike, clients: ArrayLike, rounds: ArrayLike, delta: ArrayLike) -> Array:
    """Return 16 ln(18 R M^2 / (N delta)), which M = `clients_per_round` of N = `clients` must reach.

    R = `rounds`; all >= 1, `delta` in (0, 1); arrays broadcast. Source: lowy2021 Theorem 4.1.
    Raises ValueError naming the argument.
    """
    m, n, r, delta = _federation(clients_per_round, clients, rounds, delta)
    return 16 * np.log(18 * r * m**2 / (n * delta))


def shuffled_noise_variance(
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    lipschitz: ArrayLike,
    rounds: ArrayLike,
    records: ArrayLike,
    clients_per_round: ArrayLike,
    clients: ArrayLike,
    constant: ArrayLike = 1.0,
) -> Array:
    """Return each client's noise variance C L^2 R M ln(R M^2/(N d)) ln(R/d) ln(1/d) / (n^2 N^2 epsilon^2).

    C = `constant`, which the paper leaves open: nothing is guaranteed for a chosen one, calibrate by
    blanket_epsilon instead. n = `records` of a client, d = `delta`; arrays broadcast.
    Source: lowy2021 Theorem 4.1, under epsilon <= ln(2/delta) and M >= least_reports.
    Raises ValueError naming the argument, `epsilon` or `clients_per_round` where a condition fails.
    """
    m, n_clients, r, delta = _federation(clients_per_round, clients, rounds, delta)
    epsilon = real("epsilon", epsilon, above=0)
    if np.any(epsilon > np.log(2 / delta)):
        raise ValueError("epsilon must be at most ln(2/delta) (lowy2021 Theorem 4.1)")
    floor = least_reports(clients_per_round=m, clients=n_clients, rounds=r, delta=delta)
    if np.any(m < floor):
        raise ValueError(f"clients_per_round must be at least {np.max(floor):.1f} here (lowy2021 Theorem 4.1)")
    lipschitz, constant = real("lipschitz", lipschitz, above=0), real("constant", constant, above=0)
    logs = np.log(r * m**2 / (n_clients * delta)) * np.log(r / delta) * np.log(1 / delta)
    return constant * lipschitz**2 * r * m * logs / (wholes("records", records, at_least=1) * n_clients * epsilon) ** 2


def _checked(n: ArrayLike, epsilon0: ArrayLike, delta: ArrayLike) -> tuple[Array, Array, Array]:
    """The arguments of a closed form, each in its range."""
    return (
        wholes("n", n, at_least=1),
        real("epsilon0", epsilon0, at_least=0, at_most=300),
        real("delta", delta, above=0, below=1),
    )


def _federation(m: ArrayLike, n: ArrayLike, r: ArrayLike, delta: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Clients a round, clients, rounds and delta, each in its range."""
    m, n = wholes("clients_per_round", m, at_least=1), wholes("clients", n, at_least=1)
    if np.any(m > n):
        raise ValueError("clients_per_round must be at most clients")
    return m, n, wholes("rounds", r, at_least=1), real("delta", delta, above=0, below=1)


def _require_room(holds: Array | np.bool_) -> None:
    """Refuse a delta0 with which no epsilon meets delta."""
    if not np.all(holds):
        raise ValueError("delta0 must leave room in delta: (e^epsilon + 1)(1 + e^-epsilon0 / 2) n delta0 is above it")


def _require(holds: Array | np.bool_, bound: str) -> None:
    """Refuse an epsilon0 outside the theorem's condition."""
    if not np.all(holds):
        raise ValueError(f"epsilon0 must be at most {bound}: the printed theorem says nothing beyond")
