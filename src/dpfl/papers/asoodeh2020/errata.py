"""What is printed against what is right, each with a value found by another route."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import laplace, norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.interval_kernels import DiscretisedInterval
from dpfl.papers.asoodeh2020.checks import stopped
from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd
from dpfl.papers.asoodeh2020.figures import parameters, routes
from dpfl.papers.asoodeh2020.printed_formulas import iteration_renyi_as_printed
from dpfl.reporting.evidence import Erratum

ON_A_GRID = "one-dimensional run on a grid"


def renyi_square() -> Erratum:
    """Equation (3): the Renyi divergence of two Gaussians grows with the square of their distance."""
    order, distance = 2.0, 3.0
    power = quad(lambda y: norm.pdf(y, distance) ** order * norm.pdf(y) ** (1 - order), -20, 30, points=[0, 3, 6])[0]
    return Erratum(
        erratum=1,
        printed_form="(3): alpha distance / (2 sigma^2)",
        right_form="alpha distance^2 / (2 sigma^2)",
        case="order 2, distance 3, sigma 1",
        printed=float(iteration_renyi_as_printed(order, n=1, distance=distance, sigma=1.0)),
        right=float(contraction.iteration_renyi(order, n=1, distance=distance, sigma=1.0)),
        independent=math.log(power) / (order - 1),
        source="integration",
    )


def product_start() -> Erratum:
    """Equation (2): the divergence after the first step must not be contracted by that step again."""
    epsilon, ratio = 0.1, 1.0
    first = float(contraction.theta(epsilon, ratio))
    p, q = DiscretisedInterval(0.0, 1.0).projected(np.array([1.0, 0.0]), norm(scale=1 / ratio))
    return Erratum(
        erratum=1,
        printed_form="(2): product of coefficients from t = 1",
        right_form="product from t = 2",
        case="one projected Gaussian step from the two ends, D/sigma = 1, epsilon = 0.1",
        printed=first * first,
        right=first,
        independent=float(contraction.hockey_stick(p, q, epsilon)),
        source=ON_A_GRID,
    )


def step_size() -> Erratum:
    """Theorem 4 at a step so long that the update stretches: its Lipschitz constant is |1 - eta beta| = 3."""
    first = contraction.theta(0.0, 2.0)
    algorithm = ExactPnsgd(8.0, norm(scale=8.0), lipschitz=1.0, diameter=1.0, curvature=0.5)
    return Erratum(
        erratum=2,
        printed_form="Theorems 3 to 5 for every eta, factor M from (14)",
        right_form="need eta <= 2/(beta + rho); beyond, the update's own Lipschitz constant",
        case="eta = 8, beta = 0.5, rho = 0, L = sigma = D = 1, i = n - 1, epsilon = 0",
        printed=float(first * contraction.theta(0.0, 1 / 8)),
        right=float(first * contraction.theta(0.0, 3 / 8)),
        independent=algorithm.delta(0.0, 1),
        source=ON_A_GRID,
    )


def last_record_laplace() -> Erratum:
    """Theorem 3's consequence "delta = 0" at the last record, which no later step protects."""
    values = {"eta": 1.0, "scale": 1.0, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0, "diameter": 0.5}
    algorithm = ExactPnsgd(1.0, laplace(scale=1.0), lipschitz=1.0, diameter=0.5, curvature=0.0)
    return Erratum(
        erratum=3,
        printed_form="delta = 0 if epsilon >= min(2L/v, M(b-a)/(eta v))",
        right_form="for i = n only epsilon >= 2L/v gives delta = 0",
        case="i = n, b - a = 0.5, L = v = eta = 1, epsilon = 0.6",
        printed=0.0,
        right=float(contraction.pnsgd_laplace_delta(0.6, i=40, n=40, **values)),
        independent=algorithm.delta(0.6, 0),
        source=ON_A_GRID + ", projection included",
    )


def optimal_shift() -> Erratum:
    """Proposition 1 is valid but loose: the best split of the shift halves its coefficient at i = n - 1."""
    _, values = parameters("figure_2")
    unbounded = {name: value for name, value in values.items() if name != "diameter"}
    shift = 2 * values["lipschitz"] / values["sigma"]
    best = minimize_scalar(lambda first: (first**2 + (shift - first) ** 2) / 2)
    return Erratum(
        erratum=4,
        printed_form="Proposition 1's kappa, one shift",
        right_form="optimal shift: (2 L^2/sigma^2) / sum of M^(-2k) over k <= n - i",
        case="kappa in Figure 2 at i = 39",
        printed=float(contraction.pnsgd_renyi_coefficient(i=39, **unbounded)),
        right=float(contraction.pnsgd_renyi_optimal_shift_coefficient(i=39, **unbounded)),
        independent=float(best.fun),
        source="numerical search for the split between the two steps",
    )


def shifted_interpolation() -> Erratum:
    """Theorem 4 is not the best bound either: the shifted Gaussian trade-off beats it for middle records."""
    _, values = parameters("figure_3")
    epsilon, i = 1.0, 20
    by_route = routes(np.array([epsilon]), i, values)
    factor = contraction.contraction_factor(values["eta"], values["smoothness"], values["strong_convexity"])
    distance, variance = 2 * values["lipschitz"], values["sigma"] ** 2
    for _ in range(values["n"] - i):
        distance, variance = factor * distance, factor**2 * variance + values["sigma"] ** 2
    ratio = distance / math.sqrt(variance)
    exact = norm.sf(epsilon / ratio - ratio / 2) - math.exp(epsilon) * norm.sf(epsilon / ratio + ratio / 2)
    return Erratum(
        erratum=4,
        printed_form="Theorem 4",
        right_form="theta((2L/sigma) / sqrt(sum of M^(-2k))), by shifted interpolation",
        case=f"delta in Figure 3 at i = {i}, epsilon = {epsilon}",
        printed=float(by_route["theorem_4"][0]),
        right=float(by_route["shifted_gdp"][0]),
        independent=float(exact),
        source="unprojected linear updates, by their mean and variance: the second bound is attained",
    )


def vacuous_stopping() -> Erratum:
    """Theorem 5's last step drops 1 - theta^(n-i+1), which is what keeps delta below 1 under weak contraction."""
    values = parameters("figure_2")[1] | {"sigma": 1.0, "eta": 0.1}
    return Erratum(
        erratum=5,
        printed_form="Theorem 5, eq. (16)",
        right_form="keep the factor 1 - theta^(n-i+1)",
        case="Figure 2's loss, sigma = 1, eta = 0.1, i = 1, epsilon = 0",
        printed=float(contraction.pnsgd_random_stop_bound(0.0, **values)),
        right=float(contraction.pnsgd_random_stop_delta(0.0, i=1, **values)),
        independent=stopped(values, 0.0, 1),
        source=ON_A_GRID,
    )


def all_errata() -> list[Erratum]:
    """Return every erratum of this paper that a formula or a run can show."""
    return [
        renyi_square(),
        product_start(),
        step_size(),
        last_record_laplace(),
        optimal_shift(),
        shifted_interpolation(),
        vacuous_stopping(),
    ]
