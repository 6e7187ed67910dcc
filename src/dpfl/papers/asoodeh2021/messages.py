"""Messages of asoodeh2021's figures: what each picture shows, in a sentence made from the numbers that are drawn."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.reporting.display_names import all_or, listed, span
from dpfl.reporting.statistics import slope

_SAME = 0.02
"""Relative difference up to which two risks are called the same."""


def theorem(data: pd.DataFrame, *, closed_form: str, one_round: str) -> str:
    """Say how far the published curves are from the delta of one round alone."""
    published = data[data["panel"] == "published"].set_index(["q", "epsilon"])
    closed, alone = (published.loc[published["form"] == form, "delta"] for form in (closed_form, one_round))
    gap = float((closed / alone - 1).abs().max())
    if gap < 1e-3:
        return "At the published settings contraction changes nothing: δ is that of one round alone"
    return f"At the published settings δ differs from that of one round alone by up to {100 * gap:.0f} %"


def price(data: pd.DataFrame) -> str:
    """Say with which powers the cost of noise grows with sigma^2 and falls with the users."""
    rows = data[data["study"] == "price"]
    keys = ["dataset", "batch_size", "users"]
    silent = rows[rows["noise_std"] == 0].set_index(keys)["excess_risk"]
    noisy = rows[rows["noise_std"] > 0]
    noisy = noisy.assign(share=noisy["excess_risk"] - silent.reindex(pd.MultiIndex.from_frame(noisy[keys])).to_numpy())
    free = noisy[noisy["excess_risk"] < noisy["idle_excess_risk"]].dropna(subset="share")
    most = free[free["users"] == free["users"].max()]
    by_noise = [
        slope(line["noise_std"] ** 2, line["share"])
        for _, line in most.groupby(["dataset", "batch_size"])
        if len(line) > 2
    ]
    by_users = [
        slope(line["users"], line["share"])
        for _, line in free.groupby(["dataset", "batch_size", "noise_std"])
        if len(line) > 2
    ]
    texts = [
        f"{verb} to the power {span(powers, '{:.2f}')}"
        for verb, powers in (("grows as σ²", by_noise), ("falls as n", by_users))
        if powers
    ]
    return f"The cost of noise {' and '.join(texts)}" if texts else ""


def dimension(data: pd.DataFrame) -> str:
    """Say with which power of the dimension the cost of noise grows, and where the risks are beside the bounds."""
    powers = data["exponent"].dropna()
    if powers.empty:
        return ""
    above = int((data["excess_risk"] > data["bound_as_printed"]).sum())
    place = "no risk exceeds it here" if not above else f"{above} of {len(data)} risks exceed it"
    return (
        f"The cost of noise grows as d to the power {span(powers, '{:.2f}')}; the published bound has no d, but {place}"
    )


def sampling(data: pd.DataFrame) -> str:
    """Say by how much drawing users without replacement changes the risk, without and with noise."""
    change = 100 * data["difference"] / data["with_replacement"]
    clear = data["difference"].abs() > data["interval"]
    texts = []
    for noisy, name in ((False, "no noise"), (True, "with noise")):
        chosen = (data["noise_std"] > 0) == noisy
        if chosen.any():
            beyond = f"{int(clear[chosen].sum())} of {int(chosen.sum())} beyond chance"
            texts.append(f"{name} {span(change[chosen], '{:+.1f}')} % ({beyond})")
    return f"Change of the risk if users are drawn without replacement: {', '.join(texts)}"


def frontier(data: pd.DataFrame) -> str:
    """Say what hiding the models gains, and how often fresh batches with every model released do better."""
    keys = ["dataset", "users", "epsilon"]
    private = data[data["epsilon"] < math.inf]
    wide = private.pivot(index=keys, columns="way", values="excess_risk")
    if not {"hidden", "shown", "composed"} <= set(wide.columns):
        return ""
    pairs = wide.dropna()
    apart = float((pairs["hidden"] / pairs["shown"] - 1).abs().max())
    hiding = "gains nothing" if apart <= _SAME else f"changes the risk by up to {100 * apart:.0f} %"
    better = int((pairs["composed"] < pairs["hidden"]).sum())
    return (
        f"Hiding the intermediate models {hiding}; fresh batches that release every model have less risk at "
        f"{all_or(better, len(pairs))} points"
    )


def hiding(data: pd.DataFrame) -> str:
    """Say for which numbers of users a round the last model alone has the smaller epsilon."""
    texts = [
        f"in {int((rows['gain'] > 1 + _SAME).sum())} of {len(rows)} settings with m = {m:g}"
        for m, rows in data.groupby("m")
    ]
    return f"Releasing the last model alone lowers ε by over 2 % {listed(texts)}"


def five_papers(data: pd.DataFrame) -> str:
    """Say how much more risk the best way without trust has than the best with a trusted aggregator."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    least, factors, points = private["epsilon"].min(), [], []
    for _, task in private[private["epsilon"] == least].groupby("dataset"):
        trusted, alone = (
            task[task["trust"] == trust] for trust in ("trusted aggregator", "no trust outside the client")
        )
        if trusted.empty or alone.empty:
            return ""
        best, own = (rows.loc[rows["excess_risk"].idxmin()] for rows in (trusted, alone))
        factors.append(own["excess_risk"] / best["excess_risk"])
        points.append(best["accuracy_pct"] - own["accuracy_pct"])
    risks, accuracies = span(factors, "{:.2g}"), span(points, "{:.1f}")
    return (
        f"At ε = {least:g} the best way that trusts nobody has {risks} times the excess risk of the best with a "
        f"trusted aggregator, and {accuracies} points less accuracy"
    )
