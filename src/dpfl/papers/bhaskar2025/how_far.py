"""Distance from the print: for each dataset and model, how many cells ran and how near they come to it."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.bhaskar2025.published_cells import CHANCE_PCT, INSIDE, OUTSIDE, UNDECIDED, measured_cells
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import count_range, data_name, model_name
from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout

ALL = "all"
_SIDES = {"inside": INSIDE, "outside": OUTSIDE, "wide": UNDECIDED}
_READINGS = {"ten": "prediction", "single": "prediction_single"}


def how_far(results: Results) -> pd.DataFrame:
    """Return a row for each dataset and model of Tables 2 to 5, one for each dataset, and one for all of them.

    Columns: dataset and model ("all" in the rows of sums), cells (published), not_run, stand_in (ran on stand-in data
    alone, so not comparable), compared, seeds_least and seeds_most (of the cells compared; 0 where there are none),
    median_difference_pct and largest_difference_pct (of |ours - published| over the cells compared, in points; nan
    where there are none), mean_difference_pct (of ours - published), above (cells in which ours is the larger one),
    inside_ten, outside_ten, wide_ten (where published values lie of the prediction interval for a mean of ten runs),
    inside_half_width_pct (median half-width of the intervals of those inside, in points),
    inside_single, outside_single, wide_single (for a single run), no_interval (compared by one seed), and, of the
    compared cells whose print is better than one answer to everything, at_chance (those whose mean is not) and
    runs_at_chance (their runs that are not, whatever the mean). For each reading, inside + outside + wide +
    no_interval = compared.
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4, 5)], ignore_index=True)
    rows = [_row(*key, group) for key, group in cells.groupby(["dataset", "model"], sort=False)]
    rows += [_row(dataset, ALL, group) for dataset, group in cells.groupby("dataset", sort=False)]
    return pd.DataFrame([*rows, _row(ALL, ALL, cells)])


def _row(dataset: str, model: str, cells: pd.DataFrame) -> dict[str, float | str]:
    compared = cells[cells["difference_pct"].notna()]
    distance = compared["difference_pct"].abs()
    row = {
        "dataset": dataset,
        "model": model,
        "cells": len(cells),
        "not_run": int((cells["runs"] == 0).sum()),
        "stand_in": int(((cells["runs"] > 0) & cells["stand_in"]).sum()),
        "compared": len(compared),
        "seeds_least": int(compared["runs"].min()) if len(compared) else 0,
        "seeds_most": int(compared["runs"].max()) if len(compared) else 0,
        "median_difference_pct": float(distance.median()),
        "largest_difference_pct": float(distance.max()),
        "mean_difference_pct": float(compared["difference_pct"].mean()),
        "above": int((compared["difference_pct"] > 0).sum()),
    }
    for reading, column in _READINGS.items():
        row |= {f"{word}_{reading}": int((compared[column] == side).sum()) for word, side in _SIDES.items()}
    learnt = compared[compared["published_accuracy_pct"] >= CHANCE_PCT]
    row["at_chance"] = int((learnt["accuracy_pct"] < CHANCE_PCT).sum())
    row["runs_at_chance"] = int(learnt["at_chance"].sum())
    half_width = compared.loc[compared["prediction"] == INSIDE, "prediction_pct"].median()
    return {**row, "inside_half_width_pct": half_width, "no_interval": int((compared["prediction"] == "").sum())}


def how_far_page(data: pd.DataFrame) -> TableLayout:
    """Lay the rows out for a reader."""
    seeds = [
        count_range(pd.Series([least, most]))
        for least, most in zip(data["seeds_least"], data["seeds_most"], strict=True)
    ]
    body = pd.DataFrame(
        {
            "Data": [name if name == ALL else data_name(name) for name in data["dataset"]],
            "Model": [name if name == ALL else model_name(name) for name in data["model"]],
            "Cells compared": [f"{n} of {cells}" for n, cells in zip(data["compared"], data["cells"], strict=True)],
            "Seeds": ["–" if text == "0" else text for text in seeds],
            "Difference, median": numbers(data["median_difference_pct"], "{:.2f}"),
            "Difference, largest": numbers(data["largest_difference_pct"], "{:.2f}"),
            "Ours less print, mean": numbers(data["mean_difference_pct"], "{:+z.2f}"),
            "Ours above": data["above"].map(str),
            "Cells whose mean is at chance": data["at_chance"].map(str),
            "Runs at chance": data["runs_at_chance"].map(str),
            "As means of ten: in / out / wide": _sides(data, "ten"),
            "Interval of those in, median ±": numbers(data["inside_half_width_pct"], "{:.2f}"),
            "As single runs: in / out / wide": _sides(data, "single"),
            "No interval": data["no_interval"].map(str),
        }
    )
    return TableLayout(body, _notes(data.iloc[-1]))


def _sides(data: pd.DataFrame, reading: str) -> list[str]:
    """Return the three counts of a reading as text."""
    columns = [data[f"{word}_{reading}"].map(str) for word in _SIDES]
    return [" / ".join(counts) for counts in zip(*columns, strict=True)]


def _notes(everything: pd.Series) -> list[str]:
    """Explain the columns and sum them up."""
    notes = [
        "Cells of Tables 2 to 4 and of Table 5, which share ten clients at (1, 20). Differences are |ours - published| "
        "in points of accuracy. In, out: the published value lies inside or outside of our 95 % prediction interval, "
        "read as a mean of ten runs and as a single run (by chance one in twenty is outside); wide: inside of one that "
        "takes in nearly anything; no interval: one seed. The column after it says how wide the intervals are of those "
        f"that are in: the wider, the less it says. At chance: below {CHANCE_PCT:g} % after the last round, no better "
        "than one answer to everything, where the print is above; one run of two that is moves their mean half-way "
        "there. Twelve cells stand in two tables and count twice. Cells of a row share their seeds; with the right "
        "settings ours would be above the print in about half of them.",
        "What the paper leaves open was set by trying candidates on some of these cells (table identification), so "
        "that their agreement is in part by choice.",
    ]
    if everything["compared"]:
        notes.insert(0, _sum(everything))
    if everything["stand_in"]:
        notes.append(f"{everything['stand_in']} cells ran on stand-in data alone, which are not comparable.")
    return notes


def _sum(everything: pd.Series) -> str:
    """Return the last row as a sentence."""
    judged = everything["compared"] - everything["no_interval"]
    text = (
        f"{everything['compared']} of {everything['cells']} cells are compared, {everything['not_run']} were not run; "
        f"median difference {everything['median_difference_pct']:.2f} points, largest "
        f"{everything['largest_difference_pct']:.2f}."
    )
    if judged:
        text += (
            f" Of {judged} with an interval {everything['inside_ten']} are inside as means of ten and "
            f"{everything['inside_single']} as single runs."
        )
        if everything["inside_ten"]:
            half = f"{everything['inside_half_width_pct']:.2f}"
            text += f" Inside is as near as the seeds can tell: half of those intervals are wider than ± {half} points."
    return text
