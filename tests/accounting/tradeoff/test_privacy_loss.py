"""Privacy-loss distributions against exact curves, characteristic functions and dp_accounting's own numbers."""

import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
    from_privacy_parameters,
    from_two_probability_mass_functions,
)
from scipy.special import ndtr, ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    Curve,
    PrivacyLoss,
    composed,
    epsilon_delta,
    from_pld,
    gaussian_tails,
    subsample,
    subsampled_delta,
    subsampled_tails,
)

ALPHAS = np.concatenate([[0.0, 1e-6, 1e-4], np.linspace(0.005, 0.995, 100), [1 - 1e-4, 1 - 1e-6, 1.0]])


def composed_delta(epsilons, p, mu, rounds):
    """delta of C_p(G_mu) composed, by inverting the Laplace transform of the loss; no grid of losses.

    E[e^{zL}] of one round is an integral over the part where P exceeds Q, its mirror image, and the ties.
    (1 - e^{-x})+ has the transform 1/(z (z + 1)), so delta is an integral along Re z = c > 0.
    """
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x, weights = mu / 2 + (14 + mu) / 2 * (nodes + 1), (14 + mu) / 2 * weights
    normal = lambda y: np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    q, q_moved = weights * normal(x), weights * normal(x - mu)
    upper, lower = (1 - p) * q + p * q_moved, q
    loss = np.log1p(p * np.expm1(mu * x - mu**2 / 2))
    ties = 1 - upper.sum() - lower.sum()

    def log_moment(z):
        return np.log(np.exp(np.outer(z, loss)) @ upper + np.exp(-np.outer(z, loss)) @ lower + ties)

    answers = []
    for epsilon in epsilons:
        reals = np.geomspace(0.05, 30, 40)
        rate = rounds * log_moment(reals + 0j).real - reals * epsilon - np.log(reals * (reals + 1))
        z = reals[np.argmin(rate)] + 1j * np.arange(0, 120, 0.01)
        values = (np.exp(rounds * log_moment(z) - z * epsilon) / (z * (z + 1))).real
        answers.append((values.sum() - values[0] / 2) * 0.01 / np.pi)
    return np.array(answers)


@pytest.mark.parametrize(
    ("p", "mu", "rounds"),
    [
        pytest.param(250 / 6000, 1 / 1.6, 480, marks=pytest.mark.slow),
        pytest.param(0.1, 1.0, 200, marks=pytest.mark.slow),
        (0.2, 1.0, 25),
        pytest.param(0.01, 0.5, 1000, marks=pytest.mark.slow),
    ],
)
def test_composed_subsampled_gaussian_against_the_inverted_transform(p, mu, rounds):
    epsilons = np.array([0.0, 0.1, 0.3, 0.5])
    guarantee = PrivacyLoss.of(composed(subsampled_tails(gaussian_tails(mu), p), rounds))
    exact = composed_delta(epsilons, p, mu, rounds)
    assert np.allclose(guarantee.delta(epsilons), exact, rtol=1e-6, atol=1e-11)
    assert np.all(guarantee.delta(epsilons) >= exact * (1 - 1e-9) - 1e-12)  # never optimistic


@pytest.mark.parametrize(("mu", "rounds"), [(1.0, 1), (0.3, 10), (0.05, 400), (5.0, 2)])
def test_composed_gaussians_are_a_gaussian(mu, rounds):
    pld = composed(gaussian_tails(mu), rounds)
    total = gaussian_dp.compose(np.full(rounds, mu))
    assert np.allclose(from_pld(pld, ALPHAS), gaussian_dp.tradeoff(ALPHAS, total), rtol=1e-6, atol=1e-9)
    assert np.all(from_pld(pld, ALPHAS) <= gaussian_dp.tradeoff(ALPHAS, total) + 1e-10)
    deltas = np.array([1e-8, 1e-5, 1e-2])
    assert np.allclose(PrivacyLoss.of(pld).epsilon(deltas), gaussian_dp.epsilon(deltas, total), rtol=1e-6)


@pytest.mark.parametrize(("p", "mu"), [(0.1, 1.0), (0.5, 3.0), (1e-3, 0.8)])
def test_one_subsampled_round_is_the_operator(p, mu):
    pld = composed(subsampled_tails(gaussian_tails(mu), p), 1)
    assert np.allclose(from_pld(pld, ALPHAS), subsample(p, mu, ALPHAS), rtol=1e-6, atol=1e-10)
    epsilons = np.linspace(0, 2, 9)
    assert np.allclose(PrivacyLoss.of(pld).delta(epsilons), subsampled_delta(epsilons, p, mu), rtol=1e-5, atol=1e-14)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 0.1), (3.0, 1e-4)])
