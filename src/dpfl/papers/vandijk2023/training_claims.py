"""Evidence that trained models give, from the data of their figures. Accuracies are compared within a seed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid
from scipy.stats import norm

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.papers.vandijk2023.reference_run import KEY, epsilon_of, settings
from dpfl.papers.vandijk2023.seed_statistics import LEVEL
from dpfl.papers.vandijk2023.strategy_figures import STRATEGIES
from dpfl.papers.vandijk2023.training_figures import LINE_NAMES
from dpfl.reporting.cases import Case, difference, interval_cases
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
    "participation": "{:g} % of clients asked in a window",
}
"""Names of scenarios by the panel of the figure and the value there."""


def differences(rows: pd.DataFrame, named: str, sign: int = 1) -> list[Case]:
    """Return a case a row: its difference in accuracy to its baseline, in points, times `sign`.

    `named` is the format of the case's name, from the row's columns.
    """
    points = sign * rows["difference_pct"]
    half = rows["difference_interval_pct"]
    return interval_cases(rows, f"{{dataset}}, {named}", points, half, runs="difference_runs", level=LEVEL)


def batch_scaling(scaling: str, results: Results) -> ClaimEvidence:
    """Compare accuracy at a times the batch and the noise, with as many "rounds" or "epochs"; beside it the epsilon."""
    data = results.figure(KEY, "batch_scaling")
    noisy = data[data["private"].astype(bool) & (data["scaling"] == scaling)]
    spent = [
        Case(f"epsilon spent: {row.dataset}, a = {row.batch_factor:g}", row.privacy_epsilon_proven)
        for row in noisy.itertuples(index=False)
    ]
    return ClaimEvidence(differences(noisy[noisy["batch_factor"] > 1], "a = {batch_factor:g}"), beside=spent)


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


def strategies_compared(name: str, results: Results) -> ClaimEvidence:
    """Compare accuracy with a strategy and with constant batch, clip norm and noise at equal budget."""
    data = results.figure(KEY, "strategies")
    return ClaimEvidence(differences(data[data["strategy"] == name], "epsilon = {epsilon:g}"))


def arsinh_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with arsinh and with Gaussian noise at equal budget; beside it the price of a round."""
    rows = strategy(results, "arsinh")
    rows = rows.assign(strategy=rows["strategy"].map(STRATEGIES))
    spent = []
    for scale in (2.0, 4.0):
        own = epsilon_of(tradeoff.arsinh_guarantee(scale=scale, sigma=1.0))
        gaussian = float(gaussian_dp.epsilon(settings("delta"), 1 / arsinh_deviation(scale)))
        spent.append(Case(f"epsilon of a round over that of Gaussian noise as wide, a = {scale:g}", own / gaussian))
    return ClaimEvidence(differences(rows, "{strategy}, epsilon = {epsilon:g}"), beside=spent)


def arsinh_deviation(scale: float) -> float:
    """Return the standard deviation of a arsinh(N/a) for standard normal N, by integration."""
    draws = np.linspace(-12.0, 12.0, 240_001)
    return math.sqrt(trapezoid((scale * np.arcsinh(draws / scale)) ** 2 * norm.pdf(draws), draws))


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
    """Return the rows of `scenarios` that are about broadcasts, those with a large delay or the others.

    Clients that guard the distance of their model are another question.
    """
    is_large = rows["delay"] > LARGE_SHARE * rows["rounds"]
    return rows[rows["panel"].isin(BROADCASTS) & (rows["line"] != "near") & (is_large == large)]


def asynchronous_guarantee(results: Results) -> ClaimEvidence:
    """Hold the lower bounds from attacks on the clients' messages below the stated epsilon; beside it the control."""
    rows = results.table(KEY, "canaries")

    def cases(chosen: pd.DataFrame) -> list[Case]:
        return [
            Case(
                f"{row.scenario.replace('_', ' ')}, epsilon = {row.epsilon:g}, seed {row.seed}",
                row.epsilon_lower_bound,
                target=row.claimed_epsilon,
            )
            for row in chosen.itertuples(index=False)
        ]

    bad = rows["known_bad"].astype(bool)
    control = [
        Case(f"batch normalisation, which states {case.target:.3g} falsely: {case.case}", case.estimate)
        for case in cases(rows[bad])
    ]
    return ClaimEvidence(cases(rows[~bad]), beside=control)


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


