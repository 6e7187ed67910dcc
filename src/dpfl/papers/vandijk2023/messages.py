"""Messages of vandijk2023's figures: what each picture shows, in a sentence made from the numbers that are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dpfl.reporting.display_names import all_or, data_name, listed, span

SHOWN_ALPHA = 1e-3
"""Type I error at which the powers of two adversaries are compared."""
_SMALL = 0.1
"""Largest type I error of the panel of small errors."""


def tradeoff(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say how often either adversary finds a record, and which approximations understate adversary A1."""
    power = 1 - data.pivot(index="alpha", columns="curve", values="beta")
    at = power.loc[float(power.index[np.argmin(np.abs(power.index - SHOWN_ALPHA))])]
    small = power[(power.index > 0) & (power.index <= _SMALL)]
    under = [names[curve] for curve in names if (small[curve] < small["A1"] * (1 - 1e-6)).all()]
    text = (
        f"Who knows which rounds used a record (A1) finds it with power {at['A1']:.2g}, not {at['A0']:.2g} (A0), at a "
        f"type I error of {SHOWN_ALPHA:g}"
    )
    return text + (f"; {listed(under)} understate{'s' if len(under) == 1 else ''} this" if under else "")


def epochs(data: pd.DataFrame) -> str:
    """Say between which numbers epsilon lies over all batch sizes, for either adversary."""
    rows = data[data["panel"] == "batches"]
    ends = {curve: span(rows.loc[rows["curve"] == curve, "epsilon"], "{:.2f}") for curve in ("A1", "A0")}
    return (
        f"For an adversary who knows the rounds (A1) ε is {ends['A1']} at any batch size; for one who does not (A0) it "
        f"is {ends['A0']}"
    )


def groups(data: pd.DataFrame) -> str:
    """Say how far from sqrt(g) the growth with the group is, by batch size."""
    rows = data[data["panel"] == "growth"]
    last = rows[rows["group"] == rows["group"].max()]
    texts = [f"{row.mu_ratio / row.group**0.5:.1f} for batches of {row.batch}" for row in last.itertuples()]
    return f"μ of a group of {last['group'].iloc[0]} over the claim, √g times that of one record: {listed(texts)}"


def samplers(data: pd.DataFrame) -> str:
    """Say how much more noise fixed batches need than Poisson ones."""
    least, enough = (data.loc[data["sampler"] == name, "noise_over_poisson"] for name in ("fixed_pair", "fixed"))
    return (
        f"For the same ε, batches of fixed size need at least {span(least, '{:.2f}')} times the noise of Poisson "
        f"batches, and {span(enough, '{:.2f}')} times is enough"
    )


def last_epoch(data: pd.DataFrame) -> str:
    """Say what the chapter's smaller noise in the last epoch costs."""
    chapter, unchanged = (data[data["panel"] == name].set_index("epochs") for name in ("chapter", "unchanged"))
    factors = span(chapter["mu_ratio"], "{:.2f}")
    epsilons = span(chapter["epsilon"] / unchanged["epsilon"], "{:.2f}")
    return f"A last epoch with σ/√(E+1) multiplies μ by {factors} for every E, and ε by {epsilons}"


