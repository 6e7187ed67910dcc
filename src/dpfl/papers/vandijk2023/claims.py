"""Cases of the chapter's claims: curves by two routes, exact adversaries, and sums by the code that trains.

Claims that trained models decide have their functions in training_claims.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from scipy.stats import norm

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.linear_gradients import LinearGradients
from dpfl.experiments.async_dpsgd.input_normalisation import normalised
from dpfl.models.image_models import softmax_regression
from dpfl.papers.vandijk2023 import training_claims
from dpfl.papers.vandijk2023.reference_run import KEY, epsilon_of, equivalent_mu, run, settings
from dpfl.reporting.cases import Case
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

RECORDS = 6144
"""Records that hold whole batches of every size that the chapter names, 24 of the largest."""
EPOCHS = 20
SIGMA = 8.0
"""Noise of the statements on epochs and groups, in sensitivities: weak noise makes every curve alike."""


def gdp_duality(mu: float, epsilon: float | None = None, alpha: float | None = None) -> Case:
    """Turn G_mu into delta at an epsilon numerically, or the curve of all (epsilon, delta) back at a type I error."""
    if alpha is None:
        found = tradeoff.delta_of(lambda level: gaussian_dp.tradeoff(level, mu), epsilon)
        case = f"delta from the curve, mu = {mu}, epsilon = {epsilon}"
        return Case(case, float(found), target=float(gaussian_dp.delta(epsilon, mu)))
    found = tradeoff.from_delta(lambda level: gaussian_dp.delta(level, mu), alpha)
    case = f"curve from all (epsilon, delta), mu = {mu}, alpha = {alpha}"
    return Case(case, float(found), target=float(gaussian_dp.tradeoff(alpha, mu)))


def composition(mus: list[float] | float, alpha: float, times: int = 0) -> Case:
    """Compose two sampled curves, or one loss distribution many times, against the root of the sum of squares."""
    if not times:
        first, second = mus
        found = _sampled(first).compose(_sampled(second))(alpha)
        case = f"sampled curves, mu = {first} and {second}, alpha = {alpha}"
        expected = gaussian_dp.tradeoff(alpha, gaussian_dp.compose(mus))
        return Case(case, float(found), target=float(expected), margin=5e-4)  # 401 points a curve
    loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.gaussian_tails(mus), times))
    expected = gaussian_dp.tradeoff(alpha, gaussian_dp.compose(np.full(times, mus)))
    case = f"loss distributions, {times} times mu = {mus}, alpha = {alpha}"
    return Case(case, float(loss.tradeoff(alpha)), target=float(expected))


def _sampled(mu: float) -> tradeoff.Curve:
    """Return G_mu through 401 points, for exact composition of what is then piecewise linear."""
    return tradeoff.double_conjugate(lambda alpha: gaussian_dp.tradeoff(alpha, mu), knots=401)


def subsampling(route: str, p: float, mu: float, alpha: float) -> Case:
    """Find C_p(G_mu) by conjugating twice, or from its loss distribution."""
    found = _subsampled(route, p, mu)(alpha)
    case = f"{route}: p = {p:.4g}, mu = {mu}, alpha = {alpha}"
    return Case(case, float(found), target=float(tradeoff.subsample(p, mu, alpha)))


@cache
def _subsampled(route: str, p: float, mu: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return C_p(G_mu) as a function of alpha by a numeric route."""

    def mixed(alpha: np.ndarray) -> np.ndarray:
        return p * gaussian_dp.tradeoff(alpha, mu) + (1 - p) * (1 - alpha)

    if route == "double conjugate":
        return tradeoff.double_conjugate(
            lambda alpha: np.minimum(mixed(alpha), tradeoff.inverse(mixed, alpha)), knots=2001
        )
    tails = tradeoff.subsampled_tails(tradeoff.gaussian_tails(mu), p)
    return tradeoff.PrivacyLoss.of(tradeoff.composed(tails, 1)).tradeoff


def subsampling_tight(p: float, mu: float, alpha: float) -> Case:
    """Test a record that is replaced, with or against the record that takes its place in other batches."""
    threshold = norm.isf(alpha)
    reached = (1 - p) * norm.cdf(threshold) + p * norm.cdf(threshold - mu)
    case = f"a pair attains it: p = {p:.4g}, mu = {mu}, alpha = {alpha}"
    return Case(case, float(reached), target=float(tradeoff.subsample(p, mu, alpha)))


