"""Evidence for the theorems: each bound against the algorithm itself, in one dimension on a grid."""

from __future__ import annotations

import numpy as np
from scipy.stats import laplace, norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.interval_kernels import DiscretisedInterval
from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd
from dpfl.papers.asoodeh2020.figures import parameters
from dpfl.randomness import generator
from dpfl.reporting.evidence import Comparison, Relation

TOLERANCE = 1e-9
GRID_TOLERANCE = 2e-5
"""Error allowed for the cells of the grid where two values should be equal."""
EPSILONS = (0.0, 0.1, 0.3, 0.5, 1.0)
SEARCHED_PAIRS = 20_000
THEORY = {"lipschitz": 1.0, "smoothness": 0.5, "diameter": 1.0}


def dobrushin_search(epsilon: float, seed: int) -> Comparison:
    """Search pairs of distributions for one that a random finite kernel contracts less than its inputs say."""
    draw = generator(seed, "initial_model")
    kernel = draw.dirichlet(np.full(5, 0.5), size=6)
    # Half the pairs are close to single points, where the supremum is.
    p, q = draw.dirichlet(np.full(6, 0.05), size=(2, SEARCHED_PAIRS))
    before = contraction.hockey_stick(p, q, epsilon)
    after = contraction.hockey_stick(p @ kernel, q @ kernel, epsilon)
    best = float((after[before > 1e-9] / before[before > 1e-9]).max())
    case = f"{SEARCHED_PAIRS} pairs of distributions, random 6 x 5 kernel {seed}, epsilon = {epsilon}"
    return Comparison(
        "dobrushin", case, Relation.AT_MOST, contraction.contraction_coefficient(kernel, epsilon), best, TOLERANCE
    )


def projected_gaussian(epsilon: float, ratio: float) -> Comparison:
    """Hold the coefficient of a projected Gaussian kernel on [0, 1], sigma = 1/ratio, against theta(ratio)."""
    rows = DiscretisedInterval(0.0, 1.0).projected(np.linspace(0.0, 1.0, 21), norm(scale=1 / ratio))
    name = "total variation" if epsilon == 0 else f"epsilon = {epsilon}"
    return Comparison(
        claim="projected_coefficient",
        case=f"projected Gaussian kernel, D/sigma = {ratio}, {name}",
        relation=Relation.AT_MOST,
        ours=float(contraction.theta(epsilon, ratio)),
        independent=contraction.contraction_coefficient(rows, epsilon),
        tolerance=GRID_TOLERANCE,
    )


def laplace_case(epsilon: float, later: int, eta: float, diameter: float) -> Comparison:
    """Hold Theorem 3 against the one-dimensional algorithm, `later` records after the one in question."""
    algorithm = ExactPnsgd(eta, laplace(scale=eta), lipschitz=1.0, diameter=diameter, curvature=0.0)
    bound = contraction.pnsgd_laplace_delta(
        epsilon, i=40 - later, n=40, eta=eta, scale=1.0, strong_convexity=0.0, **THEORY | {"diameter": diameter}
    )
    case = f"Laplace, v = 1, eta = {eta}, b - a = {diameter}, i = {40 - later} of 40, epsilon = {epsilon}"
    return Comparison("laplace", case, Relation.AT_MOST, float(bound), algorithm.delta(epsilon, later), TOLERANCE)


def laplace_vanishing(epsilon: float, later: int, eta: float, diameter: float) -> Comparison:
    """Hold "delta = 0 from epsilon >= M(b-a)/(eta v) on" against the one-dimensional algorithm."""
    algorithm = ExactPnsgd(eta, laplace(scale=eta), lipschitz=1.0, diameter=diameter, curvature=0.0)
    case = f"stated delta = 0: eta = {eta}, b - a = {diameter}, i = {40 - later} of 40, epsilon = {epsilon}"
    return Comparison("laplace", case, Relation.AT_MOST, 0.0, algorithm.delta(epsilon, later), TOLERANCE)


