"""Cases of the chapter's claims: curves by two routes, exact adversaries, and sums by the code that trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.integrate import trapezoid
from scipy.stats import norm

from dpfl.accounting import FixedBatches, Neighbouring, gaussian_dp, guarantee, tradeoff
from dpfl.accounting.numerics import zero_between
from dpfl.asynchronous.schedules import normalised
from dpfl.attacks.lower_bounds import TestErrors, epsilon_lower_bound
from dpfl.engine.networks import softmax_regression
from dpfl.engine.per_record_gradients import LinearGradients, cross_entropy
from dpfl.papers.vandijk2023.reference_run import KEY, epsilon_of, equivalent_mu, run, settings
from dpfl.papers.vandijk2023.training_figures import LEVEL, LINE_NAMES, STRATEGIES
from dpfl.reporting.rules import Case, ClaimEvidence, difference, interval_cases

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.results import Results

# Evidence that trained models give, from the data of their figures. Accuracies are compared within a seed.

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


def _differences(rows: pd.DataFrame, named: str, sign: int = 1) -> list[Case]:
    """Return a case a row: its difference in accuracy to its baseline, in points, times `sign`.

    `named` is the format of the case's name, from the row's columns.
    """
    points = sign * rows["difference_pct"]
    half = rows["difference_interval_pct"]
    return interval_cases(rows, f"{{dataset}}, {named}", points, half, runs="difference_runs", level=LEVEL)


def _batch_scaling(scaling: str, results: Results) -> ClaimEvidence:
    """Compare accuracy at a times the batch and the noise, with as many "rounds" or "epochs"; beside it the epsilon."""
    data = results.figure(KEY, "batch_scaling")
    noisy = data[data["private"].astype(bool) & (data["scaling"] == scaling)]
    spent = [
        Case(f"epsilon spent: {row.dataset}, a = {row.batch_factor:g}", row.privacy_epsilon_proven)
        for row in noisy.itertuples(index=False)
    ]
    return ClaimEvidence(_differences(noisy[noisy["batch_factor"] > 1], "a = {batch_factor:g}"), beside=spent)


def _strategy(results: Results, prefix: str) -> pd.DataFrame:
    """Return the rows of the strategies whose name begins so."""
    data = results.figure(KEY, "strategies")
    return data[data["strategy"].str.startswith(prefix)]


def last_epoch_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with and without the smaller last sigma, the budget growing along; beside it that budget."""
    rows = _strategy(results, "last_epoch_unpaid")
    spent = [
        Case(
            f"epsilon spent over that asked for: {row.dataset}, {row.epsilon:g}",
            row.privacy_epsilon_proven / row.epsilon,
        )
        for row in rows.itertuples(index=False)
    ]
    return ClaimEvidence(_differences(rows, "epsilon = {epsilon:g}"), beside=spent)


def _strategies_compared(name: str, results: Results) -> ClaimEvidence:
    """Compare accuracy with a strategy and with constant batch, clip norm and noise at equal budget."""
    data = results.figure(KEY, "strategies")
    return ClaimEvidence(_differences(data[data["strategy"] == name], "epsilon = {epsilon:g}"))


