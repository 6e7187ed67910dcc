"""Messages of asoodeh2020's figures: what each picture shows, in a sentence made from the numbers that are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.reporting.display_names import all_or, listed, span

if TYPE_CHECKING:
    import pandas as pd

_ROUTES = {
    "proposition_1": "the Rényi bound of Proposition 1",
    "optimal_shift": "the Rényi bound with its best shift",
    "shifted_gdp": "shifted interpolation",
}


def curves(data: pd.DataFrame) -> str:
    """Say for which records, and up to which epsilon, Theorem 4 is the smallest of the bounds; else what is smaller."""
    wide = data.pivot(index=["i", "epsilon"], columns="route", values="delta")
    rivals = wide[list(_ROUTES)]
    lost = rivals[rivals.min(axis=1) < wide["theorem_4"]]
    if lost.empty:
        return "Theorem 4 proves the smallest δ of the four bounds, for every record and ε shown"
    first = lost.idxmin(axis=1).reset_index(name="route").sort_values("epsilon").drop_duplicates("i")
    parts = [f"record {row.i} from ε = {row.epsilon:g} on ({_ROUTES[row.route]})" for row in first.itertuples()]
    kept = [f"{i}" for i in sorted(data["i"].unique()) if i not in set(first["i"])]
    always = f"always for record {listed(kept)}" if kept else "for no record at every ε"
    return f"Theorem 4 proves the smallest δ {always}; a later bound beats it for {listed(parts)}"


def stopping(data: pd.DataFrame) -> str:
    """Say what a random stop does to the worst record's delta, and where Theorem 5's bound says nothing."""
    worst = data.groupby(["contraction", "route"])["delta"].max()
    texts = []
    for contraction, name in (("figure_2", "at the parameters of Figure 2"), ("weak", "with weak contraction")):
        fixed, bound = worst[contraction, "theorem_4"], worst[contraction, "bound"]
        texts.append(
            f"{name} it bounds the worst record's δ by {bound:.2g} instead of {fixed:.2g}"
            if bound < 1
            else f"{name} it gives {bound:,.0f}, which says nothing"
        )
    return f"Theorem 5's random stop: {', '.join(texts)}"


def bounds(data: pd.DataFrame) -> str:
    """Say how often each bound is the smallest, among settings in which later steps hide a record."""
    names = {"theorem_4": "Theorem 4", "proposition_1": "Proposition 1"}
    hidden = data[data["later_steps"] > 0]
    counts = hidden["smallest"].value_counts()
    parts = [f"{names.get(name, name.replace('_', ' '))} in {count}" for name, count in counts.items()]
    return f"Smallest of four bounds on ε, in {len(hidden)} settings: {listed(parts)}"


def places(data: pd.DataFrame, *, shown_epsilon: float, least_delta: float) -> str:
    """Say how many of the last records carry the loss in public order, and what evens it out."""
    rows = data[(data["law"] == "gaussian") & ((data["epsilon"] - shown_epsilon).abs() < 1e-9)]
    last = rows[rows["variant"] == "last"]
    seen = last[last["delta"] >= least_delta]
    if seen.empty:
        return ""
    records, worst = int(seen["later"].max()) + 1, seen["delta"].max()
    n = int(last["n"].iloc[0])
    text = f"In public order the last {records:,} of {n:,} records bear the loss: δ up to {worst:.1g}"
    text += f" at ε = {shown_epsilon:g}"
    even = rows[rows["variant"] != "last"].groupby("variant")["delta"].max()
    if even.empty or not (even < worst).all():
        return text
    return f"{text}; a secret order or a random stop spreads it, to at most {even.max():.1g}"


def utility(data: pd.DataFrame, names: Mapping[tuple[str, str], str]) -> str:
    """Say which way has the least excess risk at the largest epsilon of each panel, and by how much."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    winners, factors = [], []
    for _, panel in private.groupby(["dataset", "model", "law"]):
        end = panel[panel["epsilon"] == panel["epsilon"].max()].set_index(["order", "release"])["excess_risk"]
        winners.append(end.idxmin())
        factors.append(end.max() / end.min())
    best = max(winners, key=winners.count)
    times = span((factor for factor, winner in zip(factors, winners, strict=True) if winner == best), "{:,.0f}")
    return (
        f"At the largest ε, the {names[best]} has the least excess risk in {all_or(winners.count(best), len(winners))} "
        f"panels, {times} times below the worst way"
    )
