"""Theorems 3 and 4 of asoodeh2020 at 60 digits; what a real run measures is in test_simulation."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import (
    contraction_factor,
    laplace_divergence,
    pnsgd_gaussian_delta,
    pnsgd_laplace_delta,
    pnsgd_laplace_pure_epsilon,
    theta,
)
from dpfl.papers.asoodeh2020.errata import pnsgd_laplace_pure_epsilon_as_printed

EPSILON = np.array([0.0, 0.1, 1.0, 4.0])


@pytest.mark.parametrize("i", [1, 20, 39, 40])
def test_gaussian_agrees_with_mpmath(exact, figure_2, figure_3, i):
    for figure in (figure_2, figure_3):
        for epsilon, value in zip(EPSILON, pnsgd_gaussian_delta(EPSILON, i=i, diameter=1.0, **figure), strict=True):
            with mp.workdps(60):
                eta, beta, rho = (mp.mpf(figure[key]) for key in ("eta", "smoothness", "strong_convexity"))
                factor = mp.sqrt(1 - 2 * eta * beta * rho / (beta + rho))
                later = exact.theta(epsilon, factor / (eta * figure["sigma"]))
                truth = exact.theta(epsilon, 2 / mp.mpf(figure["sigma"])) * later ** (40 - i)
            assert exact.relative_error(value, truth) < 1e-11


@pytest.mark.parametrize("scale", [0.2, 1.0, 2.0, 50.0])
@pytest.mark.parametrize("i", [1, 20, 39, 40])
def test_laplace_agrees_with_mpmath(exact, figure_3, i, scale):
    case = {key: value for key, value in figure_3.items() if key != "sigma"}
    values = pnsgd_laplace_delta(EPSILON, i=i, scale=scale, diameter=1.0, **case)
    for epsilon, value in zip(EPSILON, values, strict=True):
        with mp.workdps(60):
            factor = mp.sqrt(1 - 2 * mp.mpf(0.7) * mp.mpf(0.5) * mp.mpf(0.2) / (mp.mpf(0.5) + mp.mpf(0.2)))
            first = max(mp.mpf(0), 1 - mp.exp(mp.mpf(epsilon) / 2 - 1 / mp.mpf(scale)))
            later = max(mp.mpf(0), 1 - mp.exp(mp.mpf(epsilon) / 2 - factor / (2 * mp.mpf(0.7) * scale)))
            truth = first * later ** (40 - i)
        assert exact.relative_error(value, truth) < 1e-11


def test_the_last_record_gets_one_step_of_noise(figure_2):
    np.testing.assert_allclose(
        pnsgd_gaussian_delta(EPSILON, i=40, diameter=1.0, **figure_2), theta(EPSILON, 1.0), rtol=1e-13
    )
    np.testing.assert_array_equal(pnsgd_gaussian_delta(EPSILON, i=[[39], [40]], diameter=0.0, **figure_2)[0], 0.0)


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 6), st.floats(0, 6), st.floats(0.2, 5))
@settings(max_examples=50, deadline=None)
def test_later_records_and_smaller_epsilon_have_larger_delta(i, other_i, epsilon, other_epsilon, sigma):
    early, late = sorted((i, other_i))
    low, high = sorted((epsilon, other_epsilon))
    case = {"n": 40, "eta": 0.7, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.2, "diameter": 1.0}
    for function, noise in ((pnsgd_gaussian_delta, {"sigma": sigma}), (pnsgd_laplace_delta, {"scale": sigma})):
        assert function(low, i=early, **noise, **case) <= function(low, i=late, **noise, **case) * (1 + 1e-12)
        assert function(high, i=i, **noise, **case) <= function(low, i=i, **noise, **case) * (1 + 1e-12)


def test_pure_epsilon_of_the_last_record():
    """b - a = eta v/2: the print claims delta = 0 from eps = 0.5 on for all records; at i = n, eps = 0.6 it is .503."""
    case = {"eta": 1.0, "scale": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0, "diameter": 0.5}
    assert pnsgd_laplace_pure_epsilon_as_printed(**case) == 0.5
    truth = laplace_divergence(0.6, -1.0, 1.0, 1.0)
    assert truth == pytest.approx(0.503, abs=5e-4)
    assert pnsgd_laplace_delta(0.6, i=40, n=40, **case) == pytest.approx(truth, rel=1e-14)
    np.testing.assert_array_equal(pnsgd_laplace_pure_epsilon(i=[1, 39, 40], n=40, **case), [0.5, 0.5, 2.0])


@given(st.integers(1, 5), st.floats(0.1, 3), st.floats(0.05, 2))
@settings(max_examples=50, deadline=None)
def test_pure_epsilon_is_where_delta_vanishes(i, scale, diameter):
    case = {"i": i, "n": 5, "eta": 0.7, "scale": scale, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.2}
    pure = pnsgd_laplace_pure_epsilon(diameter=diameter, **case)
    assert pnsgd_laplace_delta(pure * (1 + 1e-12), diameter=diameter, **case) == 0.0
    assert pnsgd_laplace_delta(pure * 0.9, diameter=diameter, **case) > 0.0


def test_broadcasts():
    delta = pnsgd_gaussian_delta(
        EPSILON[:, None, None],
        i=[[1], [5]],
        n=10,
        eta=[0.1, 0.2, 0.3],
        sigma=1.0,
        lipschitz=1.0,
        smoothness=1.0,
        strong_convexity=0.0,
        diameter=1.0,
    )
    assert delta.shape == (4, 2, 3)
    later = contraction_factor(0.2, 1.0, 0.0) / 0.2
    assert delta[1, 1, 1] == pytest.approx(theta(0.1, 2.0) * theta(0.1, later) ** 5, rel=1e-12)
