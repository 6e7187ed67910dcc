"""Cases of the paper's claims: theorems against the exact algorithm in one dimension, and the figures' curves."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq

from dpfl.accounting import contraction
from dpfl.accounting.contraction.kernels import DiscretisedInterval, NoiseLaw
from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd, gaussian_pnsgd, stopped_delta
from dpfl.papers.asoodeh2020.figures import parameters, routes
from dpfl.randomness import generator
from dpfl.reporting.rules import Case, ClaimEvidence

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.results import Results

KEY = "asoodeh2020"
RECORDS = 40
"""n of the paper's figures and of the exact runs."""
LOSS = {"lipschitz": 1.0, "smoothness": 0.5, "diameter": 1.0}
"""L, beta and D of the paper's figures and of the exact runs."""
DELTA = 1e-5
"""Delta at which the figures' curves are compared in epsilon."""
SMALL_EPSILON = 0.5
"""Largest epsilon of Figure 3's "high privacy region", which the paper does not delimit."""


def dobrushin(epsilon: float, seed: int, pairs: int) -> Case:
    """Search pairs of distributions for one that a random finite kernel contracts less than its inputs say."""
    draw = generator(seed, "initial_model")
    kernel = draw.dirichlet(np.full(5, 0.5), size=6)
    p, q = draw.dirichlet(np.full(6, 0.05), size=(2, pairs))
    before = contraction.hockey_stick(p, q, epsilon)
    after = contraction.hockey_stick(p @ kernel, q @ kernel, epsilon)
    best = float((after[before > 1e-9] / before[before > 1e-9]).max())
    case = f"{pairs} pairs of distributions, random 6 x 5 kernel {seed}, epsilon = {epsilon}"
    return Case(case, best, target=contraction.contraction_coefficient(kernel, epsilon))


def projected_coefficient(epsilon: float, ratio: float) -> Case:
    """Hold the coefficient of a projected Gaussian kernel on [0, 1], sigma = 1/ratio, against theta(ratio)."""
    bound = float(contraction.theta(epsilon, ratio))
    return _projected(f"projected Gaussian kernel, D/sigma = {ratio}", epsilon, stats.norm(scale=1 / ratio), bound)


def projected_laplace(epsilon: float, ratio: float) -> Case:
    """Hold the coefficient of a projected Laplace kernel on [0, 1], v = 1/ratio, against Lemma 1 at the ends."""
    bound = float(contraction.laplace_divergence(epsilon, 0.0, 1.0, 1 / ratio))
    return _projected(f"projected Laplace kernel, (b - a)/v = {ratio}", epsilon, stats.laplace(scale=1 / ratio), bound)


def _projected(kernel: str, epsilon: float, noise: NoiseLaw, bound: float) -> Case:
    """Return the coefficient of a projected kernel on [0, 1], against its bound."""
    rows = DiscretisedInterval(0.0, 1.0).projected(np.linspace(0.0, 1.0, 21), noise)
    name = "total variation" if epsilon == 0 else f"epsilon = {epsilon}"
    return Case(f"{kernel}, {name}", contraction.contraction_coefficient(rows, epsilon), target=bound)


def unbounded_kernels(noise: str, epsilon: float, distance: float) -> Case:
    """Integrate the divergence of a kernel's laws at two inputs far apart; the coefficient is not below it."""
    density = {"gaussian": stats.norm, "laplace": stats.laplace}[noise].pdf

    def above(y: float) -> float:
        return max(density(y) - math.exp(epsilon) * density(y - distance), 0.0)

    value = sum(quad(above, *ends, epsabs=1e-13)[0] for ends in itertools.pairwise((-40, -5, 0, 2, 5, 40)))
    return Case(f"{noise} kernel, inputs {distance:g} units of noise apart, epsilon = {epsilon}", value, target=1.0)


def laplace(eta: float, diameter: float, later: int, epsilon: float) -> Case:
    """Hold the exact delta of the record that `later` others follow against Theorem 3."""
    values = LOSS | {"diameter": diameter, "eta": eta, "scale": 1.0, "strong_convexity": 0.0}
    bound = contraction.pnsgd_laplace_delta(epsilon, i=1, n=later + 1, **values)
    case = f"Laplace, v = 1, eta = {eta}, b - a = {diameter}, {_followed(later)}, epsilon = {epsilon}"
    return Case(case, _laplace_run(eta, diameter).delta(epsilon, later), target=float(bound))