def dpsgd_valid(sigma: float) -> Case:
    """Hold what a pair of data sets reaches over the run against the composed C_p.

    The pair: all other records' gradients equal that of one of the two versions, so a round's output is N(0, 1) or
    a mixture with N(1/sigma, 1), as for Poisson batches with a record removed.
    """
    reached = epsilon_of(tradeoff.poisson_guarantee(noise_multiplier=sigma, **run()))
    bound = epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **run()))
    return Case(f"a pair over the run, sigma = {sigma}", reached, target=bound)


def dpsgd_tight(sigma: float) -> Case:
    """Hold what that pair reaches against the composed C_p: below it nothing is decided, for another might reach it."""
    case = dpsgd_valid(sigma)
    reaches = abs(case.estimate - case.target) <= 2e-3
    return Case(case.case, case.estimate, error=0.0 if reaches else math.nan, target=case.target)


def dpsgd_tight_one_round(sigma: float) -> Case:
    """Hold delta of one round at epsilon = 1 against P(A) - e Q(A), A the half line of a likelihood ratio above e."""
    p = run()["m"] / run()["n"]
    edge = math.log((math.e - 1 + p) / p) * sigma + 1 / (2 * sigma)
    reached = p * norm.sf(edge - 1 / sigma) + (1 - p) * norm.sf(edge) - math.e * norm.sf(edge)
    expected = tradeoff.subsampled_delta(1.0, p, 1 / sigma)
    return Case(f"one round, sigma = {sigma}", float(reached), target=float(expected))


def a1_weaker(sigma: float, batch: int, epochs: int, alpha: float | None = None) -> Case:
    """Hold A0's epsilon at or below A1's, or A1's curve at or below A0's at a type I error."""
    a0, a1 = (_guarantee(name, run()["n"], batch, epochs, sigma) for name in ("A0", "A1"))
    case = f"batches of {batch}, {epochs} epochs, sigma = {sigma}"
    if alpha is None:
        return Case(f"epsilon, {case}", epsilon_of(a0), target=epsilon_of(a1))
    return Case(f"type II error at {alpha:g}, {case}", float(a1.tradeoff(alpha)), target=float(a0.tradeoff(alpha)))


@cache
def _guarantee(adversary: str, n: int, m: int, epochs: int, sigma: float, group: int = 1) -> tradeoff.Guarantee:
    """Return what an adversary learns of a run."""
    return tradeoff.dpsgd_guarantee(n=n, m=m, epochs=epochs, sigma=sigma, adversary=adversary, group_size=group)


def clt(sigma: float, delta: float) -> Case:
    """Compare the distance from the central limit at N/m = 128 with that at 32, T = (N/m)^2."""
    near, far = (_distance_from_limit(ratio, sigma, delta) for ratio in (128, 32))
    return Case(f"sigma = {sigma}, delta = {delta:g}: {far:.2g} at 32, {near:.2g} at 128", 1 - near / far)


def _distance_from_limit(ratio: int, sigma: float, delta: float) -> float:
    """Return how far mu of ratio^2 rounds with batches of N/ratio is from Corollary 5.4's, as a share of the latter."""
    exact = _mu_at(_guarantee("A0", ratio, 1, ratio, sigma), delta)
    return abs(exact / float(tradeoff.clt_mu(1 / ratio, ratio**2, sigma)) - 1)


def _mu_at(guarantee: tradeoff.Guarantee, delta: float) -> float:
    """Return the mu of the Gaussian guarantee with the same epsilon at `delta`."""
    return float(gaussian_dp.mu(float(guarantee.epsilon(delta)), delta))


def clt_a1(sigma: float, epochs: int) -> Case:
    """Compare the mu that A1's guarantee has at delta = 1e-2 with that at 1e-6, N/m = 4096: a Gaussian has one."""
    guarantee = _guarantee("A1", 4096, 1, epochs, sigma)
    return Case(f"{epochs} epochs, sigma = {sigma}", _mu_at(guarantee, 1e-2) / _mu_at(guarantee, 1e-6), target=1.0)


