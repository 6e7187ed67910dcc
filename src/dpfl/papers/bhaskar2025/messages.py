"""Messages of bhaskar2025's figures: what each picture shows, in a sentence made from the numbers that are drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

from dpfl.papers.bhaskar2025.published_cells import BIMODAL_PCT
from dpfl.reporting.bounds import at_least
from dpfl.reporting.display_names import EpsilonVerdict, all_or, epsilon_verdict, listed, span
from dpfl.reporting.statistics import slope

if TYPE_CHECKING:
    import pandas as pd


def splits(cells: pd.DataFrame) -> str:
    """Say in how many lines of our runs twenty local epochs a round are less accurate than one, and by how much."""
    ran = cells[cells["runs"] > 0]
    ran = ran.assign(median_pct=[median(json.loads(text)) for text in ran["run_accuracies_pct"]])
    wide = ran.pivot(index=["dataset", "model", "epsilon"], columns="local_epochs", values="median_pct")
    if wide.shape[1] < 2:
        return ""
    least, most = wide.columns[0], wide.columns[-1]
    lost = (wide[least] - wide[most]).dropna()
    if lost.empty:
        return ""
    worse = all_or(int((lost > 0).sum()), len(lost))
    return (
        f"{most} local epochs a round are less accurate than {least} in {worse} lines that ran both, by "
        f"{span(lost, '{:.1f}')} points"
    )


def readings(cells: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say which difference between text and code changes accuracy most, by its median over the cells with a mean."""
    apart = (cells[f"{side}_most_pct"] - cells[f"{side}_least_pct"] for side in ("code", "text"))
    steady = cells[(sum(each > BIMODAL_PCT for each in apart) == 0) & (cells["difference"] != "all")]
    if steady.empty:
        return ""
    medians = steady["effect_pct"].abs().groupby(steady["difference"]).median().sort_values()
    first = (
        f"Of {len(medians)} differences between text and code, one changes accuracy most: {names[medians.index[-1]]}"
    )
    return f"{first}, by {medians.iloc[-1]:.1f} points in the median cell"


def distances(cells: pd.DataFrame) -> str:
    """Say with which power of the clients the average's distance falls, and whether the printed bound is exceeded."""
    first = cells[(cells["reference"] == "noiseless") & (cells["round"] == "first")]
    texts = []
    often = first[first["local_epochs"] == first["local_epochs"].min()]
    powers = [
        slope(line["clients"], line["distance"])
        for _, line in often.groupby(["ran_on", "model", "epsilon"])
        if line["clients"].nunique() > 2
    ]
    if powers:
        texts.append(f"Averaging over k clients shrinks the effect of noise as k to the power {span(powers, '{:.2f}')}")
    bounded = first.dropna(subset="bound_epochs")
    over = int((bounded["local_distance"] > bounded["bound_epochs"]).sum())
    kept = int((bounded["local_distance"] <= bounded["bound_steps"]).sum())
    if len(bounded):
        texts.append(
            f"the bound holds in {all_or(kept, len(bounded))} cells with E in steps, and is exceeded in {over} with E "
            "in passes"
        )
    text = "; ".join(texts)
    return text[:1].upper() + text[1:]


def sampling(cells: pd.DataFrame) -> str:
    """Say for which budgets the claimed epsilon is refuted for shuffled batches, and what a proof costs in accuracy."""
    shuffled = cells[cells["sampling"] == "shuffled_epochs"].drop_duplicates(["ran_on", "model", "epsilon"])
    false = [
        f"{row.epsilon:g} (at least {at_least(row.epsilon_refuted)})"
        for row in shuffled.itertuples()
        if epsilon_verdict(row.epsilon, row.epsilon_proven, row.epsilon_refuted) is EpsilonVerdict.REFUTED
    ]
    claim = "the claim ε = {} is" if len(false) == 1 else "the claims ε = {} are"
    text = "No ε is refuted for shuffled batches"
    if false:
        text = f"For shuffled batches {claim.format(listed(false))} false"
    overall = cells[(cells["split"] == "all") & (cells["sampling"] != "shuffled_epochs")]
    if overall.empty:
        return text
    change = span(overall["over_shuffled_pct"], "{:+z.2f}")
    return f"{text}; Poisson and balls-in-bins batches change accuracy by {change} points at the same noise"
