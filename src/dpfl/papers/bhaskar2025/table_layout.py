"""Layouts of the tables of identification and ablations."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dpfl.papers.bhaskar2025.identification import CHOSEN, DISCREPANCY_PCT, FREEDOM
from dpfl.papers.bhaskar2025.paper_runs import PUBLISHED_RUNS
from dpfl.reporting.notes import data_name, model_name
from dpfl.reporting.tables import TableLayout

NOT_COMPARABLE = "not comparable"


def identification_page(scores: pd.DataFrame) -> TableLayout:
    """Lay the candidates out, of each model the best fit first."""
    body = pd.DataFrame(
        {
            "Candidate": scores["candidate"],
            "Data": scores["ran_on"],
            "Model": scores["model"].map(model_name),
            "Cells (runs)": [
                f"{row.cells} ({row.runs_least}{'' if row.runs_most == row.runs_least else f' to {row.runs_most}'})"
                for row in scores.itertuples()
            ],
            "Effect": scores["effect_pct"].map("{:+.2f}".format),
            "Misfit, R > 1": numbers(scores["misfit_pct"], "{:.2f}"),
            "Misfit, (20, 1)": numbers(scores["misfit_last_pct"], "{:.2f}"),
            "Typical": numbers(scores["discrepancy_pct"], "{:.2f}"),
            "Gain": numbers(scores["gain"], "{:+.1f}"),
            "By chance": [
                "–" if pd.isna(row.chance_low) else f"{row.chance_low:+.1f} to {row.chance_high:+.1f}"
                for row in scores.itertuples()
            ],
        }
    )
    return TableLayout(body, _identification_notes(scores))


def numbers(values: pd.Series, form: str) -> list[str]:
    """Return numbers as text; a dash where there is none."""
    return ["–" if pd.isna(value) else form.format(value) for value in values]


def _identification_notes(scores: pd.DataFrame) -> list[str]:
    """Say what the columns are and what they decide."""
    notes = [
        "A candidate differs from the chosen settings of paper.yaml in what it names, and in nothing else. Effect: its "
        "mean difference in accuracy to them, in points, on the seeds that both ran. Misfit: mean of "
        "|ours - published| in points, ours being the mean of the chosen settings plus the effect.",
        "Score: log likelihood of the published accuracies, each by Student's law with "
        f"{FREEDOM} degrees of freedom around ours, of scale sqrt(s² (1/{PUBLISHED_RUNS} + 1/n) + d²). s: standard "
        "deviation between seeds, pooled over candidates; n: runs of the chosen settings; d (Typical): the misfit that "
        "seeds do not explain, one number a candidate and model, set to what makes the score largest, between "
        f"{DISCREPANCY_PCT[0]:g} and {DISCREPANCY_PCT[1]:g} points. Gain: score less that of the chosen settings on "
        "the same cells; above 0 fits better. By chance: where 95 % of the gains lie that the chosen settings reach "
        "over themselves with other seeds (as many as both share; normal, with the covariance of cells between seeds): "
        "a gain in there tells nothing. Delta and accountant change private cells alone.",
    ]
    if scores.empty:
        return ["Nothing was run at this scale.", *notes]
    if stand_ins := sorted(set(scores.loc[scores["stand_in"], "ran_on"])):
        notes.append(f"Scores are {NOT_COMPARABLE} and left out on stand-in data ({', '.join(stand_ins)}).")
    alone = scores.groupby(["ran_on", "model"], sort=False).filter(lambda rows: len(rows) == 1)
    if len(alone):
        names = "; ".join(f"{row.ran_on}, {model_name(row.model)}" for row in alone.itertuples())
        notes.append(f"With the chosen settings alone, so that nothing says which fit, were run: {names}.")
    rivals = scores.dropna(subset="gain").groupby(["dataset", "model"]).filter(lambda rows: len(rows) > 1)
    groups = list(rivals.groupby(["dataset", "model"]))
    notes += [_verdict(f"{data_name(dataset)}, {model_name(model)}", rows) for (dataset, model), rows in groups]
    return [*notes, *_together(rivals), *_last_cells(rivals)]


def _verdict(where: str, rows: pd.DataFrame) -> str:
    """Name the candidate that fits a model best and the one after it, and say which of all can be distinguished."""
    best, second = rows.nlargest(2, "gain").itertuples()
    others = rows[rows["candidate"] != CHOSEN]
    differences = {
        "better": others[others["gain"] > others["chance_high"]],
        "worse": others[others["gain"] < others["chance_low"]],
        "not known for lack of shared seeds": others[others["chance_low"].isna()],
    }
    differing = [f"{word}: {', '.join(group['candidate'])}" for word, group in differences.items() if len(group)]
    rivals = f"{len(others)} other{'s' * (len(others) > 1)}"
    return (
        f"{where}: best fit among the chosen settings and {rivals}: {_named(best)}; runner-up: {_named(second)}. Told "
        f"from the chosen settings by more than chance: {'; '.join(differing) or 'none'}."
    )


def _together(rivals: pd.DataFrame) -> list[str]:
    """Say which candidate fits best on all data and models together that have two rivals or more, of those that ran on
    all of them."""
    rivals = rivals.groupby(["dataset", "model"]).filter(lambda rows: len(rows) > 2)
    groups = rivals.groupby(["dataset", "model"]).ngroups
    sums = rivals.groupby("candidate")["gain"].agg(["sum", "size"]).query("size == @groups")["sum"].nlargest(2)
    if groups < 2 or len(sums) < 2:
        return []
    (best, most), (second, next_) = sums.items()
    return [
        f"All {groups} with two rivals or more together, candidates that ran on each: best fit {_name(best)} "
        f"({most:+.1f}), runner-up {_name(second)} ({next_:+.1f})."
    ]


def _named(row: Any) -> str:
    """Return a candidate's name and gain within a sentence."""
    return f"{_name(row.candidate)} ({row.gain:+.1f})"


def _name(candidate: str) -> str:
    """Return a candidate's name within a sentence."""
    return f"the {CHOSEN}" if candidate == CHOSEN else candidate


def _last_cells(scored: pd.DataFrame) -> list[str]:
    """Say, model by model, how far the candidates come at (20, 1)."""
    notes = []
    for (dataset, model), rows in scored.dropna(subset="misfit_last_pct").groupby(["dataset", "model"]):
        chosen = rows[rows["candidate"] == CHOSEN]
        others = rows[(rows["candidate"] != CHOSEN) & (rows["cells"] == rows["cells"].max())]
        if chosen.empty or others.empty:
            continue
        nearest = others.loc[others["misfit_last_pct"].idxmin()]
        notes.append(
            f"{data_name(dataset)}, {model_name(model)}, (20, 1): the chosen settings miss the published values by "
            f"{chosen['misfit_last_pct'].iloc[0]:.2f} points on average, the nearest other candidate "
            f"({nearest['candidate']}) by {nearest['misfit_last_pct']:.2f}, at {nearest['misfit_pct']:.2f} where R > 1 "
            f"(chosen: {chosen['misfit_pct'].iloc[0]:.2f})."
        )
    return notes
