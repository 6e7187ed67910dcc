"""Table `canaries` of a paper: claimed epsilons, and the lower bounds that canaries give."""

from __future__ import annotations

import pandas as pd

from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout

EXPERIMENT = "canaries"
_COLUMNS = [
    "dataset", "stand_in_for", "data_note", "clients", "noise", "clipping", "epsilon", "seed", "canaries", "guesses",
    "right_guesses", "confidence", "epsilon_lower_bound", "claimed_epsilon", "known_bad", "privacy_sampling",
    "privacy_neighbouring", "privacy_records", "privacy_delta", "noise_multiplier",
]  # fmt: skip


def canaries(results: Results, paper: str) -> pd.DataFrame:
    """Return a row a run with canaries; `noise` and `clipping` are "" where the paper has no such setting.

    `refuted`: whether the lower bound is above what is claimed. Where none ran the table has no rows.
    """
    runs = results.runs(paper, experiment=EXPERIMENT)
    table = runs.reindex(columns=_COLUMNS).reset_index(drop=True)
    text = ["stand_in_for", "data_note", "noise", "clipping"]
    table[text] = table[text].fillna("").astype(str)
    counts = ["clients", "seed", "canaries", "guesses", "right_guesses", "privacy_records"]
    table[counts] = table[counts].astype(int)
    table["known_bad"] = table["known_bad"].eq(True)
    table["refuted"] = table["epsilon_lower_bound"] > table["claimed_epsilon"]
    return table.rename(columns=lambda name: name.removeprefix("privacy_"))


def canaries_page(data: pd.DataFrame) -> TableLayout:
    """Lay the table out for a reader."""
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "clients": data["clients"].astype(str),
            "what is clipped": data["clipping"].replace("", "record"),
            "noise": data["noise"].replace("", "calibrated").str.replace("_", " "),
            "ε asked": data["epsilon"].map("{:g}".format),
            "ε claimed": data["claimed_epsilon"].map("{:.3g}".format),
            "right guesses": [f"{r} of {g}" for r, g in zip(data["right_guesses"], data["guesses"], strict=True)],
            "canaries": data["canaries"].astype(str),
            "ε at least": data["epsilon_lower_bound"].map("{:.3g}".format),
            "claim": data["refuted"].map({True: "refuted", False: "stands"}),
            "": data["known_bad"].map({True: "known to be broken", False: ""}),
        }
    )
    level = f"{data['confidence'].iloc[0]:.0%}" if len(data) else "95%"
    notes = [
        f"ε at least: lower bound at {level} confidence each, by one run with canaries (steinke2023, Theorem 5.2).",
        "A claim that stands is not proven by this: the bound says only what these canaries could see.",
    ]
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return TableLayout(body, [*notes, *(f"{name} stands in for {real}." for name, real in pairs if real)])
