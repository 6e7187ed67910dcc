"""Notes below tables and figures: how many runs, on which data, which stand-ins."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.catalog import dataset_entries

_MODEL_NAMES = {
    "cnn_relu": "CNN + ReLU",
    "cnn_tanh": "CNN + tanh",
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
}


def count_range(counts: pd.Series) -> str:
    """Return counts as text: one number where they are alike, else "least to most"; "0" where there are none."""
    if counts.empty:
        return "0"
    least, most = int(counts.min()), int(counts.max())
    return f"{least}" if least == most else f"{least} to {most}"


def data_name(dataset: str, stand_in_for: str = "") -> str:
    """Return the name under which a dataset's numbers are shown, with what it stands in for ("" for nothing)."""
    title = dataset_entries()[dataset]["title"]
    if not stand_in_for or "stand-in for" in title:
        return title
    return f"{title} (stand-in for {dataset_entries()[stand_in_for]['title']})"


def model_name(model: str) -> str:
    """Return the name under which a model's numbers are shown: that of the papers, else its key in words."""
    return _MODEL_NAMES.get(model, model.replace("_", " "))


def budget_name(epsilon: float) -> str:
    """Return a budget as a name, infinity as "no privacy"."""
    return "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def budget_cell(epsilon: float) -> str:
    """Return a budget as a column of budgets shows it, infinity as "none"."""
    return "none" if math.isinf(epsilon) else f"{epsilon:g}"


def percent(share: float) -> str:
    """Return a share as whole per cents, as every text writes them: "95 %"."""
    return f"{100 * share:.0f} %"


def stand_ins(data: pd.DataFrame) -> list[str]:
    """Return the names of the stand-ins in a table with the columns dataset and stand_in_for, in alphabetical order."""
    return sorted(set(data.loc[data["stand_in_for"] != "", "dataset"]))


def data_note(data: pd.DataFrame) -> str:
    """Return how many runs a point has, on which data, and what the intervals are."""
    named = data[["dataset", "stand_in_for"]].drop_duplicates().itertuples(index=False)
    names = ", ".join(data_name(*each) for each in named).replace("Synthetic ", "synthetic ")
    return f"{count_range(data['runs'])} runs a point on {names or 'no data'}; intervals: 90 %."
