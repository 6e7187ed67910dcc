"""Distance of the reproduction from Tables 2 to 5: by data set and model, and over all."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.bhaskar2025.published_cells import BIMODAL_PCT, INSIDE, PUBLISHED_RUNS, measured_cells, numbers
from dpfl.reporting.notes import count_range, data_name, model_name
from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout

ALL = "all"


def distance_summary(results: Results) -> pd.DataFrame:
    """Return a row for each data set and model of Tables 2 to 5, one for each data set, and one for all.

    Columns: dataset and model ("all" in sums), cells (published; the twelve of Table 5 that repeat one of Tables 2 to 4
    count twice), compared (run on the published data), stand_in (run on stand-in data alone), seeds_least and
    seeds_most (of the cells compared), bimodal (cells whose runs lie more than `BIMODAL_PCT` points apart, compared by
    their mean all the same), median_distance_pct and largest_distance_pct (|ours - published|, nan where nothing is
    compared), judged (cells with a prediction interval), inside_ten and inside_single (shares of these whose published
    value is inside, were it a mean of ten or a single run; one too wide to say counts as outside).
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4, 5)], ignore_index=True)
    rows = [_row(*key, group) for key, group in cells.groupby(["dataset", "model"], sort=False)]
    rows += [_row(dataset, ALL, group) for dataset, group in cells.groupby("dataset", sort=False)]
    return pd.DataFrame([*rows, _row(ALL, ALL, cells)])


def _row(dataset: str, model: str, cells: pd.DataFrame) -> dict[str, float | str]:
    """Return one row."""
    compared = cells[cells["difference_pct"].notna()]
    distance, judged = compared["difference_pct"].abs(), compared[compared["prediction"] != ""]
    return {
        "dataset": dataset,
        "model": model,
        "cells": len(cells),
        "compared": len(compared),
        "stand_in": int(((cells["runs"] > 0) & cells["stand_in"]).sum()),
        "seeds_least": int(compared["runs"].min()) if len(compared) else 0,
        "seeds_most": int(compared["runs"].max()) if len(compared) else 0,
        "bimodal": int((compared["most_pct"] - compared["least_pct"] > BIMODAL_PCT).sum()),
        "median_distance_pct": float(distance.median()),
        "largest_distance_pct": float(distance.max()),
        "judged": len(judged),
        "inside_ten": float((judged["prediction"] == INSIDE).mean()),
        "inside_single": float((judged["prediction_single"] == INSIDE).mean()),
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
            "Bimodal": data["bimodal"].map(str),
            "With an interval": data["judged"].map(str),
            "Inside, means of ten": numbers(100 * data["inside_ten"], "{:.0f} %"),
            "Inside, single runs": numbers(100 * data["inside_single"], "{:.0f} %"),
        }
    )
    notes = [
        "Distance: |ours - published| in points of accuracy, ours being the mean over the seeds. Bimodal: cells whose "
        f"runs lie more than {BIMODAL_PCT:g} points apart. Inside: the share of the cells with two seeds or more whose "
        f"published value is inside of our 95 % prediction interval, read as a mean of {PUBLISHED_RUNS} runs and as a "
        "single run; an interval too wide to say anything counts as outside.",
    ]
    if stand_in := int(data["stand_in"].iloc[-1]):
        notes.append(f"{stand_in} cells ran on stand-in data alone, which are not comparable.")
    return TableLayout(body, notes)
