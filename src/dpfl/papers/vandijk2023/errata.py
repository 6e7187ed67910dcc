"""What is printed against what is right, each with a value found by another route."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd, gaussian_dp, tradeoff
from dpfl.papers.vandijk2023.printed_formulas import epsilon_delta_as_printed, renyi_as_printed
from dpfl.papers.vandijk2023.reference_run import epsilon_of, equivalent_mu, run, settings
from dpfl.reporting.evidence import Erratum

TERM_BY_TERM = "sum term by term"


def rounds() -> int:
    """Return the number of rounds of the run."""
    values = run()
    return values["n"] // values["m"] * values["epochs"]


def epsilon_delta_curve() -> Erratum:
    """The curve of (epsilon, delta)-DP is a maximum; with the printed minimum it is never above 0."""
    alpha, epsilon, delta = 0.1, 1.0, 1e-5
    return Erratum(
        erratum=1,
        printed_form="f = min{0, ...}",
        right_form="f = max{0, ...}",
        case=f"f at alpha = {alpha}, epsilon = {epsilon}, delta = {delta}",
        printed=float(epsilon_delta_as_printed(alpha, epsilon, delta)),
        right=float(tradeoff.epsilon_delta(alpha, epsilon, delta)),
        independent=float(tradeoff.Curve.of_epsilon_delta(epsilon, delta)(alpha)),
        source="convex hull of its vertices",
    )


def renyi_sign() -> Erratum:
    """The Renyi divergence before (5) has the wrong sign in its exponent."""
    order, mu = 3.0, 1.0
    power = quad(lambda y: norm.pdf(y, mu) ** order * norm.pdf(y) ** (1 - order), -15, 25, points=[0, mu, 3])[0]
    return Erratum(
        erratum=2,
        printed_form="ln E[e^((1-alpha) Z)] / (1-alpha)",
        right_form="ln E[e^((alpha-1) Z)] / (alpha-1)",
        case="two unit Gaussians, mu = 1, order 3",
        printed=float(renyi_as_printed(order, mu)),
        right=float(gaussian_dp.renyi(order, mu)),
        independent=math.log(power) / (order - 1),
        source="integration",
    )


def group_delta(epsilon: float) -> Erratum:
    """The group delta needs epsilon in its exponent; what an (epsilon, delta)-DP mechanism can do exceeds the print."""
    g, delta = 2, 1e-3
    pair = tradeoff.group(tradeoff.Curve.of_epsilon_delta(epsilon, delta), g)
    return Erratum(
        erratum=3,
        printed_form="g e^(g-1) delta",
        right_form="g e^((g-1) epsilon) delta",
        case=f"delta at g epsilon, g = {g}, epsilon = {epsilon}, delta = {delta}",
        printed=g * math.exp(g - 1) * delta,
        right=g * math.exp((g - 1) * epsilon) * delta,
        independent=float(tradeoff.delta_of(pair, g * epsilon)),
        source="worst mechanism, by its curve: above the printed value, below the right one",
    )


def loss_within_epsilon() -> Erratum:
    """(epsilon, delta)-DP does not keep the loss within epsilon with probability 1 - delta."""
    epsilon, mu = 1.0, 1.0
    return Erratum(
        erratum=4,
        printed_form="the loss stays within epsilon with probability 1 - delta",
        right_form="exceeded with a probability above delta",
        case="probability of a loss beyond epsilon, G of mu = 1, epsilon = 1",
        printed=float(gaussian_dp.delta(epsilon, mu)),
        right=float(gaussian_dp.loss_exceeds(epsilon, mu)),
        independent=float(norm.sf(epsilon, mu**2 / 2, mu) + norm.cdf(-epsilon, mu**2 / 2, mu)),
        source="the loss is normal with mean mu^2/2 and deviation mu",
    )


def expected_rounds() -> Erratum:
    """c^2 (N/m)^2 rounds of the expected curve compose to G of c/sigma."""
    values, sigma, c = run(), settings("errata_sigma"), 0.5
    rate = values["m"] / values["n"]
    count = round((c / rate) ** 2)
    loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.gaussian_tails(rate / sigma), count))
    return Erratum(
        erratum=5,
        printed_form="c^2 (N/m)^2 rounds give G of 1/sigma",
        right_form="G of c/sigma",
        case=f"mu, c = {c}, N/m = {1 / rate:g}, sigma = {sigma}",
        printed=1 / sigma,
        right=float(gaussian_dp.compose(np.full(count, rate / sigma))),
        independent=equivalent_mu(loss),
        source=f"composed loss distribution of {count} rounds",
    )


def concentrated(adversary: str, order: int) -> Erratum:
    """E/(2 sigma^2)-zCDP fails under subsampling: the Renyi divergence at this order is larger."""
    values, sigma = run(), settings("errata_sigma")
    p, mu = values["m"] / values["n"], 1 / sigma
    if adversary == "A0":
        right = rounds() * tradeoff.poisson_renyi(order, p, mu)
        k = np.arange(order + 1)
        terms = binom.logpmf(k, order, p) + k * (k - 1) * mu**2 / 2
        independent = rounds() * logsumexp(terms) / (order - 1)
    else:
        right = float(tradeoff.revealed_renyi(order, n=values["n"], m=values["m"], rounds=rounds(), sigma=sigma))
        k = np.arange(rounds() + 1)
        terms = binom.logpmf(k, rounds(), p) + order * (order - 1) * k * mu**2 / 2
        independent = logsumexp(terms) / (order - 1)
    return Erratum(
        erratum=6,
        printed_form="E/(2 sigma^2)-zCDP",
        right_form="for shuffled batches only, each record exactly E times",
        case=f"Renyi divergence at order {order}, {adversary}, sigma = {sigma}",
        printed=float(gaussian_dp.renyi(order, tradeoff.shuffled_mu(values["epochs"], sigma))),
        right=right,
        independent=float(independent),
        source=TERM_BY_TERM,
    )


def whose_accountant() -> Erratum:
    """The composed C_p over-states what Poisson batches spend at the same noise over sensitivity."""
    values, sigma = run(), settings("errata_sigma")
    step = {"sample_rate": values["m"] / values["n"], "steps": rounds(), "delta": settings("delta")}
    return Erratum(
        erratum=7,
        printed_form="C_p(G) composed T times is tight for DP-SGD",
        right_form="for its own relation; Poisson batches spend less, replaced records lie between",
        case=f"epsilon, sigma = {sigma}",
        printed=epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values)),
        right=epsilon_of(tradeoff.poisson_guarantee(noise_multiplier=sigma, **values)),
        independent=float(dpsgd.epsilon(noise_multiplier=sigma, accountant="prv", **step)),
        source="Opacus's accountant of privacy random variables, upper end",
    )


def central_limit() -> Erratum:
    """The central limit is near the composed C_p, not below it."""
    values, sigma = run(), settings("errata_sigma")
    clt = tradeoff.clt_mu(values["m"] / values["n"], rounds(), sigma)
    numbers = {"c": values["m"] / values["n"] * math.sqrt(rounds()), "x": 1 / sigma}
    bracket = math.exp(numbers["x"] ** 2) * norm.cdf(1.5 * numbers["x"]) + 3 * norm.cdf(-numbers["x"] / 2) - 2
    return Erratum(
        erratum=7,
        printed_form="central limit for C_p composed T times",
        right_form="C_p composed T times, exactly",
        case=f"epsilon, sigma = {sigma}; independent: the limit from its formula",
        printed=float(gaussian_dp.epsilon(settings("delta"), clt)),
        right=epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values)),
        independent=float(gaussian_dp.epsilon(settings("delta"), math.sqrt(2) * numbers["c"] * math.sqrt(bracket))),
        source="the limit's mu by scipy's normal law",
    )


def pessimistic_h() -> Erratum:
    """h is far too pessimistic for DP-SGD: the adversary A1 is told what no observer of the run sees."""
    values, sigma = run(), settings("errata_sigma")
    exact = tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **values)
    return Erratum(
        erratum=8,
        printed_form="DP-SGD is h-DP: mu of h",
        right_form="mu of the composed C_p",
        case=f"mu at equal epsilon, sigma = {sigma}; sqrt(N/m) = {math.sqrt(values['n'] / values['m']):.2f}",
        printed=float(tradeoff.h_mu(values["epochs"], sigma)),
        right=equivalent_mu(exact),
        independent=float(tradeoff.clt_mu(values["m"] / values["n"], rounds(), sigma)),
        source="central limit",
    )


def optimistic_h() -> Erratum:
    """Deep in the tail h is not even a lower bound against A1."""
    values, sigma, epsilon = run(), settings("errata_sigma"), 20.0
    k = np.arange(1, rounds() + 1)
    r = np.sqrt(k) / sigma
    thetas = norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2)
    exact = tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A1", **values)
    return Erratum(
        erratum=8,
        printed_form="h holds against A1",
        right_form="exact A1 exceeds it in the tail",
        case=f"delta at epsilon = {epsilon}, sigma = {sigma}",
        printed=float(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="h", **values).delta(epsilon)),
        right=float(exact.delta(epsilon)),
        independent=float(binom.pmf(k, rounds(), values["m"] / values["n"]) @ thetas),
        source=TERM_BY_TERM,
    )


def all_errata() -> list[Erratum]:
    """Return every erratum of this paper."""
    return [
        epsilon_delta_curve(),
        renyi_sign(),
        *(group_delta(epsilon) for epsilon in (1.5, 3.0)),
        loss_within_epsilon(),
        expected_rounds(),
        concentrated("A0", 64),
        concentrated("A1", 2),
        whose_accountant(),
        central_limit(),
        pessimistic_h(),
        optimistic_h(),
    ]
