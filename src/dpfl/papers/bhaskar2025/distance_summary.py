"""Distance of the reproduction from Tables 2 to 5: by data set and model, and over all."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.bhaskar2025.cells import (
    BIMODAL_PCT,
    CHANCE_PCT,
    PUBLISHED_RUNS,
    REPRODUCED,
    is_bimodal,
    measured_cells,
    numbers,
    why_far,
)
from dpfl.reporting.display_names import (
    count_range,
    data_name,
    model_name,
)
from dpfl.reporting.results import ORIGINS, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

ALL = "all"
GOAL_PCT, LINEAR_GOAL_PCT, GOAL_SHARE = 1.0, 0.2, 0.6
"""Our goals: median distance of all models and of ScatterNet + linear, and the share reproduced as single runs."""


def distance_summary(results: Results) -> pd.DataFrame:
    """Return a row for each data set and model of Tables 2 to 5, one for each data set, each model, and all.

    Columns: dataset and model ("all" in sums), cells (published; the twelve of Table 5 that repeat one of Tables 2 to 4
    count twice), compared (run on the published data), stand_in (run on stand-in data alone), seeds_least and
    seeds_most (of the cells compared), collapsed (cells compared with a run, or a repeat of one, that diverged or is at
    chance), bimodal (cells whose runs lie more than `BIMODAL_PCT` points apart, compared by their mean all the same),
    median_distance_pct and largest_distance_pct (|ours - published|, nan if nothing is compared),
    largest_of_others_pct (without the collapsed cells), why_largest (`why_far` of the farthest), judged (cells with a
    prediction interval), reproduced_as_ten and reproduced_as_single (shares of these whose published value is
    reproduced, if it is a mean of ten or a single run; undecided is not reproduced), origins.
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4, 5)], ignore_index=True)
    rows = [_row(*key, group) for key, group in cells.groupby(["dataset", "model"], sort=False)]
    rows += [_row(dataset, ALL, group) for dataset, group in cells.groupby("dataset", sort=False)]
    rows += [_row(ALL, model, group) for model, group in cells.groupby("model", sort=False)]
    return pd.DataFrame([*rows, _row(ALL, ALL, cells)])


def _row(dataset: str, model: str, cells: pd.DataFrame) -> dict[str, float | str]:
    """Return one row."""
    compared = cells[cells["difference_pct"].notna()]
    distance, judged = compared["difference_pct"].abs(), compared[compared["prediction"] != ""]
    collapsed = compared[["diverged", "at_chance", "repeats_lost"]].sum(axis="columns") > 0
    return {
        "dataset": dataset,
        "model": model,
        "cells": len(cells),
        "compared": len(compared),
        "stand_in": int(((cells["runs"] > 0) & cells["stand_in"]).sum()),
        "seeds_least": int(compared["runs"].min()) if len(compared) else 0,
        "seeds_most": int(compared["runs"].max()) if len(compared) else 0,
        "collapsed": int(collapsed.sum()),
        "bimodal": int(is_bimodal(compared).sum()),
        "median_distance_pct": float(distance.median()),
        "largest_distance_pct": float(distance.max()),
        "largest_of_others_pct": float(distance[~collapsed].max()),
        "why_largest": why_far(compared.loc[distance.idxmax()]) if len(compared) else "",
        "judged": len(judged),
        "reproduced_as_ten": float((judged["prediction"] == REPRODUCED).mean()),
        "reproduced_as_single": float((judged["prediction_single"] == REPRODUCED).mean()),
        ORIGINS: " ".join(dict.fromkeys(" ".join(cells[ORIGINS]).split())),  # Table 5 repeats cells of Tables 2 to 4
    }


def distance_page(data: pd.DataFrame) -> TableLayout:
    """Lay the rows out for a reader."""
    seeds = [count_range(pd.Series(pair)) for pair in zip(data["seeds_least"], data["seeds_most"], strict=True)]
    body = pd.DataFrame(
        {
            "Data": [name if name == ALL else data_name(name) for name in data["dataset"]],
            "Model": [name if name == ALL else model_name(name) for name in data["model"]],
            "Cells compared": [f"{n} of {cells}" for n, cells in zip(data["compared"], data["cells"], strict=True)],
            "Seeds": ["–" if text == "0" else text for text in seeds],
            "Distance, median": numbers(data["median_distance_pct"], "{:.2f}"),
            "Distance, largest": numbers(data["largest_distance_pct"], "{:.2f}"),
            "Largest, without collapsed cells": numbers(data["largest_of_others_pct"], "{:.2f}"),
            "Collapsed cells": data["collapsed"].map(str),
            "Bimodal": data["bimodal"].map(str),
            "Reproduced, as means of ten": _of_judged(data, "reproduced_as_ten"),
            "Reproduced, as single runs": _of_judged(data, "reproduced_as_single"),
        }
    )
    notes = [
        "Distance: |ours - published| in points of accuracy; ours is the mean over the seeds. Collapsed: cells "
        f"with a run, or a repeat of one, that diverged or ended at chance (below {CHANCE_PCT:g} %). Bimodal: cells "
        f"whose runs differ by more than {BIMODAL_PCT:g} points. Reproduced: of the cells with two seeds or more, "
        f"those whose published value lies in our 95 % prediction interval, for a mean of {PUBLISHED_RUNS} runs and "
        "for a single run. A value in an interval that is too wide to tell counts in the total alone. Table 5 "
        "repeats twelve cells of Tables 2 to 4, which count twice. A seed that was run more than once counts once: the "
        "notes of Tables 2 to 5 say how far its runs lie apart.",
    ]
    if data["compared"].any():
        notes.append(_goals_missed(data))
    notes += dict.fromkeys(filter(None, data["why_largest"]))
    if stand_in := int(data["stand_in"].iloc[-1]):
        notes.append(f"{stand_in} cells ran on stand-in data only and cannot be compared.")
    return TableLayout(body, notes)


def _of_judged(data: pd.DataFrame, share: str) -> list[str]:
    """Return a share of the cells with an interval as "14 of 25", a dash if there are none."""
    pairs = zip(data[share], data["judged"], strict=True)
    return [f"{round(each * judged)} of {judged}" if judged else "–" for each, judged in pairs]


def _goals_missed(data: pd.DataFrame) -> str:
    """Name our goals, and the pairs of data set and model that miss one."""
    far, few = [], []
    pairs = data[(data["dataset"] != ALL) & (data["model"] != ALL)]
    for row in pairs.itertuples():
        name = f"{data_name(row.dataset)} {model_name(row.model)}"
        goal = LINEAR_GOAL_PCT if row.model == "scatter_linear" else GOAL_PCT
        if round(row.median_distance_pct, 2) > goal:
            far.append(f"{name} ({row.median_distance_pct:.2f})")
        if row.judged and row.reproduced_as_single < GOAL_SHARE:
            few.append(name)
    text = (
        f"Our goals for each data set and model: a median distance of at most {GOAL_PCT:g} point, of "
        f"{LINEAR_GOAL_PCT:g} for ScatterNet + linear, and {100 * GOAL_SHARE:g} % reproduced as single runs."
    )
    judged = int((pairs["judged"] > 0).sum())
    return (
        f"{text} Median too large in {len(far)} of {int((pairs['compared'] > 0).sum())}: {', '.join(far) or 'none'}. "
        f"Fewer reproduced in {len(few)} of the {judged} with an interval: {', '.join(few) or 'none'}."
    )


TABLES = {"distance_summary": TableRecipe(distance_summary, distance_page)}
