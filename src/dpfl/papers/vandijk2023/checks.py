"""Evidence for the statements on trade-off functions: one value by two routes."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import trapezoid
from scipy.stats import norm

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.papers.vandijk2023.reference_run import epsilon_of, run, settings
from dpfl.reporting.evidence import Comparison, Relation

DUAL = 1e-9
SAMPLED = 2e-5
"""Distance of curves through a few thousand points to the smooth ones."""
EPSILON = 2e-3
"""Grids of the privacy loss may cost this much epsilon."""
SIGMAS = (1.0, 1.6, 4.0)


def duality(mu: float) -> list[Comparison]:
    """Turn G_mu into (epsilon, delta) numerically, and back."""
    rows = []
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        from_curve = tradeoff.delta_of(lambda alpha: gaussian_dp.tradeoff(alpha, mu), epsilon)
        case = f"delta from the curve, mu = {mu}, epsilon = {epsilon}"
        formula = float(gaussian_dp.delta(epsilon, mu))
        rows.append(Comparison("gdp_duality", case, Relation.EQUALS, formula, float(from_curve), DUAL))
    for alpha in (0.001, 0.05, 0.5):
        from_delta = tradeoff.from_delta(lambda epsilon: gaussian_dp.delta(epsilon, mu), alpha)
        case = f"curve from all (epsilon, delta), mu = {mu}, alpha = {alpha}"
        curve = float(gaussian_dp.tradeoff(alpha, mu))
        rows.append(Comparison("gdp_duality", case, Relation.EQUALS, curve, float(from_delta), DUAL))
    return rows


def sampled_gaussian(mu: float) -> tradeoff.Curve:
    """Return G_mu through 401 points, for exact composition of what is then piecewise linear."""
    return tradeoff.double_conjugate(lambda alpha: gaussian_dp.tradeoff(alpha, mu), knots=401)


def composition() -> list[Comparison]:
    """Compose sampled curves in pairs and loss distributions many times, against the root of the sum of squares."""
    rows = []
    for first, second in ((0.5, 0.5), (0.3, 1.0), (1.0, 1.5)):
        both = sampled_gaussian(first).compose(sampled_gaussian(second))
        for alpha in (0.01, 0.2, 0.7):
            expected = float(gaussian_dp.tradeoff(alpha, gaussian_dp.compose([first, second])))
            case = f"sampled curves, mu = {first} and {second}, alpha = {alpha}"
            rows.append(Comparison("composition", case, Relation.EQUALS, expected, float(both(alpha)), 5e-4))
    for mu, rounds in ((0.1, 100), (0.05, 480), (0.5, 9)):
        loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.gaussian_tails(mu), rounds))
        for alpha in (1e-4, 0.05, 0.5):
            expected = float(gaussian_dp.tradeoff(alpha, gaussian_dp.compose(np.full(rounds, mu))))
            case = f"loss distributions, {rounds} times mu = {mu}, alpha = {alpha}"
            rows.append(
                Comparison("composition", case, Relation.EQUALS, expected, float(loss.tradeoff(alpha)), SAMPLED)
            )
    return rows


def subsampling(p: float, mu: float) -> list[Comparison]:
    """Find C_p(G_mu) by conjugating twice, from its loss distribution, and by the test of a pair that attains it."""

    def mixed(alpha: np.ndarray) -> np.ndarray:
        return p * gaussian_dp.tradeoff(alpha, mu) + (1 - p) * (1 - alpha)

    def lower(alpha: np.ndarray) -> np.ndarray:
        return np.minimum(mixed(alpha), tradeoff.inverse(mixed, alpha))

    conjugated = tradeoff.double_conjugate(lower, knots=2001)
    loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.subsampled_tails(tradeoff.gaussian_tails(mu), p), 1))
    rows = []
    for alpha in (0.01, 0.1, 0.4, 0.8):
        closed = float(tradeoff.subsample(p, mu, alpha))
        case = f"p = {p:.4g}, mu = {mu}, alpha = {alpha}"
        routes = {"double conjugate": float(conjugated(alpha)), "loss distribution": float(loss.tradeoff(alpha))}
        rows += [
            Comparison("subsampling", f"{name}: {case}", Relation.EQUALS, closed, value, SAMPLED)
            for name, value in routes.items()
        ]
        # A record that is replaced, with or against the record that takes its place in other batches.
        threshold = norm.isf(alpha)
        reached = (1 - p) * norm.cdf(threshold) + p * norm.cdf(threshold - mu)
        if alpha <= norm.cdf(-mu / 2):
            rows.append(
                Comparison("subsampling", f"a pair attains it: {case}", Relation.EQUALS, closed, float(reached), DUAL)
            )
    return rows


def composed_tightness(sigma: float) -> list[Comparison]:
    """Hold epsilon of the composed C_p against what a pair of data sets reaches, for one round and for the run.

    The pair: all other records' gradients equal that of one of the two versions, so a round's output is N(0, 1) or
    a mixture with N(1/sigma, 1), as for Poisson batches with a record removed.
    """
    values = run()
    bound = epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values))
    reached = epsilon_of(tradeoff.poisson_guarantee(noise_multiplier=sigma, **values))
    p = values["m"] / values["n"]
    one = float(tradeoff.subsampled_delta(1.0, p, 1 / sigma))
    # P(A) - e Q(A) over the half line A where the likelihood ratio exceeds e.
    edge = math.log((math.e - 1 + p) / p) * sigma + 1 / (2 * sigma)
    direct = p * norm.sf(edge - 1 / sigma) + (1 - p) * norm.sf(edge) - math.e * norm.sf(edge)
    name = f"sigma = {sigma}"
    return [
        Comparison("dpsgd_tight", f"valid: a pair stays within, {name}", Relation.AT_MOST, bound, reached, EPSILON),
        Comparison("dpsgd_tight", f"tight: that pair reaches it, {name}", Relation.EQUALS, bound, reached, EPSILON),
        Comparison(
            "dpsgd_tight", f"tight in one round, delta at epsilon = 1, {name}", Relation.EQUALS, one, direct, DUAL
        ),
    ]


def last_epoch(epochs: int) -> Comparison:
    """Compose the epochs of a run with the chapter's smaller last sigma, one by one."""
    sigma = settings("last_epoch_noise")["sigma"]
    mus = [1 / sigma] * (epochs - 1) + [math.sqrt(epochs + 1) / sigma]
    closed = math.sqrt(2) * float(tradeoff.shuffled_mu(epochs, sigma))
    return Comparison(
        "last_epoch_noise",
        f"mu of the run, E = {epochs}",
        Relation.EQUALS,
        closed,
        float(gaussian_dp.compose(mus)),
        DUAL,
    )


