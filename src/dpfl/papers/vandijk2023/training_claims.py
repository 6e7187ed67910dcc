"""Evidence that trained models give, from the data of their figures. Accuracies are compared within a seed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.papers.vandijk2023.seed_statistics import LEVEL
from dpfl.papers.vandijk2023.strategy_figures import STRATEGIES
from dpfl.papers.vandijk2023.training_figures import LINE_NAMES
from dpfl.reporting.cases import Case
from dpfl.reporting.claims import Check
from dpfl.reporting.evidence import cases_of, checks_of, interval_cases
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

BROADCASTS = ("delay", "broadcast_loss")
"""Panels of the figure on asynchrony that are about broadcasts: late or reordered, and dropped ones."""
LARGE_SHARE = 0.05
"""A delay is large where it is more than this share of the client's rounds: such a model lacks a twentieth of the run
or more. The chapter names no number."""
IN_WORDS = {
    "delay": "mean delay in rounds = {:g}",
    "broadcast_loss": "{:g} % of broadcasts lost",
    "update_loss": "{:g} % of updates lost",
    "speed_spread": "fastest client {:g} times the slowest",
    "window": "window of the server in rounds = {:g}",
}
"""Names of scenarios by the panel of the figure and the value there."""


def differences(rows: pd.DataFrame, named: str, sign: int = 1) -> list[Case]:
    """Return a case a row: its difference in accuracy to its baseline, in points, times `sign`.

    `named` is the format of the case's name, from the row's columns.
    """
    points = sign * rows["difference_pct"]
    half = rows["difference_interval_pct"]
    return interval_cases(rows, f"{{dataset}}, {named}", points, half, runs="difference_runs", level=LEVEL)


def batch_scaling(scaling: str) -> Check:
    """Return the check of equal accuracy at a times the batch and the noise, with as many "rounds" or "epochs"."""

    def check(results: Results) -> ClaimEvidence:
        data = results.figure(KEY, "batch_scaling")
        noisy = data[data["private"].astype(bool) & (data["scaling"] == scaling)]
        spent = [
            Case(f"epsilon spent: {row.dataset}, a = {row.batch_factor:g}", row.privacy_epsilon_proven)
            for row in noisy.itertuples(index=False)
        ]
        return ClaimEvidence(differences(noisy[noisy["batch_factor"] > 1], "a = {batch_factor:g}"), beside=spent)

    return check


def strategy(results: Results, prefix: str) -> pd.DataFrame:
    """Return the rows of the strategies whose name begins so."""
    data = results.figure(KEY, "strategies")
    return data[data["strategy"].str.startswith(prefix)]


def last_epoch_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with and without the smaller last sigma, the budget growing along; beside it that budget."""
    rows = strategy(results, "last_epoch_unpaid")
    spent = [
        Case(
            f"epsilon spent over that asked for: {row.dataset}, {row.epsilon:g}",
            row.privacy_epsilon_proven / row.epsilon,
        )
        for row in rows.itertuples(index=False)
    ]
    return ClaimEvidence(differences(rows, "epsilon = {epsilon:g}"), beside=spent)


def last_epoch_equal_budget(results: Results) -> ClaimEvidence:
    """Compare accuracy with and without the smaller last sigma at equal budget."""
    data = results.figure(KEY, "strategies")
    return ClaimEvidence(differences(data[data["strategy"] == "last_epoch"], "epsilon = {epsilon:g}"))


