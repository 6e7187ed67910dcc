"""Profiles of single steps against integrals over their densities."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from dpfl.accounting.tradeoff.privacy_loss import arsinh_delta
from dpfl.provenance.audit.numbers import laplace_log_delta, poisson_replaced, sampled_arsinh, sampled_gaussian


def mixture(sigma, weights, epsilon):
    """delta(epsilon) of one replaced step: where j copies are drawn, with weights[j - 1], the laws lie at +j and -j."""
    stays = 1 - sum(weights)

    def law(x, side):
        return stays * norm.pdf(x, 0, sigma) + sum(w * norm.pdf(x, side * j, sigma) for j, w in enumerate(weights, 1))

    return quad(lambda x: max(0.0, law(x, 1) - math.exp(epsilon) * law(x, -1)), -12 * sigma, 12 * sigma, limit=400)[0]


def at(profile, epsilon):
    return math.exp(profile(np.array([epsilon]))[0])


@pytest.mark.parametrize("weights", [[0.2], [1.0], [0.3, 0.05]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_profile_of_a_step_is_an_upper_bound_and_exact_where_every_step_sees_the_record(weights, epsilon):
    sigma = 1.5
    shifts = np.arange(1.0, len(weights) + 1) * 2 / sigma
    bound, truth = at(sampled_gaussian(shifts, np.array(weights)), epsilon), mixture(sigma, weights, epsilon)
    assert bound >= truth - 1e-9
    if weights == [1.0] or epsilon == 0.0:
        assert bound == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_a_poisson_sample_s_profile_is_the_integral(rate, epsilon):
    assert at(poisson_replaced(1.5, rate), epsilon) == pytest.approx(mixture(1.5, [rate], epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("scale", [2.0, 6.0])
def test_arsinh_noise_has_the_profile_of_its_exact_tails(scale, epsilon):
    exact = float(arsinh_delta(epsilon, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 1.0), epsilon) == pytest.approx(exact, rel=1e-6)
    inner = math.log1p(math.expm1(epsilon) / 0.1)
    sampled = 0.1 * float(arsinh_delta(inner, scale=scale, sigma=1.5))
    assert at(sampled_arsinh(scale, 1.5, 0.1), epsilon) == pytest.approx(sampled, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.9])
def test_laplace_noise_has_the_integral_over_its_densities(epsilon):
    def lost(x):
        return max(0.0, laplace.pdf(x) - math.exp(epsilon) * laplace.pdf(x, 2.0))

    truth = quad(lost, -40, 42, points=[0.0, 2.0, (2 - epsilon) / 2], limit=400)[0]
    assert math.exp(laplace_log_delta(epsilon, 2.0)) == pytest.approx(truth, rel=1e-7)
    assert laplace_log_delta(2.0, 2.0) == -math.inf
