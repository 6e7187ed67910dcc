"""What is printed against what is right, each with a value found by another route."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.stats import norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.interval_kernels import DiscretisedInterval
from dpfl.papers.asoodeh2021.figures import one_round, parameters, users, whole_rounds
from dpfl.papers.asoodeh2021.printed_formulas import federated_harmonic_delta_as_printed, last_iterate_rate_as_printed
from dpfl.randomness import generator
from dpfl.reporting.evidence import Erratum

EPSILON = 0.5
PLAIN_SUM = "plain sum with scipy's normal tail"
RATES = (0.01, 0.02, 0.05, 0.1)
DIMENSION, ROUNDS, REPEATS = 100, 20_000, 5


def plain_theta(epsilon: float, r: float) -> float:
    """Return the divergence of two unit Gaussians r apart, straight from its definition."""
    return float(norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2))


def plain_sum(epsilon: float, m: int, share: float, heads: Sequence[float], links: Sequence[float]) -> float:
    """Return Theorem 2's sum over rounds, term by term: share * sum_t theta(head_t) prod_{j>t} theta(link_j)."""
    later = [math.prod(plain_theta(epsilon, link) for link in links[t + 1 :]) for t in range(len(links))]
    return share * sum(plain_theta(epsilon, head) * rest for head, rest in zip(heads, later, strict=True))


def figure_2_sum(m: int, rounds: int) -> float:
    """Return the plain sum at Figure 2's parameters and EPSILON."""
    values = parameters()
    head = 2 * values["lipschitz"] / (math.sqrt(m) * values["sigma"])
    link = 2 * values["radius"] * math.sqrt(m) / (values["eta"] * values["sigma"])
    return plain_sum(EPSILON, m, m / values["n"], [head] * rounds, [link] * rounds)


