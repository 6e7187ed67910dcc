"""Cases of the paper's claims: theorems against other forms and the exact algorithm, and what the runs show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction import hockey_stick
from dpfl.accounting.contraction.kernels import Array, DiscretisedInterval
from dpfl.papers.asoodeh2021.errata import plain_theta
from dpfl.papers.asoodeh2021.figures import CLOSED_FORM
from dpfl.reporting.rules import LEVEL, Case, ClaimEvidence, interval_cases

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.results import Results

# Algorithm 1 of the paper in one dimension, computed on a grid without any of the paper's bounds.


@dataclass(frozen=True)
class ExactFederatedSgd:
    """Algorithm 1 with m users per round on [-radius, radius], whose user i has slope +lipschitz or -lipschitz.

    Every other user's loss is curvature * w^2 / 2 (concave where negative). A round averages m gradients, each with
    noise of standard deviation sigma, and steps by its own eta. User i falls into each round with the same chance.
    The start is the middle of the interval.
    """

    m: int
    etas: Sequence[float]
    sigma: float
    lipschitz: float
    radius: float
    curvature: float = 0.0
    cells: int = 300

    def models(self) -> Array:
        """Return the two laws of the model after round s if user i is in round t, shape (t, s, 2, cells + 2).

        In rounds s before t the two laws are one.
        """
        interval = DiscretisedInterval(-self.radius, self.radius, self.cells)
        noises = [norm(scale=eta * self.sigma / np.sqrt(self.m)) for eta in self.etas]
        steps = [
            interval.projected((1 - eta * self.curvature) * interval.points, noise)
            for eta, noise in zip(self.etas, noises, strict=True)
        ]
        laws = np.zeros((len(steps), len(steps), 2, self.cells + 2))
        points, start = np.zeros(1), np.ones(1)
        for t, (eta, noise) in enumerate(zip(self.etas, noises, strict=True)):
            mates = (1 - eta * self.curvature * (self.m - 1) / self.m) * points
            moved = (mates + side * eta * self.lipschitz / self.m for side in (1, -1))
            laws[t, t] = [start @ interval.projected(each, noise) for each in moved]
            for s in range(t + 1, len(steps)):
                laws[t, s] = laws[t, s - 1] @ steps[s]
            start = start @ (steps[t] if t else interval.projected(points, noise))
            laws[t + 1 :, t] = start
            points = interval.points
        return laws

    def delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the last model."""
        p, q = self.models()[:, -1].mean(axis=0)
        return float(hockey_stick(p, q, epsilon))

    def stopped_delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the model after a round drawn uniformly from all."""
        p, q = self.models().mean(axis=(0, 1))
        return float(hockey_stick(p, q, epsilon))

    def averaged_delta(self, epsilon: float) -> float:
        """Return delta at `epsilon` of the average of all models, all other losses 0.

        The average is of one path, so this follows the sum of its models, on the grid of the interval's points in units
        of half a cell.
        """
        interval = DiscretisedInterval(-self.radius, self.radius, self.cells)
        places = np.concatenate([[0], np.arange(1, 2 * self.cells, 2), [2 * self.cells]])
        rounds = len(self.etas)
        noises = [norm(scale=eta * self.sigma / np.sqrt(self.m)) for eta in self.etas]

        def averages(t: int, sign: int) -> Array:
            """The law of the sum of all models when user i is in round t."""
            law = np.zeros((len(places), 2 * self.cells * rounds + 1))
            for s, (eta, noise) in enumerate(zip(self.etas, noises, strict=True)):
                shift = -sign * eta * self.lipschitz / self.m if s == t else 0.0
                if s == 0:
                    moved = np.zeros_like(law)
                    moved[:, 0] = interval.projected(np.array([shift]), noise)[0]
                else:
                    moved = interval.projected(interval.points + shift, noise).T @ law
                law = np.stack([np.roll(row, place) for row, place in zip(moved, places, strict=True)])
            return law.sum(axis=0)

        p, q = (np.mean([averages(t, sign) for t in range(rounds)], axis=0) for sign in (1, -1))
        return float(hockey_stick(p, q, epsilon))


KEY = "asoodeh2021"
LIPSCHITZ = 1.0
"""L of every setting that arithmetic decides."""


def theorem2(epsilon: float, **setting: float) -> Case:
    """Hold the exact delta of the last model against Theorem 2."""
    exact = _one_dimension(setting).delta(epsilon)
    bound = contraction.federated_delta(epsilon, lipschitz=LIPSCHITZ, **setting)
    return Case(_named(setting, epsilon), exact, target=float(bound))


def closed_form(epsilon: float, **setting: float) -> Case:
    """Hold Theorem 2's sum over rounds against its closed form."""
    closed, summed = (
        float(contraction.federated_delta(epsilon, lipschitz=LIPSCHITZ, **form))
        for form in (setting, _scheduled(setting))
    )
    return Case(_named(setting, epsilon), summed, target=closed)