def arsinh_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with arsinh and with Gaussian noise at equal budget; beside it the price of a round."""
    rows = _strategy(results, "arsinh")
    rows = rows.assign(strategy=rows["strategy"].map(STRATEGIES))
    spent = []
    for scale in (2.0, 4.0):
        own = epsilon_of(tradeoff.arsinh_guarantee(scale=scale, sigma=1.0))
        gaussian = float(gaussian_dp.epsilon(settings("delta"), 1 / _arsinh_deviation(scale)))
        spent.append(Case(f"epsilon of a round over that of Gaussian noise as wide, a = {scale:g}", own / gaussian))
    return ClaimEvidence(_differences(rows, "{strategy}, epsilon = {epsilon:g}"), beside=spent)


def _arsinh_deviation(scale: float) -> float:
    """Return the standard deviation of a arsinh(N/a) for standard normal N, by integration."""
    draws = np.linspace(-12.0, 12.0, 240_001)
    return math.sqrt(trapezoid((scale * np.arcsinh(draws / scale)) ** 2 * norm.pdf(draws), draws))


def _scenarios(results: Results, *, private: bool = True) -> pd.DataFrame:
    """Return the rows of the figure on asynchrony except those without any, each scenario in words; and delay.

    Those of private training, or those without noise. A broadcast that gets through every 1/(1 - loss) rounds is
    late by one less.
    """
    data = results.figure(KEY, "asynchrony")
    rows = data[(np.isfinite(data["epsilon"].astype(float)) == private) & (data["scenario"] != "synchronous")]
    silence = 1 / (1 - rows["x"].where(rows["panel"] == "broadcast_loss", 0.0).astype(float) / 100) - 1
    words = [
        ", ".join(filter(None, (IN_WORDS[row.panel].format(row.x), LINE_NAMES[row.line])))
        for row in rows.fillna({"line": ""}).itertuples()
    ]
    return rows.assign(delay=rows["x"].where(rows["panel"] == "delay", silence).astype(float), scenario=words)


def _broadcasts(rows: pd.DataFrame, *, large: bool) -> pd.DataFrame:
    """Return the rows of `scenarios` that are about broadcasts, those with a large delay or the others.

    Clients that guard the distance of their model are another question.
    """
    is_large = rows["delay"] > LARGE_SHARE * rows["rounds"]
    return rows[rows["panel"].isin(BROADCASTS) & (rows["line"] != "near") & (is_large == large)]


def asynchronous_guarantee(results: Results) -> ClaimEvidence:
    """Hold what an accountant proves for all messages of a client, and attacks that exceed it, at most the epsilon.

    The accountant is that of fixed batches; the composed C_p has set the noise. An upper bound above the stated epsilon
    refutes nothing: such a case has no error that is known. Attacks count only where their lower bound exceeds what is
    claimed, with 95 % for all of them together. Beside them the other attacks, and the control.
    """
    rows = results.table(KEY, "canaries")
    is_bad = rows["known_bad"].astype(bool)
    attacked, cases = rows[~is_bad], []
    for (stated, noise, batch, steps), group in attacked.groupby(
        ["epsilon", "noise_multiplier", "batch_size", "steps"]
    ):
        proven = _proven(noise, batch, steps, group["records"].iloc[0], group["delta"].iloc[0])
        name = f"all messages of {steps:g} rounds, epsilon = {stated:g}, on {len(group)} networks"
        cases.append(Case(name, proven, error=0.0 if proven <= stated else math.nan, target=stated))
    bounds = [_attack(row, len(attacked)) for row in attacked.itertuples(index=False)]
    refuting = [case for case in bounds if case.estimate > case.target]
    beside = [case for case in bounds if not case.estimate > case.target]
    for row in rows[is_bad].itertuples(index=False):
        control = _attack(row, len(attacked))
        name = f"batch normalisation, which states {control.target:.3g} falsely: {control.case}"
        beside.append(replace(control, case=name))
    return ClaimEvidence(cases + refuting, beside=beside)


def _proven(noise_multiplier: float, batch: float, steps: float, records: float, delta: float) -> float:
    """Return the epsilon that the accountant of fixed batches proves for a replaced record."""
    sampler = FixedBatches(int(batch), int(records))
    run = {"noise_multiplier": noise_multiplier, "steps": int(steps), "delta": float(delta)}
    return guarantee(sampler, **run, neighbouring=Neighbouring.REPLACE_ONE).upper


def _attack(row: Any, attacks: int) -> Case:
    """Return the case of a lower bound that an attack gives, at LEVEL for so many attacks together (Bonferroni)."""
    trials, confidence = int(row.positives), 1 - (1 - row.confidence) / attacks
    errors = TestErrors(int(row.true_positives), trials, int(row.false_positives), trials)
    bound = epsilon_lower_bound(errors, delta=row.delta, confidence=confidence)
    name = f"at least, by an attack, {row.scenario.replace('_', ' ')}, epsilon = {row.epsilon:g}, seed {row.seed}"
    return Case(name, bound, target=row.claimed_epsilon)


def asynchronous(results: Results) -> ClaimEvidence:
    """Compare accuracy at small delays and silences with the synchronous run's, both private.

    Beside it what lost updates cost, and what the same delays and silences cost without noise.
    """
    rows = _scenarios(results)
    plain = _broadcasts(_scenarios(results, private=False), large=False)
    lost = _differences(rows[rows["panel"] == "update_loss"], "{scenario}")
    return ClaimEvidence(
        _differences(_broadcasts(rows, large=False), "{scenario}"),
        beside=[*lost, *_differences(plain, "without noise, {scenario}")],
    )


def asynchronous_large_delays(results: Results) -> ClaimEvidence:
    """Return the points that large delays and silences cost."""
    return ClaimEvidence(_differences(_broadcasts(_scenarios(results), large=True), "{scenario}", sign=-1))


def _delay_loop(
    scenario: str, results: Results, *, epochs: int, learning_rate: float = 4.0, sign: int = 1
) -> ClaimEvidence:
    """Compare accuracy at the end of a delayed run with the synchronous run of the same epochs and steps, in points
    gained, or lost where sign is -1: what is claimed to be more than 2 then has that as its target."""
    data = results.figure(KEY, "delay_loop")
    same = (data["epochs"] == epochs) & (data["learning_rate"] == learning_rate) & (data["scenario"] == scenario)
    last = data[same & (data["epoch"] == epochs)]
    cases = _differences(last, f"{scenario.replace('_', ' ')} rounds, {epochs} epochs, step {learning_rate:g}", sign)
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
        cases.append(_differences(part, "{scenario}"))
    return ClaimEvidence([difference(one.case, one, two) for one, two in zip(*cases, strict=True)])


def subsets(results: Results) -> ClaimEvidence:
    """Compare accuracy with a subset of the clients in each window and with all of them, private; beside it without."""
    counted, plain = (_scenarios(results, private=private) for private in (True, False))
    cases, beside = (_differences(rows[rows["panel"] == "participation"], "{scenario}") for rows in (counted, plain))
    return ClaimEvidence(cases, beside=[replace(case, case=f"without noise, {case.case}") for case in beside])


def mixing(results: Results) -> ClaimEvidence:
    """Compare accuracy with judged and with equal weights where clients are mislabelled; beside it if none is."""
    data = results.figure(KEY, "mixing")
    judged = data[data["mixing"] == "judged"]
    some = judged["mislabelled"] > 0
    return ClaimEvidence(
        _differences(judged[some], "epsilon = {epsilon:g}"),
        beside=_differences(judged[~some], "all labels true, epsilon = {epsilon:g}"),
    )


CHAPTER_CLIP_NORMS = (0.001, 0.01, 0.1)


def chapter_values(results: Results) -> ClaimEvidence:
    """Compare the best of the chapter's clip norms with a clip norm of 1, a case a noise and batch size."""
    data = results.figure(KEY, "settings_grid")
    own = data[data["clip_norm"].isin(CHAPTER_CLIP_NORMS)].dropna(subset="difference_pct")
    best = own.loc[own.groupby(["dataset", "sigma", "batch_size"])["difference_pct"].idxmax()]
    named = "sigma = {sigma:g}, batches of {batch_size:g}: C = {clip_norm:g}, step {learning_rate:g}"
    return ClaimEvidence(_differences(best, named))


