"""Published numbers and ours: which agree, which differ, and which our runs do not bear yet."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from dpfl.catalog import recipe
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run
from dpfl.reporting.tables import PRINTED, printed_columns, readable_cell

# Tables as text: rows of cells, how a row is traced and coloured, and what its reader may do with it.


@dataclass(frozen=True)
class Row:
    """A row of a table: cells, the heading above it ("": as the row before), how to trace it, and how to colour
    it or each of its cells."""

    cells: tuple[str, ...]
    heading: str = ""
    where: str = ""
    style: str = ""
    cell_styles: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextTable:
    """A table as text; `keeps_first`: its first column stays in sight where a reader scrolls sideways."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    keeps_first: bool = False

    @property
    def can_sort(self) -> bool:
        """True where its rows may change places: not below headings, and not if several rows are one of the paper's."""
        return len(self.rows) > 2 and not any(row.heading or row.cell_styles for row in self.rows)

    @property
    def has_traces(self) -> bool:
        """True where its rows can be traced one by one."""
        return any(row.where for row in self.rows)


# Agreement with printed numbers: each number that a paper prints, ours, the distance, and what it means.

_UNITS = {"pct": "points"}
_SCALES = {"pct": "%"}
"""Units of the numbers themselves, by the suffix of their column; of a difference in `_UNITS`."""


class Agreement(StrEnum):
    """Relation of one of our numbers to the published one."""

    REPRODUCED = "reproduced"
    """The published value lies in the prediction interval of our runs."""
    NOT_REPRODUCED = "not reproduced"
    """The published value lies outside of it."""
    UNDECIDED = "undecided"
    """The interval is too wide to tell."""
    SINGLE = "one run"
    """A single run has no interval."""
    STAND_IN = "stand-in data"
    """Run on other data: not comparable."""
    NOT_RUN = "not run"
    """Not run at this scale."""


@dataclass(frozen=True)
class PrintedNumber:
    """One published number and ours: `keys` name the cell, `quantity` is what it is, in `scale`.

    `prediction` is the half-width of the interval around ours in which the print is expected, `unit` that of it and of
    `difference`. A number that is missing is nan. `printed_runs`: how many runs the print is said to average, 0 where
    not known; `single` is the relation were it a single run, which is `agreement` where the table does not say.
    `collapsed`: how many of the runs diverged or ended at chance. `least` and `most`: the ends of our runs.
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
    collapsed: int = 0
    least: float = math.nan
    most: float = math.nan


def printed_numbers(paper: str, table: str, csv: Path) -> list[PrintedNumber]:
    """Return every published number of a finished table, in the order of its CSV; none where the table was not run.

    The CSV has the `printed_columns`: prediction_<unit> is the half-width of the prediction interval, and prediction is
    "reproduced", "not reproduced", "undecided", or "" without an interval. It may have prediction_single (the same if
    the published value is a single run), diverged and at_chance (numbers of such runs), least_<unit> and most_<unit>
    (the ends of ours). The columns before the published one name the cell.
    """
    columns = printed_columns(paper, table)
    if not columns or not csv.is_file():
        return []
    try:
        rows = refuse_not_run(read_csv(csv))
    except NotRunError:
        return []
    runs = recipe(paper, "tables", table).printed_runs
    return [_printed_number(row, columns[0], runs) for _, row in rows.iterrows()]


def _printed_number(row: pd.Series, column: str, printed_runs: int) -> PrintedNumber:
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
        collapsed=int(row.get("diverged", 0) + row.get("at_chance", 0)),  # of `runs`, of which repeats are none
        least=float(row.get(f"least_{suffix}", math.nan)),
        most=float(row.get(f"most_{suffix}", math.nan)),
    )


def _agreement(row: pd.Series, prediction: str) -> Agreement:
    """Return the relation of a row's numbers, by where the print is of a prediction interval."""
    if row["runs"] == 0:
        return Agreement.NOT_RUN
    if str(row["stand_in"]).lower() == "true":
        return Agreement.STAND_IN
    return Agreement(prediction) if prediction else Agreement.SINGLE