def participation(results: Results) -> ClaimEvidence:
    """Hold delta below the delta of the next smaller published share, at the epsilon where it falls least."""
    deltas = _shares(results, "published")
    cases = []
    for fewer, more in itertools.pairwise(deltas.columns):
        falls = 1 - deltas[more] / deltas[fewer]
        cases.append(Case(f"q = {fewer:g} to {more:g}, at epsilon = {falls.idxmin():g}", float(falls.min())))
    return ClaimEvidence(cases)


def participation_any_share(results: Results) -> ClaimEvidence:
    """Hold delta below the delta of the next smaller share, for shares that the paper does not draw."""
    deltas = _shares(results, "other shares")
    return ClaimEvidence(
        [
            Case(f"q = {fewer:g} to {more:g}, epsilon = {epsilon:g}", 1 - row[more] / row[fewer])
            for fewer, more in itertools.pairwise(deltas.columns)
            for epsilon, row in deltas.iterrows()
        ]
    )


def strongly_convex(epsilon: float, **setting: float) -> Case:
    """Return the share of Theorem 2's delta that strong convexity saves."""
    loss = {"smoothness": 1.0, "strong_convexity": 0.5}
    better = contraction.federated_delta_strongly_convex(epsilon, lipschitz=LIPSCHITZ, **setting, **loss)
    plain = contraction.federated_delta(epsilon, lipschitz=LIPSCHITZ, **setting)
    return Case(_named(setting, epsilon), float(1 - better / plain))


def harmonic_bound(form: str, m: int, sigma: float, radius: float, epsilon: float) -> Case:
    """Hold Theorem 2's sum with harmonic steps against (11)'s second line, or that against theta."""
    setting = {"n": 100, "m": m, "sigma": sigma, "lipschitz": LIPSCHITZ}
    closed = contraction.federated_harmonic_bound(epsilon, radius=radius, strong_convexity=1.0, **setting)
    if form == "sum":
        held, bound = (
            contraction.federated_harmonic_delta(epsilon, radius=radius, strong_convexity=1.0, **setting),
            closed,
        )
    else:
        held, bound = closed, contraction.federated_unamplified_delta(epsilon, **setting)
    case = f"{form}, n = 100, m = {m}, sigma = {sigma}, radius = {radius}, lambda = 1, epsilon = {epsilon}"
    return Case(case, float(held), target=float(bound))


def _last_model_within(results: Results, bound: str) -> list[Case]:
    """Return a case for each mean excess risk of the last model, against the column `bound` of the dimension figure."""
    data = results.figure(KEY, "dimension")
    rows = data[data["release"] == "last"]
    name = "{dataset}, {features:g} features, sigma = {noise_std:g}"
    return interval_cases(rows, name, rows["excess_risk"], rows["interval"], target=rows[bound])


def price_bound(results: Results) -> ClaimEvidence:
    """Hold every mean excess risk of the last model, and of the simulations, within Corollary 1 as printed."""
    return _bounded(results, "bound_as_printed")


def price_bound_with_dimension(results: Results) -> ClaimEvidence:
    """Hold every mean excess risk of the last model, and of the simulations, within the bound with d sigma^2."""
    return _bounded(results, "excess_bound")


def _bounded(results: Results, bound: str) -> ClaimEvidence:
    """Return the mean excess risks of the last model and of the simulations, each against the column of its bound."""
    measured = _last_model_within(results, bound)
    runs = results.figure(KEY, "counterexample")
    named, half = "our simulation, d = {features:g}", runs["interval"]
    simulated = interval_cases(runs, named, runs["excess_risk"], half, level=LEVEL, target=runs[bound])
    return ClaimEvidence([*measured, *simulated])