def test_from_pld_of_privacy_parameters_is_f_epsilon_delta(epsilon, delta):
    parameters = DifferentialPrivacyParameters(epsilon, delta)
    pld = from_privacy_parameters(parameters, value_discretization_interval=epsilon / 16)
    assert np.allclose(from_pld(pld, ALPHAS), epsilon_delta(ALPHAS, epsilon, delta), rtol=1e-9, atol=1e-12)


def test_from_pld_keeps_the_direction_of_an_asymmetric_pair():
    """One Poisson batch: P = (1 - p) N(0, 1) + p N(mu, 1) is rejected for small outcomes, so alpha = P[x < t]."""
    p, mu = 0.3, 2.0
    cut = np.linspace(-3, 4, 60)
    alpha, beta = (1 - p) * ndtr(cut) + p * ndtr(cut - mu), ndtr(-cut)
    pld = from_gaussian_mechanism(1 / mu, sampling_prob=p, value_discretization_interval=1e-4)
    assert np.allclose(from_pld(pld, alpha), beta, rtol=1e-5, atol=1e-6)
    assert np.max(np.abs(from_pld(pld, alpha) - from_pld(pld, beta))) > 0.02  # the other direction differs


def test_from_pld_of_two_mass_functions_is_the_exact_polygon():
    """P = (0.2, 0.8), Q = (0.5, 0.5): reject the first outcome, then the second."""
    step = np.log(1.6 / 0.4) / 4096
    lower, upper = {0: np.log(0.5), 1: np.log(0.5)}, {0: np.log(0.2), 1: np.log(0.8)}
    pld = from_two_probability_mass_functions(lower, upper, value_discretization_interval=step, symmetric=False)
    exact = Curve(np.array([0.0, 0.2, 1.0]), np.array([1.0, 0.5, 0.0]))
    assert np.allclose(from_pld(pld, ALPHAS), exact(ALPHAS), atol=1e-3)


def test_epsilon_and_delta_agree_with_dp_accounting_in_both_directions():
    pld = from_gaussian_mechanism(1.2, sampling_prob=0.05, value_discretization_interval=1e-4).self_compose(100)
    mine = PrivacyLoss.of(pld)
    for epsilon in (0.0, 0.4, 1.7, 5.0):
        assert np.isclose(mine.delta(epsilon), pld.get_delta_for_epsilon(epsilon), rtol=1e-9, atol=1e-14)
    deltas = np.array([1e-10, 1e-5, 0.1, 0.9])
    assert np.allclose(mine.epsilon(deltas), [pld.get_epsilon_for_delta(d) for d in deltas], rtol=1e-9)
    assert mine.epsilon(0.0) == np.inf and mine.epsilon(1.0) == 0


def test_curves_from_losses_are_tradeoff_curves_to_the_ends():
    beta = from_pld(composed(subsampled_tails(gaussian_tails(0.7), 0.05), 300), ALPHAS)
    assert beta[-1] == 0 and beta[0] <= 1 and np.all(np.diff(beta) <= 0) and np.all(beta <= 1 - ALPHAS)
    assert np.all(np.diff(np.diff(beta) / np.diff(ALPHAS)) >= -1e-7)


def test_strong_losses_do_not_overflow():
    """mu = 50: losses to 1700, beyond e^x; the curve is G_50, zero for all practical purposes."""
    beta = from_pld(composed(gaussian_tails(50.0), 1), [0.0, 1e-300, 0.5, 1.0])
    assert np.all(np.isfinite(beta)) and np.all(beta[1:] <= gaussian_dp.tradeoff([1e-300, 0.5, 1.0], 50.0) + 1e-9)


def test_bad_arguments_are_named():
    loss = PrivacyLoss.of(composed(gaussian_tails(1.0), 1))
    for call, name, value in ((loss.delta, "epsilon", -1), (loss.epsilon, "delta", 2)):
        with pytest.raises(ValueError, match=rf"^{name} "):
            call(value)


def test_gaussian_tails_are_the_tails_of_the_loss():
    """The loss of G_mu is Normal(mu^2/2, mu^2) under P and Normal(-mu^2/2, mu^2) under Q."""
    mu, quantiles = 1.4, np.array([0.2, 0.5, 0.9])
    losses = mu**2 / 2 + mu * ndtri(quantiles)
    kept = losses >= 0
    upper, lower = gaussian_tails(mu)(losses[kept])
    assert np.allclose(upper, 1 - quantiles[kept], rtol=1e-13)
    assert np.allclose(lower, ndtr(-(losses[kept] + mu**2 / 2) / mu), rtol=1e-13)