def _text(value: object) -> str:
    """Return a cell as text, numbers in their shortest form."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Summary:
    """Counts of published numbers, of those that we have, and their distances; `single`: if they are single runs.

    `farthest` is the number with the largest distance, None if none is comparable; `collapsed` counts the comparable
    numbers with a run that diverged or ended at chance, and `farthest_of_others` is the farthest without them.
    `medians` are the median distances by model, the largest first, if numbers name a model. `in_full`: how many
    are reproduced, of how many judged ones, with as many runs as the paper has. `wide`: how many are reproduced by an
    interval of more than `WIDE` to each side. `repeated`: how many stand in another table too, and count again.
    """

    printed: int
    counts: dict[Agreement, int]
    single: dict[Agreement, int]
    median: float
    largest: float
    unit: str
    farthest: PrintedNumber | None
    collapsed: int
    farthest_of_others: PrintedNumber | None
    medians: dict[str, float]
    in_full: tuple[int, int]
    wide: int
    repeated: int

    @property
    def run(self) -> int:
        """Number of published numbers with one of ours, on any data."""
        return self.printed - self.counts[Agreement.NOT_RUN]

    @property
    def comparable(self) -> int:
        """Number of published numbers with one of ours on the same data."""
        return self.run - self.counts[Agreement.STAND_IN]

    def in_short(self) -> str:
        """Return how many published numbers were run, and how near ours come; "" if none can be compared."""
        if not self.comparable:
            return ""
        return (
            f"{self.comparable} of {self.printed} published numbers were run. The median difference is "
            f"{self.median:.2g} {self.unit}."
        )

    def sentence(self) -> str:
        """Return the summary in sentences, without numbers if there are none."""
        if not self.printed:
            return "The paper has no table of numbers."
        if not self.comparable:
            data = " on stand-in data, so they cannot be compared" if self.run else ""
            return f"{self.run or 'None'} of {self.printed} published numbers were run{data}."
        others = f" {self.counts[Agreement.STAND_IN]} more ran on stand-in data." if self.run > self.comparable else ""
        alone = ""
        if self.single != self.counts:
            alone = f" If the published values are single runs, not means: {_in_words(self.single, JUDGED)}."
        return (
            f"{self.outcomes()}.{alone} Median difference {self.median:.2g}{self._by_model()}, largest "
            f"{self.largest:.2g} {self.unit}.{self._why()}{others}"
        )

    def outcomes_and_median(self) -> str:
        """Return how many numbers are reproduced, and the median distance, also by model, without the full stop."""
        return f"{self.outcomes()}. The median difference is {self.median:.2g} {self.unit}{self._by_model()}"

    def outcomes(self) -> str:
        """Return how many numbers were run and are reproduced, how many of these with as many runs as the paper and by
        a wide interval, for few runs reproduce more easily, and how many count twice; without the full stop."""
        count = self.counts[Agreement.REPRODUCED]
        said = [f"{self.comparable} of {self.printed} published numbers were run: {_in_words(self.counts, _COMPARED)}"]
        if 0 < self.in_full[1] < sum(self.counts[kind] for kind in JUDGED):
            said.append(f"Reproduced with as many runs as the paper: {self.in_full[0]} of {self.in_full[1]}")
        if self.wide:
            said.append(f"Reproduced by an interval wider than ±{WIDE:g} {self.unit}: {self.wide} of {count}")
        if self.repeated:
            said.append(f"Counted twice: {self.repeated}")
        return ". ".join(said)

    def _by_model(self) -> str:
        """Return the median distances by model, in brackets after a blank; "" if there is but one model."""
        said = ", ".join(f"{readable_cell(model)} {median:.2g}" for model, median in self.medians.items())
        return f" ({said})" if said else ""

    def _why(self) -> str:
        """Return the cause of the largest difference, if it is a run that collapsed, in sentences; else ""."""
        cell = self.farthest
        if cell is None or not cell.collapsed:
            return ""
        runs = "Our only run" if cell.runs == 1 else f"{cell.collapsed} of our {cell.runs} runs"
        without = "this number" if self.collapsed == 1 else f"the {self.collapsed} numbers with such a run"
        said = f" The largest is at {_compared(cell)}. {runs} diverged or ended no better than a constant answer."
        other = self.farthest_of_others
        if other is None:
            return said
        return f"{said} Without {without} it is {abs(other.difference):.2g} {self.unit}, at {_compared(other)}."


WIDE = 2.0
"""Half-width of a prediction interval beyond which agreement says little: the tolerance of bhaskar2025's studies."""
JUDGED = (Agreement.REPRODUCED, Agreement.NOT_REPRODUCED, Agreement.UNDECIDED)
"""Relations that a prediction interval gives."""
_COMPARED = (*JUDGED, Agreement.SINGLE)


def _compared(cell: PrintedNumber) -> str:
    """Return a cell in words with both numbers."""
    if cell.collapsed and cell.least < cell.most:
        ours = f"{cell.least:.2f} to {cell.most:.2f} ({cell.runs} runs, mean {cell.ours:.2f})"
    else:
        ours = f"{cell.ours:.2f} ({'one run' if cell.runs == 1 else f'mean of {cell.runs} runs'})"
    return f"{in_words(cell.keys)}: published {cell.printed:.2f}, ours {ours}"


def _in_words(counts: dict[Agreement, int], kinds: Iterable[Agreement]) -> str:
    """Return the counts of some relations that are not 0, as "3 reproduced, 1 with one run"."""
    said = {Agreement.SINGLE: "with one run"}
    return ", ".join(f"{counts[kind]} {said.get(kind, kind)}" for kind in kinds if counts[kind])


