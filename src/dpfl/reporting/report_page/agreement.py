"""Agreement with printed numbers: each number that a paper prints, ours, the distance, and what it means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from dpfl.catalog import load, recipe
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run

PRINTED = "published_"
"""Prefix of a column of printed numbers; ours are in the column of the rest of its name."""
_UNITS = {"pct": "points"}
_SCALES = {"pct": "%"}
"""Units of the numbers themselves, by the suffix of their column; of a difference in `_UNITS`."""


class Agreement(StrEnum):
    """Relation of one of our numbers to the printed one."""

    INSIDE = "inside"
    """The printed value is inside the prediction interval of ours."""
    OUTSIDE = "outside"
    """The printed value is outside of it."""
    WIDE = "too wide to say"
    """The interval takes in nearly anything."""
    SINGLE = "one run"
    """A single run has no interval."""
    STAND_IN = "stand-in data"
    """Run on other data: not comparable."""
    NOT_RUN = "not run"
    """Not run at this scale."""


_BY_MARK = {"inside": Agreement.INSIDE, "outside": Agreement.OUTSIDE, "undecided": Agreement.WIDE}


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number and ours: `keys` name the cell, `quantity` is what it is, in `scale`.

    `prediction` is the half-width of the interval around ours in which the print is expected, `unit` that of it and of
    `difference`. A number that is missing is nan. `printed_runs`: how many runs the print is said to average, 0 where
    not known; `single` is the relation were it a single run, which is `agreement` where the table does not say.
    """

    keys: dict[str, str]
    data: str
    printed: float
    ours: float
    difference: float
    prediction: float
    runs: int
    agreement: Agreement
    single: Agreement
    unit: str
    quantity: str
    scale: str
    printed_runs: int = 0


def is_printed(paper: str, table: str) -> bool:
    """Return whether paper.yaml lists printed numbers for a table."""
    return any(key.startswith(PRINTED) for key in load(paper).tables[table])


def printed_numbers(paper: str, table: str, csv: Path) -> list[PrintedNumber]:
    """Return every printed number of a finished table, in the order of its CSV; none where the table was not run.

    The CSV has a column published_<name>_<unit> and, for ours, <name>_<unit>, difference_<unit>, prediction_<unit> (the
    half-width of the prediction interval), runs, stand_in, ran_on and prediction ("inside", "outside", "undecided", or
    "" without an interval), and maybe prediction_single (the same were the print a single run); the columns before the
    printed one name the cell.
    """
    if not is_printed(paper, table) or not csv.is_file():
        return []
    try:
        rows = refuse_not_run(read_csv(csv))
    except NotRunError:
        return []
    column = next((name for name in rows.columns if name.startswith(PRINTED)), None)
    runs = recipe(paper, "tables", table).printed_runs
    return [] if column is None else [_number(row, column, runs) for _, row in rows.iterrows()]


def _number(row: pd.Series, column: str, printed_runs: int) -> PrintedNumber:
    ours = column.removeprefix(PRINTED)
    name, _, suffix = ours.rpartition("_")
    keys = list(row.index[: row.index.get_loc(column)])
    return PrintedNumber(
        keys={name: _text(row[name]) for name in keys},
        data=str(row["ran_on"]),
        printed=float(row[column]),
        ours=float(row[ours]),
        difference=float(row[f"difference_{suffix}"]),
        prediction=float(row[f"prediction_{suffix}"]),
        runs=int(row["runs"]),
        agreement=_agreement(row, row["prediction"]),
        single=_agreement(row, row.get("prediction_single", row["prediction"])),
        unit=_UNITS.get(suffix, suffix),
        quantity=name.replace("_", " "),
        scale=_SCALES.get(suffix, suffix),
        printed_runs=printed_runs,
    )


def _agreement(row: pd.Series, prediction: str) -> Agreement:
    """Return the relation of a row's numbers, by where the print is of a prediction interval."""
    if row["runs"] == 0:
        return Agreement.NOT_RUN
    if str(row["stand_in"]).lower() == "true":
        return Agreement.STAND_IN
    return _BY_MARK.get(prediction, Agreement.SINGLE)


def _text(value: object) -> str:
    """Return a cell as text, numbers in their shortest form."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Summary:
    """Counts of printed numbers, of those that we have, and their distances; `single`: were the prints single runs."""

    printed: int
    counts: dict[Agreement, int]
    single: dict[Agreement, int]
    median: float
    largest: float
    unit: str

    @property
    def run(self) -> int:
        """Number of printed numbers with one of ours, on any data."""
        return self.printed - self.counts[Agreement.NOT_RUN]

    @property
    def comparable(self) -> int:
        """Number of printed numbers with one of ours on the same data."""
        return self.run - self.counts[Agreement.STAND_IN]

    def sentence(self) -> str:
        """Return the summary as one sentence, without numbers where there are none."""
        if not self.printed:
            return "The paper prints no table of numbers."
        if not self.comparable:
            data = "on stand-in data, not comparable" if self.run else "yet"
            return f"{self.run or 'None'} of {self.printed} printed numbers run {data}."
        others = f" {self.counts[Agreement.STAND_IN]} more on stand-in data." if self.run > self.comparable else ""
        alone = f"; read as single runs {_in_words(self.single, JUDGED)}" if self.single != self.counts else ""
        return (
            f"{self.comparable} of {self.printed} printed numbers run: {_in_words(self.counts, _COMPARED)}{alone}; "
            f"median distance {self.median:.2g}, largest {self.largest:.2g} {self.unit}.{others}"
        )


JUDGED = (Agreement.INSIDE, Agreement.OUTSIDE, Agreement.WIDE)
"""Relations that a prediction interval gives."""
_COMPARED = (*JUDGED, Agreement.SINGLE)


def _in_words(counts: dict[Agreement, int], kinds: Iterable[Agreement]) -> str:
    """Return the counts of some relations that are not 0, as "3 inside, 1 with one run"."""
    said = {Agreement.SINGLE: "with one run"}
    return ", ".join(f"{counts[kind]} {said.get(kind, kind)}" for kind in kinds if counts[kind])


def summary(numbers: Iterable[PrintedNumber]) -> Summary:
    """Return the summary of printed numbers; distances are absolute differences of comparable numbers."""
    known = list(numbers)
    distances = pd.Series([abs(each.difference) for each in known if not math.isnan(each.difference)], dtype=float)
    ten, single = (
        {kind: sum(getattr(each, name) is kind for each in known) for kind in Agreement}
        for name in ("agreement", "single")
    )
    unit = known[0].unit if known else ""
    return Summary(len(known), ten, single, float(distances.median()), float(distances.max()), unit)