def layer_norm_accuracy(results: Results) -> ClaimEvidence:
    """Compare accuracy with layer normalisation and with plain pixels at the same epsilon; beside it batches'."""
    data = results.figure(KEY, "preparation")
    layers, batches = (data[data["preparation"] == name] for name in ("layer_normalised", "batch_normalised"))
    return ClaimEvidence(
        _differences(layers, "epsilon = {epsilon:g}"),
        beside=_differences(batches, "batch normalisation, which no guarantee covers, noise of epsilon = {epsilon:g}"),
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
        _differences(private, "epsilon = {epsilon:g}"),
        beside=[*beside, *_differences(exact, "exact moments, which no guarantee covers, epsilon = {epsilon:g}")],
    )


def _samplers_trained(results: Results) -> list[Case]:
    """Return what Poisson batches change in accuracy at equal epsilon."""
    data = results.figure(KEY, "samplers")
    drawn = data[data["sampler"] == "poisson_zero_out"]
    return _differences(drawn, "accuracy with Poisson batches, epsilon = {epsilon:g}")


RECORDS = 6144
"""Records that hold whole batches of every size that the chapter names, 24 of the largest."""
EPOCHS = 20
SIGMA = 8.0
"""Noise of the statements on groups, in sensitivities."""


def gdp_duality(mu: float, epsilon: float | None = None, alpha: float | None = None) -> Case:
    """Turn G_mu into delta at an epsilon numerically, or the curve of all (epsilon, delta) back at a type I error."""
    if alpha is None:
        found = tradeoff.delta_of(lambda level: gaussian_dp.tradeoff(level, mu), epsilon)
        case = f"delta from the curve, mu = {mu}, epsilon = {epsilon}"
        return Case(case, float(found), target=float(gaussian_dp.delta(epsilon, mu)))
    found = tradeoff.from_delta(lambda level: gaussian_dp.delta(level, mu), alpha)
    case = f"curve from all (epsilon, delta), mu = {mu}, alpha = {alpha}"
    return Case(case, float(found), target=float(gaussian_dp.tradeoff(alpha, mu)))


