"""Closed-form amplification by shuffling as the papers print it, each with the condition that it needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integers, reals

Array = NDArray[np.float64]


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
    epsilon = reals("epsilon", epsilon, above=0)
    if np.any(epsilon > np.log(2 / delta)):
        raise ValueError("epsilon must be at most ln(2/delta) (lowy2021 Theorem 4.1)")
    floor = least_reports(clients_per_round=m, clients=n_clients, rounds=r, delta=delta)
    if np.any(m < floor):
        raise ValueError(f"clients_per_round must be at least {np.max(floor):.1f} here (lowy2021 Theorem 4.1)")
    lipschitz, constant = reals("lipschitz", lipschitz, above=0), reals("constant", constant, above=0)
    logs = np.log(r * m**2 / (n_clients * delta)) * np.log(r / delta) * np.log(1 / delta)
    return (
        constant * lipschitz**2 * r * m * logs / (integers("records", records, at_least=1) * n_clients * epsilon) ** 2
    )


def _federation(m: ArrayLike, n: ArrayLike, r: ArrayLike, delta: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Clients per round, clients, rounds and delta, each in its range."""
    m, n = integers("clients_per_round", m, at_least=1), integers("clients", n, at_least=1)
    if np.any(m > n):
        raise ValueError("clients_per_round must be at most clients")
    return m, n, integers("rounds", r, at_least=1), reals("delta", delta, above=0, below=1)