def price_by_dimension(results: Results) -> ClaimEvidence:
    """Compare the exponent of the noise's excess risk in the number of features with the 0 that is printed."""
    data = results.figure(KEY, "dimension")
    rows = data[(data["noise_std"] > 0) & (data["release"] == "last")].drop_duplicates("noise_std")
    return ClaimEvidence(
        interval_cases(
            rows, "{dataset}, sigma = {noise_std:g}", rows["exponent"], rows["exponent_interval"], runs="exponent_runs"
        )
    )


def without_replacement(results: Results) -> ClaimEvidence:
    """Compare one pass with rounds on users drawn again: what it gains, as a share of the latter's excess risk.

    Only the randomly stopped model counts, which the corollary is about; the other releases are shown beside it.
    """
    data = results.figure(KEY, "sampling")
    rows = data.assign(released=data["release"].str.replace("_", " "))
    name = "{dataset}, m = {batch_size:g}, sigma = {noise_std:g}, {released}"
    share, half = (rows[column] / rows["with_replacement"] for column in ("difference", "interval"))
    cases = list(zip(rows["release"] == "random", interval_cases(rows, name, -share, half), strict=True))
    return ClaimEvidence(
        [case for counts, case in cases if counts], beside=[case for counts, case in cases if not counts]
    )


def random_stopping(held: str, epsilon: float, **setting: Any) -> Case:
    """Hold the exact delta of the stopped model against Corollary 3's sum, or the sum against (12)."""
    given = _scheduled(setting) if isinstance(setting["eta"], str) else setting
    double_sum = float(contraction.federated_random_stop_delta(epsilon, lipschitz=LIPSCHITZ, **given))
    if held == "exact run":
        exact = _one_dimension(setting).stopped_delta(epsilon)
        return Case(f"exact stopped run: {_named(setting, epsilon)}", exact, target=double_sum)
    bound = float(contraction.federated_random_stop_bound(epsilon, lipschitz=LIPSCHITZ, **given))
    return Case(f"sum below (12): {_named(setting, epsilon)}", double_sum, target=bound)


def suffix_stopping(epsilon: float, alpha: float) -> Case:
    """Return the share of Corollary 3's delta that is saved with the stop within the last rounds alone."""
    values = {"n": 8, "m": 1, "eta": 0.5, "sigma": np.sqrt(np.arange(1, 9)), "radius": 0.25, "lipschitz": LIPSCHITZ}
    every = contraction.federated_random_stop_delta(epsilon, **values)
    suffix = contraction.federated_suffix_stop_delta(epsilon, alpha=alpha, **values)
    return Case(f"alpha = {alpha}, sigma_t = sqrt(t), epsilon = {epsilon}", float(1 - suffix / every))


def suffix_one_noise(epsilon: float, alpha: float, **setting: float) -> Case:
    """Return the share of (12) that is saved with the stop within the last rounds alone."""
    every = contraction.federated_random_stop_bound(epsilon, lipschitz=LIPSCHITZ, **setting)
    suffix = contraction.federated_suffix_stop_delta(epsilon, lipschitz=LIPSCHITZ, alpha=alpha, **setting)
    return Case(f"alpha = {alpha}: {_named(setting, epsilon)}", float(1 - suffix / every))


def averaged_model(n: int, epsilon: float) -> Case:
    """Return how far the exact delta of the average of all models is above Theorem 2's."""
    setting = {"n": n, "m": 1, "eta": 1.0, "sigma": 1.0, "radius": 0.25}
    bound = contraction.federated_delta(epsilon, lipschitz=LIPSCHITZ, **setting)
    return Case(_named(setting, epsilon), _one_dimension(setting, cells=40).averaged_delta(epsilon) - float(bound))