def composition(mus: list[float] | float, alpha: float, times: int = 0) -> Case:
    """Compose two sampled curves, or one loss distribution many times, against the root of the sum of squares."""
    if not times:
        first, second = mus
        found = _sampled(first).compose(_sampled(second))(alpha)
        case = f"sampled curves, mu = {first} and {second}, alpha = {alpha}"
        expected = gaussian_dp.tradeoff(alpha, gaussian_dp.compose(mus))
        return Case(case, float(found), target=float(expected), margin=5e-4)  # 401 points a curve
    loss = tradeoff.PrivacyLoss.of(tradeoff.composed(tradeoff.gaussian_tails(mus), times))
    expected = gaussian_dp.tradeoff(alpha, gaussian_dp.compose(np.full(times, mus)))
    case = f"loss distributions, {times} times mu = {mus}, alpha = {alpha}"
    return Case(case, float(loss.tradeoff(alpha)), target=float(expected))


def _sampled(mu: float) -> tradeoff.Curve:
    """Return G_mu through 401 points, for exact composition of what is then piecewise linear."""
    return tradeoff.double_conjugate(lambda alpha: gaussian_dp.tradeoff(alpha, mu), knots=401)


def subsampling(route: str, p: float, mu: float, alpha: float) -> Case:
    """Find C_p(G_mu) by conjugating twice, or from its loss distribution."""
    found = _subsampled(route, p, mu)(alpha)
    case = f"{route}: p = {p:.4g}, mu = {mu}, alpha = {alpha}"
    return Case(case, float(found), target=float(tradeoff.subsample(p, mu, alpha)))