def laplace_any_step(eta: float, epsilon: float) -> Case:
    """Hold the exact delta of the last but one record at a step beyond 2/(beta + rho) against Theorem 3's formula."""
    printed = contraction.laplace_divergence(epsilon, 0.0, [2.0, 1 / eta], 1.0).prod()
    run = ExactPnsgd(eta, stats.laplace(scale=eta), lipschitz=1.0, diameter=1.0, curvature=LOSS["smoothness"])
    case = f"eta = {eta:g} beyond 2/(beta + rho) = 4, v = 1, i = n - 1, epsilon = {epsilon}"
    return Case(case, run.delta(epsilon, 1), target=float(printed))


def laplace_zero(eta: float, diameter: float, later: int, epsilon: float) -> Case:
    """Hold the exact delta against the 0 that Theorem 3's last sentence promises."""
    case = f"stated delta = 0: eta = {eta}, b - a = {diameter}, {_followed(later)}, epsilon = {epsilon}"
    return Case(case, _laplace_run(eta, diameter).delta(epsilon, later))


def _followed(later: int) -> str:
    """Return the place of the first record, which `later` others follow, as the theorems' cases are named."""
    return f"i = 1 of {later + 1}"


def _laplace_run(eta: float, diameter: float) -> ExactPnsgd:
    """Return the one-dimensional algorithm with Laplace noise of scale 1 and L = 1."""
    return ExactPnsgd(eta, stats.laplace(scale=eta), lipschitz=1.0, diameter=diameter, curvature=0.0)


def gaussian(sigma: float, eta: float, rho: float, curvature: float, later: int, epsilon: float) -> Case:
    """Hold the exact delta of the record that `later` others follow against Theorem 4."""
    values = LOSS | {"sigma": sigma, "eta": eta, "strong_convexity": rho}
    bound = contraction.pnsgd_gaussian_delta(epsilon, i=1, n=later + 1, **values)
    exact = gaussian_pnsgd(values, curvature).delta(epsilon, later)
    case = f"sigma = {sigma}, eta = {eta}, rho = {rho}, {_followed(later)}, curvature {curvature}"
    return Case(f"{case}, epsilon = {epsilon}", exact, target=float(bound))


def gaussian_any_step(eta: float, epsilon: float) -> Case:
    """Hold the exact delta of the last but one record at a step beyond 2/(beta + rho) against Theorem 4's formula."""
    printed = contraction.theta(epsilon, 2.0) * contraction.theta(epsilon, 1 / eta)
    values = LOSS | {"sigma": 1.0, "eta": eta, "strong_convexity": 0.0}
    case = f"eta = {eta:g} beyond 2/(beta + rho) = 4, sigma = 1, i = n - 1, epsilon = {epsilon}"
    return Case(case, gaussian_pnsgd(values, LOSS["smoothness"]).delta(epsilon, 1), target=float(printed))


def beats_rdp(results: Results) -> ClaimEvidence:
    """Hold Theorem 4's curve below Proposition 1's at every epsilon of Figure 2, a case a record."""
    wide = _against_renyi(results, "figure_2")
    return ClaimEvidence([_least_gain(rows, f"record {i}") for i, rows in wide.groupby("i")])


def beats_rdp_late_most(results: Results) -> ClaimEvidence:
    """Compare the gain of each record with the one before on both axes of Figure 2; beside, by how many times."""
    by_record = {int(i): rows for i, rows in _against_renyi(results, "figure_2").groupby("i")}
    shown = {
        "mean difference in delta": {
            i: float((rows["proposition_1"] - rows["theorem_4"]).mean()) for i, rows in by_record.items()
        },
        f"difference in epsilon at delta = {DELTA:g}": {
            i: _epsilon_at(i, "proposition_1") - _epsilon_at(i, "theorem_4") for i in by_record
        },
    }
    cases = [
        Case(f"{measure}, record {late} over record {early}", gains[late], target=gains[early])
        for measure, gains in shown.items()
        for early, late in itertools.pairwise(sorted(by_record))
    ]
    orders = [Case(f"median orders of magnitude in delta, record {i}", _orders(rows)) for i, rows in by_record.items()]
    return ClaimEvidence(cases, beside=orders)


def convex_small_epsilon(results: Results) -> ClaimEvidence:
    """Hold Theorem 4 below Proposition 1 in Figure 3 up to SMALL_EPSILON, a case a record."""
    wide = _against_renyi(results, "figure_3")
    small = wide[wide["epsilon"] <= SMALL_EPSILON]
    return ClaimEvidence([_least_gain(rows, f"record {i}") for i, rows in small.groupby("i")], beside=_reaches(wide))