def arsinh(scale: float) -> list[Comparison]:
    """Compare arsinh noise, sigma = 1, with Gaussian noise of its own standard deviation: tail, and epsilon."""
    draws = np.linspace(-12.0, 12.0, 240_001)
    deviation = math.sqrt(trapezoid((scale * np.arcsinh(draws / scale)) ** 2 * norm.pdf(draws), draws))
    reach = 4 * deviation
    tail = 2 * norm.sf(scale * math.sinh(reach / scale))
    guarantee = tradeoff.arsinh_guarantee(scale=scale, sigma=1.0)
    gaussian = float(gaussian_dp.epsilon(settings("delta"), 1 / deviation))
    name = f"a = {scale} sigma, standard deviation {deviation:.4f}"
    return [
        Comparison(
            "arsinh_noise", f"lighter tail beyond 4 deviations: {name}", Relation.AT_MOST, 2 * norm.sf(4), tail, 0.0
        ),
        Comparison(
            claim="arsinh_noise",
            case=f"epsilon no larger than Gaussian noise of equal deviation: {name}",
            relation=Relation.AT_MOST,
            ours=gaussian,
            independent=epsilon_of(guarantee),
            tolerance=EPSILON,
        ),
    ]


def all_checks() -> list[Comparison]:
    """Return every check of this paper."""
    return [
        *(check for mu in (0.1, 0.5, 1.0, 3.0) for check in duality(mu)),
        *composition(),
        *(check for p in (1 / 24, 0.1, 0.5) for mu in (0.5, 1.0, 2.0) for check in subsampling(p, mu)),
        *(check for sigma in SIGMAS for check in composed_tightness(sigma)),
        *(last_epoch(epochs) for epochs in settings("last_epoch_noise")["epochs"]),
        *(check for scale in (1.0, 2.0, 4.0) for check in arsinh(scale)),
    ]
