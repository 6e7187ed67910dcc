"""Messages of lowy2021's figures: what each picture shows, in a sentence made from the numbers that are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.reporting.display_names import all_or, listed, span

if TYPE_CHECKING:
    import pandas as pd


def figure_2(points: pd.DataFrame) -> str:
    """Say at how many private points minibatch SGD has the smaller mean loss, in the authors' protocol and clipped."""
    private = points[points["epsilon"] < math.inf]
    keys = ["dataset", "clients", "noise", "clipping", "epsilon"]
    wide = private.pivot(index=keys, columns="algorithm", values="test_loss").reset_index()
    if not {"minibatch", "local"} <= set(wide.columns):
        return ""
    wide = wide.dropna()
    texts = []
    for clipping, name in (("mean", "of the authors' protocol"), ("record", "with every record clipped")):
        rows = wide[wide["clipping"] == clipping]
        if len(rows):
            texts.append(f"{all_or(int((rows['minibatch'] < rows['local']).sum()), len(rows))} points {name}")
    return f"Noisy minibatch SGD has a smaller mean loss than noisy local SGD at {listed(texts)}" if texts else ""


def _the(noise: str) -> str:
    """Return the name of a noise within a sentence."""
    return f"the {noise}" if noise.startswith("noise") else noise


def spent(points: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which share of the epsilon asked for each noise spends."""
    private = points[points["epsilon"] < math.inf]
    spends = 100 * private["epsilon_spent"] / private["epsilon"]
    texts = []
    for noise, name in names.items():
        own = spends[private["noise"] == noise]
        if len(own):
            most = f"{own.min():.0f} to over 1,000" if own.max() > 1000 else span(own, "{:.0f}")
            texts.append(f"{most} % under {_the(name)}")
    return f"Of the ε asked for, a run spends {listed(texts)}" if texts else ""


def mnist(points: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say in how many comparisons local SGD has the larger error beyond chance, and by how much under each noise."""
    rows = points[(points["algorithm"] == "local") & (points["epsilon"] < math.inf)].dropna(subset="difference_pct")
    if rows.empty:
        return ""
    worse = int((rows["difference_pct"] > rows["difference_interval_pct"]).sum())
    texts = [
        f"by {span(own['difference_pct'], '{:.1f}')} points under {_the(names[noise])}"
        for noise, own in rows.groupby("noise")
    ]
    share = all_or(worse, len(rows))
    return f"Local SGD has a larger test error than minibatch SGD beyond chance in {share} cases: {', '.join(texts)}"


def acceleration(points: pd.DataFrame) -> str:
    """Say on how many tasks Algorithm 2 is better and worse than the better Algorithm 1 at the theorem's rounds."""
    rows = points[points["theorem"] & (points["epsilon"] < math.inf)].dropna(subset="difference_interval")
    if rows.empty:
        return ""
    better = int((rows["plain_minus_this"] > rows["difference_interval"]).sum())
    worse = int((rows["plain_minus_this"] < -rows["difference_interval"]).sum())
    return (
        f"At the rounds of Theorem 2.3 the accelerated Algorithm 2 has more risk than Algorithm 1 in {worse} of "
        f"{len(rows)} problems and less in {better}, beyond chance"
    )


def one_pass(points: pd.DataFrame) -> str:
    """Say what clients that differ cost, and the range of fitted slopes beside the theorem's."""
    different = points[points["federation"] == "different"]
    if different.empty:
        return ""
    cost = 100 * (different["ratio"] - 1)
    fits = different[different["noise"] == "tight"].drop_duplicates(["problem", "axis"])
    flatter = int((fits["slope"] - fits["slope_interval"] > fits["exponent"]).sum())
    return (
        f"Clients that differ change the risk of one pass by {span(cost, '{:+z.0f}')} %; it falls more slowly than the "
        f"theorem's rate in {all_or(flatter, len(fits))} panels, beyond chance"
    )


def rates(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say in how many panels the fitted power of the risk agrees with the powers of the rate's terms."""
    fits = data.drop_duplicates(["study", "axis", "noise"])
    low, high = (fits[["statistical_power", "private_power"]].agg(how, axis=1) for how in ("min", "max"))
    half = fits["risk_interval"].fillna(0.0)
    inside = (fits["risk_power"] + half >= low) & (fits["risk_power"] - half <= high)
    texts = [
        f"{all_or(int(inside[fits['noise'] == noise].sum()), int((fits['noise'] == noise).sum()))} panels with {name}"
        for noise, name in names.items()
        if (fits["noise"] == noise).any()
    ]
    text = f"The fitted power of the risk agrees with the powers of the rate's terms in {listed(texts)}"
    bounds = data[data["study"].str.startswith("bounds")]
    if len(bounds):
        text += f"; {all_or(int(bounds['applies'].sum()), len(bounds))} points are within the theorem's conditions"
    return text


def free(data: pd.DataFrame) -> str:
    """Say how many times the risk without privacy the risk with it is, and whether the ratio grows."""
    fits = data.drop_duplicates(["study", "axis"])
    grows = int((fits["power"] - fits["power_interval"] > 0).sum())
    return (
        f"Privacy is not free at d/ε² = n: the risk is {span(data['ratio'], '{:.0f}')} times that without privacy, and "
        f"the ratio grows beyond chance in {grows} of {len(fits)} lines"
        if (data["ratio"] > data["ratio_interval"].fillna(0.0) + 1).all()
        else f"At d/ε² = n the risk is {span(data['ratio'], '{:.2g}')} times that without privacy"
    )


def shuffle(points: pd.DataFrame) -> str:
    """Say how the risks with a trusted shuffler and with no trust compare with those of a trusted server."""
    wide = points.pivot(index=["clients", "rounds"], columns="trust", values="excess_risk")
    if not {"nobody", "shuffler", "server"} <= set(wide.columns):
        return ""
    wide = wide.dropna()
    shuffler, nobody = (
        span(wide["shuffler"] / wide["server"], "{:.2g}"),
        span(wide["nobody"] / wide["server"], "{:.0f}"),
    )
    return (
        f"With a trusted shuffler the risk is {shuffler} times that with a trusted server; if nobody is trusted, "
        f"{nobody} times"
    )


def availability(points: pd.DataFrame) -> str:
    """Say how far random participation is from a fixed number with the same mean of 1/M, and with the same mean."""
    random = points[points["law"] == "random"]
    known = random.dropna(subset=["same_inverse_ratio", "same_mean_ratio"])
    if known.empty:
        return ""
    inverse, mean = (span(known[f"same_{name}_ratio"], "{:.2f}") for name in ("inverse", "mean"))
    apart = (known["same_inverse_ratio"] - 1).abs() > known["same_inverse_ratio_interval"]
    verdict = "does not decide" if apart.any() else "decides"
    return (
        f"The mean of 1/M {verdict} the risk: random M has {inverse} times the risk of a fixed M with the same mean of "
        f"1/M, and {mean} times that of one with the same mean"
    )
