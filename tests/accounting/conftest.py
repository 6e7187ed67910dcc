"""The formulas at 60 digits, straight from their definitions: the independent route of this folder's tests."""

from types import SimpleNamespace

import mpmath as mp
import pytest


def _upper_tail(t):
    return mp.erfc(t / mp.sqrt(2)) / 2


def _digits(epsilon: float, r: float) -> int:
    """Digits at which subtracting the two tails still leaves 40."""
    spread = max(abs(mp.log10(r)), abs(mp.log10(mp.mpf(epsilon) / r + 1)))
    return 60 + int(3 * spread)


def theta(epsilon, r):
    """theta by its definition, two Gaussian tails subtracted; arguments are floats or mpmath numbers."""
    epsilon, r = mp.mpf(epsilon), mp.mpf(r)
    if r == 0:
        return mp.mpf(0)
    with mp.workdps(_digits(epsilon, r)):
        return _upper_tail(epsilon / r - r / 2) - mp.exp(epsilon) * _upper_tail(epsilon / r + r / 2)


def gap(epsilon: float, r: float):
    """1 - theta as a sum of two tails."""
    epsilon, r = mp.mpf(epsilon), mp.mpf(r)
    with mp.workdps(60):
        return _upper_tail(r / 2 - epsilon / r) + mp.exp(epsilon) * _upper_tail(epsilon / r + r / 2)


def federated(epsilon, n, m, eta, sigma, lipschitz, diameters):
    """Theorem 2 of asoodeh2021 term by term; one diameter a round."""
    with mp.workdps(60):
        root = mp.sqrt(m)
        total, kept = mp.mpf(0), mp.mpf(1)
        for step, noise, diameter in zip(eta[::-1], sigma[::-1], diameters[::-1], strict=True):
            total += theta(epsilon, 2 * mp.mpf(lipschitz) / (root * mp.mpf(noise))) * kept
            kept *= theta(epsilon, mp.mpf(diameter) * root / (mp.mpf(step) * mp.mpf(noise)))
        return total * m / n


def stopped(epsilon, n, m, eta, sigma, lipschitz, diameter, first=1):
    """Corollary 3 of asoodeh2021 by brute force, the mean over tau = first..T."""
    with mp.workdps(60):
        rounds, root, total = len(eta), mp.sqrt(m), mp.mpf(0)
        heads = [theta(epsilon, 2 * mp.mpf(lipschitz) / (root * mp.mpf(s))) for s in sigma]
        links = [
            theta(epsilon, mp.mpf(diameter) * root / (mp.mpf(e) * mp.mpf(s))) for e, s in zip(eta, sigma, strict=True)
        ]
        for tau in range(first, rounds + 1):
            for t in range(1, tau + 1):
                total += heads[t - 1] * mp.fprod(links[t:tau])
        return total / ((rounds - first + 1) * rounds)


def relative_error(value, truth) -> float:
    """|value/truth - 1|; below the smallest normal float64 the absolute error in units of it."""
    if abs(truth) < mp.mpf("1e-307"):
        return float(abs(mp.mpf(float(value)) - truth) / mp.mpf("1e-307"))
    return float(abs(mp.mpf(float(value)) / truth - 1))


@pytest.fixture
def fifty_digits():
    """mpmath at 50 digits."""
    with mp.workdps(50):
        yield


@pytest.fixture(scope="session")
def exact() -> SimpleNamespace:
    """theta, gap (1 - theta), federated, stopped and relative_error in mpmath."""
    return SimpleNamespace(theta=theta, gap=gap, federated=federated, stopped=stopped, relative_error=relative_error)


@pytest.fixture(scope="session")
def figure_2() -> dict:
    """The constants of asoodeh2020 Fig. 2 (convex)."""
    return {"n": 40, "eta": 0.5, "sigma": 2.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0}


@pytest.fixture(scope="session")
def figure_3() -> dict:
    """The constants of asoodeh2020 Fig. 3 (strongly convex)."""
    return {"n": 40, "eta": 0.7, "sigma": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.2}