def epochs_not_rounds(batch: int) -> Case:
    """Compare A1's epsilon with that at batches of one record."""
    here, smallest = (epsilon_of(_guarantee("A1", run()["n"], m, EPOCHS, SIGMA)) for m in (batch, 1))
    return Case(f"batches of {batch} against 1", here / smallest, target=1.0)


def epochs_simple(epochs: int) -> Case:
    """Compare mu against A1 with sqrt(E)/sigma."""
    return Case(f"E = {epochs}", _mu_over_simple("A1", epochs), target=1.0)


def epochs_bounds(epochs: int) -> Case:
    """Hold mu against A1 below that of h."""
    return Case(f"E = {epochs}", _mu_over_simple("A1", epochs), target=_mu_over_simple("h", epochs))


def epochs_limit(epochs: int) -> Case:
    """Hold mu against A1 above that of h-bar."""
    return Case(f"E = {epochs}", _mu_over_simple("A1", epochs), target=_mu_over_simple("h_bar", epochs))


def _mu_over_simple(adversary: str, epochs: int) -> float:
    """Return mu at equal epsilon over sqrt(E)/sigma."""
    exact = equivalent_mu(_guarantee(adversary, run()["n"], run()["m"], epochs, SIGMA))
    return exact / float(tradeoff.shuffled_mu(epochs, SIGMA))


def group(batch: int, g: int) -> Case:
    """Compare how mu grows with the group with sqrt(g)."""
    return Case(f"batches of {batch}, g = {g}", _growth(batch, g) / math.sqrt(g), target=1.0)


def group_below_g(batch: int, g: int) -> Case:
    """Compare how mu grows with the group with g."""
    return Case(f"batches of {batch}, g = {g}", 1 - _growth(batch, g) / g)


def _growth(batch: int, g: int) -> float:
    """Return mu of a group over that of one record, sub-sampled, at equal epsilon against A1."""
    many, one = (equivalent_mu(_guarantee("A1", RECORDS, batch, EPOCHS, SIGMA, size)) for size in (g, 1))
    return many / one


def group_shuffled(epsilon: float, batch: int, g: int) -> Case:
    """Hold the exact delta of a group under shuffling against that of G of sqrt(gE)/sigma."""
    sigma = settings("errata_sigma")
    exact = tradeoff.revealed_shuffled(n=RECORDS, m=batch, epochs=EPOCHS, sigma=sigma, group_size=g)
    stated = gaussian_dp.delta(epsilon, tradeoff.shuffled_mu(EPOCHS, sigma, g))
    case = f"g = {g}, batches of {batch}, epsilon = {epsilon:g}"
    return Case(case, float(exact.delta(epsilon)), target=float(stated))


def group_shuffled_about(batch: int, g: int) -> Case:
    """Compare mu of a group under shuffling with sqrt(gE)/sigma."""
    exact = tradeoff.revealed_shuffled(n=RECORDS, m=batch, epochs=EPOCHS, sigma=SIGMA, group_size=g)
    ratio = equivalent_mu(exact) / float(tradeoff.shuffled_mu(EPOCHS, SIGMA, g))
    return Case(f"batches of {batch}, g = {g}", ratio, target=1.0)


LEAST_OF_TWO, MOST_OF_TWO = 1.9, 2.1
"""Factors that count as two."""


def fixed_batches_cost_two(results: Results) -> ClaimEvidence:
    """Compare the noise of fixed batches with that of Poisson batches at equal epsilon, each by its own accountant.

    The truth is between what a pair of data sets needs and what C_p proves to be enough: a case a noise, open where
    they leave it open. Beside it: how much the relation alone costs, and what the samplers do to accuracy.
    """
    data = results.figure(KEY, "fixed_against_poisson")

    factors = data.pivot(index="noise_multiplier", columns="sampler", values="noise_over_poisson")
    cases = [_between(f"noise of {noise:g} C", row["fixed_pair"], row["fixed"]) for noise, row in factors.iterrows()]
    replaced = [
        Case(f"Poisson batches with a record replaced, noise of {noise:g} C", factor, target=2.0)
        for noise, factor in factors["poisson_replace"].items()
    ]
    return ClaimEvidence(cases, beside=[*replaced, *training_claims.samplers_trained(results)])


