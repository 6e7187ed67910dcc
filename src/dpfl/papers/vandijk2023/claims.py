"""Evidence for the chapter's claims, from the data of the figures and of the table of checks."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.vandijk2023 import training_claims
from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting.cases import Case
from dpfl.reporting.claims import Check
from dpfl.reporting.evidence import checked, checks_of
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence


def tight_over_run(results: Results) -> ClaimEvidence:
    """Compare the composed epsilon with what a pair of data sets reaches: equality would show that it is tight.

    A pair that stays below decides nothing, since another might reach it: such a case has no error that is known.
    """
    rows = checks_of(results, KEY, "dpsgd_tight")
    rows = rows[rows["case"].str.startswith("tight: ")]
    reached = (rows["ours"] - rows["independent"]).abs() <= rows["tolerance"]
    return ClaimEvidence(
        [
            Case(
                row.case,
                row.independent,
                error=0.0 if done else math.nan,
                target=row.ours,
                margin=row.tolerance,
            )
            for row, done in zip(rows.itertuples(index=False), reached, strict=True)
        ]
    )


def curves(results: Results, panel: str, curve: str) -> pd.DataFrame:
    """Return the rows of one curve of the figure on epochs and rounds."""
    data = results.figure(KEY, "epochs_not_rounds")
    return data[(data["panel"] == panel) & (data["curve"] == curve)]


def epochs_not_rounds(results: Results) -> ClaimEvidence:
    """Compare A1's epsilon at each batch size with that at the smallest; A0's is shown beside it."""

    def ratios(curve: str) -> list[Case]:
        rows = curves(results, "batches", curve).sort_values("batch")
        smallest = rows["epsilon"].iloc[0]
        return [
            Case(
                f"{curve}, batches of {row.batch:g} against {rows['batch'].iloc[0]:g}", row.epsilon / smallest, target=1
            )
            for row in rows.iloc[1:].itertuples(index=False)
        ]

    return ClaimEvidence(ratios("A1"), beside=ratios("A0"))


def epochs_simple(results: Results) -> ClaimEvidence:
    """Compare mu against A1 with sqrt(E)/sigma, a case a number of epochs."""
    rows = curves(results, "epochs", "A1")
    return ClaimEvidence(
        [Case(f"E = {row.epochs:g}", row.mu_over_simple, target=1.0) for row in rows.itertuples(index=False)]
    )


def epochs_bounds(results: Results) -> ClaimEvidence:
    """Hold mu against A1 below that of h, which the chapter says is approximate."""
    exact, bound = (curves(results, "epochs", name).set_index("epochs")["mu_over_simple"] for name in ("A1", "h"))
    return ClaimEvidence(
        [Case(f"E = {epochs:g}", float(mu), target=float(bound[epochs])) for epochs, mu in exact.items()]
    )


def growth(results: Results) -> pd.DataFrame:
    """Return how mu against A1 grows with the size of the group, by batch size."""
    data = results.figure(KEY, "group_privacy")
    return data[(data["panel"] == "growth") & (data["group"] > 1)]


def group(results: Results) -> ClaimEvidence:
    """Compare the growth of mu with sqrt(g)."""
    return ClaimEvidence(
        [
            Case(f"batches of {row.batch:g}, g = {row.group:g}", row.mu_ratio / math.sqrt(row.group), target=1.0)
            for row in growth(results).itertuples(index=False)
        ]
    )


def group_below_g(results: Results) -> ClaimEvidence:
    """Compare the growth of mu with g."""
    return ClaimEvidence(
        [
            Case(f"batches of {row.batch:g}, g = {row.group:g}", 1 - row.mu_ratio / row.group)
            for row in growth(results).itertuples(index=False)
        ]
    )


LEAST_OF_TWO, MOST_OF_TWO = 1.9, 2.1
"""Factors that count as two."""


def fixed_batches_cost_two(results: Results) -> ClaimEvidence:
    """Compare the noise of fixed batches with that of Poisson batches at equal epsilon, each by its own accountant.

    The truth is between what a pair of data sets needs and what C_p proves to be enough: a case a noise, open where
    they leave it open. Beside it: how much the relation alone costs, and what the samplers do to accuracy.
    """
    data = results.figure(KEY, "fixed_against_poisson")

    factors = data.pivot(index="noise_multiplier", columns="sampler", values="noise_over_poisson")
    cases = [_between(f"noise of {noise:g} C", row["fixed_pair"], row["fixed"]) for noise, row in factors.iterrows()]
    replaced = [
        Case(f"Poisson batches with a record replaced, noise of {noise:g} C", factor, target=2.0)
        for noise, factor in factors["poisson_replace"].items()
    ]
    return ClaimEvidence(cases, beside=[*replaced, *training_claims.samplers_trained(results)])


def _between(name: str, needed: float, enough: float) -> Case:
    """Return the case of a factor between two numbers, of which the one that decides is the estimate."""
    decided = needed > MOST_OF_TWO or enough < LEAST_OF_TWO or LEAST_OF_TWO <= needed <= enough <= MOST_OF_TWO
    estimate = needed if needed > MOST_OF_TWO else enough
    named = f"{name}: {needed:.3g} needed, {enough:.3g} enough"
    return Case(named, estimate, error=0.0 if decided else math.nan, target=2.0)


CLAIMS: dict[str, Check] = {
    "gdp_duality": checked(KEY, "gdp_duality"),
    "composition": checked(KEY, "composition"),
    "subsampling": checked(KEY, "subsampling", "a pair attains it", but=True),
    "subsampling_tight": checked(KEY, "subsampling", "a pair attains it"),
    "dpsgd_valid": checked(KEY, "dpsgd_tight", "valid"),
    "dpsgd_tight_one_round": checked(KEY, "dpsgd_tight", "tight in one round"),
    "dpsgd_tight": tight_over_run,
    "epochs_not_rounds": epochs_not_rounds,
    "epochs_simple": epochs_simple,
    "epochs_bounds": epochs_bounds,
    "group": group,
    "group_below_g": group_below_g,
    "fixed_batches_cost_two": fixed_batches_cost_two,
    "batch_scaling": training_claims.batch_scaling("rounds"),
    "batch_scaling_epochs": training_claims.batch_scaling("epochs"),
    "last_epoch_noise": checked(KEY, "last_epoch_noise"),
    "last_epoch_accuracy": training_claims.last_epoch_accuracy,
    "last_epoch_equal_budget": training_claims.last_epoch_equal_budget,
    "arsinh_noise": checked(KEY, "arsinh_noise", "lighter tail"),
    "arsinh_accuracy": training_claims.arsinh_accuracy,
    "asynchronous_guarantee": training_claims.asynchronous_guarantee,
    "asynchronous": training_claims.asynchronous,
    "asynchronous_large_delays": training_claims.asynchronous_large_delays,
    "private_normalisation": training_claims.private_normalisation,
}
