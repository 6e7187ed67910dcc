"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd, gaussian_dp, tradeoff
from dpfl.accounting.numerics import reals
from dpfl.accounting.tradeoff.curves import epsilon_delta_lines
from dpfl.papers.vandijk2023.reference_run import epsilon_of, equivalent_mu, run, settings
from dpfl.reporting.errata import Numbers, errata_recipe

# Formulas of vandijk2023 as printed in our copy of the text: for the table of errata and comparisons only.


def group_delta_as_printed(delta: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """Return g e^{g - 1} delta, as printed in vandijk2023 section 3.2: too small once epsilon exceeds about 1.

    Kept for comparison with `group_delta`; arguments and errors as there.
    """
    return dpsgd.group_delta_bound(1.0, delta, g)


def renyi_as_printed(order: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """Return the expression before (5) of vandijk2023 as printed, ln E[e^{(1 - order) Z}]/(1 - order).

    Equals (2 - order) mu^2 / 2, negative from order 2 on: no divergence. Kept for comparison with `renyi`.
    """
    return ((2 - reals("order", order, above=0)) * reals("mu", mu, at_least=0) ** 2 / 2)[()]


def epsilon_delta_as_printed(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """Return min{0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)}, never above 0: no trade-off curve.

    The line of vandijk2023 section 4 as printed, for comparison with `epsilon_delta`. e^epsilon alpha counts as
    e^(epsilon/2) at most, so that the steep line stays finite.
    """
    steep, flat = epsilon_delta_lines(alpha, epsilon, delta)
    return np.minimum(0.0, np.minimum(steep, flat))[()]


def rounds() -> int:
    """Return the number of rounds of the run."""
    values = run()
    return values["n"] // values["m"] * values["epochs"]


def epsilon_delta_curve(alpha: float, epsilon: float, delta: float) -> Numbers:
    """Compare the curve of (epsilon, delta)-DP, as our text has it, with the hull of its vertices."""
    hull = tradeoff.Curve.of_epsilon_delta(epsilon, delta)(alpha)
    printed = epsilon_delta_as_printed(alpha, epsilon, delta)
    return Numbers(printed, tradeoff.epsilon_delta(alpha, epsilon, delta), hull)


def renyi_sign(order: float, mu: float) -> Numbers:
    """Compare the Renyi divergence before (5) with that of two Gaussians by integration."""
    power = quad(lambda y: norm.pdf(y, mu) ** order * norm.pdf(y) ** (1 - order), -15, 25, points=[0, mu, 3])[0]
    return Numbers(renyi_as_printed(order, mu), gaussian_dp.renyi(order, mu), math.log(power) / (order - 1))


def group_delta(g: int, epsilon: float, delta: float) -> Numbers:
    """Compare the delta of a group with the worst mechanism's."""
    worst = tradeoff.group(tradeoff.Curve.of_epsilon_delta(epsilon, delta), g)
    corrected = dpsgd.group_delta_bound(epsilon, delta, g)
    return Numbers(group_delta_as_printed(delta, g), corrected, tradeoff.delta_of(worst, g * epsilon))


def loss_within_epsilon(epsilon: float, mu: float) -> Numbers:
    """Compare delta with the probability that a Gaussian mechanism's loss leaves epsilon."""
    outside = norm.sf(epsilon, mu**2 / 2, mu) + norm.cdf(-epsilon, mu**2 / 2, mu)
    return Numbers(gaussian_dp.delta(epsilon, mu), gaussian_dp.loss_exceeds(epsilon, mu), outside)


def expected_rounds(c: float) -> Numbers:
    """Compare the mu of c^2 (N/m)^2 rounds of the expected curve with their composed loss."""
    values, sigma = run(), settings("errata_sigma")
    rate = values["m"] / values["n"]
    count = round((c / rate) ** 2)
    loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.gaussian_tails(rate / sigma), count))
    shown = {"ratio": 1 / rate, "sigma": sigma, "rounds": count}
    return Numbers(1 / sigma, gaussian_dp.compose(np.full(count, rate / sigma)), equivalent_mu(loss), shown)


def concentrated(adversary: str, order: int) -> Numbers:
    """Compare E/(2 sigma^2)-zCDP with the Renyi divergence under subsampling."""
    values, sigma = run(), settings("errata_sigma")
    p, mu = values["m"] / values["n"], 1 / sigma
    if adversary == "A0":
        corrected = rounds() * tradeoff.poisson_renyi(order, p, mu)
        k = np.arange(order + 1)
        independent = rounds() * logsumexp(binom.logpmf(k, order, p) + k * (k - 1) * mu**2 / 2) / (order - 1)
    else:
        corrected = tradeoff.revealed_renyi(order, n=values["n"], m=values["m"], rounds=rounds(), sigma=sigma)
        k = np.arange(rounds() + 1)
        independent = logsumexp(binom.logpmf(k, rounds(), p) + order * (order - 1) * k * mu**2 / 2) / (order - 1)
    printed = gaussian_dp.renyi(order, tradeoff.shuffled_mu(values["epochs"], sigma))
    return Numbers(printed, corrected, independent, {"sigma": sigma})


def shuffled_group(epsilon: float) -> Numbers:
    """Compare delta of two records under shuffling with that of G of sqrt(gE)/sigma."""
    values, sigma = run(), settings("errata_sigma")
    epochs, delta = values["epochs"], gaussian_dp.delta
    exact = tradeoff.revealed_shuffled(n=values["n"], m=values["m"], epochs=epochs, sigma=sigma, group_size=2)
    met = np.arange(epochs + 1)
    weights = binom.pmf(met, epochs, (values["m"] - 1) / (values["n"] - 1))
    independent = weights @ delta(epsilon, np.sqrt(2 * epochs + 2 * met) / sigma)
    stated = delta(epsilon, tradeoff.shuffled_mu(epochs, sigma, 2))
    return Numbers(float(stated), float(exact.delta(epsilon)), float(independent), {"sigma": sigma})


def whose_accountant() -> Numbers:
    """Compare the composed C_p with what Poisson batches spend."""
    values, sigma = run(), settings("errata_sigma")
    step = {"sample_rate": values["m"] / values["n"], "steps": rounds(), "delta": settings("delta")}
    return Numbers(
        epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values)),
        epsilon_of(tradeoff.poisson_guarantee(noise_multiplier=sigma, **values)),
        dpsgd.epsilon(noise_multiplier=sigma, accountant="prv", **step),
        {"sigma": sigma},
    )


