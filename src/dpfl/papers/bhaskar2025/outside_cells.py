"""Published values outside of the prediction interval of ours, the furthest first, and what was tried to reach them."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.bhaskar2025.central_model import RATE_BATCH, CentralReading, central_cells, decide
from dpfl.papers.bhaskar2025.identification import CHOSEN, candidate_cells
from dpfl.papers.bhaskar2025.paper_runs import CELL, table_settings
from dpfl.papers.bhaskar2025.published_cells import INSIDE, OUTSIDE, UNDECIDED, measured_cells
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import budget_cell, data_name, model_name
from dpfl.reporting.results import ORIGINS, Results
from dpfl.reporting.tables import TableLayout

_KEY = ["dataset", *CELL]
_KEPT = ["runs", "accuracy_pct", "published_accuracy_pct", "difference_pct", "prediction", "prediction_pct"]
_KEPT += ["prediction_single", ORIGINS]
FAR_PCT = 10.0  # points from the print beyond which a cell that no interval judges is listed
_HEADINGS = {
    OUTSIDE: "Outside of the interval that our runs give",
    UNDECIDED: f"An interval that takes in nearly anything, more than {FAR_PCT:g} points from the print",
    "": f"One run, more than {FAR_PCT:g} points from the print",
}


def outside_cells(results: Results) -> pd.DataFrame:
    """Return a row for each cell whose published value is outside of the prediction interval for a mean of ten runs, or
    more than `FAR_PCT` points from ours where the interval says nothing: it is too wide, or there is one run.

    Columns: dataset, model, epsilon, local_epochs, rounds, clients, runs, accuracy_pct, published_accuracy_pct,
    difference_pct, prediction (a key of `_HEADINGS`: where the published value is), prediction_pct, prediction_single
    (where it is as a single run), tried (other settings that ran this cell), nearest (the one that comes nearest to the
    published value, "" where none ran) and nearest_difference_pct (its accuracy minus the published value), origins (of
    the runs behind ours). A cell of two tables stands once; rows come in the order of `_HEADINGS`, the largest
    difference before others.
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4, 5)], ignore_index=True)
    far = cells["prediction"].isin([UNDECIDED, ""]) & (cells["difference_pct"].abs() > FAR_PCT)
    outside = cells[(cells["prediction"] == OUTSIDE) | far].drop_duplicates([*_KEY, "published_accuracy_pct"])
    tried = _tried(results).astype(outside[_KEY].dtypes.to_dict())
    counts = tried.groupby(_KEY).size().rename("tried").reset_index()
    nearest = tried.loc[tried["nearest_difference_pct"].abs().groupby([tried[name] for name in _KEY]).idxmin()]
    found = outside[[*_KEY, *_KEPT]].merge(counts, on=_KEY, how="left").merge(nearest, on=_KEY, how="left")
    found["tried"] = found["tried"].fillna(0).astype(int)
    found["nearest"] = found["nearest"].fillna("")
    found = found.sort_values("difference_pct", key=lambda points: -points.abs())
    return found.sort_values(
        "prediction", key=lambda where: where.map(list(_HEADINGS).index), kind="stable", ignore_index=True
    )


def _tried(results: Results) -> pd.DataFrame:
    """Return what other settings make of each cell on real data: the key, nearest (their name), their difference."""
    candidates = candidate_cells(results).dropna(subset="residual_pct")
    candidates = candidates[candidates["candidate"] != CHOSEN]
    clients = table_settings(2)["clients"]
    ours = candidates.assign(clients=clients, nearest=candidates["candidate"])
    ours["nearest_difference_pct"] = ours["residual_pct"]
    central = central_cells(results)
    rate = decide(central).reading is CentralReading.RATE
    name, column = ("batch size 64", "batch_pct") if rate else (f"batch size {RATE_BATCH}", "rate_pct")
    local_epochs, rounds = table_settings(5)["split"]
    other = central[~central["stand_in"] & (central["runs"] > 0)]
    other = other.assign(local_epochs=local_epochs, rounds=rounds, clients=1, nearest=name)
    other["nearest_difference_pct"] = other[column] - other["published_accuracy_pct"]
    columns = [*_KEY, "nearest", "nearest_difference_pct"]
    return pd.concat([part[columns] for part in (ours, other) if len(part)] or [ours[columns]], ignore_index=True)


def outside_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader."""
    body = pd.DataFrame(
        {
            "Data": cells["dataset"].map(data_name),
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "(E, R)": [f"({row.local_epochs}, {row.rounds})" for row in cells.itertuples()],
            "k": cells["clients"].map(str),
            "Seeds": cells["runs"].map(str),
            "Ours": numbers(cells["accuracy_pct"], "{:.2f}"),
            "Published": numbers(cells["published_accuracy_pct"], "{:.2f}"),
            "Difference": numbers(cells["difference_pct"], "{:+z.2f}"),
            "Interval": [f"± {half:.2f}" if half == half else "–" for half in cells["prediction_pct"]],
            "As a single run": cells["prediction_single"].replace({INSIDE: "inside", OUTSIDE: "outside", "": "–"}),
            "Tried": cells["tried"].map(str),
            "Nearest of these": cells["nearest"].replace("", "–"),
            "its difference": numbers(cells["nearest_difference_pct"], "{:+z.2f}"),
        }
    )
    judged, wide, alone = (cells["prediction"] == where for where in _HEADINGS)
    inside = judged & (cells["prediction_single"] == INSIDE)
    notes = [
        f"{judged.sum()} published values are outside of our 95 % prediction interval for a mean of ten runs; "
        f"{inside.sum()} of them are inside of the one for a single run. Over {FAR_PCT:g} points from the print are "
        f"{wide.sum()} more whose interval is too wide to say anything, for models that train in some runs and not in "
        f"others, and {alone.sum()} with one run: there is no interval, as the scatter of neither side is known. "
        f"{_tried_note(cells)}",
        "A cell of two tables stands once, where both print the same: with two prints it may be inside of one and "
        "outside of the other.",
        "Differences: accuracy minus the published value, in points. Tried: other values of what the paper leaves open "
        "(tables identification, tempered_sigmoid, central_model) that were run on the cell. Its difference: that of "
        "ours plus what the other setting changes, over the seeds that both ran; often that is one seed, "
        "and its own run alone may be nearer or further.",
    ]
    return TableLayout(body, notes, [_HEADINGS[where] for where in cells["prediction"]])


def _tried_note(cells: pd.DataFrame) -> str:
    """Say on how many of the cells other settings were tried, and where none was."""
    without = cells[cells["tried"] == 0]
    text = f"Other settings were tried on {len(cells) - len(without)} of all these"
    if len(without):
        groups = without.groupby([without["dataset"].map(data_name), without["model"].map(model_name)], sort=False)
        where = ", ".join(f"{data} {model} {len(group)}" for (data, model), group in groups)
        text += f", and none on {len(without)}: {where}"
    return (
        f"{text}. That the nearest of several comes nearer is what chance alone can do, no sign that it was meant: a "
        "setting's study says what it explains."
    )