def _between(name: str, needed: float, enough: float) -> Case:
    """Return the case of a factor between two numbers, of which the one that decides is the estimate."""
    decided = needed > MOST_OF_TWO or enough < LEAST_OF_TWO or LEAST_OF_TWO <= needed <= enough <= MOST_OF_TWO
    estimate = needed if needed > MOST_OF_TWO else enough
    named = f"{name}: {needed:.3g} needed, {enough:.3g} enough"
    return Case(named, estimate, error=0.0 if decided else math.nan, target=2.0)


def batch_norm(batch: int) -> Case:
    """Find two batches that differ in one record whose sums of clipped gradients are farther apart than 2C."""
    return Case(f"batches of {batch}", _farthest(batch, axis=0) - 1)


def layer_norm(batch: int) -> Case:
    """Hold the same two batches, normalised record by record, within 2C."""
    return Case(f"batches of {batch}", _farthest(batch, axis=1) - 1)


def _farthest(batch: int, axis: int, *, features: int = 196, classes: int = 10, clip_norm: float = 0.1) -> float:
    """Return the distance over 2C of the sums of two batches of softmax regression that differ in their first record.

    The others lie in the middle, a little apart; the record lies above or below them in every feature, so it moves
    their means over the batch to one side or the other; and its features rise or fall.
    """
    module = softmax_regression(features, classes)
    rule = LinearGradients(module, cross_entropy)
    weights, labels = torch.zeros(1, classes * (features + 1)), torch.zeros(batch, dtype=torch.int64)
    rising, sums = torch.linspace(-1, 1, features), []
    for record in (0.2 + 0.2 * rising, 0.8 - 0.2 * rising):
        inputs = 0.5 + 0.01 * rising.repeat(batch, 1)
        inputs[0] = record
        whole = (normalised(inputs, axis), labels, torch.ones(batch))
        sums.append(rule.clipped_sums(weights, whole, torch.tensor([clip_norm])))
    return float((sums[0] - sums[1]).norm()) / (2 * clip_norm)


def last_epoch_noise(epochs: int) -> Case:
    """Compose the epochs of a run with the chapter's smaller last sigma, one by one."""
    mus = [1 / SIGMA] * (epochs - 1) + [math.sqrt(epochs + 1) / SIGMA]
    closed = math.sqrt(2) * float(tradeoff.shuffled_mu(epochs, SIGMA))
    return Case(f"mu of the run, E = {epochs}", float(gaussian_dp.compose(mus)), target=closed)


def arsinh_noise(scale: float) -> Case:
    """Compare the tail of arsinh noise, sigma = 1, beyond four of its standard deviations with a Gaussian's."""
    deviation = training_claims.arsinh_deviation(scale)
    tail = 2 * norm.sf(scale * math.sinh(4 * deviation / scale))
    case = f"beyond 4 deviations: a = {scale} sigma, standard deviation {deviation:.4f}"
    return Case(case, float(tail), target=float(2 * norm.sf(4)))


batch_scaling = partial(training_claims.batch_scaling, "rounds")
batch_scaling_epochs = partial(training_claims.batch_scaling, "epochs")
last_epoch_accuracy = training_claims.last_epoch_accuracy
last_epoch_equal_budget = partial(training_claims.strategies_compared, "last_epoch")
adaptive_clip = partial(training_claims.strategies_compared, "adaptive_clip")
batch_clip = partial(training_claims.strategies_compared, "batch_clip")
arsinh_accuracy = training_claims.arsinh_accuracy
asynchronous_guarantee = training_claims.asynchronous_guarantee
asynchronous = training_claims.asynchronous
asynchronous_large_delays = training_claims.asynchronous_large_delays
delay_closings = partial(training_claims.delay_loop, "late_64", epochs=40, sign=-1)
delay_few_closings = partial(training_claims.delay_loop, "late_16", epochs=2)
delay_small_steps = partial(training_claims.delay_loop, "late_16", epochs=10, learning_rate=0.25)
distance_guard = training_claims.distance_guard
subsets = training_claims.subsets
mixing = training_claims.mixing
chapter_values = training_claims.chapter_values
private_normalisation = training_claims.private_normalisation
layer_norm_accuracy = training_claims.layer_norm_accuracy
