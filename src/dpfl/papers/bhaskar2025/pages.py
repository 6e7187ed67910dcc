"""How the tables of identification and ablations are laid out for a reader."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.bhaskar2025.cells import PUBLISHED_RUNS
from dpfl.papers.bhaskar2025.identification import CHOSEN, DISCREPANCY_PCT, FREEDOM
from dpfl.reporting.tables import Page

MODEL_NAMES = {
    "cnn_relu": "CNN + ReLU",
    "cnn_tanh": "CNN + tanh",
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
}
NOT_COMPARABLE = "not comparable"


def identification_page(scores: pd.DataFrame) -> Page:
    """Lay the candidates out, the best fit first; only what has a rival, or the print to compare with, is of use."""
    body = pd.DataFrame(
        {
            "Candidate": scores["candidate"],
            "Data": scores["ran_on"],
            "Model": scores["model"].map(MODEL_NAMES),
            "Cells (runs)": [
                f"{row.cells} ({row.runs_least}{'' if row.runs_most == row.runs_least else f' to {row.runs_most}'})"
                for row in scores.itertuples()
            ],
            "Effect": scores["effect_pct"].map("{:+.2f}".format),
            "Misfit, R > 1": numbers(scores["misfit_pct"], "{:.2f}"),
            "Misfit, (20, 1)": numbers(scores["misfit_last_pct"], "{:.2f}"),
            "Typical": numbers(scores["discrepancy_pct"], "{:.2f}"),
            "Gain": numbers(scores["gain"], "{:+.1f}"),
            "Gain, all": numbers(scores["gain_all"], "{:+.1f}"),
        }
    )
    return Page(body, _identification_notes(scores))


def numbers(values: pd.Series, form: str) -> list[str]:
    """Return numbers as text; a dash where there is none."""
    return ["–" if pd.isna(value) else form.format(value) for value in values]


def _identification_notes(scores: pd.DataFrame) -> list[str]:
    """Say what the columns are and what they decide."""
    notes = [
        "A candidate differs from the chosen settings of paper.yaml in what it names, and in nothing else. Effect: its "
        "mean difference in accuracy to them, in points, on the seeds that both ran. Misfit: mean of "
        "|ours - published| in points.",
        "Score: log likelihood of the published accuracies, each by Student's law with "
        f"{FREEDOM} degrees of freedom around our mean, of scale sqrt(s² (1/{PUBLISHED_RUNS} + 1/n) + d²). s: standard "
        "deviation between seeds, pooled over candidates; n: our runs; d (Typical): the misfit that seeds do not "
        "explain, one number a candidate and model, set to what makes the score largest, between "
        f"{DISCREPANCY_PCT[0]:g} and {DISCREPANCY_PCT[1]:g} points. Gain: score less that of the chosen settings on "
        "the same cells; above 0 fits better. Gain, all: the sum over models.",
    ]
    if scores.empty:
        return ["Nothing was run at this scale.", *notes]
    if stand_ins := sorted(set(scores.loc[scores["stand_in"], "ran_on"])):
        notes.append(f"Scores are {NOT_COMPARABLE} and left out on stand-in data ({', '.join(stand_ins)}).")
    scored = scores.dropna(subset="gain_all")
    if scored["candidate"].nunique() > 1:
        notes += [_verdict(scored), *_last_cells(scored)]
    return notes


def _verdict(scored: pd.DataFrame) -> str:
    """Name the candidate that fits best and the one after it."""
    gains = scored.drop_duplicates("candidate").set_index("candidate")["gain_all"]
    (best, second), tried = gains.index[:2], len(gains)
    verb = "fit" if best == CHOSEN else "fits"
    return (
        f"Of {tried} candidates {_named(best)} {verb} best ({gains[best]:+.1f}); runner-up: {_named(second)} "
        f"({gains[second]:+.1f})."
    )


def _named(candidate: str) -> str:
    """Return a candidate's name within a sentence."""
    return f"the {CHOSEN}" if candidate == CHOSEN else candidate


def _last_cells(scored: pd.DataFrame) -> list[str]:
    """Say, model by model, how far the candidates come at (20, 1)."""
    notes = []
    for (dataset, model), rows in scored.dropna(subset="misfit_last_pct").groupby(["dataset", "model"]):
        chosen, others = rows[rows["candidate"] == CHOSEN], rows[rows["candidate"] != CHOSEN]
        if chosen.empty or others.empty:
            continue
        nearest = others.loc[others["misfit_last_pct"].idxmin()]
        notes.append(
            f"{dataset}, {MODEL_NAMES[model]}, (20, 1): the chosen settings miss the published values by "
            f"{chosen['misfit_last_pct'].iloc[0]:.2f} points on average, the nearest other candidate "
            f"({nearest['candidate']}) by {nearest['misfit_last_pct']:.2f}, at {nearest['misfit_pct']:.2f} where R > 1 "
            f"(chosen: {chosen['misfit_pct'].iloc[0]:.2f})."
        )
    return notes
