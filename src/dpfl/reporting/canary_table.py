"""Table `canaries` of a paper: claimed epsilons, and the lower bounds that canaries give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpfl.accounting import FixedBatches, Poisson
from dpfl.accounting.statements import decode
from dpfl.attacks.noise_family import StepEvidence, family_epsilon
from dpfl.reporting.display_names import in_words, percent
from dpfl.reporting.results import ORIGIN, ORIGINS
from dpfl.reporting.rules import LEVEL
from dpfl.reporting.tables import TableLayout

if TYPE_CHECKING:
    from dpfl.reporting.results import Results

EXPERIMENT = "canaries"
_FAMILY = "Gaussian noise, sampler as stated"
"""What bounds from evidence of steps assume (dpfl.attacks.noise_family)."""
_BOUNDS = {
    "epsilon_lower_bound": "no assumption",
    "chosen_lower_bound": f"audit, {_FAMILY}",
    "hostile_lower_bound": f"audit of the real model, hostile mates, {_FAMILY}",
    "one_run_lower_bound": "one run, no assumption",
    "one_run_family_lower_bound": f"audit of one run, {_FAMILY}",
}
"""Column of each lower bound, and what it assumes."""
_EVIDENCE = {"chosen": "chosen_lower_bound", "hostile": "hostile_lower_bound", "one_run": "one_run_family_lower_bound"}
"""Evidence in a run table, and the bound that follows from it."""
_COLUMNS = [
    "dataset", "stand_in_for", "data_note", "clients", "noise", "clipping", "epsilon", "seed", "canaries", "guesses",
    "right_guesses", "mates", "statistic", "positives", "true_positives", "false_positives", "confidence",
    *_BOUNDS, "one_run_gaussian_lower_bound", "claimed_epsilon", "known_bad", "privacy_sampling",
    "privacy_neighbouring", "privacy_records", "privacy_delta", "noise_multiplier", ORIGIN,
]  # fmt: skip


def canaries(results: Results, paper: str) -> pd.DataFrame:
    """Return one row per run that was attacked; `noise` and `clipping` are "" where the paper has no such setting.

    The columns are those of dpfl.attacks.canaries.train, and the bounds that follow from its evidence of steps: NaN for
    runs that are known to be broken, which are of no such family. `refuted`: whether epsilon_lower_bound, which
    assumes nothing on the law of the run, is above what is claimed; `origins`: the run. Where none ran the table has no
    rows.
    """
    runs = results.runs(paper, experiment=EXPERIMENT)
    rows = runs.to_dict("records")
    runs = runs.assign(**{bound: [_family_bound(run, attack) for run in rows] for attack, bound in _EVIDENCE.items()})
    table = runs.reindex(columns=_COLUMNS).reset_index(drop=True)
    text = ["stand_in_for", "data_note", "noise", "clipping", ORIGIN]
    table[text] = table[text].astype(object).fillna("").astype(str)
    counts = ["clients", "seed", "canaries", "guesses", "right_guesses", "privacy_records"]
    table[counts] = table[counts].astype(int)
    table["known_bad"] = table["known_bad"].eq(True)
    table["refuted"] = table["epsilon_lower_bound"] > table["claimed_epsilon"]
    return table.rename(columns=lambda name: ORIGINS if name == ORIGIN else name.removeprefix("privacy_"))


def control_notes(data: pd.DataFrame) -> list[str]:
    """Return, for the table's privacy card, why it counts fewer runs than the table has."""
    controls = int(data["known_bad"].astype(bool).sum())
    if not controls:
        return []
    return [f"Not among these runs: {controls} controls of attacks, which state an ε that is false on purpose."]


def _family_bound(run: dict[str, Any], attack: str) -> float:
    """Return the bound from a run's evidence, NaN where it has none, is broken, or does not say its sampler."""
    evidence = StepEvidence.read(run, attack)
    if evidence is None or str(run["known_bad"]) == "True" or not isinstance(run.get("privacy_sampler"), str):
        return math.nan
    sampler = decode(run["privacy_sampler"])
    if not isinstance(sampler, Poisson | FixedBatches):
        return math.nan
    return family_epsilon(
        evidence,
        sampler,
        steps=int(run["privacy_steps"]),
        delta=float(run["privacy_delta"]),
        neighbouring=str(run["privacy_neighbouring"]),
        confidence=float(run["confidence"]),
    )


def _bound(data: pd.DataFrame, name: str) -> list[str]:
    """Return the cells of a bound: its value, and its share of what is stated, where that is not known to be false."""
    cells = []
    for value, stated, bad in zip(data[name], data["claimed_epsilon"], data["known_bad"], strict=True):
        share = "" if bad or not 0 < stated < math.inf else f" ({percent(value / stated)})"
        cells.append("–" if math.isnan(value) else f"{value:.3g}{share}")
    return cells


def canaries_page(data: pd.DataFrame) -> TableLayout:
    """Lay the table out for a reader."""
    level = percent(data["confidence"].iloc[0] if len(data) else LEVEL)
    shown = {name: assumed for name, assumed in _BOUNDS.items() if data[name].notna().any()}
    bounds = {f"ε at least ({level}; {assumed})": _bound(data, name) for name, assumed in shown.items()}
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "clients": data["clients"].astype(str),
            "what is clipped": data["clipping"].replace("", "record"),
            "noise": data["noise"].replace("", "calibrated").str.replace("_", " "),
            "ε asked": data["epsilon"].map("{:g}".format),
            "ε stated": data["claimed_epsilon"].map("{:.3g}".format),
            "δ": data["delta"].map("{:.2g}".format),
            "neighbours": data["neighbouring"].map(in_words),
            "seed": data["seed"].map(str),
            **bounds,
            "claim": data["refuted"].map({True: "refuted", False: "not refuted"}),
            "remark": data["known_bad"].map({True: "known to be broken", False: ""}),
        }
    )
    notes = [
        f"Each head names the confidence, {level} for each cell alone, and what the bound assumes. In brackets: its "
        "share of the ε stated. All bounds are for an observer of every step. If a head names no method, its bound "
        "comes from many trainings on gradients that the attacker chooses. docs/privacy.md says how far each bound can "
        "reach.",
        "ε stated: proven if every record's gradient is clipped. Runs that are known to be broken state a false one.",
        "Audit: it reads which steps drew the record, which no attacker sees. It measures the noise, and how far the "
        "record moves a step; how often it is drawn comes from the statement (after Nasr et al. 2023, section 5). Runs "
        "that draw more often or repeat their noise pass it. Runs that are known to be broken have no such bound.",
        *(
            ["Real model, hostile mates: the network itself, on copies of one image with two labels."]
            if "hostile_lower_bound" in shown
            else []
        ),
        "One run: canaries among the real records. The bound without an assumption comes from guesses of which "
        "canaries were included (Steinke, Nasr, Jagielski 2023, Theorem 5.2).",
        "A claim that is not refuted is not thereby proven: another attack may reach more.",
    ]
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return TableLayout(body, [*notes, *(f"{name} stands in for {real}." for name, real in pairs if real)])
