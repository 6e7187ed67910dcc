"""Verdicts on the paper's claims, from the data of its figures and of its tables of checks and rates."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.asoodeh2021.dimension_figure import dimension_cost
from dpfl.papers.asoodeh2021.figures import CLOSED_FORM
from dpfl.reporting.claims import Check, Verdict, counted, on_stand_in
from dpfl.reporting.evidence import checks_of, errors, passed
from dpfl.reporting.notes import data_note, stand_ins
from dpfl.reporting.results import Results

KEY = "asoodeh2021"
EXPONENT_TOLERANCE = 0.1
"""Distance within which a fitted exponent agrees with the one claimed."""


def theorem2(results: Results) -> Verdict:
    """Both forms agree, and no exact run exceeds them."""
    rows = checks_of(results, KEY, "theorem2")
    runs = rows["case"].str.startswith("exact run")
    forms = rows[~runs]
    return counted(
        int(passed(rows).sum()),
        len(rows),
        f"closed form and sum over rounds agree in {passed(forms).sum()} of {len(forms)} cases (largest difference "
        f"{errors(forms).max():.1e}); the exact one-dimensional algorithm stays within them in "
        f"{passed(rows[runs]).sum()} of {runs.sum()}.",
    )


def steps_down(rows: pd.DataFrame) -> pd.Series:
    """Return, for each epsilon and share of users but the least, whether delta is below that of the next smaller."""
    wide = rows.pivot(index="epsilon", columns="q", values="delta").sort_index(axis=1)
    return (wide.diff(axis=1).iloc[:, 1:] < 0).stack()


def participation(results: Results) -> Verdict:
    """Ordered as published; the order turns round at small shares of users."""
    data = results.figure(KEY, "figure_2")
    closed = data[data["form"] == CLOSED_FORM]
    published = steps_down(closed[closed["panel"] == "published"])
    others = closed[closed["panel"] == "other shares"]
    other = steps_down(others)
    one = others[(others["epsilon"] == 0.5) & (others["q"] <= 0.1)].sort_values("q")
    values = ", ".join(f"{delta:.3f} at q = {q:g}" for q, delta in zip(one["q"], one["delta"], strict=True))
    return counted(
        int(published.sum() + other.sum()),
        len(published) + len(other),
        f"steps to more users lower delta: {published.sum()} of {len(published)} between the published q = 0.1, 0.2 "
        f"and 0.3 at every epsilon drawn, {other.sum()} of {len(other)} between other shares. At epsilon = 0.5 delta "
        f"first rises with q: {values}.",
    )


def price_of_privacy(results: Results) -> Verdict:
    """The exponents of the noise's share are 1 in sigma^2 and -1 in n, and no mean exceeds the corrected bound."""
    rates, means = results.table(KEY, "rates"), results.figure(KEY, "price")
    near = (rates["slope"] - rates["expected"]).abs() <= EXPONENT_TOLERANCE
    below = means["excess_risk"] - means["interval"] <= means["excess_bound"]
    parts = []
    for against, rows in rates.groupby("against"):
        least, most = rows["slope"].min(), rows["slope"].max()
        parts.append(
            f"exponent in {against} {least:.2f} to {most:.2f} (interval at most ±{rows['interval'].max():.2f}), within "
            f"{EXPONENT_TOLERANCE} of {rows['expected'].iloc[0]:g} in {near[rows.index].sum()} of {len(rows)}"
        )
    loose = (means["excess_bound"] / means["excess_risk"]).median() if len(means) else float("nan")
    evidence = (
        f"{'; '.join(parts)}; {below.sum()} of {len(means)} mean excess risks lie within Corollary 1's bound with the "
        f"dimension (90 % intervals), which is {loose:.0f} times too large in the median. {data_note(means)} "
        f"{dimension_cost(results)}"
    )
    verdict = counted(int(near.sum() + below.sum()), len(rates) + len(means), evidence)
    return on_stand_in(stand_ins(means), verdict)


def without_replacement(results: Results) -> Verdict:
    """No excess risk without replacement is above that with replacement by more than its interval."""
    data = results.figure(KEY, "sampling")
    harmless = data["difference"] - data["interval"] <= 0
    better = data["difference"] + data["interval"] < 0
    stopped = data[data["release"] == "random"]
    parts = ", ".join(
        f"{row.one_pass:.3g} against {row.with_replacement:.3g} at m = {row.batch_size:g}, sigma = {row.noise_std:g}"
        for row in stopped.itertuples(index=False)
    )
    evidence = (
        "settings without harm (90 % interval of the paired difference reaches 0 or below); without replacement is "
        f"better in {better.sum()}. Excess risk of the randomly stopped model, which the corollary is about: {parts}. "
        f"{data_note(data)}"
    )
    return on_stand_in(stand_ins(data), counted(int(harmless.sum()), len(data), evidence))


def stopping_costs(results: Results) -> str:
    """Say what excess risk the releases had in runs of one pass."""
    data = results.figure(KEY, "sampling")
    if data.empty:
        return "It was not run here."
    parts = []
    for (dataset, size, sigma), rows in data.groupby(["dataset", "batch_size", "noise_std"]):
        risks = rows.set_index("release")["one_pass"]
        named = ", ".join(f"{name.replace('_', ' ')} {risks[name]:.3g}" for name in risks.index)
        parts.append(f"on {dataset} at m = {size:g} and sigma = {sigma:g} {named}")
    return f"What it buys is excess risk: {'; '.join(parts)}. {data_note(data)}"


def random_stopping(results: Results) -> Verdict:
    """The formulas hold; the suffix does not improve the guarantee, it worsens it."""
    rows = checks_of(results, KEY, "random_stopping")
    suffix = rows["case"].str.startswith("suffix improves")
    formulas, suffixes = rows[~suffix], rows[suffix]
    worse = (suffixes["independent"] / suffixes["ours"]).max()
    return counted(
        int(passed(rows).sum()),
        len(rows),
        f"Corollary 3 and eq. (12) are in order with each other and with the exact stopped run in "
        f"{passed(formulas).sum()} of {len(formulas)} cases. Stopping within the last rounds only improves delta in "
        f"{passed(suffixes).sum()} of {len(suffixes)} and raises it up to {worse:.2f} times: later models have seen "
        f"more of the users. {stopping_costs(results)}",
    )


def relaxed(results: Results) -> Verdict:
    """The relaxed bound is above Theorem 2 and holds for concave losses, for which Theorem 2 need not."""
    rows = checks_of(results, KEY, "relaxed")
    runs = rows["case"].str.startswith("exact run")
    ordered, exact = rows[~runs], rows[runs]
    theorem = ordered["independent"].to_numpy()
    beyond = (exact["independent"].to_numpy() > theorem + exact["tolerance"].to_numpy()).sum()
    return counted(
        int(passed(rows).sum()),
        len(rows),
        f"Theorem 2 lies below the relaxed bound in {passed(ordered).sum()} of {len(ordered)} cases (by at most "
        f"{(ordered['ours'] - theorem).max():.3g}); exact one-dimensional runs with concave losses stay within it in "
        f"{passed(exact).sum()} of {len(exact)} and exceed Theorem 2, which does not cover them, in {beyond}.",
    )


CLAIMS: dict[str, Check] = {
    "theorem2": theorem2,
    "participation": participation,
    "price_of_privacy": price_of_privacy,
    "without_replacement": without_replacement,
    "random_stopping": random_stopping,
    "relaxed": relaxed,
}
