"""Evidence for the theorems: one form against another, and each against the algorithm itself in one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl.accounting import contraction
from dpfl.papers.asoodeh2021.exact_federated import ExactFederatedSgd
from dpfl.reporting.evidence import Comparison, Relation

EQUAL = 1e-12
"""Two forms of one theorem agree to rounding."""
EXACT = 1e-9
EPSILONS = (0.0, 0.2, 0.5, 1.0)
CASES = (
    {"n": 100, "m": 10, "eta": 0.5, "sigma": 1.5, "lipschitz": 1.0, "radius": 1.0},
    {"n": 8, "m": 1, "eta": 0.5, "sigma": 2.0, "lipschitz": 1.0, "radius": 0.25},
    {"n": 20, "m": 4, "eta": 1.0, "sigma": 1.0, "lipschitz": 1.0, "radius": 0.25},
    {"n": 12, "m": 2, "eta": 2.0, "sigma": 0.5, "lipschitz": 1.0, "radius": 0.5},
)
ALPHAS = (0.25, 0.5, 0.75)


def described(values: dict[str, Any]) -> str:
    """Return a case's parameters as text."""
    return ", ".join(f"{'L' if name == 'lipschitz' else name} = {value}" for name, value in values.items())


def schedules(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with eta and sigma as constant schedules of n/m rounds."""
    rounds = values["n"] // values["m"]
    return values | {name: np.full(rounds, values[name]) for name in ("eta", "sigma")}


def one_dimension(values: dict[str, Any], curvature: float = 0.0) -> ExactFederatedSgd:
    """Return the one-dimensional algorithm with the parameters of an accounting call."""
    return ExactFederatedSgd(
        m=values["m"],
        etas=[values["eta"]] * (values["n"] // values["m"]),
        sigma=values["sigma"],
        lipschitz=values["lipschitz"],
        radius=values["radius"],
        curvature=curvature,
    )


def theorem2(values: dict[str, Any], epsilon: float) -> list[Comparison]:
    """Hold the closed form against the sum over rounds, and against the exact one-dimensional delta."""
    closed = float(contraction.federated_delta(epsilon, **values))
    summed = float(contraction.federated_delta(epsilon, **schedules(values)))
    exact = one_dimension(values).delta(epsilon)
    case = f"{described(values)}, epsilon = {epsilon}"
    return [
        Comparison("theorem2", f"closed form and sum over rounds: {case}", Relation.EQUALS, closed, summed, EQUAL),
        Comparison("theorem2", f"exact run: {case}", Relation.AT_MOST, closed, exact, EXACT),
    ]


def random_stopping(values: dict[str, Any], epsilon: float) -> list[Comparison]:
    """Hold Corollary 3 against eq. (12), the exact stopped algorithm, and its own suffix version."""
    double_sum = float(contraction.federated_random_stop_delta(epsilon, **values))
    bound = float(contraction.federated_random_stop_bound(epsilon, **values))
    exact = one_dimension(values).stopped_delta(epsilon)
    case = f"{described(values)}, epsilon = {epsilon}"
    return [
        Comparison(
            "random_stopping", f"eq. (12), constant schedule: {case}", Relation.EQUALS, bound, double_sum, EQUAL
        ),
        Comparison("random_stopping", f"exact stopped run: {case}", Relation.AT_MOST, double_sum, exact, EXACT),
        *(
            Comparison(
                claim="suffix_stopping",
                case=f"suffix improves, alpha = {alpha}: {case}",
                relation=Relation.AT_MOST,
                ours=double_sum,
                independent=float(contraction.federated_suffix_stop_delta(epsilon, alpha=alpha, **values)),
                tolerance=EQUAL,
            )
            for alpha in ALPHAS
        ),
    ]


def decaying_schedule(epsilon: float) -> Comparison:
    """Hold Corollary 3 against eq. (12) with steps that shrink and noise that grows: a bound, not the value."""
    t = np.arange(1, 11)
    values = {"n": 60, "m": 6, "eta": 1 / t, "sigma": 1 + (t - 1) / 10, "lipschitz": 1.0, "radius": 0.2}
    bound = float(contraction.federated_random_stop_bound(epsilon, **values))
    double_sum = float(contraction.federated_random_stop_delta(epsilon, **values))
    case = f"eq. (12), eta_t = 1/t, sigma_t = 0.9 + t/10, n = 60, m = 6, radius = 0.2, epsilon = {epsilon}"
    return Comparison("random_stopping", case, Relation.AT_MOST, bound, double_sum, EQUAL)


def growing_noise(epsilon: float, alpha: float) -> Comparison:
    """Hold Corollary 3 against its own suffix version with noise that grows: the first models are the worst then."""
    sigma = np.sqrt(np.arange(1, 9))
    values = {"n": 8, "m": 1, "eta": np.full(8, 0.5), "sigma": sigma, "lipschitz": 1.0, "radius": 0.25}
    every = float(contraction.federated_random_stop_delta(epsilon, **values))
    suffix = float(contraction.federated_suffix_stop_delta(epsilon, alpha=alpha, **values))
    settings = "n = 8, m = 1, eta = 0.5, sigma_t = sqrt(t), L = 1, radius = 0.25"
    case = f"suffix improves, alpha = {alpha}: {settings}, epsilon = {epsilon}"
    return Comparison("suffix_stopping", case, Relation.AT_MOST, every, suffix, EQUAL)


def relaxed(values: dict[str, Any], epsilon: float) -> list[Comparison]:
    """Order the relaxed bound above Theorem 2, and compare it with a run whose other losses are concave."""
    loose = float(contraction.federated_delta_relaxed(epsilon, **values))
    tight = float(contraction.federated_delta(epsilon, **values))
    curvature = -values["lipschitz"] / values["radius"]
    exact = one_dimension(values, curvature).delta(epsilon)
    case = f"{described(values)}, epsilon = {epsilon}"
    return [
        Comparison("relaxed", f"Theorem 2 lies below: {case}", Relation.AT_MOST, loose, tight, EQUAL),
        Comparison("relaxed", f"exact run, concave losses: {case}", Relation.AT_MOST, loose, exact, EXACT),
    ]


def all_checks() -> list[Comparison]:
    """Return every check of this paper."""
    grid = [(values, epsilon) for values in CASES for epsilon in EPSILONS]
    makers = (theorem2, random_stopping, relaxed)
    return [
        *(check for make in makers for values, epsilon in grid for check in make(values, epsilon)),
        *(decaying_schedule(epsilon) for epsilon in EPSILONS),
        *(growing_noise(epsilon, alpha) for epsilon in EPSILONS for alpha in ALPHAS),
    ]
