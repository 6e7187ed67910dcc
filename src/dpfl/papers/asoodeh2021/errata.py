"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.federated import harmonic_rounds, last_model, non_negative
from dpfl.accounting.contraction.kernels import DiscretisedInterval
from dpfl.accounting.numerics import Array, probability
from dpfl.papers.asoodeh2021.figures import one_round, parameters, users, whole_rounds
from dpfl.papers.asoodeh2021.utility_bound import bounds, simulated_excess
from dpfl.reporting.errata import Numbers, errata_recipe

# Formulas of asoodeh2021 as printed, where they are wrong: for the table of errata and comparisons only.


def federated_harmonic_delta_as_printed(
    epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float, radius: float, strong_convexity: float
) -> Array:
    """Return the first line of eq. (11) as printed, link_j = 2 radius sqrt(lambda m j)/sigma. Not a guarantee.

    It does not follow from Theorem 2 and falls below it where lambda j > 1. Source: asoodeh2021 Corollary 1.
    """
    steps = harmonic_rounds(n, m, sigma, strong_convexity)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    # link_j = diameter sqrt(m)/(eta_j sigma) with eta_j = 1/(lambda j): the root of eta_j gives the printed argument
    with np.errstate(over="ignore"):
        diameter = 2.0 * radius * np.sqrt(steps.eta)
    return probability(last_model(epsilon, steps, lipschitz, diameter))


def plain_theta(epsilon: float, r: float) -> float:
    """Return the divergence of two unit Gaussians r apart, straight from its definition."""
    return float(norm.sf(epsilon / r - r / 2) - math.exp(epsilon) * norm.sf(epsilon / r + r / 2))


def plain_sum(epsilon: float, share: float, heads: Sequence[float], links: Sequence[float]) -> float:
    """Return Theorem 2's sum over rounds, term by term: share * sum_t theta(head_t) prod_{j>t} theta(link_j)."""
    later = [math.prod(plain_theta(epsilon, link) for link in links[t + 1 :]) for t in range(len(links))]
    return share * sum(plain_theta(epsilon, head) * rest for head, rest in zip(heads, later, strict=True))


def figure_2_links(m: int) -> tuple[float, float]:
    """Return the arguments of theta in Theorem 2 at Figure 2's parameters: of the record's round, of later ones."""
    values = parameters()
    head = 2 * values["lipschitz"] / (math.sqrt(m) * values["sigma"])
    return head, 2 * values["radius"] * math.sqrt(m) / (values["eta"] * values["sigma"])


def figure_2_sum(epsilon: float, m: int, rounds: int) -> float:
    """Return the plain sum at Figure 2's parameters."""
    head, link = figure_2_links(m)
    return plain_sum(epsilon, m / parameters()["n"], [head] * rounds, [link] * rounds)


def corollary_privacy(n: int, m: int, sigma: float, radius: float, epsilon: float) -> Numbers:
    """Compare Corollary 1's delta with Theorem 2 at eta_t = 1/t."""
    values = {"n": n, "m": m, "sigma": sigma, "lipschitz": 1.0, "radius": radius, "strong_convexity": 1.0}
    links = [2 * radius * math.sqrt(m) * j / sigma for j in range(1, n // m + 1)]
    independent = plain_sum(epsilon, m / n, [2 / (math.sqrt(m) * sigma)] * len(links), links)
    printed = federated_harmonic_delta_as_printed(epsilon, **values)
    return Numbers(printed, contraction.federated_harmonic_delta(epsilon, **values), independent)


def corollary_utility(dimension: int, rounds: int, repeats: int) -> Numbers:
    """Compare Corollary 1, printed without the dimension, with excess risks on |w|^2/2 in the unit ball, m = 1."""
    excess = [simulated_excess(seed, dimension, rounds) for seed in range(repeats)]
    return Numbers.simulated(*bounds(dimension, rounds), excess)


def long_first_steps(strong_convexity: float, t: int) -> Numbers:
    """Compare the contraction of an early round, whose step exceeds 2/beta, with its kernel on a grid."""
    smoothness, radius, lipschitz, sigma = 1.0, 1.0, 1.0, 1.0
    eta = 1 / (strong_convexity * t)
    inputs = np.linspace(-radius, radius, 21)
    rows = DiscretisedInterval(-radius, radius).projected((1 - eta * smoothness) * inputs, norm(scale=eta * sigma))
    return Numbers(
        contraction.theta(0.0, 2 * radius / (eta * sigma)),
        contraction.theta(0.0, 2 * (radius + eta * lipschitz) / (eta * sigma)),
        contraction.contraction_coefficient(rows, 0.0),
    )


def broken_rounds(rate: float, rounds: int, epsilon: float) -> Numbers:
    """Compare Figure 2's closed form, where n/m is not an integer, with a whole number of rounds."""
    m = users(rate)
    printed = contraction.federated_delta(epsilon, m=m, **parameters())
    return Numbers(printed, whole_rounds(epsilon, m, rounds), figure_2_sum(epsilon, m, rounds), {"m": m})


def inert_contraction(rate: float, epsilon: float) -> Numbers:
    """Compare Theorem 2 at Figure 2's parameters with one round alone."""
    m = users(rate)
    head, link = figure_2_links(m)
    printed = contraction.federated_delta(epsilon, m=m, **parameters())
    shown = {"excess": 1 - plain_theta(epsilon, link)}
    return Numbers(printed, one_round(epsilon, m), plain_theta(epsilon, head), shown)


def more_users(fewer: float, more: float, epsilon: float) -> Numbers:
    """Compare delta with fewer and with more users per round."""
    values, m = parameters(), users(more)
    printed = contraction.federated_delta(epsilon, m=users(fewer), **values)
    corrected = contraction.federated_delta(epsilon, m=m, **values)
    return Numbers(printed, corrected, figure_2_sum(epsilon, m, values["n"] // m))


def disjoint_supports() -> Numbers:
    """Compare the hockey-stick divergence of two laws without common support with their total variation."""
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    largest = max(sum(p[list(s)]) - math.e * sum(q[list(s)]) for s in ((0,), (1,), (2,), (0, 1)))
    return Numbers(contraction.hockey_stick(p, q, 0.0), contraction.hockey_stick(p, q, 1.0), largest)


TABLES = {"errata": errata_recipe("asoodeh2021")}
