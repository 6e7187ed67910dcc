"""Corollary 1 of asoodeh2021: steps 1/(lambda t)."""

import numpy as np

from dpfl.accounting.contraction import (
    federated_delta,
    federated_harmonic_bound,
    federated_harmonic_delta,
    federated_unamplified_delta,
)
from dpfl.papers.asoodeh2021.errata import federated_harmonic_delta_as_printed

CASE = {"n": 100, "m": 10, "sigma": 1.5, "lipschitz": 1.0, "radius": 1.0, "strong_convexity": 0.1}
EPSILON = np.array([0.0, 0.5, 1.0, 4.0])


def test_is_theorem_2_at_its_steps(exact):
    eta = 1 / (0.1 * np.arange(1, 11))
    delta = federated_harmonic_delta(EPSILON, **CASE)
    rest = {key: value for key, value in CASE.items() if key != "strong_convexity"}
    np.testing.assert_allclose(delta, federated_delta(EPSILON, eta=eta, **rest), rtol=1e-14)
    for epsilon, value in zip(EPSILON, delta, strict=True):
        truth = exact.federated(epsilon, 100, 10, eta, [1.5] * 10, 1.0, [2.0] * 10)
        assert exact.relative_error(value, truth) < 1e-11


def test_printed_argument_differs_by_the_root_of_the_step(exact):
    """2 rho sqrt(lambda m j)/sigma is Theorem 2 with a diameter multiplied by sqrt(eta_j)."""
    eta = 1 / (0.1 * np.arange(1, 11))
    for epsilon in EPSILON:
        truth = exact.federated(epsilon, 100, 10, eta, [1.5] * 10, 1.0, 2 * np.sqrt(eta))
        assert exact.relative_error(federated_harmonic_delta_as_printed(epsilon, **CASE), truth) < 1e-11


def test_printed_form_falls_below_the_theorem_for_long_runs():
    """lambda j > 1: the printed sum claims less than Theorem 2 gives; what a run leaks is in test_simulation."""
    case = {"n": 8, "m": 1, "sigma": 1.0, "lipschitz": 1.0, "radius": 0.02, "strong_convexity": 8.0}
    assert federated_harmonic_delta_as_printed(0.0, **case) < 0.9 * federated_harmonic_delta(0.0, **case)


def test_bounds_are_ordered():
    delta, bound = federated_harmonic_delta(EPSILON, **CASE), federated_harmonic_bound(EPSILON, **CASE)
    trivial = federated_unamplified_delta(EPSILON, n=100, m=10, sigma=1.5, lipschitz=1.0)
    assert np.all(delta < bound) and np.all(bound < trivial)


def test_early_steps_beyond_smoothness_take_the_wider_diameter(exact):
    """eta_t = 10/t exceeds 2/beta = 2.5 for t < 4."""
    eta = 10 / np.arange(1, 11)
    diameters = 2.0 + np.where(np.arange(1, 11) < 4, 2 * eta, 0.0)
    truth = exact.federated(0.5, 100, 10, eta, [1.5] * 10, 1.0, diameters)
    delta = federated_harmonic_delta(0.5, smoothness=0.8, **CASE)
    assert exact.relative_error(delta, truth) < 1e-11
    assert delta > federated_harmonic_delta(0.5, **CASE)
    assert federated_harmonic_delta(0.5, smoothness=0.2, **CASE) == federated_harmonic_delta(0.5, **CASE)
