"""Table `canaries` of a paper: claimed epsilons, and the lower bounds that canaries give."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpfl.accounting import FixedBatches, Poisson
from dpfl.attacks.lower_bounds import TestErrors
from dpfl.attacks.noise_family import family_epsilon
from dpfl.reporting.display_names import percent
from dpfl.reporting.rules import LEVEL
from dpfl.reporting.tables import TableLayout

if TYPE_CHECKING:
    from dpfl.reporting.results import Results

EXPERIMENT = "canaries"
_BOUNDS = {
    "epsilon_lower_bound": "no assumption",
    "family_lower_bound": "Gaussian noise, sampler as stated",
    "gaussian_fit_lower_bound": "normal scores",
    "one_run_lower_bound": "one run, no assumption",
    "one_run_gaussian_lower_bound": "one run, Gaussian curve",
}
"""Column of each lower bound, and what it assumes."""
_KINDS = {"Poisson": Poisson, "FixedBatches": FixedBatches}
_COLUMNS = [
    "dataset", "stand_in_for", "data_note", "clients", "noise", "clipping", "epsilon", "seed", "canaries", "guesses",
    "right_guesses", "mates", "statistic", "positives", "true_positives", "false_positives", "confidence",
    *_BOUNDS, "claimed_epsilon", "known_bad", "privacy_sampling",
    "privacy_neighbouring", "privacy_records", "privacy_delta", "noise_multiplier",
]  # fmt: skip


def canaries(results: Results, paper: str) -> pd.DataFrame:
    """Return one row per run that was attacked; `noise` and `clipping` are "" where the paper has no such setting.

    The columns are those of dpfl.attacks.canaries.train, and `family_lower_bound`, which follows from its counts: NaN
    for runs that are known to be broken, which are of no such family. `refuted`: whether epsilon_lower_bound, which
    assumes nothing on the law of the run, is above what is claimed. Where none ran the table has no rows.
    """
    runs = results.runs(paper, experiment=EXPERIMENT)
    runs = runs.assign(family_lower_bound=[_family_bound(run) for run in runs.to_dict("records")])
    table = runs.reindex(columns=_COLUMNS).reset_index(drop=True)
    text = ["stand_in_for", "data_note", "noise", "clipping"]
    table[text] = table[text].fillna("").astype(str)
    counts = ["clients", "seed", "canaries", "guesses", "right_guesses", "privacy_records"]
    table[counts] = table[counts].astype(int)
    table["known_bad"] = table["known_bad"].eq(True)
    table["refuted"] = table["epsilon_lower_bound"] > table["claimed_epsilon"]
    return table.rename(columns=lambda name: name.removeprefix("privacy_"))


def _family_bound(run: dict[str, Any]) -> float:
    """Return the bound that knows the run but for its noise, NaN where the run does not say its sampler."""
    if str(run["known_bad"]) == "True" or not isinstance(run.get("privacy_sampler"), str):
        return math.nan
    settings = json.loads(run["privacy_sampler"])
    kind = _KINDS.get(settings.pop("kind"))
    if kind is None:
        return math.nan
    positives = int(run["positives"])
    return family_epsilon(
        TestErrors(int(run["true_positives"]), positives, int(run["false_positives"]), positives),
        kind(**settings),
        noise_multiplier=float(run["noise_multiplier"]),
        steps=int(run["privacy_steps"]),
        delta=float(run["privacy_delta"]),
        neighbouring=str(run["privacy_neighbouring"]),
        confidence=float(run["confidence"]),
    )


def canaries_page(data: pd.DataFrame) -> TableLayout:
    """Lay the table out for a reader."""
    level = percent(data["confidence"].iloc[0] if len(data) else LEVEL)
    bounds = {f"ε at least ({level}, {assumed})": name for name, assumed in _BOUNDS.items()}
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "clients": data["clients"].astype(str),
            "what is clipped": data["clipping"].replace("", "record"),
            "noise": data["noise"].replace("", "calibrated").str.replace("_", " "),
            "ε asked": data["epsilon"].map("{:g}".format),
            "ε stated (proven)": data["claimed_epsilon"].map("{:.3g}".format),
            "neighbours": data["neighbouring"].map(lambda name: str(name).replace("_", " ")),
            **{title: data[name].map("{:.3g}".format).replace("nan", "–") for title, name in bounds.items()},
            "right guesses": [f"{r} of {g}" for r, g in zip(data["right_guesses"], data["guesses"], strict=True)],
            "claim": data["refuted"].map({True: "refuted", False: "not refuted"}),
            "remark": data["known_bad"].map({True: "known to be broken", False: ""}),
        }
    )
    notes = [
        f"Each head names the confidence, {level} for each cell alone, and what the bound assumes. All bounds are for "
        "an observer of every step. The first three come from many trainings with and without the record, on gradients "
        "that the attacker chooses.",
        "ε stated: proven if every record's gradient is clipped. Runs that are known to be broken state a false one.",
        "Gaussian noise, sampler as stated: the only unknown is how much noise the run adds (Nasr et al. 2023, "
        "section 5). Runs that are known to be broken have no such bound.",
        "One run: from guesses about canaries among the real records (Steinke, Nasr, Jagielski 2023, Theorem 5.2); "
        "Gaussian curve: Mahloujifar, Melis, Chaudhuri 2025.",
        "A claim that is not refuted is not thereby proven: another attack may reach more.",
    ]
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return TableLayout(body, [*notes, *(f"{name} stands in for {real}." for name, real in pairs if real)])
