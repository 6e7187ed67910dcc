"""Privacy-loss distributions, arsinh noise and the adversary A1 against exact curves, integrals and enumeration."""

from itertools import pairwise, permutations, product

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
    from_privacy_parameters,
    from_two_probability_mass_functions,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    Curve,
    PrivacyLoss,
    RevealedMixture,
    amplified_epsilon,
    arsinh_delta,
    arsinh_guarantee,
    composed,
    epsilon_delta,
    from_delta,
    from_pld,
    gaussian_tails,
    revealed,
    revealed_renyi,
    revealed_shuffled,
    shuffled_mu,
    subsample,
    subsampled_delta,
    subsampled_tails,
)

# Privacy-loss distributions against exact curves, characteristic functions and dp_accounting's own numbers.

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
    known = gaussian_dp.epsilon(deltas, total)
    rounding = 2e-16 * rounds / deltas  # what the transforms may hide counts as spent
    assert np.all(np.abs(PrivacyLoss.of(pld).epsilon(deltas) - known) <= known * (1e-6 + rounding))


@pytest.mark.parametrize(("p", "mu"), [(0.1, 1.0), (0.5, 3.0), (1e-3, 0.8)])
def test_one_subsampled_round_is_the_operator(p, mu):
    pld = composed(subsampled_tails(gaussian_tails(mu), p), 1)
    assert np.allclose(from_pld(pld, ALPHAS), subsample(p, mu, ALPHAS), rtol=1e-6, atol=1e-10)
    epsilons = np.linspace(0, 2, 9)
    exact = subsampled_delta(epsilons, p, mu)
    assert np.allclose(PrivacyLoss.of(pld).delta(epsilons), exact, rtol=1e-5, atol=2e-14)  # 1e-14 is for rounding


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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("mu", "delta"), [(37.0, 0.3), (36.5, 0.1), (33.4, 1e-6), (37.1, 0.3)])
def test_an_epsilon_beyond_e_to_the_700_is_not_understated(mu, delta):
    """It was by up to 6.5: float64 ends where e^epsilon meets the mass of Q."""
    loss, known = PrivacyLoss.of(composed(gaussian_tails(mu), 1)), float(gaussian_dp.epsilon(delta, mu))
    assert 690 < known <= loss.epsilon(delta) < 1.01 * known + 20
    assert loss.delta(known) >= delta * (1 - 1e-9)


@pytest.mark.parametrize(("p", "mu"), [(1.0, 1e-6), (1.0, 1.0), (1e-9, 1e-4)])
def test_one_round_is_not_understated_by_rounding(p, mu):
    """delta at 0 in 50 digits: p erf(mu / sqrt 8)."""
    with mp.workdps(50):
        exact = mp.mpf(p) * mp.erf(mp.mpf(mu) / mp.sqrt(8))
        stated = PrivacyLoss.of(composed(subsampled_tails(gaussian_tails(mu), p), 1)).delta(0.0)
        assert exact <= stated <= exact * (1 + 1e-7) + mp.mpf("2e-14")


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


# Arsinh noise: its hockey stick against integration of the density, and its limits.

ARSINH_ALPHAS = np.linspace(0.001, 0.999, 97)


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


@pytest.mark.parametrize(("scale", "sigma", "shift"), [(0.5, 2.0, 0.3), (1.0, 3.0, 2.0), (0.5, 1.0, 1.0)])
def test_delta_just_below_the_hump_of_the_loss(scale, sigma, shift):
    """Right of the middle the loss rises, and then falls; the hump lies where both densities are far from 0."""
    y = np.linspace(shift / 2, scale * np.arcsinh(5 * sigma / scale), 100_001)
    largest = np.max(np.log(density(y, scale, sigma)) - np.log(density(y - shift, scale, sigma)))
    expected = integrated_delta(0.97 * largest, scale, sigma, shift)
    assert np.isclose(arsinh_delta(0.97 * largest, scale=scale, sigma=sigma, shift=shift), expected, rtol=1e-7)


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
    alphas = ARSINH_ALPHAS[::32]
    dual = from_delta(lambda epsilon: arsinh_delta(epsilon, **noise), alphas)
    assert np.allclose(one.tradeoff(alphas), dual, rtol=1e-6, atol=1e-9)
    assert np.isclose(one.delta(1.0), arsinh_delta(1.0, **noise), rtol=1e-6)