@cache
def _subsampled(route: str, p: float, mu: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return C_p(G_mu) as a function of alpha by a numeric route."""

    def mixed(alpha: np.ndarray) -> np.ndarray:
        return p * gaussian_dp.tradeoff(alpha, mu) + (1 - p) * (1 - alpha)

    if route == "double conjugate":
        return tradeoff.double_conjugate(
            lambda alpha: np.minimum(mixed(alpha), tradeoff.inverse(mixed, alpha)), knots=2001
        )
    tails = tradeoff.subsampled_tails(tradeoff.gaussian_tails(mu), p)
    return tradeoff.PrivacyLoss.of(tradeoff.composed(tails, 1)).tradeoff


def subsampling_tight(p: float, mu: float, alpha: float) -> Case:
    """Test a record that is replaced, with or against the record that takes its place in other batches."""
    threshold = norm.isf(alpha)
    reached = (1 - p) * norm.cdf(threshold) + p * norm.cdf(threshold - mu)
    case = f"a pair attains it: p = {p:.4g}, mu = {mu}, alpha = {alpha}"
    return Case(case, float(reached), target=float(tradeoff.subsample(p, mu, alpha)))


def dpsgd_valid(sigma: float) -> Case:
    """Hold what a pair of data sets reaches over the run against the composed C_p.

    The pair: all other records' gradients equal that of one of the two versions, so a round's output is N(0, 1) or
    a mixture with N(1/sigma, 1), as for Poisson batches with a record removed.
    """
    reached = epsilon_of(tradeoff.poisson_guarantee(noise_multiplier=sigma, **run()))
    bound = epsilon_of(tradeoff.dpsgd_guarantee(sigma=sigma, adversary="A0", **run()))
    return Case(f"a pair over the run, sigma = {sigma}", reached, target=bound)


def dpsgd_tight(sigma: float) -> Case:
    """Hold what that pair reaches against the composed C_p: below it nothing is decided, for another might reach it."""
    case = dpsgd_valid(sigma)
    reaches = abs(case.estimate - case.target) <= 2e-3
    return Case(case.case, case.estimate, error=0.0 if reaches else math.nan, target=case.target)


def dpsgd_tight_one_round(sigma: float) -> Case:
    """Divide P(A) - e Q(A), A the half line of a likelihood ratio above e, by delta of one round at epsilon = 1."""
    p = run()["m"] / run()["n"]
    edge = math.log((math.e - 1 + p) / p) * sigma + 1 / (2 * sigma)
    reached = p * norm.sf(edge - 1 / sigma) + (1 - p) * norm.sf(edge) - math.e * norm.sf(edge)
    expected = tradeoff.subsampled_delta(1.0, p, 1 / sigma)
    return Case(f"one round, sigma = {sigma}", float(reached) / float(expected), target=1.0)


def a1_weaker(sigma: float, batch: int, epochs: int, alpha: float | None = None) -> Case:
    """Hold A0's epsilon at or below A1's, or A1's curve at or below A0's at a type I error."""
    a0, a1 = (_guarantee(name, run()["n"], batch, epochs, sigma) for name in ("A0", "A1"))
    case = f"batches of {batch}, {epochs} epochs, sigma = {sigma}"
    if alpha is None:
        return Case(f"epsilon, {case}", epsilon_of(a0), target=epsilon_of(a1))
    return Case(f"type II error at {alpha:g}, {case}", float(a1.tradeoff(alpha)), target=float(a0.tradeoff(alpha)))


@cache
def _guarantee(adversary: str, n: int, m: int, epochs: int, sigma: float, group: int = 1) -> tradeoff.Guarantee:
    """Return what an adversary learns of a run."""
    return tradeoff.dpsgd_guarantee(n=n, m=m, epochs=epochs, sigma=sigma, adversary=adversary, group_size=group)


def clt(sigma: float, delta: float) -> Case:
    """Compare the distance from the central limit at N/m = 128 with that at 32, T = (N/m)^2."""
    near, far = (_distance_from_limit(ratio, sigma, delta) for ratio in (128, 32))
    return Case(f"sigma = {sigma}, delta = {delta:g}: {far:.2g} at 32, {near:.2g} at 128", 1 - near / far)


def _distance_from_limit(ratio: int, sigma: float, delta: float) -> float:
    """Return how far mu of ratio^2 rounds with batches of N/ratio is from Corollary 5.4's, as a share of the latter."""
    exact = _mu_at(_guarantee("A0", ratio, 1, ratio, sigma), delta)
    return abs(exact / float(tradeoff.clt_mu(1 / ratio, ratio**2, sigma)) - 1)


def _mu_at(guarantee: tradeoff.Guarantee, delta: float) -> float:
    """Return the mu of the Gaussian guarantee with the same epsilon at `delta`."""
    return float(gaussian_dp.mu(float(guarantee.epsilon(delta)), delta))


def clt_a1(sigma: float, epochs: int) -> Case:
    """Compare the mu that A1's guarantee has at delta = 1e-2 with that at 1e-6, N/m = 4096: a Gaussian has one."""
    guarantee = _guarantee("A1", 4096, 1, epochs, sigma)
    return Case(f"{epochs} epochs, sigma = {sigma}", _mu_at(guarantee, 1e-2) / _mu_at(guarantee, 1e-6), target=1.0)


def clt_a1_growing_epochs(sigma: float, delta: float) -> Case:
    """Compare how far mu against A1 is from c/sigma after c^2 = 500 epochs with the same after 100, N/m = 4096."""
    near, far = (
        abs(_mu_at(_guarantee("A1", 4096, 1, epochs, sigma), delta) * sigma / math.sqrt(epochs) - 1)
        for epochs in (500, 100)
    )
    return Case(f"sigma = {sigma}, delta = {delta:g}: {far:.2g} at 100, {near:.2g} at 500", 1 - near / far)


def epochs_not_rounds(sigma: float, batch: int) -> Case:
    """Compare A1's mu with that at batches of one record."""
    here, smallest = (equivalent_mu(_guarantee("A1", run()["n"], m, EPOCHS, sigma)) for m in (batch, 1))
    return Case(f"batches of {batch} against 1, sigma = {sigma:g}", here / smallest, target=1.0)


def epochs_simple(sigma: float, epochs: int) -> Case:
    """Compare mu against A1 with sqrt(E)/sigma."""
    return Case(f"E = {epochs}, sigma = {sigma:g}", _mu_over_simple("A1", sigma, epochs), target=1.0)


def epochs_bounds(sigma: float, epochs: int) -> Case:
    """Hold what mu against A1 is above sqrt(E)/sigma, in units of what h is, at most 1."""
    exact, bound = (_mu_over_simple(name, sigma, epochs) for name in ("A1", "h"))
    return Case(f"E = {epochs}, sigma = {sigma:g}", (exact - 1) / (bound - 1), target=1.0)


def epochs_limit(sigma: float, epochs: int, errors: str) -> Case:
    """Return how far mu against A1 is below sqrt(E)/sigma, over how far h-bar's is: at most 1 by the claim.

    `errors`: mu "in the tail", at delta = 1e-5, or where both errors are "equal".
    """
    mu_over_simple = {"in the tail": _mu_over_simple, "equal": _mu_at_equal_errors_over_simple}[errors]
    exact, bound = (mu_over_simple(name, sigma, epochs) for name in ("A1", "h_bar"))
    return Case(f"errors {errors}, E = {epochs}, sigma = {sigma:g}", (1 - exact) / (1 - bound), target=1.0)


def _mu_over_simple(adversary: str, sigma: float, epochs: int) -> float:
    """Return mu at equal epsilon over sqrt(E)/sigma."""
    exact = equivalent_mu(_guarantee(adversary, run()["n"], run()["m"], epochs, sigma))
    return exact / float(tradeoff.shuffled_mu(epochs, sigma))


def _mu_at_equal_errors_over_simple(adversary: str, sigma: float, epochs: int) -> float:
    """Return mu of the Gaussian curve with the same point of equal errors, over sqrt(E)/sigma."""
    curve = _guarantee(adversary, run()["n"], run()["m"], epochs, sigma).tradeoff
    # On a scale of normal quantiles, for both errors may be as small as 1e-12.
    quantile = zero_between(lambda z: float(curve(norm.sf(z)) - norm.sf(z)) / norm.sf(z), 0.0, 30.0)
    return 2 * quantile / float(tradeoff.shuffled_mu(epochs, sigma))


def group(batch: int, g: int) -> Case:
    """Compare how mu grows with the group with sqrt(g)."""
    return Case(f"batches of {batch}, g = {g}", _growth(batch, g) / math.sqrt(g), target=1.0)


def group_below_g(batch: int, g: int) -> Case:
    """Compare how mu grows with the group with g."""
    return Case(f"batches of {batch}, g = {g}", 1 - _growth(batch, g) / g)


def _growth(batch: int, g: int) -> float:
    """Return mu of a group over that of one record, sub-sampled, at equal epsilon against A1."""
    many, one = (equivalent_mu(_guarantee("A1", RECORDS, batch, EPOCHS, SIGMA, size)) for size in (g, 1))
    return many / one


def group_shuffled(epsilon: float, batch: int, g: int) -> Case:
    """Hold the exact delta of a group under shuffling against that of G of sqrt(gE)/sigma."""
    sigma = settings("errata_sigma")
    exact = tradeoff.revealed_shuffled(n=RECORDS, m=batch, epochs=EPOCHS, sigma=sigma, group_size=g)
    stated = gaussian_dp.delta(epsilon, tradeoff.shuffled_mu(EPOCHS, sigma, g))
    case = f"g = {g}, batches of {batch}, epsilon = {epsilon:g}"
    return Case(case, float(exact.delta(epsilon)), target=float(stated))


def group_shuffled_about(batch: int, g: int) -> Case:
    """Compare mu of a group under shuffling with sqrt(gE)/sigma."""
    exact = tradeoff.revealed_shuffled(n=RECORDS, m=batch, epochs=EPOCHS, sigma=SIGMA, group_size=g)
    ratio = equivalent_mu(exact) / float(tradeoff.shuffled_mu(EPOCHS, SIGMA, g))
    return Case(f"batches of {batch}, g = {g}", ratio, target=1.0)


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
    return ClaimEvidence(cases, beside=[*replaced, *_samplers_trained(results)])


def _between(name: str, needed: float, enough: float) -> Case:
    """Return the case of a factor between two numbers, of which the one that decides is the estimate."""
    decided = needed > MOST_OF_TWO or enough < LEAST_OF_TWO or LEAST_OF_TWO <= needed <= enough <= MOST_OF_TWO
    estimate = needed if needed > MOST_OF_TWO else enough
    named = f"{name}: {needed:.3g} needed, {enough:.3g} enough"
    return Case(named, estimate, error=0.0 if decided else math.nan, target=2.0)


def batch_norm(batch: int) -> Case:
    """Find two batches that differ in one record whose sums of clipped gradients are farther apart than 2C."""
    return Case(f"batches of {batch}", _farthest(batch, axis=0) - 1)


def layer_norm(batch: int) -> Case:
    """Hold the same two batches, normalised record by record, within 2C."""
    return Case(f"batches of {batch}", _farthest(batch, axis=1) - 1)


def _farthest(batch: int, axis: int, *, features: int = 196, classes: int = 10, clip_norm: float = 0.1) -> float:
    """Return the distance over 2C of the sums of two batches of softmax regression that differ in their first record.

    The others lie in the middle, a little apart; the record lies above or below them in every feature, so it moves
    their means over the batch to one side or the other; and its features rise or fall. Computed in double precision,
    because the audit compares digits that differ between processors in single precision.
    """
    module = softmax_regression(features, classes)
    rule = LinearGradients(module, cross_entropy)
    double = torch.float64
    weights = torch.zeros(1, classes * (features + 1), dtype=double)
    labels = torch.zeros(batch, dtype=torch.int64)
    rising, sums = torch.linspace(-1, 1, features, dtype=double), []
    for record in (0.2 + 0.2 * rising, 0.8 - 0.2 * rising):
        inputs = 0.5 + 0.01 * rising.repeat(batch, 1)
        inputs[0] = record
        whole = (normalised(inputs, axis), labels, torch.ones(batch, dtype=double))
        sums.append(rule.clipped_sums(weights, whole, torch.tensor([clip_norm], dtype=double)))
    return float((sums[0] - sums[1]).norm()) / (2 * clip_norm)


def last_epoch_noise(epochs: int) -> Case:
    """Compose the epochs of a run with the chapter's smaller last sigma, one by one."""
    mus = [1 / SIGMA] * (epochs - 1) + [math.sqrt(epochs + 1) / SIGMA]
    closed = math.sqrt(2) * float(tradeoff.shuffled_mu(epochs, SIGMA))
    return Case(f"mu of the run, E = {epochs}", float(gaussian_dp.compose(mus)), target=closed)


def arsinh_noise(scale: float) -> Case:
    """Compare the tail of arsinh noise, sigma = 1, beyond four of its standard deviations with a Gaussian's."""
    deviation = _arsinh_deviation(scale)
    tail = 2 * norm.sf(scale * math.sinh(4 * deviation / scale))
    case = f"beyond 4 deviations: a = {scale} sigma, standard deviation {deviation:.4f}"
    return Case(case, float(tail), target=float(2 * norm.sf(4)))


batch_scaling = partial(_batch_scaling, "rounds")
batch_scaling_epochs = partial(_batch_scaling, "epochs")
last_epoch_equal_budget = partial(_strategies_compared, "last_epoch")
adaptive_clip = partial(_strategies_compared, "adaptive_clip")
batch_clip = partial(_strategies_compared, "batch_clip")
delay_closings = partial(_delay_loop, "late_64", epochs=40, sign=-1)
delay_few_closings = partial(_delay_loop, "late_16", epochs=2)
delay_small_steps = partial(_delay_loop, "late_16", epochs=10, learning_rate=0.25)