def gaussian_case(name: str, epsilon: float, later: int, curvature: float) -> Comparison:
    """Hold Theorem 4 at a figure's parameters against the one-dimensional algorithm."""
    _, values = parameters(name)
    bound = contraction.pnsgd_gaussian_delta(epsilon, i=values["n"] - later, **values)
    figure = name.replace("_", " ").capitalize()
    case = f"parameters of {figure}, i = {values['n'] - later} of 40, curvature {curvature}, epsilon = {epsilon}"
    exact = one_dimension(values, curvature).delta(epsilon, later)
    return Comparison("gaussian", case, Relation.AT_MOST, float(bound), exact, TOLERANCE)


def one_dimension(values: dict[str, float], curvature: float) -> ExactPnsgd:
    """Return the one-dimensional algorithm with the parameters of an accounting call and Gaussian noise."""
    return ExactPnsgd(
        eta=values["eta"],
        noise=norm(scale=values["eta"] * values["sigma"]),
        lipschitz=values["lipschitz"],
        diameter=values["diameter"],
        curvature=curvature,
        strong_convexity=values["strong_convexity"],
    )


def long_step(epsilon: float) -> Comparison:
    """Hold Theorem 4's formula at eta = 8, beyond 2/(beta + rho) = 4, against the one-dimensional algorithm."""
    printed = contraction.theta(epsilon, 2.0) * contraction.theta(epsilon, 1 / 8)
    algorithm = ExactPnsgd(8.0, norm(scale=8.0), lipschitz=1.0, diameter=1.0, curvature=0.5)
    case = f"eta = 8 beyond 2/(beta + rho) = 4, sigma = 1, i = n - 1, epsilon = {epsilon}"
    return Comparison("gaussian", case, Relation.AT_MOST, float(printed), algorithm.delta(epsilon, 1), TOLERANCE)


def stopping_case(epsilon: float, i: int, sigma: float, eta: float) -> Comparison:
    """Hold Theorem 5 at Figure 2's loss against the one-dimensional algorithm, stopped at a uniform time."""
    values = parameters("figure_2")[1] | {"sigma": sigma, "eta": eta}
    bound = float(contraction.pnsgd_random_stop_bound(epsilon, **values))
    exact = stopped(values, epsilon, i)
    case = f"sigma = {sigma}, eta = {eta}, i = {i} of 40, epsilon = {epsilon}"
    return Comparison("random_stopping", case, Relation.AT_MOST, bound, exact, TOLERANCE)


def stopped(values: dict[str, float], epsilon: float, i: int) -> float:
    """Return the exact delta of record i when the algorithm stops after a uniform number of 1..n records."""
    weights = np.full(values["n"] - i + 1, 1 / values["n"])
    return one_dimension(values, curvature=0.0).mixed_delta(epsilon, weights)


def all_checks() -> list[Comparison]:
    """Return every check of this paper."""
    search = [dobrushin_search(epsilon, seed) for epsilon in (0.0, 0.5, 1.0) for seed in (0, 1)]
    kernels = [projected_gaussian(epsilon, ratio) for ratio in (0.5, 1.0, 2.0, 4.0) for epsilon in EPSILONS]
    laplaces = [
        laplace_case(epsilon, later, eta, diameter)
        for eta, diameter in ((0.5, 1.0), (1.0, 0.5))
        for later in (0, 1, 5, 20)
        for epsilon in EPSILONS
    ]
    vanishing = [laplace_vanishing(0.6, later, 1.0, 0.5) for later in (0, 1, 5)]
    gaussians = [
        gaussian_case(name, epsilon, later, curvature)
        for name, flat in (("figure_2", 0.0), ("figure_3", 0.2))
        for curvature in (flat, 0.5)
        for later in (0, 1, 10, 20)
        for epsilon in EPSILONS
    ]
    long_steps = [long_step(epsilon) for epsilon in (0.0, 0.1)]
    stops = [
        stopping_case(epsilon, i, sigma, eta)
        for sigma, eta in ((2.0, 0.5), (0.5, 0.5), (8.0, 0.5), (2.0, 0.05))
        for i in (1, 20, 40)
        for epsilon in (0.0, 0.1)
    ]
    return [*search, *kernels, *laplaces, *vanishing, *gaussians, *long_steps, *stops]