def convex_late_records(results: Results) -> ClaimEvidence:
    """Hold Theorem 4 below Proposition 1 at every epsilon of Figure 3 for its last record."""
    wide = _against_renyi(results, "figure_3")
    last = wide[wide["i"] == wide["i"].max()]
    return ClaimEvidence([_least_gain(last, f"record {wide['i'].max()}")], beside=_reaches(wide))


def random_stopping(sigma: float, eta: float, i: int, epsilon: float) -> Case:
    """Hold the exact delta of a record, stopped at a uniform time, against Theorem 5."""
    values = _stopped(sigma, eta)
    bound = float(contraction.pnsgd_random_stop_bound(epsilon, **values))
    case = f"sigma = {sigma}, eta = {eta}, i = {i} of 40, epsilon = {epsilon}"
    return Case(case, stopped_delta(values, epsilon, i), target=bound)


def random_stopping_any_sigma(sigma: float, eta: float, epsilon: float) -> Case:
    """Return how far Theorem 5's delta is below 1: at 1 or more it promises nothing."""
    bound = float(contraction.pnsgd_random_stop_bound(epsilon, **_stopped(sigma, eta)))
    return Case(f"sigma = {sigma}, eta = {eta}, epsilon = {epsilon}", 1 - bound)


def random_stopping_against_renyi(n: int, sigma: float, eta: float, epsilon: float) -> Case:
    """Return the share of the Renyi guarantee's delta that Theorem 5 saves for the same stop."""
    values = _stopped(sigma, eta) | {"n": n}
    renyi = contraction.pnsgd_random_stop_renyi_delta(epsilon, n=n, sigma=sigma, lipschitz=LOSS["lipschitz"])
    bound = contraction.pnsgd_random_stop_bound(epsilon, **values)
    return Case(f"n = {n}, sigma = {sigma}, eta = {eta}, epsilon = {epsilon}", float(1 - bound / renyi))


def _stopped(sigma: float, eta: float) -> dict[str, float]:
    """Return the keywords of Theorem 5 with the loss of Figure 2."""
    return LOSS | {"n": RECORDS, "sigma": sigma, "eta": eta, "strong_convexity": 0.0}


def _against_renyi(results: Results, figure: str) -> pd.DataFrame:
    """Return one row per record and epsilon with the delta of each route in a column."""
    data = results.figure(KEY, figure)
    return data.pivot(index=["i", "epsilon"], columns="route", values="delta").reset_index()


def _epsilon_at(i: int, route: str) -> float:
    """Return the least epsilon at which a route's delta is at most DELTA for record `i` of Figure 2, drawn or not."""
    _, values = parameters("figure_2")

    def above(epsilon: float) -> float:
        return float(routes(np.array([epsilon]), i, values)[route][0]) - DELTA

    return 0.0 if above(0.0) <= 0 else float(brentq(above, 0.0, 50.0))


def _orders(rows: pd.DataFrame) -> float:
    """Return the median of log10 of Proposition 1's delta over Theorem 4's."""
    both = rows[rows["theorem_4"] > 0]
    return float(np.median(np.log10(both["proposition_1"] / both["theorem_4"])))


def _least_gain(rows: pd.DataFrame, case: str) -> Case:
    """Return the least share of Proposition 1's delta that Theorem 4 saves, among the points of a curve."""
    gains = (1 - rows["theorem_4"] / rows["proposition_1"]).to_numpy()
    worst = int(gains.argmin())
    return Case(f"{case}, least gain, at epsilon = {rows['epsilon'].iloc[worst]:g}", float(gains[worst]))


def _reaches(wide: pd.DataFrame) -> list[Case]:
    """Return up to which epsilon Theorem 4 is below another route, by record; the second one is not in the paper."""
    routes = {"proposition_1": "Proposition 1", "shifted_gdp": "the shifted Gaussian trade-off, a later result"}
    made = []
    for route, name in routes.items():
        for i, rows in wide.groupby("i"):
            above = rows.loc[rows["theorem_4"] >= rows[route], "epsilon"]
            last = rows.loc[rows["epsilon"] < (above.min() if len(above) else math.inf), "epsilon"]
            made.append(Case(f"record {i}: below {name} up to epsilon", float(last.max() if len(last) else 0.0)))
    return made