def test_rounds_compose():
    """One step beyond closed forms: scale 1e3 is Gaussian noise, whose composition is known."""
    many = arsinh_guarantee(scale=1e3, sigma=5.0, rounds=25)
    assert np.allclose(many.tradeoff(ARSINH_ALPHAS), gaussian_dp.tradeoff(ARSINH_ALPHAS, 1.0), rtol=1e-4)


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


# Adversary A1: the mixture against 50-digit sums, a simulated test, and enumeration of batches.

REVEALED_ALPHAS = np.concatenate([[0.0, 1e-12, 1e-6], np.linspace(0.005, 0.995, 100), [1 - 1e-6, 1.0]])


def exact_delta(epsilon, n, m, rounds, sigma):
    """sum_k Bin(k; rounds, m/n) theta(epsilon, sqrt(k)/sigma) at 50 digits."""
    with mp.workdps(50):
        p, epsilon, sigma = mp.mpf(m) / n, mp.mpf(epsilon), mp.mpf(sigma)
        total = mp.mpf(0)
        for k in range(1, rounds + 1):
            mu = mp.sqrt(k) / sigma
            theta = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
            total += mp.binomial(rounds, k) * p**k * (1 - p) ** (rounds - k) * theta
        return total


@pytest.mark.parametrize(("n", "m", "rounds", "sigma"), [(100, 10, 50, 2.0), (6000, 250, 480, 1.6), (50, 50, 3, 1.0)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 8.0])
def test_delta_is_the_binomial_sum(n, m, rounds, sigma, epsilon):
    exact = exact_delta(epsilon, n, m, rounds, sigma)
    mixture = revealed(n=n, m=m, rounds=rounds, sigma=sigma)
    assert abs(mixture.delta(epsilon) - exact) <= 1e-11 * exact
    assert np.isclose(mixture.epsilon(float(exact)), epsilon, rtol=1e-9, atol=1e-9)


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.floats(0.3, 8))
def test_tradeoff_is_the_dual_of_delta_and_symmetric(m, more, rounds, sigma):
    mixture = revealed(n=m + more, m=m, rounds=rounds, sigma=sigma)
    beta = mixture.tradeoff(REVEALED_ALPHAS)
    assert np.max(np.abs(beta - from_delta(mixture.delta, REVEALED_ALPHAS))) < 1e-9
    assert np.all(np.diff(beta) <= 1e-15) and np.all(beta <= 1 - REVEALED_ALPHAS)
    assert np.all(np.diff(np.diff(beta) / np.diff(REVEALED_ALPHAS)) >= -1e-7)
    inside = (beta > 1e-6) & (beta < 0.999)
    assert np.allclose(mixture.tradeoff(beta[inside]), REVEALED_ALPHAS[inside], rtol=1e-6, atol=1e-9)


def test_one_component_is_a_gaussian():
    one = RevealedMixture(np.array([1.0]), np.array([1.3]))
    assert np.allclose(one.tradeoff(REVEALED_ALPHAS), gaussian_dp.tradeoff(REVEALED_ALPHAS, 1.3), rtol=1e-10)
    assert np.isclose(one.epsilon(1e-6), gaussian_dp.epsilon(1e-6, 1.3), rtol=1e-12)
    nothing = RevealedMixture(np.array([1.0]), np.array([0.0]))
    assert np.array_equal(nothing.tradeoff(REVEALED_ALPHAS), 1 - REVEALED_ALPHAS) and nothing.epsilon(0.0) == 0


def test_a_simulated_adversary_reaches_the_curve():
    """Draw the rounds that use the record, then the outcomes; reject where the likelihood ratio exceeds e^s.

    200 000 runs a hypothesis; a miss by 5 standard errors happens by chance less than once in 300 000 tests.
    """
    n, m, rounds, sigma, draws = 100, 10, 50, 2.0, 200_000
    generator = np.random.Generator(np.random.Philox(7))
    mixture = revealed(n=n, m=m, rounds=rounds, sigma=sigma)
    for threshold in (-0.7, 1.0):
        mu = np.sqrt(generator.binomial(rounds, m / n, (2, draws))) / sigma
        outcome = generator.standard_normal((2, draws)) + mu * np.array([[0.0], [1.0]])
        reject = mu * outcome - mu**2 / 2 > threshold
        alpha, beta = reject[0].mean(), 1 - reject[1].mean()
        slope = np.exp(threshold)
        error = np.sqrt(beta * (1 - beta) + slope**2 * alpha * (1 - alpha)) / np.sqrt(draws)
        assert abs(beta - mixture.tradeoff(alpha)) < 5 * error