def asynchrony(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which kinds of asynchrony cost accuracy beyond chance, how much at most, and what the others change."""
    away = data[data["scenario"] != "synchronous"]
    if away.empty:
        return ""
    costs = away[away["difference_pct"] < -away["difference_interval_pct"].fillna(np.inf)]
    most = costs.groupby("panel")["difference_pct"].min().sort_values()
    large = most[most < -1.0]
    rest = away[~away["panel"].isin(large.index)]["difference_pct"].abs().max()
    if large.empty:
        return f"No kind of asynchrony costs over a point of accuracy; the largest change is {rest:.1f}"
    texts = [f"{names[panel]} (up to {-points:.0f} points)" for panel, points in large.items()]
    others = "" if pd.isna(rest) else f"; every other kind changes accuracy by {rest:.1f} points at most"
    return f"Accuracy falls with {listed(texts)}{others}"


def delay(data: pd.DataFrame) -> str:
    """Say how many delayed runs end behind the synchronous one beyond chance, and with which step sizes."""
    late = data[data["scenario"] != "synchronous"]
    if late.empty:
        return ""
    ends = late.sort_values("epoch").groupby(["dataset", "scenario", "epochs", "learning_rate"]).tail(1)
    often = ends[ends["closings"] > 2]
    texts = [
        f"with step {step:g} by {span(-rows['difference_pct'], '{:.1f}')} points"
        for step, rows in often.groupby("learning_rate")
    ]
    return (
        f"Once the loop has closed more than twice, delayed runs end behind the synchronous one {', '.join(texts)}"
        if texts
        else ""
    )


def mixing(data: pd.DataFrame) -> str:
    """Say what judged weights change with and without mislabelled clients."""
    judged = data[data["mixing"] == "judged"]
    texts = []
    for wrong, name in ((True, "with mislabelled clients"), (False, "if all labels are true")):
        rows = judged[(judged["mislabelled"] > 0) == wrong]
        if len(rows):
            beyond = int((rows["difference_pct"].abs() > rows["difference_interval_pct"]).sum())
            texts.append(
                f"{span(rows['difference_pct'], '{:+z.1f}')} points {name} ({beyond} of {len(rows)} beyond chance)"
            )
    return f"Weights by the server's judgement change accuracy by {listed(texts)}" if texts else ""


def scaling(data: pd.DataFrame) -> str:
    """Say what the largest batches cost by what is kept: the epochs or the rounds."""
    largest = data[data["batch_factor"] == data["batch_factor"].max()]
    same = {name: largest[largest["scaling"] == name]["difference_pct"] for name in ("epochs", "rounds")}
    if any(points.empty for points in same.values()) or largest["batch_factor"].iloc[0] == 1:
        return ""
    a = f"{largest['batch_factor'].iloc[0]:g}"
    kept, fewer = (span(same[name], "{:+z.1f}") for name in ("rounds", "epochs"))
    return (
        f"Batches {a} times as large change accuracy by {kept} points in as many rounds, and by {fewer} in as many "
        "epochs"
    )


def samplers_trained(data: pd.DataFrame) -> str:
    """Say how much more accurate Poisson batches are than fixed ones at the least epsilon, by their relation."""
    least = data[data["epsilon"] == data["epsilon"].min()]
    texts = []
    for sampler, name in (("poisson", "if a record is added or removed"), ("poisson_replace", "if one is replaced")):
        rows = least[least["sampler"] == sampler].dropna(subset="difference_pct")
        if len(rows):
            texts.append(f"{span(rows['difference_pct'], '{:+z.1f}')} points {name}")
    if not texts:
        return ""
    return (
        f"Accuracy with Poisson batches less that with batches of fixed size, at ε = {least['epsilon'].iloc[0]:g}: "
        f"{', '.join(texts)}"
    )


def strategies(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which strategies within the budget are better than the constant one beyond chance, and where."""
    paid = data[~data["strategy"].isin(("constant", "last_epoch_unpaid"))]
    if paid.empty:
        return ""
    better = paid[paid["difference_pct"] > paid["difference_interval_pct"]]
    kinds = [
        f"{names[name]} ({len(rows)} of {int((paid['strategy'] == name).sum())} cases)"
        for name, rows in better.groupby("strategy", sort=False)
    ]
    total = paid["strategy"].nunique()
    if not kinds:
        return f"None of {total} strategies within the budget beats constant settings beyond chance"
    beat = "beats" if len(kinds) == 1 else "beat"
    return (
        f"Of {total} strategies within the budget, {len(kinds)} {beat} constant settings beyond chance: {listed(kinds)}"
    )


def preparation(data: pd.DataFrame, names: Mapping[str, str], private: Sequence[str]) -> str:
    """Say in how many cases a preparation with a guarantee is better or worse than plain pixels, beyond chance."""
    rows = data[data["preparation"].isin(private)]
    if rows.empty:
        return ""
    better = rows[rows["difference_pct"] > rows["difference_interval_pct"]]
    worse = rows[rows["difference_pct"] < -rows["difference_interval_pct"]]
    helped = [names[name] for name in better["preparation"].unique()]
    return (
        f"Preparations with a guarantee beat plain pixels beyond chance in {len(better)} of {len(rows)} cases"
        f"{f' ({listed(helped)})' if helped else ''} and are worse in {len(worse)}"
    )


def grid(data: pd.DataFrame) -> str:
    """Say which clip norm is the best in how many maps, and the best cell of each data set."""
    best = data.loc[data.groupby(["dataset", "stand_in_for", "sigma"])["accuracy_pct"].idxmax()]
    clip = best["clip_norm"].mode().iloc[0]
    top = best.loc[best.groupby("dataset")["accuracy_pct"].idxmax()]
    texts = [
        f"{row.accuracy_pct:.1f} % on {data_name(row.dataset, row.stand_in_for)} with σ = {row.sigma:g}"
        for row in top.itertuples()
    ]
    maps = all_or(int((best["clip_norm"] == clip).sum()), len(best))
    return f"C = {clip:g} is the best clip norm in {maps} maps; the best cells have {listed(texts)}"
