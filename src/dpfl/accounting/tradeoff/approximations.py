"""Closed forms for mu of a complete DP-SGD run: epochs, central limits, and the last epoch's smaller noise.

sigma is the noise of a round in units of its sensitivity. For fixed-size batches the sensitivity is 2C, so
sigma there is half the noise multiplier; for Poisson batches it is C.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, roots_legendre

from dpfl.accounting.arguments import integers, reals

_NODES, _WEIGHTS = roots_legendre(40)


def shuffled_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """sqrt(g E)/sigma: E epochs of shuffled batches. Exact for g = 1, where every record is used E times.

    For g > 1 it assumes that the group's records fall into different batches; where they may share one, the guarantee
    is weaker (`revealed_shuffled`). epochs, group_size >= 1, sigma > 0;
    shapes broadcast. Guarantee: for g = 1 mu-Gaussian DP with one record replaced. Raises ValueError naming the
    argument. Source: vandijk2023 section 4.7.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    return (np.sqrt(group_size * epochs) / sigma)[()]


def h_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """mu of h, sqrt((1 + 1/sqrt(2E)) E)/sigma, the approximate guarantee against adversary A1; E becomes gE for groups.

    No true bound: deep in the tail A1 does better. epochs, group_size >= 1, sigma > 0; shapes broadcast.
    Raises ValueError naming the argument. Source: vandijk2023 section 4.7.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    total = group_size * epochs
    return (np.sqrt(total + np.sqrt(total / 2)) / sigma)[()]


def h_bar_mu(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike = 1) -> NDArray[np.float64]:
    """mu of h-bar, sqrt((1 - 1/sqrt(2E)) E)/sigma, the approximate limit of any guarantee against A1.

    Arguments, errors and source as `h_mu`.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    total = group_size * epochs
    return (np.sqrt(total - np.sqrt(total / 2)) / sigma)[()]


def last_epoch_mu(
    epochs: ArrayLike, sigma: ArrayLike, last_sigma: ArrayLike | None = None, group_size: ArrayLike = 1
) -> NDArray[np.float64]:
    """sqrt(g) sqrt((E - 1)/sigma^2 + 1/last_sigma^2): mu with another noise in the last of E shuffled epochs.

    Without `last_sigma` it is sigma/sqrt(E + 1), which gives sqrt(2 g E)/sigma. Ranges, errors as `shuffled_mu`.
    Guarantee: that of `shuffled_mu`. Source: vandijk2023 section 5.2.
    """
    epochs, sigma, group_size = _run(epochs, sigma, group_size)
    last = sigma / np.sqrt(epochs + 1) if last_sigma is None else reals("last_sigma", last_sigma, above=0)
    return (np.sqrt(group_size) * np.hypot(np.sqrt(epochs - 1) / sigma, 1 / last))[()]


def clt_mu(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """sqrt(2) p sqrt(T) sqrt(e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2): limit of C_p composed T times.

    p in [0, 1], rounds >= 1, sigma > 0; shapes broadcast; inf where e^(1/sigma^2) overflows. Accurate for large
    sigma too, where the bracket nearly cancels. Raises ValueError naming the argument. A limit: it guarantees nothing.
    Source: Corollary 5.4 of dong2022, quoted in vandijk2023 section 4.5.
    """
    p, rounds, x = _sampled(p, rounds, sigma)
    # Phi(1.5 x) + 3 Phi(-0.5 x) - 2 = 3 integral over [0, x/2] of phi(3u) - phi(u), which does not cancel.
    u = (x / 4)[..., None] * (_NODES + 1)
    density = np.exp(-(u**2) / 2) * np.expm1(-4 * u**2) / np.sqrt(2 * np.pi)
    narrow = 3 * (x / 4) * (density @ _WEIGHTS)
    wide = ndtr(1.5 * x) + 3 * ndtr(-0.5 * x) - 2
    with np.errstate(over="ignore"):
        bracket = np.expm1(x**2) * ndtr(1.5 * x) + np.where(x < 2, narrow, wide)
    return _scaled(p * np.sqrt(2 * rounds), bracket)


def poisson_clt_mu(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """p sqrt(T (e^(1/sigma^2) - 1)): the limit of T Poisson batches. It understates at practical sizes.

    Arguments and errors as `clt_mu`. Source: bu2020, for comparison with vandijk2023 section 4.5.
    """
    p, rounds, x = _sampled(p, rounds, sigma)
    with np.errstate(over="ignore"):
        bracket = np.expm1(x**2)
    return _scaled(p * np.sqrt(rounds), bracket)


def sufficient_sigma(epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """sqrt(2 (epsilon + ln(1/delta))/epsilon): noise for (epsilon, delta)-DP.

    No guarantee outside of the conditions of its source. Source: quoted by vandijk2023 section 4.5, from a work that
    asks for T up to about epsilon (N/m)^2/2. epsilon > 0, delta in (0, 1]; shapes broadcast. Raises ValueError naming
    the argument.
    """
    epsilon, delta = reals("epsilon", epsilon, above=0), reals("delta", delta, above=0, at_most=1)
    return np.sqrt(2 * (epsilon - np.log(delta)) / epsilon)[()]


def _run(epochs: ArrayLike, sigma: ArrayLike, group_size: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Checked epochs, sigma and group size."""
    return (
        integers("epochs", epochs, at_least=1),
        reals("sigma", sigma, above=0),
        integers("group_size", group_size, at_least=1),
    )


def _sampled(p: ArrayLike, rounds: ArrayLike, sigma: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Checked sampling rate and rounds, and 1/sigma (at most 1e100, so that its square is finite)."""
    return (
        reals("p", p, at_least=0, at_most=1),
        integers("rounds", rounds, at_least=1),
        1 / np.maximum(reals("sigma", sigma, above=0), 1e-100),
    )


def _scaled(factor: NDArray, bracket: NDArray) -> NDArray[np.float64]:
    """factor sqrt(bracket), zero where the factor is (also against an infinite bracket)."""
    return np.where(factor > 0, np.where(factor > 0, factor, 1.0) * np.sqrt(bracket), 0.0)[()]