def example_privacy(n: int, m: int, radius: float, epsilon: float) -> Case:
    """Hold the formula displayed after (12) against (12) with the least of the steps 1/t, sigma^2 = sqrt(n)."""
    rounds, sigma = n // m, n**0.25
    link = plain_theta(epsilon, 2 * radius * n**0.75 / math.sqrt(m))
    partial = np.cumsum(link ** np.arange(rounds))
    displayed = plain_theta(epsilon, 2 * LIPSCHITZ / (math.sqrt(m) * sigma)) * partial.sum() / rounds**2
    setting = {"n": n, "m": m, "eta": 1 / np.arange(1.0, rounds + 1), "sigma": sigma, "radius": radius}
    bound = contraction.federated_random_stop_bound(epsilon, lipschitz=LIPSCHITZ, **setting)
    case = f"n = {n}, m = {m}, radius = {radius}, lambda = 1, epsilon = {epsilon}"
    return Case(case, float(displayed), target=float(bound))


def relaxed(epsilon: float, **setting: float) -> Case:
    """Hold the exact delta of the last model, other losses concave, against the relaxed bound."""
    curvature = -LIPSCHITZ / setting["radius"]
    exact = _one_dimension(setting, curvature=curvature).delta(epsilon)
    bound = contraction.federated_delta_relaxed(epsilon, lipschitz=LIPSCHITZ, **setting)
    return Case(_named(setting, epsilon), exact, target=float(bound))


def relaxed_looser(epsilon: float, **setting: float) -> Case:
    """Return how many times larger the relaxed bound is than Theorem 2."""
    loose, tight = (
        contraction.federated_delta_relaxed(epsilon, lipschitz=LIPSCHITZ, **setting),
        contraction.federated_delta(epsilon, lipschitz=LIPSCHITZ, **setting),
    )
    return Case(_named(setting, epsilon), float(loose / tight), target=1.0)


relaxed_looser_elsewhere = relaxed_looser
"""The same in settings that the paper does not have."""


def _named(setting: dict[str, Any], epsilon: float) -> str:
    """Return a setting as text."""
    return ", ".join(f"{name} = {value}" for name, value in (setting | {"epsilon": epsilon}).items())


def _scheduled(setting: dict[str, Any]) -> dict[str, Any]:
    """Return a setting with eta and sigma as schedules of n/m rounds; "1/t" and "0.9 + t/10" are such."""
    t = np.arange(1, setting["n"] // setting["m"] + 1)
    written = {"1/t": 1 / t, "0.9 + t/10": 0.9 + t / 10}
    return setting | {
        name: written[setting[name]] if isinstance(setting[name], str) else np.full(len(t), setting[name])
        for name in ("eta", "sigma")
    }


def _one_dimension(setting: dict[str, float], curvature: float = 0.0, cells: int = 300) -> ExactFederatedSgd:
    """Return the one-dimensional algorithm in a setting."""
    etas = [setting["eta"]] * (setting["n"] // setting["m"])
    return ExactFederatedSgd(
        m=setting["m"],
        etas=etas,
        sigma=setting["sigma"],
        lipschitz=LIPSCHITZ,
        radius=setting["radius"],
        curvature=curvature,
        cells=cells,
    )


def _shares(results: Results, panel: str) -> pd.DataFrame:
    """Return delta by epsilon (rows) and share of users a round (columns) of a panel of Figure 2."""
    data = results.figure(KEY, "figure_2")
    rows = data[(data["form"] == CLOSED_FORM) & (data["panel"] == panel)]
    return rows.pivot(index="epsilon", columns="q", values="delta").sort_index(axis=1)


def _exponents(study: str, against: str) -> Callable[[Results], ClaimEvidence]:
    """Return the function that makes the cases of an exponent that the runs of a study show; beside them the lines on
    which the projection limits the model."""

    def cases(results: Results) -> ClaimEvidence:
        rates = results.table(KEY, "rates")
        rows = rates[(rates["study"] == study) & (rates["against"] == against)]
        name, limited = "{dataset}, m = {batch_size:g}, {fixed}", rows["limited"].astype(bool)
        counted, beside = (
            interval_cases(each, text, each["slope"], each["interval"], target=each["expected"])
            for each, text in ((rows[~limited], name), (rows[limited], f"{name}, projection limits"))
        )
        return ClaimEvidence(counted, beside=beside)

    return cases


price_of_privacy = _exponents("price", "sigma^2")
price_in_users = _exponents("price", "users")
example_rate = _exponents("example", "users")
convex_rate = _exponents("convex", "users")