def summary(numbers: Iterable[PrintedNumber]) -> Summary:
    """Return the summary of published numbers; distances are absolute differences of comparable numbers."""
    known = list(numbers)
    comparable = [each for each in known if not math.isnan(each.difference)]
    distances = pd.Series([abs(each.difference) for each in comparable], dtype=float)
    ten, single = (
        {kind: sum(getattr(each, name) is kind for each in known) for kind in Agreement}
        for name in ("agreement", "single")
    )
    unit = known[0].unit if known else ""
    full = [each for each in known if each.agreement in JUDGED and each.runs >= each.printed_runs > 0]
    models = pd.Series([each.keys.get("model", "") for each in comparable], dtype=object)
    medians = distances[models != ""].groupby(models).median().sort_values(ascending=False)
    return Summary(
        printed=len(known),
        counts=ten,
        single=single,
        median=float(distances.median()),
        largest=float(distances.max()),
        unit=unit,
        farthest=max(comparable, key=lambda each: abs(each.difference), default=None),
        collapsed=sum(each.collapsed > 0 for each in comparable),
        farthest_of_others=max(
            (each for each in comparable if not each.collapsed), key=lambda each: abs(each.difference), default=None
        ),
        medians={str(model): float(median) for model, median in medians.items()} if len(medians) > 1 else {},
        in_full=(sum(each.agreement is Agreement.REPRODUCED for each in full), len(full)),
        repeated=len(known) - len({_cell(each) for each in known}),
        wide=sum(each.agreement is Agreement.REPRODUCED and each.prediction > WIDE for each in known),
    )


def _cell(number: PrintedNumber) -> tuple[tuple[str, str], ...]:
    """Return what a number is of, whatever table it stands in."""
    return tuple((key, value) for key, value in number.keys.items() if key != "table")


# Printed numbers beside ours as the page shows them: a row each; what is the same in all of them is said once.

_SAID = {"table": "Table {}", "epsilon": "ε = {}", "clients": "{} clients"}
"""How a key of a printed number is said; others are said by their value alone."""
_SPLIT = ("local_epochs", "rounds")
_SUBJECT = ("dataset", "model")
"""Keys that name what is trained: the first column."""
_NAMES = {"epsilon": "ε", "dataset": "data set"}


def in_words(keys: Mapping[str, str]) -> str:
    """Return a cell in words: "Table 2, MNIST, CNN + ReLU, no privacy, (E, R) = (1, 20), 10 clients"."""
    known = dict(keys)
    if set(_SPLIT) <= set(known):
        known["local_epochs"] = f"(E, R) = ({known['local_epochs']}, {known.pop('rounds')})"
    cell = ", ".join(_SAID.get(key, "{}").format(readable_cell(value)) for key, value in known.items())
    return re.sub(r"\b1 clients", "one client", cell.replace("ε = inf", "no privacy"))


def printed_table(numbers: Sequence[PrintedNumber], conditions: Sequence[str]) -> TextTable:
    """Return published numbers and ours, a row each, with the condition that traces it.

    The columns that name a cell and differ between rows come first, what is trained before the rest.
    """
    names = _columns(numbers)
    unit, has_data = numbers[0].unit, len(_data(numbers)) > 1 and _on_other_data(numbers)
    columns = [*names, "ours", "published", f"difference, {unit}", f"prediction ± 95 %, {unit}", "agreement", "n"]
    rows = [
        Row(
            (
                *(_key_cell(each, keys) for keys in names.values()),
                *(_number(value, form) for value, form in _values(each)),
                _width(each.prediction),
                str(each.agreement),
                str(each.runs),
                *([readable_cell(each.data) or "–"] if has_data else []),
            ),
            where=where,
            style=f"a-{each.agreement.replace(' ', '-')}",
        )
        for each, where in zip(numbers, conditions, strict=True)
    ]
    return TextTable((*columns, *(["data"] if has_data else [])), tuple(rows), keeps_first=True)


def said_once(numbers: Sequence[PrintedNumber]) -> str:
    """Return what all rows of `printed_table` share, and what its interval is, in sentences."""
    varying, data = _varying(numbers), _data(numbers)
    shared = {key: value for key, value in numbers[0].keys.items() if key not in varying and key != "table"}
    words = [in_words(shared)] if shared else []
    if len(data) == 1 and _on_other_data(numbers):
        words.append(f"run on {readable_cell(data[0])}")
    said = [f"In every row: {', '.join(words)}."] if words else []
    runs = numbers[0].printed_runs
    if runs and any(each.prediction == each.prediction for each in numbers):
        said.append(
            f"Prediction: the mean of {runs} new runs lies within this distance of ours with 95 % probability, "
            f'estimated from the scatter of our runs. If it is wide, "{Agreement.REPRODUCED}" says little.'
        )
    return " ".join(said)


