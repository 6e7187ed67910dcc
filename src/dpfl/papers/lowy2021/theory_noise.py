"""The theory studies' noise twice: by the paper's formulas, and by the exact accounting that the tight runs use."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from dpfl.accounting import gaussian_dp, isrl_dp
from dpfl.papers.lowy2021.theory_runs import study
from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout

_SETTING = ["study", "algorithm", "epsilon", "delta", "records", "rounds"]


def data(results: Results) -> pd.DataFrame:
    """Return one row per private setting of an untrusting study: both noise multipliers, and what either spends."""
    runs = study(results)
    chosen = (runs["trust"] == "nobody") & (runs["noise"] == "tight") & (runs["epsilon"] < math.inf)
    rows = runs[chosen].drop_duplicates(_SETTING)[[*_SETTING, "noise_multiplier", "privacy_epsilon_proven"]]
    rows = rows.rename(columns={"noise_multiplier": "tight", "privacy_epsilon_proven": "tight_spends"})
    formula = np.array([_formula(row) for row in rows.itertuples()])
    uses = np.where(rows["algorithm"] == "one_pass", 1, rows["rounds"])
    spent = gaussian_dp.epsilon(rows["delta"].to_numpy(), 2.0 * np.sqrt(uses) / formula)
    return rows.assign(theorem=formula, theorem_spends=spent).reset_index(drop=True)


def page(rows: pd.DataFrame) -> TableLayout:
    """Lay the ranges of each study, algorithm and budget out."""
    body = []
    for (name, algorithm, epsilon), group in rows.groupby(["study", "algorithm", "epsilon"], sort=False):
        spends = group["theorem_spends"]
        body.append(
            {
                "study": name.replace("_", " "),
                "algorithm": algorithm.replace("_", " "),
                "ε asked": f"{epsilon:g}",
                "settings": str(len(group)),
                "noise, tight": _range(group["tight"]),
                "noise, theorem": _range(group["theorem"]),
                "ε spent, tight": _range(group["tight_spends"]),
                "ε spent, theorem": _range(spends),
                "times looser": _range(epsilon / spends),
            }
        )
    notes = [
        "Noise multiplier: standard deviation over the norm bound of one record's share of a message, sigma K / L."
    ]
    notes += ["Full batches, or each record once: both accountings are exact for the mechanism that runs."]
    return TableLayout(pd.DataFrame(body), notes)


def _formula(row) -> float:
    """Return the paper's sigma K / L: Theorem 2.2's for one pass, else Theorem 2.1's and 2.3's."""
    budget = {"epsilon": row.epsilon, "delta": row.delta, "lipschitz": 1.0}
    if row.algorithm == "one_pass":
        return math.sqrt(isrl_dp.one_pass_variance(**budget))
    variance = isrl_dp.advanced_composition_variance(**budget, rounds=row.rounds, records=row.records)
    return row.records * math.sqrt(variance)


def _range(values: pd.Series) -> str:
    """Return one number, or two that span the values."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"
