"""Accuracy at (20, 1), where clients average once: of their own models, of the average, and as printed."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.bhaskar2025.published_cells import INSIDE, OUTSIDE, UNDECIDED, measured_cells
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import budget_cell, model_name
from dpfl.reporting.results import ORIGINS, Results
from dpfl.reporting.tables import TableLayout

FALL_PCT = 10.0  # points between the clients' own models and their average that count as a fall
_KEY = ["dataset", "model", "epsilon"]
_KEPT = ["ran_on", "stand_in", "runs", "accuracy_pct", "interval_pct", "local_accuracy_pct"]
_PRINT = ["published_accuracy_pct", "difference_pct", "prediction", ORIGINS]


def last_column(results: Results) -> pd.DataFrame:
    """Return a row for each model and budget of Tables 2 to 4 that ran at (20, 1).

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, accuracy_pct and interval_pct (the average),
    local_accuracy_pct (the clients' own models just before, mean over clients; nan where it was not measured),
    many_rounds_pct (our accuracy at (1, 20), nan where not run), published_accuracy_pct, difference_pct, prediction,
    origins (of the runs at (20, 1)).
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)], ignore_index=True)
    last = cells[(cells["rounds"] == 1) & (cells["runs"] > 0)]
    first = cells.loc[cells["local_epochs"] == 1, [*_KEY, "accuracy_pct"]]
    first = first.rename(columns={"accuracy_pct": "many_rounds_pct"})
    return last[[*_KEY, *_KEPT, *_PRINT]].merge(first, on=_KEY)


def last_column_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the column out for a reader."""
    intervals = ["" if math.isnan(half) else f" ± {half:.2f}" for half in cells["interval_pct"]]
    body = pd.DataFrame(
        {
            "Data": cells["ran_on"],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "Runs": cells["runs"].map(str),
            "(1, 20)": numbers(cells["many_rounds_pct"], "{:.2f}"),
            "Clients alone": numbers(cells["local_accuracy_pct"], "{:.2f}"),
            "(20, 1)": [f"{a:.2f}{s}" for a, s in zip(cells["accuracy_pct"], intervals, strict=True)],
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True)), "{:.2f}"),
            "Difference": numbers(cells["difference_pct"], "{:+.2f}"),
        }
    )
    return TableLayout(body, _notes(cells))


def _notes(cells: pd.DataFrame) -> list[str]:
    """Say what the columns are, and count what they show."""
    notes = [
        "Accuracy in per cent. (20, 1): the average of the clients' models, the only one that is taken. Clients alone: "
        "mean accuracy of the models that go into it. (1, 20): ours with twenty averages.",
    ]
    if cells.empty:
        return ["Nothing was run at this scale.", *notes]
    measured = cells.dropna(subset="local_accuracy_pct")
    change = measured["accuracy_pct"] - measured["local_accuracy_pct"]
    alone = measured["many_rounds_pct"] - measured["local_accuracy_pct"]
    falls, lags = change < -FALL_PCT, alone > FALL_PCT
    notes.append(
        f"In {falls.sum()} of {len(measured)} rows the average is more than {FALL_PCT:g} points less accurate than the "
        f"models that go into it: there averaging fails. In {(falls & lags).sum()} of them the clients alone are more "
        f"than {FALL_PCT:g} points below (1, 20) as well, and in {(lags & ~falls).sum()} rows they are and the average "
        f"does not fall. In {(change > 0).sum()} the average is more accurate than what goes into it."
    )
    compared = cells[cells["difference_pct"].notna()]
    if len(compared):
        better, worse = (compared["difference_pct"] > 1).sum(), (compared["difference_pct"] < -1).sum()
        inside, outside, wide = ((compared["prediction"] == side).sum() for side in (INSIDE, OUTSIDE, UNDECIDED))
        notes.append(
            f"Ours is more than a point above the published value in {better} of {len(compared)} rows and more than a "
            f"point below in {worse}. {inside} published values lie inside of their prediction interval, {outside} "
            f"outside, {wide} in one too wide to tell."
        )
    if cells["stand_in"].any():
        notes.append("Stand-in data are not comparable with the published values.")
    return notes