def corollary_privacy() -> Erratum:
    """Corollary 1's privacy: with eta_t = 1/(lambda t) Theorem 2 has lambda j where the print has its root."""
    n, m, sigma, radius, strong_convexity = 100, 10, 1.5, 0.05, 1.0
    values = {"n": n, "m": m, "sigma": sigma, "lipschitz": 1.0, "radius": radius, "strong_convexity": strong_convexity}
    rounds = range(1, n // m + 1)
    links = [2 * radius * strong_convexity * math.sqrt(m) * j / sigma for j in rounds]
    return Erratum(
        erratum=1,
        printed_form="Corollary 1: theta(2 rho sqrt(lambda m j)/sigma)",
        right_form="theta(2 rho lambda sqrt(m) j/sigma), which agrees with (11)",
        case=f"delta, n = {n}, m = {m}, sigma = {sigma}, rho = {radius}, lambda = 1, L = 1, epsilon = {EPSILON}",
        printed=float(federated_harmonic_delta_as_printed(EPSILON, **values)),
        right=float(contraction.federated_harmonic_delta(EPSILON, **values)),
        independent=plain_sum(EPSILON, m, m / n, [2 / (math.sqrt(m) * sigma)] * len(links), links),
        source=PLAIN_SUM,
    )


def corollary_utility() -> Erratum:
    """Corollary 1's utility: the noise has d coordinates; simulated on F(w) = |w|^2/2 in the unit ball, m = 1."""
    constants = {"smoothness": 1.0, "strong_convexity": 1.0, "gradient_bound": 1.0, "gradient_variance": 0.0}
    values = {"n": ROUNDS, "m": 1, "sigma": 1.0} | constants
    excess = np.mean([simulated_excess(seed) for seed in range(REPEATS)])
    return Erratum(
        erratum=2,
        printed_form="Corollary 1: noise term sigma^2",
        right_form="noise term d sigma^2",
        case=f"bound on the excess risk, d = {DIMENSION}, T = {ROUNDS}, sigma = beta = lambda = D = 1",
        printed=float(last_iterate_rate_as_printed(**values)),
        right=float(contraction.last_iterate_rate(dimension=DIMENSION, **values)),
        independent=float(excess),
        source=f"mean excess risk of {REPEATS} simulated runs: above the printed bound, below the right one",
    )


def simulated_excess(seed: int) -> float:
    """Run w -> projected(w - (w + noise)/t) in DIMENSION coordinates and return |w|^2/2 after ROUNDS rounds."""
    noise = generator(seed, "noise").standard_normal((ROUNDS, DIMENSION))
    w = np.zeros(DIMENSION)
    for t in range(1, ROUNDS + 1):
        w = w - (w + noise[t - 1]) / t
        w = w / max(1.0, math.sqrt(w @ w))
    return float(w @ w / 2)


def long_first_steps() -> Erratum:
    """eta_t = 1/(lambda t) exceeds 2/beta in the first rounds, and the update then stretches the ball."""
    strong_convexity, smoothness, radius, lipschitz, sigma, t = 0.1, 1.0, 1.0, 1.0, 1.0, 2
    eta = 1 / (strong_convexity * t)
    interval = DiscretisedInterval(-radius, radius)
    inputs = np.linspace(-radius, radius, 21)
    rows = interval.projected((1 - eta * smoothness) * inputs, norm(scale=eta * sigma))
    return Erratum(
        erratum=3,
        printed_form="Corollary 1: diameter 2 rho in every round",
        right_form="2 (rho + eta_t L) while t < beta/(2 lambda)",
        case=f"contraction in round {t}, lambda = {strong_convexity}, beta = L = rho = sigma = m = 1, epsilon = 0",
        printed=float(contraction.theta(0.0, 2 * radius / (eta * sigma))),
        right=float(contraction.theta(0.0, 2 * (radius + eta * lipschitz) / (eta * sigma))),
        independent=contraction.contraction_coefficient(rows, 0.0),
        source="the round as a kernel on a grid, loss w^2/2: above the printed value, below the right one",
    )


def broken_rounds(rounds: int) -> Erratum:
    """Figure 2 at q = 0.3: the closed form has 10/3 rounds, an algorithm three or four."""
    m = users(0.3)
    return Erratum(
        erratum=4,
        printed_form="Figure 2 at q = 0.3: closed form with T = 10/3",
        right_form=f"T = {rounds} whole rounds of {m} users",
        case=f"delta at q = 0.3, epsilon = {EPSILON}",
        printed=float(contraction.federated_delta(EPSILON, m=m, **parameters())),
        right=float(whole_rounds(EPSILON, m, rounds)),
        independent=figure_2_sum(m, rounds),
        source=PLAIN_SUM,
    )


def inert_contraction(rate: float) -> Erratum:
    """At Figure 2's parameters the contraction factor is 1 to five digits: one round alone gives the curve."""
    m, values = users(rate), parameters()
    link = 2 * values["radius"] * math.sqrt(m) / (values["eta"] * values["sigma"])
    return Erratum(
        erratum=5,
        printed_form="Figure 2: Theorem 2, contraction included",
        right_form="theta(2L/(sqrt(m) sigma)), one round alone",
        case=f"delta at q = {rate}, epsilon = {EPSILON}; 1 - contraction = {1 - plain_theta(EPSILON, link):.1e}",
        printed=float(contraction.federated_delta(EPSILON, m=m, **values)),
        right=float(one_round(EPSILON, m)),
        independent=plain_theta(EPSILON, 2 * values["lipschitz"] / (math.sqrt(m) * values["sigma"])),
        source="scipy's normal tail",
    )


def more_users(fewer: float, more: float) -> Erratum:
    """More users a round do not always lower delta."""
    values = parameters()
    m = users(more)
    return Erratum(
        erratum=6,
        printed_form="the more users a round, the better",
        right_form="false at small q",
        case=f"delta at epsilon = {EPSILON}: q = {fewer} as the most that is allowed at q = {more}",
        printed=float(contraction.federated_delta(EPSILON, m=users(fewer), **values)),
        right=float(contraction.federated_delta(EPSILON, m=m, **values)),
        independent=figure_2_sum(m, values["n"] // m),
        source=PLAIN_SUM,
    )


def disjoint_supports() -> Erratum:
    """The hockey-stick divergence of laws without common support is 1 at every epsilon, as total variation is."""
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    return Erratum(
        erratum=7,
        printed_form="E_epsilon = TV if and only if epsilon = 0, so strictly below TV here",
        right_form="equal at every epsilon for disjoint supports",
        case="E at epsilon = 1 of (1/2, 1/2, 0) and (0, 0, 1); printed: below this TV",
        printed=float(contraction.hockey_stick(p, q, 0.0)),
        right=float(contraction.hockey_stick(p, q, 1.0)),
        independent=float(max(sum(p[list(s)]) - math.e * sum(q[list(s)]) for s in ((0,), (1,), (2,), (0, 1)))),
        source="largest P(A) - e Q(A) over events A",
    )


def all_errata() -> list[Erratum]:
    """Return every erratum of this paper."""
    return [
        corollary_privacy(),
        corollary_utility(),
        long_first_steps(),
        *(broken_rounds(rounds) for rounds in (3, 4)),
        *(inert_contraction(rate) for rate in (0.1, 0.2, 0.3)),
        *(more_users(fewer, more) for fewer, more in pairwise(RATES)),
        disjoint_supports(),
    ]