@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_group_counts_against_enumeration(group_size):
    """All batches of 2 out of 5 over 2 rounds: mu^2 sigma^2 is the sum of squared counts."""
    batches = [b for b in product(range(5), repeat=2) if b[0] < b[1]]
    squares = [sum(i < group_size for i in batch) ** 2 for batch in batches]
    totals = np.array([a + b for a, b in product(squares, repeat=2)])
    mixture = revealed(n=5, m=2, rounds=2, sigma=1.0, group_size=group_size)
    for weight, mu in zip(mixture.weights, mixture.mus, strict=True):
        assert np.isclose(weight, np.mean(np.isclose(totals, mu**2)), rtol=1e-12)
    assert np.isclose(mixture.weights.sum(), 1, rtol=1e-14)


@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_shuffled_group_counts_against_all_orders(group_size):
    """All orders of 6 records in batches of 2 over 2 epochs: mu^2 sigma^2 is the sum of squared counts."""
    orders = np.array(list(permutations(range(6)))).reshape(-1, 3, 2)
    squares = ((orders < group_size).sum(2) ** 2).sum(1)
    totals = np.add.outer(squares, squares).ravel()
    mixture = revealed_shuffled(n=6, m=2, epochs=2, sigma=2.0, group_size=group_size)
    for weight, mu in zip(mixture.weights, mixture.mus, strict=True):
        assert np.isclose(weight, np.mean(np.isclose(totals, 4 * mu**2)), rtol=1e-12)
    assert np.isclose(mixture.weights.sum(), 1, rtol=1e-14)


def test_two_shuffled_records_share_a_batch_more_often_than_the_root_of_g_allows():
    """E = 20, N/m = 24, sigma = 1.6: epochs in which two records meet are Bin(E, (m - 1)/(n - 1)), at 50 digits; and
    every round simulated, 20 000 runs. G of sqrt(gE)/sigma gives less at epsilon = 15."""
    n, m, epochs, sigma, runs = 6000, 250, 20, 1.6, 20_000
    found = float(revealed_shuffled(n=n, m=m, epochs=epochs, sigma=sigma, group_size=2).delta(15.0))
    with mp.workdps(50):
        meet, exact = mp.mpf(m - 1) / (n - 1), mp.mpf(0)
        for k in range(epochs + 1):
            mu = mp.sqrt(2 * epochs + 2 * k) / mp.mpf("1.6")
            theta = mp.ncdf(mu / 2 - 15 / mu) - mp.exp(15) * mp.ncdf(-mu / 2 - 15 / mu)
            exact += mp.binomial(epochs, k) * meet**k * (1 - meet) ** (epochs - k) * theta
    assert found == pytest.approx(float(exact), rel=1e-11)
    assert found > 1.3 * gaussian_dp.delta(15.0, shuffled_mu(epochs, sigma, 2))
    draw = np.random.default_rng(0)
    losses = np.zeros(runs)
    for _ in range(epochs):
        order = np.argpartition(draw.random((runs, 48)), 1, axis=1)  # two of 48 slots, 2 a batch, stand for n and m
        first, second = order[:, 0] // 2, order[:, 1] // 2
        meet_here = draw.random(runs) < (m - 1) / (n - 1)
        second = np.where(meet_here, first, np.where(second == first, (first + 1) % 24, second))
        shifts = np.zeros((runs, 24))
        np.add.at(shifts, (np.arange(runs), first), 1)
        np.add.at(shifts, (np.arange(runs), second), 1)
        seen = shifts + sigma * draw.standard_normal(shifts.shape)
        losses += ((seen * shifts - shifts**2 / 2) / sigma**2).sum(1)
    gains = np.clip(1 - np.exp(15 - losses), 0, None)
    assert abs(gains.mean() - found) < 5 * gains.std() / np.sqrt(runs)


