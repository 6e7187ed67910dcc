"""Evidence for the claims of lowy2021, a function a claim: here its two experiments and its noise, and in theory_claims
its theorems."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from dpfl.papers.lowy2021 import theory_claims
from dpfl.papers.lowy2021.comparisons import TASK
from dpfl.papers.lowy2021.trial_statistics import noise_name
from dpfl.reporting.bounds import at_most
from dpfl.reporting.cases import Case, from_interval, interval_cases
from dpfl.reporting.claims import Check
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence
from dpfl.reporting.statistics import LEVEL

FREE_FROM = 12.5
"""Budget from which minibatch SGD is claimed to beat local SGD without privacy."""
Rows = Callable[[pd.DataFrame], pd.Series]


def _insurance(rows: Rows) -> Check:
    """Return the check of the paired differences on the insurance data in the rows that are selected.

    The number is what local SGD's test loss has in excess of minibatch SGD's, as a share of it.
    """

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "paired_differences")
        data = data[data["epsilon"] < math.inf]
        chosen = rows(data)
        return ClaimEvidence(_insurance_cases(data[chosen]), beside=_insurance_cases(data[~chosen]))

    return check


def _insurance_cases(data: pd.DataFrame) -> list[Case]:
    """Return a case a row: by how much local SGD's loss is larger, as a share of minibatch SGD's.

    The name says what each of them is proven to spend at most, which in the authors' protocol is far from the budget.
    """
    noises = [noise_name(*each) for each in zip(data["noise"], data["clipping"], strict=True)]
    share, half = (data[name] / data["minibatch_test_loss"] for name in ("difference", "interval"))
    columns = {"minibatch": "minibatch_epsilon_spent", "local": "local_epsilon_spent"}
    spent = {name: [at_most(epsilon, 3) for epsilon in data[column]] for name, column in columns.items()}
    name = "N = {clients}, {noise}, ε = {epsilon:g} (spent at most {minibatch} by minibatch SGD, {local} by local SGD)"
    return interval_cases(data.assign(noise=noises, **spent), name, share, half, runs="trials")


def _authors_protocol(data: pd.DataFrame) -> pd.Series:
    """Select the authors' protocol: Theorem 2.1's noise, the mean gradient of a batch clipped."""
    return (data["noise"] == "advanced_composition") & (data["clipping"] == "mean")


def _least_noise(data: pd.DataFrame) -> pd.Series:
    """Select the least noise that an accountant allows, every record clipped: a budget that is kept."""
    return data["noise"] == "tight"


def _mnist(rows: Rows) -> Check:
    """Return the check of the paired differences on MNIST in the rows that are selected, in points of test error."""

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "mnist_differences")
        data = data[data["epsilon"] < math.inf]
        chosen = rows(data)
        others = data[~chosen & ~(_published(data) | _least_noise(data))]
        return ClaimEvidence(_mnist_cases(data[chosen], ""), beside=_mnist_cases(others, ""))

    return check


def _mnist_against_free(rows: Rows) -> Check:
    """Return the check of minibatch SGD at FREE_FROM and above against local SGD without privacy."""

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "mnist_differences")
        large = data[(data["epsilon"] >= FREE_FROM) & (data["epsilon"] < math.inf)]
        return ClaimEvidence(_mnist_cases(large[rows(large)], "free_"))

    return check


def _mnist_cases(data: pd.DataFrame, prefix: str) -> list[Case]:
    """Return a case a row, from the columns <prefix>difference and <prefix>interval."""
    rows = data.assign(noise=data["noise"].map(noise_name))
    name = "M = {participating:g}, R = {rounds:g}, ε = {epsilon:g}, {noise}, {split} split"
    return interval_cases(rows, name, rows[f"{prefix}difference"], rows[f"{prefix}interval"], runs="trials")


def _published(data: pd.DataFrame) -> pd.Series:
    """Select MNIST as the authors' script has it: its noise, its split."""
    return (data["noise"] == "moments") & (data["split"] == "published")


def _prices(results: Results) -> dict[tuple, pd.DataFrame]:
    """Return minibatch SGD's price of privacy by (dataset, stand-in, N, noise, clipping), sorted by budget."""
    data = results.table("lowy2021", "price").query("algorithm == 'minibatch'")
    return {key: task.sort_values("epsilon") for key, task in data.groupby([*TASK, "noise", "clipping"], sort=False)}