def arsinh_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with arsinh and with Gaussian noise at equal budget; beside it the price of a round."""
    checks = checks_of(results, KEY, "arsinh_noise")
    spent = checks[~checks["case"].str.startswith("lighter tail")]
    rows = strategy(results, "arsinh")
    rows = rows.assign(strategy=rows["strategy"].map(STRATEGIES))
    return ClaimEvidence(differences(rows, "{strategy}, epsilon = {epsilon:g}"), beside=cases_of(spent))


def scenarios(results: Results, *, private: bool = True) -> pd.DataFrame:
    """Return the rows of the figure on asynchrony except those without any, each scenario in words; and delay.

    Those of private training, or those without privacy. A broadcast that gets through every 1/(1 - loss) rounds is
    late by one less.
    """
    data = results.figure(KEY, "asynchrony")
    rows = data[(np.isfinite(data["epsilon"].astype(float)) == private) & (data["scenario"] != "synchronous")]
    silence = 1 / (1 - rows["x"].where(rows["panel"] == "broadcast_loss", 0.0).astype(float) / 100) - 1
    words = [IN_WORDS[row.panel].format(row.x) + LINE_NAMES[row.line] for row in rows.fillna({"line": ""}).itertuples()]
    return rows.assign(delay=rows["x"].where(rows["panel"] == "delay", silence).astype(float), scenario=words)


def broadcasts(rows: pd.DataFrame, *, large: bool) -> pd.DataFrame:
    """Return the rows of `scenarios` that are about broadcasts, those with a large delay or the others."""
    is_large = rows["delay"] > LARGE_SHARE * rows["rounds"]
    return rows[rows["panel"].isin(BROADCASTS) & (is_large == large)]


def asynchronous_guarantee(results: Results) -> ClaimEvidence:
    """Compare the proven epsilon of every scenario of broadcasts with that of the synchronous run; beside it others.

    Those are lost updates, uneven speeds of clients and windows of the server.
    """
    data = results.figure(KEY, "asynchrony")
    finite = data[np.isfinite(data["epsilon"].astype(float))]
    same = finite[finite["scenario"] == "synchronous"].groupby(["dataset", "epsilon"])["privacy_epsilon_proven"].first()
    private = scenarios(results).drop_duplicates(["dataset", "scenario"])

    def cases(rows: pd.DataFrame) -> list[Case]:
        return [
            Case(f"{row.dataset}, {row.scenario}", row.privacy_epsilon_proven, target=same[row.dataset, row.epsilon])
            for row in rows.itertuples(index=False)
        ]

    about = private["panel"].isin(BROADCASTS)
    return ClaimEvidence(cases(private[about]), beside=cases(private[~about]))


def asynchronous(results: Results) -> ClaimEvidence:
    """Compare accuracy at small delays and silences with the synchronous run's, both private.

    Beside it what lost updates cost, and what the same delays and silences cost without privacy.
    """
    rows = scenarios(results)
    plain = broadcasts(scenarios(results, private=False), large=False)
    lost = differences(rows[rows["panel"] == "update_loss"], "{scenario}")
    return ClaimEvidence(
        differences(broadcasts(rows, large=False), "{scenario}"),
        beside=[*lost, *differences(plain, "without privacy, {scenario}")],
    )


def asynchronous_large_delays(results: Results) -> ClaimEvidence:
    """Return the points that large delays and silences cost."""
    return ClaimEvidence(differences(broadcasts(scenarios(results), large=True), "{scenario}", sign=-1))


def private_normalisation(results: Results) -> ClaimEvidence:
    """Compare accuracy with noisy moments and with plain pixels within one budget; beside it what the moments cost."""
    data = results.figure(KEY, "preparation")
    keys = ["dataset", "epsilon"]
    noise = {
        name: rows.set_index(keys)["noise_multiplier"] for name, rows in data.groupby("preparation") if name != "dp_pca"
    }
    private = data[data["preparation"] == "normalised"]
    beside = (
        [
            Case(f"noise over that with plain pixels: {dataset}, epsilon = {epsilon:g}", float(value))
            for (dataset, epsilon), value in (noise["normalised"] / noise["none"]).dropna().items()
        ]
        if {"normalised", "none"} <= set(noise)
        else []
    )
    exact = data[data["preparation"] == "normalised_exactly"]
    return ClaimEvidence(
        differences(private, "epsilon = {epsilon:g}"),
        beside=[*beside, *differences(exact, "exact moments, which no guarantee covers, epsilon = {epsilon:g}")],
    )


def samplers_trained(results: Results) -> list[Case]:
    """Return what Poisson batches change in accuracy at equal epsilon."""
    data = results.figure(KEY, "samplers")
    return differences(data[data["sampler"] == "poisson"], "accuracy with Poisson batches, epsilon = {epsilon:g}")
