"""Exact laws of one-dimensional quadratics: the independent route of this folder's tests."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.special import ndtr


def least_energy(contraction, uses, start):
    """Least sum of squared absorptions by bounded least squares over the distances left after each step.

    `uses`: 0 or 1 for each step; the distance is `start` before the first and must be 0 after the last. The sum is that
    of the distances that were found: scipy's nnls states 1.92 for ones whose sum is 7.80 (factor 1, ten steps, every
    second one a use).
    """
    steps = len(uses)
    if steps == 0:
        return 0.0 if start == 0 else np.inf
    moves = np.zeros((steps, max(steps - 1, 1)))
    fixed = np.array(uses, dtype=float)
    fixed[0] += contraction * start
    for k in range(steps - 1):
        moves[k, k] = -1.0
        moves[k + 1, k] = contraction
    left = lsq_linear(moves, -fixed, bounds=(0.0, np.inf), method="bvls", tol=1e-14).x
    return float(np.sum((moves @ left + fixed) ** 2))


def half_line(contraction, drifts, noise, thresholds, diameter=np.inf, start=0.0, nodes=400):
    """P[X_t > threshold] of X <- clip(c X + drift_k + noise Z, +-diameter/2), by quadrature over the kernel.

    Gauss-Legendre nodes within the interval and an atom at each end; the last step is integrated exactly.
    """
    drifts = np.asarray(drifts, dtype=float)
    if np.isinf(diameter):
        powers = contraction ** np.arange(len(drifts))[::-1]
        spread = noise * np.sqrt(np.sum(powers**2))
        return ndtr((np.sum(powers * drifts) + contraction ** len(drifts) * start - thresholds) / spread)
    unit, weights = np.polynomial.legendre.leggauss(nodes)
    half = diameter / 2
    inner = half * unit
    places, mass = np.array([start]), np.array([1.0])
    for drift in drifts[:-1]:
        means = contraction * places + drift
        density = np.exp(-0.5 * ((inner[:, None] - means) / noise) ** 2) @ mass / (noise * np.sqrt(2 * np.pi))
        atoms = [np.sum(mass * ndtr((-half - means) / noise)), np.sum(mass * ndtr((means - half) / noise))]
        places, mass = np.concatenate([inner, [-half, half]]), np.concatenate([half * weights * density, atoms])
    means = contraction * places + drifts[-1]
    return ndtr((means[None, :] - np.asarray(thresholds)[:, None]) / noise) @ mass


def half_line_delta(epsilon, one, two):
    """The largest P(A) - e^epsilon Q(A) over the half-lines whose probabilities are given, in both orders."""
    growth = np.exp(epsilon)
    gaps = [one - growth * two, two - growth * one, (1 - one) - growth * (1 - two), (1 - two) - growth * (1 - one)]
    return float(np.max(gaps))


@pytest.fixture(scope="session")
def exact() -> SimpleNamespace:
    """least_energy, half_line and half_line_delta."""
    return SimpleNamespace(least_energy=least_energy, half_line=half_line, half_line_delta=half_line_delta)