def _price_share(row: pd.Series, case: str) -> Case:
    """Return a price as a share of the loss without privacy."""
    free = row["free_test_loss"]
    name = f"{case}, ε = {row['epsilon']:g}"
    facts = {"level": LEVEL, "stand_in": row["dataset"] if row["stand_in_for"] else ""}
    return from_interval(name, row["trials"], row["difference"] / free, row["interval"] / free, **facts)


def price_shrinks(results: Results) -> ClaimEvidence:
    """Compare the price at the smallest budget with that at the largest.

    The two prices are of the same trials, but their covariance is not in the table. They share the loss without
    privacy, so that it is positive, and errors added up as if they were independent are cautious.
    """
    cases = []
    for (_, _, clients, noise, clipping), task in _prices(results).items():
        first, last = (_price_share(task.iloc[index], "") for index in (0, -1))
        low, high = task["epsilon"].iloc[[0, -1]]
        cases.append(
            Case(
                f"N = {clients}, {noise_name(noise, clipping)}, ε = {low:g} to {high:g}",
                first.estimate - last.estimate,
                math.hypot(first.error, last.error),
                min(first.n, last.n),
                min(first.freedom, last.freedom),
                stand_in=first.stand_in,
            )
        )
    return ClaimEvidence(cases)


def _price_vanishes(noise: str) -> Check:
    """Return the check of the price at the largest budget with one noise, every record clipped.

    The smaller budgets are shown beside it, and the authors' protocol, which clips means.
    """

    def check(results: Results) -> ClaimEvidence:
        cases, beside = [], []
        for (_, _, clients, name, clipping), task in _prices(results).items():
            if name == noise:
                place = f"N = {clients}{', means clipped' if clipping == 'mean' else ''}"
                *smaller, last = (_price_share(row, place) for _, row in task.iterrows())
                (cases if clipping == "record" else beside).append(last)
                beside += smaller
        return ClaimEvidence(cases, beside=beside)

    return check


def noise_suffices(results: Results) -> ClaimEvidence:
    """Hold the epsilon that Theorem 2.1's noise spends at most the one asked for; beside it the later script's."""
    data = results.table("lowy2021", "noise").query("algorithm == 'minibatch' and clipping == 'record'")

    def spent(noise: str) -> list[Case]:
        return [
            Case(
                f"N = {row.clients}, {noise_name(noise)}, {row.sampling.replace('_', ' ')}, ε = {row.epsilon:g}",
                row.epsilon_proven,
                target=row.epsilon,
            )
            for row in data[data["noise"] == noise].itertuples(index=False)
        ]

    return ClaimEvidence(spent("advanced_composition"), beside=spent("moments"))


insurance_minibatch_beats_local = _insurance(_authors_protocol)
insurance_least_noise = _insurance(_least_noise)
price_vanishes = _price_vanishes("advanced_composition")
price_vanishes_least_noise = _price_vanishes("tight")
mnist_minibatch_beats_local = _mnist(_published)
mnist_least_noise = _mnist(_least_noise)
mnist_beats_nonprivate_local = _mnist_against_free(_published)
mnist_beats_nonprivate_least_noise = _mnist_against_free(_least_noise)

acceleration = theory_claims.acceleration
acceleration_more_rounds = theory_claims.acceleration_more_rounds
acceleration_smooth = theory_claims.acceleration_smooth
availability = theory_claims.availability
availability_not_mean = theory_claims.availability_not_mean
convex_lower_bound = theory_claims.convex_lower_bound
convex_rate = theory_claims.convex_rate
one_pass = theory_claims.one_pass
one_pass_falls = theory_claims.one_pass_falls
one_pass_learns = theory_claims.one_pass_learns
one_pass_rate = theory_claims.one_pass_rate
privacy_for_free = theory_claims.privacy_for_free
shuffle = theory_claims.shuffle
shuffle_beats_local = theory_claims.shuffle_beats_local
shuffle_by_accountant = theory_claims.shuffle_by_accountant
strongly_convex_lower_bound = theory_claims.strongly_convex_lower_bound
strongly_convex_rate = theory_claims.strongly_convex_rate
