"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import laplace, norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.pnsgd import first_shift, later_shift
from dpfl.accounting.numerics import Array, reals
from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd, stopped_delta
from dpfl.papers.asoodeh2020.figures import parameters, routes
from dpfl.reporting.errata import Numbers, errata_recipe

# Formulas of asoodeh2020 as printed, where they are wrong: for the table of errata and comparisons only.


def iteration_renyi_as_printed(order: ArrayLike, *, n: ArrayLike, distance: ArrayLike, sigma: ArrayLike) -> Array:
    """Return alpha distance/(2 n sigma^2), eq. (3) of asoodeh2020 as printed. Not a bound for distance > 1."""
    unsquared = np.sqrt(reals("distance", distance, at_least=0.0))
    return contraction.iteration_renyi(order, n=n, distance=unsquared, sigma=sigma)


def pnsgd_laplace_pure_epsilon_as_printed(
    *,
    eta: ArrayLike,
    scale: ArrayLike,
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    diameter: ArrayLike,
) -> Array:
    """Return min(2L/v, M (b-a)/(eta v)) for every record, as printed. Not a guarantee for i = n.

    Source: asoodeh2020 Theorem 3, last sentence.
    """
    scale = reals("scale", scale, above=0.0)
    later = later_shift(eta, scale, smoothness, strong_convexity, diameter)
    return np.minimum(first_shift(lipschitz, scale), later)


def renyi_square(order: float, distance: float) -> Numbers:
    """Compare equation (3) with the Renyi divergence of two Gaussians by integration."""
    power = quad(lambda y: norm.pdf(y, distance) ** order * norm.pdf(y) ** (1 - order), -20, 30, points=[0, 3, 6])[0]
    case = {"n": 1, "distance": distance, "sigma": 1.0}
    printed, corrected = iteration_renyi_as_printed(order, **case), contraction.iteration_renyi(order, **case)
    return Numbers(printed, corrected, math.log(power) / (order - 1))


def product_start(epsilon: float, ratio: float) -> Numbers:
    """Compare equation (2) with one step of (1), where psi clips to an interval, from its two ends."""
    first = float(contraction.theta(epsilon, ratio))

    def excess(y: float) -> float:
        return max(norm.pdf(y, ratio) - math.exp(epsilon) * norm.pdf(y), 0.0)

    return Numbers(first * first, first, quad(excess, epsilon / ratio + ratio / 2, 20)[0])


def step_size(eta: float, smoothness: float) -> Numbers:
    """Compare Theorem 4 with an exact run whose update has Lipschitz constant eta smoothness - 1 > 1."""
    first = contraction.theta(0.0, 2.0)
    run = ExactPnsgd(eta, norm(scale=eta), lipschitz=1.0, diameter=1.0, curvature=smoothness)
    corrected = first * contraction.theta(0.0, (eta * smoothness - 1) / eta)
    return Numbers(first * contraction.theta(0.0, 1 / eta), corrected, run.delta(0.0, 1))


def step_size_laplace(eta: float, smoothness: float) -> Numbers:
    """Compare Theorem 3 with an exact run whose update has Lipschitz constant eta smoothness - 1 > 1."""

    def divergence(distance: float) -> float:
        return float(contraction.laplace_divergence(0.0, 0.0, distance, 1.0))

    run = ExactPnsgd(eta, laplace(scale=eta), lipschitz=1.0, diameter=1.0, curvature=smoothness)
    printed, corrected = (divergence(2.0) * divergence(factor / eta) for factor in (1.0, eta * smoothness - 1))
    return Numbers(printed, corrected, run.delta(0.0, 1))


def last_record_laplace(epsilon: float, diameter: float) -> Numbers:
    """Compare Theorem 3's "delta = 0" at the last record with an exact run."""
    values = {"eta": 1.0, "scale": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0}
    corrected = contraction.pnsgd_laplace_delta(epsilon, i=40, n=40, diameter=diameter, **values)
    promised = 0.0 if epsilon >= pnsgd_laplace_pure_epsilon_as_printed(diameter=diameter, **values) else corrected
    run = ExactPnsgd(1.0, laplace(scale=1.0), lipschitz=1.0, diameter=diameter, curvature=0.0)
    return Numbers(promised, corrected, run.delta(epsilon, 0))


def optimal_shift(i: int) -> Numbers:
    """Compare Proposition 1 with the best split of the shift."""
    _, values = parameters("figure_2")
    unbounded = {name: value for name, value in values.items() if name != "diameter"}
    shift = 2 * values["lipschitz"] / values["sigma"]
    best = minimize_scalar(lambda first: (first**2 + (shift - first) ** 2) / 2)
    corrected = contraction.pnsgd_renyi_optimal_shift_coefficient(i=i, **unbounded)
    return Numbers(contraction.pnsgd_renyi_coefficient(i=i, **unbounded), corrected, best.fun)


def shifted_interpolation(epsilon: float, i: int) -> Numbers:
    """Compare Theorem 4 with shifted interpolation, and that with unprojected linear updates of its factor.

    They attain it. No loss of Figure 3 has so large a factor: its steps contract by max(|1 - eta rho|, |1 - eta beta|).
    """
    _, values = parameters("figure_3")
    by_route = routes(np.array([epsilon]), i, values)
    factor = contraction.contraction_factor(values["eta"], values["smoothness"], values["strong_convexity"])
    distance, variance = 2 * values["lipschitz"], values["sigma"] ** 2
    for _ in range(values["n"] - i):
        distance, variance = factor * distance, factor**2 * variance + values["sigma"] ** 2
    ratio = distance / math.sqrt(variance)
    exact = norm.sf(epsilon / ratio - ratio / 2) - math.exp(epsilon) * norm.sf(epsilon / ratio + ratio / 2)
    return Numbers(by_route["theorem_4"][0], by_route["shifted_gdp"][0], exact)


def vacuous_stopping(sigma: float, eta: float) -> Numbers:
    """Compare Theorem 5's last step with the sum before it and with an exact run."""
    values = parameters("figure_2")[1] | {"sigma": sigma, "eta": eta}
    corrected = contraction.pnsgd_random_stop_delta(0.0, i=1, **values)
    return Numbers(contraction.pnsgd_random_stop_bound(0.0, **values), corrected, stopped_delta(values, 0.0, 1))


TABLES = {"errata": errata_recipe("asoodeh2020")}
