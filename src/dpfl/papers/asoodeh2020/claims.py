"""Evidence for the paper's claims, from the data of its figures and of its table of checks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd

from dpfl.reporting.cases import Case
from dpfl.reporting.claims import Check
from dpfl.reporting.evidence import cases_of, checked, checks_of
from dpfl.reporting.notes import model_name
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

KEY = "asoodeh2020"
DELTA = 1e-5
"""Delta at which the figures' curves are compared in epsilon."""
SMALL_EPSILON = 0.5
"""Largest epsilon of Figure 3's "high privacy region", which the paper does not delimit."""


def projected_coefficient(results: Results) -> ClaimEvidence:
    """Hold the coefficient of the projected kernel at or below theta; how far below is not counted."""
    kernels = checks_of(results, KEY, "projected_coefficient")
    far = kernels.loc[(kernels["ours"] - kernels["independent"]).idxmax()]
    return ClaimEvidence(cases_of(kernels), beside=[Case(f"farthest below theta: {far['case']}", far["independent"])])


def against_renyi(results: Results, figure: str) -> pd.DataFrame:
    """Return one row per record and epsilon with the delta of each route in a column."""
    data = results.figure(KEY, figure)
    return data.pivot(index=["i", "epsilon"], columns="route", values="delta").reset_index()


def epsilon_at(rows: pd.DataFrame, route: str) -> float:
    """Return the least epsilon drawn at which a route's delta is at most DELTA; the last one where none is."""
    reached = rows.loc[rows[route] <= DELTA, "epsilon"]
    return float(reached.min() if len(reached) else rows["epsilon"].max())


def least_gain(rows: pd.DataFrame, case: str) -> Case:
    """Return the least gain in delta of Theorem 4 over Proposition 1 among the points of a curve."""
    gains = (rows["proposition_1"] - rows["theorem_4"]).to_numpy()
    worst = int(gains.argmin())
    return Case(f"{case}, least gain, at epsilon = {rows['epsilon'].iloc[worst]:g}", float(gains[worst]))


def beats_rdp(results: Results) -> ClaimEvidence:
    """Hold Theorem 4's curve below Proposition 1's at every epsilon of Figure 2, a case a record."""
    wide = against_renyi(results, "figure_2")
    return ClaimEvidence([least_gain(rows, f"record {i}") for i, rows in wide.groupby("i")])


def beats_rdp_late_most(results: Results) -> ClaimEvidence:
    """Compare the gain of each record with the one before, by three measures, for the paper does not name one."""
    gains = {
        i: {
            "mean difference in delta": float((rows["proposition_1"] - rows["theorem_4"]).mean()),
            f"difference in epsilon at delta = {DELTA:g}": epsilon_at(rows, "proposition_1")
            - epsilon_at(rows, "theorem_4"),
            "median orders of magnitude in delta": _orders(rows),
        }
        for i, rows in against_renyi(results, "figure_2").groupby("i")
    }
    records = sorted(gains)
    return ClaimEvidence(
        [
            Case(f"{measure}, record {late} over record {early}", gains[late][measure], target=gains[early][measure])
            for measure in gains[records[0]]
            for early, late in itertools.pairwise(records)
        ]
    )


def _orders(rows: pd.DataFrame) -> float:
    """Return the median of log10 of Proposition 1's delta over Theorem 4's."""
    both = rows[rows["theorem_4"] > 0]
    return float(np.median(np.log10(both["proposition_1"] / both["theorem_4"])))


def convex_small_epsilon(results: Results) -> ClaimEvidence:
    """Hold Theorem 4 below Proposition 1 in Figure 3 up to SMALL_EPSILON, a case a record."""
    wide = against_renyi(results, "figure_3")
    small = wide[wide["epsilon"] <= SMALL_EPSILON]
    return ClaimEvidence([least_gain(rows, f"record {i}") for i, rows in small.groupby("i")], beside=reaches(wide))


def convex_late_records(results: Results) -> ClaimEvidence:
    """Hold Theorem 4 below Proposition 1 at every epsilon of Figure 3 for its last record."""
    wide = against_renyi(results, "figure_3")
    last = wide[wide["i"] == wide["i"].max()]
    return ClaimEvidence([least_gain(last, f"record {wide['i'].max()}")], beside=reaches(wide))


def reaches(wide: pd.DataFrame) -> list[Case]:
    """Return up to which epsilon Theorem 4 is below another route, by record; the second one is not in the paper."""
    routes = {"proposition_1": "Proposition 1", "shifted_gdp": "the shifted Gaussian trade-off, a later result"}
    made = []
    for route, name in routes.items():
        for i, rows in wide.groupby("i"):
            above = rows.loc[rows["theorem_4"] >= rows[route], "epsilon"]
            last = rows.loc[rows["epsilon"] < (above.min() if len(above) else math.inf), "epsilon"]
            made.append(Case(f"record {i}: below {name} up to epsilon", float(last.max() if len(last) else 0.0)))
    return made


def random_stopping(results: Results) -> ClaimEvidence:
    """Hold the exact stopped algorithm within Theorem 5; what the stop costs is not counted."""
    rows = checks_of(results, KEY, "random_stopping")
    sums = results.figure(KEY, "random_stopping")
    sums = sums[(sums["route"] == "sum") & (sums["contraction"] == "figure_2")]["delta"]
    spread = Case("sum before the last step, largest over smallest record in Figure 2", float(sums.max() / sums.min()))
    return ClaimEvidence(cases_of(rows), beside=[spread, *stopping_cost(results)])


def random_stopping_any_sigma(results: Results) -> ClaimEvidence:
    """Hold Theorem 5's delta below 1 at every noise and step: at 1 or more it promises nothing."""
    rows = checks_of(results, KEY, "random_stopping").drop_duplicates("ours")
    return ClaimEvidence([Case(row.case, 1 - row.ours) for row in rows.itertuples(index=False)])


def stopping_cost(results: Results) -> list[Case]:
    """Return the excess risk of the last model over that with the stop, at equal epsilon of the worst record."""
    data = results.figure(KEY, "utility")
    if data.empty:
        return []
    point = ["model", "law", "epsilon"]
    wide = data[data["order"] == "sorted"].pivot(index=point, columns="release", values="excess_risk")
    ratios = wide["last"] / wide["random"]
    text = "excess risk of the last model over the stopped one"
    return [
        Case(f"{text}: {model_name(model)}, {law} noise, epsilon = {epsilon:g}", ratio)
        for (model, law, epsilon), ratio in ratios.items()
    ]


CLAIMS: dict[str, Check] = {
    "dobrushin": checked(KEY, "dobrushin"),
    "projected_coefficient": projected_coefficient,
    "laplace": checked(KEY, "laplace", "stated delta = 0", but=True),
    "laplace_zero": checked(KEY, "laplace", "stated delta = 0"),
    "gaussian": checked(KEY, "gaussian", "beyond", but=True),
    "gaussian_any_step": checked(KEY, "gaussian", "beyond"),
    "beats_rdp": beats_rdp,
    "beats_rdp_late_most": beats_rdp_late_most,
    "convex_small_epsilon": convex_small_epsilon,
    "convex_late_records": convex_late_records,
    "random_stopping": random_stopping,
    "random_stopping_any_sigma": random_stopping_any_sigma,
}
