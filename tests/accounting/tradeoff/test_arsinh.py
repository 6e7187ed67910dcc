"""Arsinh noise: its hockey stick against integration of the density, and its limits."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import amplified_epsilon, arsinh_delta, arsinh_guarantee, from_delta

ALPHAS = np.linspace(0.001, 0.999, 97)


def density(y, scale, sigma):
    """Of scale * arsinh(N/scale): N = scale sinh(y/scale)."""
    normal = scale * np.sinh(y / scale)
    return np.exp(-(normal**2) / (2 * sigma**2)) * np.cosh(y / scale) / (sigma * np.sqrt(2 * np.pi))


def integrated_delta(epsilon, scale, sigma, shift):
    """The hockey stick by adaptive quadrature, cut into short pieces so that no kink is missed."""
    reach = scale * np.arcsinh(12 * sigma / scale)
    gap = lambda y: max(density(y, scale, sigma) - np.exp(epsilon) * density(y - shift, scale, sigma), 0)  # noqa: E731
    edges = np.linspace(-reach, reach + shift, 80)
    return sum(quad(gap, a, b, epsabs=1e-14, limit=200)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize(
    ("scale", "sigma", "shift"),
    [(2.0, 1.0, 1.0), (1.0, 1.0, 0.5), (0.5, 2.0, 0.3), (0.3, 3.0, 1.0), (5.0, 1.5, 1.0)],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 2.0])
def test_delta_against_quadrature_also_where_the_loss_turns(scale, sigma, shift, epsilon):
    expected = integrated_delta(epsilon, scale, sigma, shift)
    assert np.isclose(arsinh_delta(epsilon, scale=scale, sigma=sigma, shift=shift), expected, rtol=1e-7, atol=1e-11)


def test_large_scale_is_gaussian_noise():
    epsilons = np.linspace(0, 4, 9)
    delta = arsinh_delta(epsilons, scale=1e4, sigma=1.5)
    assert np.allclose(delta, gaussian_dp.delta(epsilons, 1 / 1.5), rtol=1e-5)


def test_lighter_tails_cost_privacy_at_equal_sigma():
    epsilons = np.array([0.5, 1.0, 3.0])
    curves = [arsinh_delta(epsilons, scale=a, sigma=2.0) for a in (20.0, 4.0, 2.0)]
    assert np.all(curves[0] > gaussian_dp.delta(epsilons, 0.5))
    assert np.all(curves[1] > curves[0]) and np.all(curves[2] > curves[1])


@pytest.mark.slow
def test_composed_guarantee_of_one_round_is_the_curve_of_its_delta():
    noise = dict(scale=2.0, sigma=1.5)
    one = arsinh_guarantee(**noise)
    alphas = ALPHAS[::32]
    dual = from_delta(lambda epsilon: arsinh_delta(epsilon, **noise), alphas)
    assert np.allclose(one.tradeoff(alphas), dual, rtol=1e-6, atol=1e-9)
    assert np.isclose(one.delta(1.0), arsinh_delta(1.0, **noise), rtol=1e-6)


def test_rounds_compose():
    """One step beyond closed forms: scale 1e3 is Gaussian noise, whose composition is known."""
    many = arsinh_guarantee(scale=1e3, sigma=5.0, rounds=25)
    assert np.allclose(many.tradeoff(ALPHAS), gaussian_dp.tradeoff(ALPHAS, 1.0), rtol=1e-4)


@pytest.mark.slow
def test_subsampling_helps():
    full, sampled = (arsinh_guarantee(scale=4.0, sigma=2.0, p=p, rounds=20).epsilon(1e-5) for p in (1.0, 0.1))
    assert sampled < full / 3


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_losses_with_masses_near_the_smallest_float_compose_without_a_warning():
    """Two rounds spend more than one, whose epsilon is known, and at most what basic composition says."""
    noise = dict(scale=1.0, sigma=1.0, shift=1.5)

    def one(delta):
        return brentq(lambda e: 0.1 * arsinh_delta(amplified_epsilon(e, 0.1), **noise) - delta, 0, 690)

    assert one(1e-5) < arsinh_guarantee(**noise, p=0.1, rounds=2).epsilon(1e-5) <= 2 * one(5e-6)
