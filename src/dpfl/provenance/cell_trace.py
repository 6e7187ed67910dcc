"""Find the runs behind a cell of a table or a point of a figure."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpfl.catalog import load
from dpfl.errors import InputError
from dpfl.provenance.trace import Node, project_of, trace
from dpfl.reporting.results import ORIGINS, table_text

Row = dict[str, str]
_LABELS = ("paper", "sweep", "stand_in_for", "data_note", "experiment")
"""Columns of a run table that do not distinguish runs."""
_LONGEST_LIST = 12
_NO_STUDY = ("", "nan", "none")
NOISE = ("noise_multiplier", "noise_std")
"""Columns of a run table with its noise."""
_NOISE_TOLERANCE = 1e-6
"""Relative difference of noise calibrated twice for a target: other versions and processors end a search elsewhere."""


def conditions(text: str) -> dict[str, str]:
    """Return the conditions of "column=value,column=value"; raises InputError where the text is none.

    A value may have commas, as in "split=(1, 20)": a condition begins where a name and an equals sign follow.
    """
    parts = [part.partition("=") for part in re.split(r",(?=[^,=]*=)", text)]
    if any(not (name.strip() and sign) or value.endswith(",") for name, sign, value in parts):
        raise InputError(f"--where {text!r} must be column=value, more of them separated by commas")
    named = {name.strip(): value.strip() for name, _, value in parts}
    if len(named) < len(parts):
        raise InputError(f"--where {text!r} gives a column twice; a row has one value of it")
    return named


def rows_where(path: Path, wanted: Mapping[str, str]) -> list[Row]:
    """Return the rows of the CSV at `path` that meet all conditions; numbers are compared as numbers.

    Raises InputError, naming what there is, for a column that the file does not have or a value that no row has.
    """
    rows = read_rows(path)
    columns = list(rows[0]) if rows else []
    for name, value in wanted.items():
        if name not in columns:
            raise InputError(f"{path} has no column {name}; it has {', '.join(columns)}")
        if not any(same(row[name], value) for row in rows):
            known = list(dict.fromkeys(row[name] for row in rows))
            more = f" and {len(known) - _LONGEST_LIST} more" if len(known) > _LONGEST_LIST else ""
            raise InputError(f"no row of {path} has {name}={value}; there are {', '.join(known[:_LONGEST_LIST])}{more}")
    kept = [row for row in rows if all(same(row[name], value) for name, value in wanted.items())]
    if not kept:
        asked = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise InputError(f"no row of {path} has {asked} together")
    return kept


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV as text; raises InputError where the file is missing or no table."""
    try:
        rows = list(csv.DictReader(table_text(path), strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is no table: {' '.join(str(error).split())}") from None
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # what DictReader calls cells too many, and those that are missing
            raise InputError(f"{path} is no table: row {number} has another number of cells than the first line")
    return rows


def trace_cells(path: Path, wanted: Mapping[str, str]) -> tuple[Node, list[Row]]:
    """Return the trace of the file at `path` with only the runs behind the rows that meet the conditions, and the rows.

    For a picture or a page, the CSV of the same name is used. Raises InputError as `rows_where` and `trace` do.
    """
    data = path if path.name.endswith(".csv.gz") else path.with_suffix(".csv")
    rows = rows_where(data, wanted)
    complete = trace(data)
    root, _ = project_of(data)
    tables = {node.path: read_rows(root / node.path) for node in complete.walk() if _is_run_table(node)}
    kept = _recorded(tables, rows) if is_recorded(rows) else _agreeing(tables, rows)
    tree = trace(data, without={name for name, runs in kept.items() if not runs})
    for node in tree.walk():
        node.runs = kept.get(node.path, [])
    return tree, rows


def is_recorded(rows: list[Row]) -> bool:
    """Return whether rows of a table or figure record the runs that they were made of."""
    return bool(rows) and ORIGINS in rows[0]


def _recorded(tables: Mapping[str, list[Row]], rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each run table, by its path, that the rows record."""
    wanted = {origin for row in rows for origin in row[ORIGINS].split()}
    sweeps = {path: Path(path).name.partition(".")[0] for path in tables}
    return {
        path: [run for place, run in enumerate(runs) if f"{sweeps[path]}:{place}" in wanted]
        for path, runs in tables.items()
    }


def _agreeing(tables: Mapping[str, list[Row]], rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each run table, by its path, that may be behind rows which do not record theirs."""
    behind = {id(run) for run in runs_behind([run for runs in tables.values() for run in runs], rows)}
    return {path: [run for run in runs if id(run) in behind] for path, runs in tables.items()}


def _is_run_table(node: Node) -> bool:
    """Return whether a node is a run table at its first place in the trace."""
    return node.record is not None and node.record["stage"] == "train" and not node.repeated


def runs_behind(runs: Iterable[Row], rows: list[Row]) -> list[Row]:
    """Return the runs that agree with one of the rows in every column that both have: more than those behind them,
    where the table was made of some of these alone.

    Compared are the columns that say what was run (those before a run table's `status`). Where a table's rows do not
    name a setting, the runs have the paper's own value of it, if there are any such: a study that varies it is not
    behind the table.
    """
    found = {id(run): run for run in runs for row in rows if _agrees(run, row)}.values()
    usual = [run for run in found if _is_usual(run, rows[0])] if rows else []
    once: dict[str, Row] = {}
    for run in usual or found:
        # The same run may be asked for by several entries of the grid.
        once.setdefault(json.dumps([value for name, value in run.items() if name not in ("sweep", "study")]), run)
    return list(once.values())


def same(first: str, second: str) -> bool:
    """Return whether two cells are the same text, the same number or the same truth value."""
    return first == second or value_of(first) == value_of(second)


def same_noise(first: str, second: str) -> bool:
    """Return whether two cells are the same noise: equal, or as near as two searches for one target end."""
    if same(first, second):
        return True
    one, other = number_in(first), number_in(second)
    return one is not None and other is not None and math.isclose(one, other, rel_tol=_NOISE_TOLERANCE, abs_tol=0.0)


def value_of(text: str) -> object:
    """Return the value of a cell whatever its spelling: a number, a truth value, or the text; nan is text."""
    number = number_in(text)
    if number is not None and number == number:
        return number
    return text.lower() if text.lower() in ("true", "false") else text


def run_key(run: Row) -> Row:
    """Return the columns of a run that say what was run."""
    names = list(run)
    known = names[: names.index("status")] if "status" in names else names
    return {name: run[name] for name in known if name not in _LABELS}


def number_in(text: str) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _agrees(run: Row, row: Row) -> bool:
    """Return whether a run may be behind a row; a stand-in counts as the data set that it stands for."""
    for name, value in run_key(run).items():
        if name not in row or not row[name] or same(value, row[name]):
            continue
        if (number_in(value) is None) != (number_in(row[name]) is None):
            continue  # a rule, as 1/n^2, against the number that it gave
        if name != "dataset" or run.get("stand_in_for") != row[name]:
            return False
    return True


def _is_usual(run: Row, row: Row) -> bool:
    """Return whether a run has the paper's own settings, those apart that the row names itself, and is of no study."""
    settings: dict[str, Any] = load(run["paper"]).settings if run.get("paper") else {}
    if "study" not in row and run.get("study", "") not in _NO_STUDY:
        return False
    return all(
        name in row or name not in run or run[name] in ("", "nan") or same(run[name], str(value))
        for name, value in settings.items()
    )