def test_one_shuffled_record_is_used_once_an_epoch():
    mixture = revealed_shuffled(n=6000, m=16, epochs=20, sigma=1.6)
    assert mixture.weights.tolist() == [1.0] and mixture.mus[0] == pytest.approx(shuffled_mu(20, 1.6))


def test_groups_grow_like_the_root_of_their_size():
    """n/m large: g records rarely share a batch, so epsilon follows sqrt(g E)/sigma and stays far below g mu."""
    run = dict(n=10_000, m=50, rounds=4000, sigma=10.0)
    for g in (1, 4, 16):
        spent = gaussian_dp.mu(1.0, revealed(**run, group_size=g).delta(1.0))
        assert np.isclose(spent, shuffled_mu(20, 10.0, g), rtol=0.06)
    assert spent < 0.3 * gaussian_dp.group(shuffled_mu(20, 10.0), 16)


def test_weights_keep_their_digits_deep_in_the_tail():
    mixture = revealed(n=1000, m=10, rounds=1000, sigma=1.0)
    counts = np.rint(mixture.mus**2).astype(int)
    with mp.workdps(50):
        for place in (0, counts.size // 2, counts.size - 1):
            k = int(counts[place])
            exact = mp.binomial(1000, k) * mp.mpf("0.01") ** k * mp.mpf("0.99") ** (1000 - k)
            assert abs(mixture.weights[place] - exact) <= 1e-11 * exact


@pytest.mark.parametrize("order", [1.5, 2.0, 16.0])
def test_renyi_is_the_binomial_moment(order):
    n, m, rounds, sigma = 100, 10, 30, 2.0
    with mp.workdps(50):
        growth = mp.exp(mp.mpf(order) * (order - 1) / (2 * sigma**2))
        exact = rounds * mp.log(1 + mp.mpf(m) / n * (growth - 1)) / (order - 1)
    assert np.isclose(revealed_renyi(order, n=n, m=m, rounds=rounds, sigma=sigma), float(exact), rtol=1e-12)


@pytest.mark.parametrize(
    ("order", "sigma"), [(2.0, 3e5), (64.0, 3e5), (1 + 2**-40, 1.0), (1.5, 1e12), (300.0, 100.0), (50.0, 0.5)]
)
def test_renyi_keeps_its_digits_where_it_is_tiny(order, sigma):
    n, m, rounds = 6000, 250, 480
    with mp.workdps(80):
        growth = mp.mpf(order) * (mp.mpf(order) - 1) / (2 * mp.mpf(sigma) ** 2)
        exact = rounds * mp.log1p(mp.mpf(m) / n * mp.expm1(growth)) / (mp.mpf(order) - 1)
    assert revealed_renyi(order, n=n, m=m, rounds=rounds, sigma=sigma) == pytest.approx(float(exact), rel=1e-12, abs=0)


def test_renyi_of_a_group_whose_noise_hides_it():
    """Counts 0, 1, 2 of a group of 2 in batches of 2 out of 5, enumerated: 3/10, 6/10, 1/10."""
    with mp.workdps(50):
        unit = 3 / mp.mpf(1e5) ** 2
        exact = 4 * mp.log1p((6 * mp.expm1(unit) + mp.expm1(4 * unit)) / 10) / 2
    spent = revealed_renyi(3.0, n=5, m=2, rounds=4, sigma=1e5, group_size=2)
    assert spent == pytest.approx(float(exact), rel=1e-12, abs=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("order", "sigma", "expected"), [(2, 1e200, 0), (2, 1e-200, np.inf), (1e200, 1, np.inf)])
def test_renyi_at_its_limits(order, sigma, expected):
    assert revealed_renyi(order, n=10, m=1, rounds=3, sigma=sigma) == expected


@pytest.mark.parametrize(("question", "name"), [("delta", "epsilon"), ("epsilon", "delta"), ("tradeoff", "alpha")])
def test_bad_arguments_of_the_mixture_are_named(question, name):
    with pytest.raises(ValueError, match=rf"^{name} "):
        getattr(revealed(n=10, m=1, rounds=1, sigma=1), question)(-1)
