"""Evidence for the paper's claims, from the data of its figures and of its tables of checks and rates."""

from __future__ import annotations

import itertools

import pandas as pd

from dpfl.papers.asoodeh2021.figures import CLOSED_FORM
from dpfl.reporting.cases import LEVEL, Case
from dpfl.reporting.claims import Check
from dpfl.reporting.evidence import checked, checks_of, interval_cases
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

KEY = "asoodeh2021"
RUN = "exact run"


def shares(results: Results, panel: str) -> pd.DataFrame:
    """Return delta by epsilon (rows) and share of users a round (columns) of a panel of Figure 2."""
    data = results.figure(KEY, "figure_2")
    rows = data[(data["form"] == CLOSED_FORM) & (data["panel"] == panel)]
    return rows.pivot(index="epsilon", columns="q", values="delta").sort_index(axis=1)


def participation(results: Results) -> ClaimEvidence:
    """Hold delta below that of the next smaller published share, at the epsilon where it falls least."""
    deltas = shares(results, "published")
    cases = []
    for fewer, more in itertools.pairwise(deltas.columns):
        falls = 1 - deltas[more] / deltas[fewer]
        cases.append(Case(f"q = {fewer:g} to {more:g}, at epsilon = {falls.idxmin():g}", float(falls.min())))
    return ClaimEvidence(cases)


def participation_any_share(results: Results) -> ClaimEvidence:
    """Hold delta below that of the next smaller share, for shares that the paper does not draw."""
    deltas = shares(results, "other shares")
    return ClaimEvidence(
        [
            Case(f"q = {fewer:g} to {more:g}, epsilon = {epsilon:g}", 1 - row[more] / row[fewer])
            for fewer, more in itertools.pairwise(deltas.columns)
            for epsilon, row in deltas.iterrows()
        ]
    )


def exponents(against: str) -> Check:
    """Return the check of the exponent of the noise's excess risk in "sigma^2" or in "users"."""
    fixed = "sigma" if against == "users" else "users"

    def check(results: Results) -> ClaimEvidence:
        rates = results.table(KEY, "rates")
        rows = rates[rates["against"] == against]
        name = f"{{dataset}}, m = {{batch_size:g}}, {fixed} = {{fixed:g}}"
        return ClaimEvidence(interval_cases(rows, name, rows["slope"], rows["interval"], target=rows["expected"]))

    return check


def price_bound(results: Results) -> ClaimEvidence:
    """Hold every mean excess risk of the last model within Corollary 1's bound as printed."""
    data = results.figure(KEY, "dimension")
    rows = data[data["release"] == "last"]
    name = "{dataset}, {features:g} features, sigma = {noise_std:g}"
    cases = interval_cases(rows, name, rows["excess_risk"], rows["interval"], target=rows["bound_as_printed"])
    errata = results.table(KEY, "errata")
    risks = errata[errata["entry"] == "corollary_utility"]
    name = "simulation of the errata: {case}"
    simulated = interval_cases(
        risks, name, risks["independent"], risks["interval"], level=LEVEL, target=risks["printed"]
    )
    return ClaimEvidence([*cases, *simulated])


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
    """Compare one pass with rounds on users drawn anew: what it gains, as a share of the latter's excess risk.

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


def suffix_stopping(results: Results) -> ClaimEvidence:
    """Compare delta with the stop within the last rounds alone with that of Corollary 3: the share that it saves."""
    rows = checks_of(results, KEY, "suffix_stopping")
    cases = [Case(row.case, 1 - row.independent / row.ours) for row in rows.itertuples(index=False)]
    data = results.figure(KEY, "sampling")
    risks = [
        Case(
            f"excess risk of one pass: {row.dataset}, m = {row.batch_size:g}, sigma = {row.noise_std:g}, "
            f"{row.release.replace('_', ' ')}",
            row.one_pass,
        )
        for row in data.itertuples(index=False)
    ]
    return ClaimEvidence(cases, beside=risks)


def relaxed_looser(results: Results) -> ClaimEvidence:
    """Return how many times larger the relaxed bound is than Theorem 2."""
    rows = checks_of(results, KEY, "relaxed")
    rows = rows[~rows["case"].str.startswith(RUN)]
    return ClaimEvidence(
        [Case(row.case, row.ours / row.independent, target=1.0) for row in rows.itertuples(index=False)]
    )


CLAIMS: dict[str, Check] = {
    "theorem2": checked(KEY, "theorem2", RUN),
    "closed_form": checked(KEY, "theorem2", RUN, but=True),
    "participation": participation,
    "participation_any_share": participation_any_share,
    "price_of_privacy": exponents("sigma^2"),
    "price_in_users": exponents("users"),
    "price_bound": price_bound,
    "price_by_dimension": price_by_dimension,
    "without_replacement": without_replacement,
    "random_stopping": checked(KEY, "random_stopping"),
    "suffix_stopping": suffix_stopping,
    "relaxed": checked(KEY, "relaxed", RUN),
    "relaxed_looser": relaxed_looser,
}