def _varying(numbers: Sequence[PrintedNumber]) -> list[str]:
    """Return the keys whose value differs between numbers, in their order; E and R go together."""
    varying = [key for key in numbers[0].keys if len({each.keys[key] for each in numbers}) > 1]
    split = set(_SPLIT) <= set(numbers[0].keys) and not set(_SPLIT).isdisjoint(varying)
    return [key for key in numbers[0].keys if key in varying or (split and key in _SPLIT)]


def _columns(numbers: Sequence[PrintedNumber]) -> dict[str, tuple[str, ...]]:
    """Return the columns that name a cell, with the keys that each of them shows."""
    varying = _varying(numbers)
    subject = tuple(key for key in _SUBJECT if key in varying)
    columns = {", ".join(_NAMES.get(key, key) for key in subject): subject} if subject else {}
    for key in sorted((key for key in varying if key not in subject), key=lambda key: key != "epsilon"):
        if key not in _SPLIT:
            columns[_NAMES.get(key, key.replace("_", " "))] = (key,)
        elif set(_SPLIT) <= set(varying):
            columns["(E, R)"] = _SPLIT
    return columns


def _key_cell(number: PrintedNumber, keys: tuple[str, ...]) -> str:
    """Return the text of a column that names the cell of a number."""
    values = ", ".join(readable_cell(number.keys[key]) for key in keys)
    return f"({values})" if keys == _SPLIT else values.replace("inf", "none")


def _data(numbers: Sequence[PrintedNumber]) -> list[str]:
    """Return the data that the numbers with runs are from, each once."""
    return list(dict.fromkeys(each.data for each in numbers if each.runs))


def _on_other_data(numbers: Sequence[PrintedNumber]) -> bool:
    """Return whether a number with runs is from other data than those that its cell names."""
    return any(each.runs and each.data != each.keys.get("dataset") for each in numbers)


def _values(number: PrintedNumber) -> tuple[tuple[float, str], ...]:
    """Return the numbers of a row with their formats."""
    return (number.ours, ".2f"), (number.printed, ".2f"), (number.difference, "+z.2f")


def _width(prediction: float) -> str:
    """Return an interval's half-width, a wide one with fewer digits."""
    return _number(prediction, f".{2 - (prediction >= 10) - (prediction >= 100)}f")


def _number(value: float, form: str) -> str:
    """Return a number as text; a dash if there is none."""
    return "–" if value != value else f"{value:{form}}"


# Printed numbers that our runs do not bear yet: those without a run, and those with a single one.

_GROUP = ("table", "dataset", "model")


@dataclass(frozen=True)
class PrintedGap:
    """Published numbers of one table, data set and model: how many we did not run, which, and how many we ran once."""

    name: str
    total: int
    not_run: int
    single: int
    which: str


def printed_gaps(numbers: Iterable[PrintedNumber]) -> tuple[PrintedGap, ...]:
    """Return the groups of which a number has no run of ours or a single one, in the order of the tables."""
    groups: dict[str, list[PrintedNumber]] = {}
    for each in numbers:
        name = in_words({key: value for key, value in each.keys.items() if key in _GROUP})
        groups.setdefault(name, []).append(each)
    found = (_gap(name, group) for name, group in groups.items())
    return tuple(gap for gap in found if gap.not_run or gap.single)


def gaps_in_words(numbers: Iterable[PrintedNumber]) -> str:
    """Return how many published numbers have no run of ours and how many a single one; "" where all have several."""
    known = list(numbers)
    counts = {kind: sum(each.agreement is kind for each in known) for kind in (Agreement.NOT_RUN, Agreement.SINGLE)}
    runs = max((each.printed_runs for each in known), default=0)
    prints = f" (the paper reports means of {runs})" if runs > 1 else ""
    said = {Agreement.NOT_RUN: "we did not run", Agreement.SINGLE: f"we ran once{prints}"}
    parts = [f"{counts[kind]} {words}" for kind, words in said.items() if counts[kind]]
    return f"Of {len(known)} published numbers: {'; '.join(parts)}" if parts else ""


def _gap(name: str, group: list[PrintedNumber]) -> PrintedGap:
    """Return the gap of a group."""
    absent = [each for each in group if each.agreement is Agreement.NOT_RUN]
    varying = [key for key in group[0].keys if len({each.keys[key] for each in group}) > 1]
    which = "; ".join(in_words({key: each.keys[key] for key in varying}) for each in absent)
    single = sum(each.agreement is Agreement.SINGLE for each in group)
    return PrintedGap(name, len(group), len(absent), single, "all" if len(absent) == len(group) else which)