def delay_loop(
    scenario: str, results: Results, *, epochs: int, learning_rate: float = 4.0, sign: int = 1
) -> ClaimEvidence:
    """Compare accuracy at the end of a delayed run with the synchronous run of the same epochs and steps, in points
    gained, or lost where sign is -1: what is claimed to be more than 2 then has that as its target."""
    data = results.figure(KEY, "delay_loop")
    same = (data["epochs"] == epochs) & (data["learning_rate"] == learning_rate) & (data["scenario"] == scenario)
    last = data[same & (data["epoch"] == epochs)]
    cases = differences(last, f"{scenario.replace('_', ' ')} rounds, {epochs} epochs, step {learning_rate:g}", sign)
    return ClaimEvidence([replace(case, target=2.0, margin=0.0) if sign < 0 else case for case in cases])


def distance_guard(results: Results) -> ClaimEvidence:
    """Compare accuracy with the guard on distance and without it, both private, by the difference to synchronous."""
    data = results.figure(KEY, "asynchrony")
    rows = data[np.isfinite(data["epsilon"].astype(float))]
    guarded = rows[rows["line"] == "near"]
    keys = ["dataset", "stand_in_for", "panel", "x"]
    free = rows[rows["line"] == ""][[*keys, "difference_pct", "difference_interval_pct"]]
    both = guarded.merge(free, on=keys, suffixes=("", "_free"))
    cases = []
    for name, part in (("", both), ("_free", both)):
        part = part.assign(
            difference_pct=part[f"difference_pct{name}"],
            difference_interval_pct=part[f"difference_interval_pct{name}"],
        )
        cases.append(differences(part, "{scenario}"))
    return ClaimEvidence([difference(one.case, one, two) for one, two in zip(*cases, strict=True)])


def subsets(results: Results) -> ClaimEvidence:
    """Compare accuracy with a subset of the clients in each window and with all of them, private; beside it without."""
    counted, plain = (scenarios(results, private=private) for private in (True, False))
    cases, beside = (differences(rows[rows["panel"] == "participation"], "{scenario}") for rows in (counted, plain))
    return ClaimEvidence(cases, beside=[replace(case, case=f"without privacy, {case.case}") for case in beside])


def mixing(results: Results) -> ClaimEvidence:
    """Compare accuracy with judged and with equal weights where clients are mislabelled; beside it where none is."""
    data = results.figure(KEY, "mixing")
    judged = data[data["mixing"] == "judged"]
    some = judged["mislabelled"] > 0
    return ClaimEvidence(
        differences(judged[some], "epsilon = {epsilon:g}"),
        beside=differences(judged[~some], "all labels true, epsilon = {epsilon:g}"),
    )


CHAPTER_CLIP_NORMS = (0.001, 0.01, 0.1)


def chapter_values(results: Results) -> ClaimEvidence:
    """Compare the best of the chapter's clip norms with a clip norm of 1, a case a noise and batch size."""
    data = results.figure(KEY, "settings_grid")
    own = data[data["clip_norm"].isin(CHAPTER_CLIP_NORMS)].dropna(subset="difference_pct")
    best = own.loc[own.groupby(["dataset", "sigma", "batch_size"])["difference_pct"].idxmax()]
    named = "sigma = {sigma:g}, batches of {batch_size:g}: C = {clip_norm:g}, step {learning_rate:g}"
    return ClaimEvidence(differences(best, named))


def layer_norm_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with layer normalisation and with plain pixels at the same epsilon; beside it batches'."""
    data = results.figure(KEY, "preparation")
    layers, batches = (data[data["preparation"] == name] for name in ("layer_normalised", "batch_normalised"))
    return ClaimEvidence(
        differences(layers, "epsilon = {epsilon:g}"),
        beside=differences(batches, "batch normalisation, which no guarantee covers, noise of epsilon = {epsilon:g}"),
    )


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