def central_limit() -> Numbers:
    """Compare the central limit with the composed C_p."""
    values, sigma, delta = run(), settings("errata_sigma"), settings("delta")
    rate, x = values["m"] / values["n"], 1 / sigma
    bracket = math.exp(x**2) * norm.cdf(1.5 * x) + 3 * norm.cdf(-x / 2) - 2
    by_formula = math.sqrt(2) * rate * math.sqrt(rounds()) * math.sqrt(bracket)
    return Numbers(
        gaussian_dp.epsilon(delta, tradeoff.clt_mu(rate, rounds(), sigma)),
        epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values)),
        gaussian_dp.epsilon(delta, by_formula),
        {"sigma": sigma},
    )


def pessimistic_h() -> Numbers:
    """Compare h with the Gaussian guarantee that is worth as much as the composed C_p."""
    values, sigma = run(), settings("errata_sigma")
    exact = equivalent_mu(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values))
    limit = tradeoff.clt_mu(values["m"] / values["n"], rounds(), sigma)
    shown = {"sigma": sigma, "root": math.sqrt(values["n"] / values["m"])}
    return Numbers(tradeoff.h_mu(values["epochs"], sigma), exact, limit, shown)


def optimistic_h(epsilon: float) -> Numbers:
    """Compare h with the exact delta against A1 deep in the tail."""
    values, sigma = run(), settings("errata_sigma")
    k = np.arange(1, rounds() + 1)
    r = np.sqrt(k) / sigma
    thetas = norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)
    printed, corrected = (
        tradeoff.dpsgd_guarantee(sigma=sigma, adversary=name, **values).delta(epsilon) for name in ("h", "A1")
    )
    independent = binom.pmf(k, rounds(), values["m"] / values["n"]) @ thetas
    return Numbers(printed, corrected, independent, {"sigma": sigma})


TABLES = {"errata": errata_recipe("vandijk2023")}
