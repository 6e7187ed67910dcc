"""Table `canaries` of a paper: claimed epsilons, and the lower bounds that canaries give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dpfl.reporting.display_names import percent
from dpfl.reporting.rules import LEVEL
from dpfl.reporting.tables import TableLayout

if TYPE_CHECKING:
    from dpfl.reporting.results import Results

EXPERIMENT = "canaries"
_OTHER_BOUNDS = {
    "gaussian_fit_lower_bound": "by Gaussian fit",
    "one_run_lower_bound": "by one run",
    "one_run_gaussian_lower_bound": "by one run and fit",
}
_COLUMNS = [
    "dataset", "stand_in_for", "data_note", "clients", "noise", "clipping", "epsilon", "seed", "canaries", "guesses",
    "right_guesses", "mates", "statistic", "positives", "true_positives", "false_positives", "confidence",
    "epsilon_lower_bound", *_OTHER_BOUNDS, "claimed_epsilon", "known_bad", "privacy_sampling",
    "privacy_neighbouring", "privacy_records", "privacy_delta", "noise_multiplier",
]  # fmt: skip


def canaries(results: Results, paper: str) -> pd.DataFrame:
    """Return one row per run that was attacked; `noise` and `clipping` are "" where the paper has no such setting.

    The columns are those of dpfl.attacks.canaries.train. `refuted`: whether epsilon_lower_bound, which assumes
    nothing on the law of the run, is above what is claimed. Where none ran the table has no rows.
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
            "ε stated (proven)": data["claimed_epsilon"].map("{:.3g}".format),
            "neighbours": data["neighbouring"].map(lambda name: str(name).replace("_", " ")),
            "ε at least": data["epsilon_lower_bound"].map("{:.3g}".format),
            **{title: data[name].map("{:.3g}".format).replace("nan", "–") for name, title in _OTHER_BOUNDS.items()},
            "right guesses": [f"{r} of {g}" for r, g in zip(data["right_guesses"], data["guesses"], strict=True)],
            "claim": data["refuted"].map({True: "refuted", False: "not refuted"}),
            "remark": data["known_bad"].map({True: "known to be broken", False: ""}),
        }
    )
    level = percent(data["confidence"].iloc[0] if len(data) else LEVEL)
    notes = [
        f"ε at least: a lower bound at {level} confidence each, for an observer of every step. It comes from many "
        "trainings with and without the record, on gradients that the attacker chooses, and needs no law.",
        "ε stated: proven if every record's gradient is clipped. Runs that are known to be broken state a false one.",
        "By Gaussian fit: from the same trainings, if the scores are normal. By one run: from guesses about canaries "
        "among the real records (Steinke, Nasr, Jagielski 2023, Theorem 5.2); with fit: if the trade-off curve is "
        "Gaussian (Mahloujifar, Melis, Chaudhuri 2025).",
        "A claim that is not refuted is not thereby proven: another attack may reach more.",
    ]
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return TableLayout(body, [*notes, *(f"{name} stands in for {real}." for name, real in pairs if real)])
