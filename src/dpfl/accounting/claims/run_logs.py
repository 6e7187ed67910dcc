"""Logs of runs: how much noise, which sampling rate, how many steps, as Opacus's accountants record them.

A log is one of
    a CSV file with the columns noise_multiplier, sample_rate and, unless every row is a step, num_steps;
    a file of JSON lines, each an object with these keys;
    a JSON file of an accountant's `state_dict()`: {"history": [[noise_multiplier, sample_rate, num_steps], ...]}.
A log does not say how batches were drawn: Opacus's accountants assume Poisson samples, whatever the loader does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.claims.claim_files import _without_duplicates
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.samplers import BallsInBins, Poisson, Sampler, ShuffledEpochs
from dpfl.errors import InputError

_COLUMNS = ("noise_multiplier", "sample_rate", "num_steps")
_LIKE_STEPS = ("step", "iter")
"""Parts of names of columns that may be meant for num_steps: without it a row would count as one step."""


class Entry(NamedTuple):
    """Steps that share noise multiplier and sampling rate: an entry of Opacus's `accountant.history`."""

    noise_multiplier: float
    sample_rate: float
    num_steps: int


def read_rows(path: Path) -> list[Entry]:
    """Return the entries of a log of rows, a CSV file or JSON lines (.jsonl), equal neighbours joined.

    Source: the definition of the format, in the module. Raises InputError naming the file and the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # with the mark that Excel writes first, or without
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix == ".jsonl":
        rows = [(number, _parsed(line, path, number)) for number, line in enumerate(lines, 1) if line.strip()]
    else:
        reader = csv.DictReader(lines)
        try:
            rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num + 1}: {error}") from None
        if len(set(reader.fieldnames or ())) < len(reader.fieldnames or ()):
            raise InputError(f"{path}: a column stands twice in the header")
        if "noise_multiplier" in (reader.fieldnames or ()):  # else it is no log, and what it lacks says more
            _require_full_rows(rows, path)
    counted = any("num_steps" in row for _, row in rows)
    if not counted:
        _require_no_count([row for _, row in rows], path)
    return _joined([_entry(row, f"{path}, line {number}", counted=counted) for number, row in rows], path)


def history_of(content: Mapping[str, Any], path: Path) -> list[Entry]:
    """Return the entries of an accountant's `state_dict()`, read from JSON, equal neighbours joined.

    Source: the definition of the format, in the module. Raises InputError naming the file and the entry.
    """
    rows = content["history"]
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise InputError(f"{path}: history should be a list of [noise_multiplier, sample_rate, num_steps]")
    entries = [
        _entry(dict(zip(_COLUMNS, row, strict=True)), f"{path}, entry {number} of history", counted=True)
        for number, row in enumerate(rows, 1)
    ]
    return _joined(entries, path)


def poisson_phases(history: Iterable[Sequence[float]]) -> tuple[Phase, ...]:
    """Return the phases of Opacus's `accountant.history`, as its accountants understand it: Poisson samples.

    Source: the definition of the history, (noise_multiplier, sample_rate, num_steps).
    Raises ValueError naming the entry's field out of range.
    """
    return tuple(Phase(Poisson(rate), noise, steps) for noise, rate, steps in history)


def phases_on(sampler: Sampler, history: Sequence[Entry]) -> tuple[Phase, ...]:
    """Return the phases of a history whose batches `sampler` drew, whatever rates the history says.

    Source: derived here: a phase begins an epoch of its own, so a sampler of epochs may change its noise between
    epochs only. Raises ValueError where it changes within one.
    """
    if isinstance(sampler, BallsInBins | ShuffledEpochs):
        for entry in history[:-1]:
            if entry.num_steps % sampler.steps_per_epoch:
                raise ValueError(
                    f"the log changes after {entry.num_steps} steps, within an epoch of {sampler.steps_per_epoch} steps"
                )
    return tuple(Phase(sampler, entry.noise_multiplier, entry.num_steps) for entry in history)


def _parsed(line: str, path: Path, number: int) -> Mapping[str, Any]:
    """Return one JSON line. Raises InputError."""
    try:
        row = json.loads(line, object_pairs_hook=_without_duplicates)
    except (json.JSONDecodeError, RecursionError):
        row = None
    except ValueError as error:
        raise InputError(f"{path}, line {number}: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"{path}, line {number}: should be a JSON object")
    return row


def _require_full_rows(rows: Sequence[tuple[int, Mapping[str | None, Any]]], path: Path) -> None:
    """Raise InputError for a row of a CSV file that has more or fewer cells than the header."""
    for number, row in rows:
        if None in row or None in row.values():
            raise InputError(f"{path}, line {number}: has {'more' if None in row else 'fewer'} cells than the header")


def _require_no_count(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Raise InputError for a column that may count steps by another name; one that numbers the rows does not."""
    for name in dict.fromkeys(name for row in rows for name in row if name):
        values = [row.get(name) for row in rows]
        numbers_rows = any(
            list(map(str, values)) == [str(first + each) for each in range(len(rows))] for first in (0, 1)
        )
        if any(part in name.lower() for part in _LIKE_STEPS) and not numbers_rows:
            raise InputError(
                f"{path}: call the column {name} num_steps, if it counts the steps of a row; else leave it out"
            )


def _entry(row: Mapping[str, Any], place: str, *, counted: bool) -> Entry:
    """Return one entry, a step unless the log is `counted`; columns that are not of the format are left alone.

    Raises InputError naming the place.
    """
    try:
        return Entry(
            real("noise_multiplier", _number(row, "noise_multiplier"), above=0),
            real("sample_rate", _number(row, "sample_rate"), above=0, at_most=1),
            integer("num_steps", _number(row, "num_steps") if counted else 1),
        )
    except ValueError as problem:
        raise InputError(f"{place}: {problem}") from None


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a number, or the number that a text holds. Raises ValueError naming the column."""
    value = row.get(name)
    try:
        if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # true is no 1, and 1_0 no 10
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number, got {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be within the range of float64") from None


def _joined(entries: Sequence[Entry], path: Path) -> list[Entry]:
    """Return the entries with equal neighbours joined. Raises InputError where there is none."""
    joined: list[Entry] = []
    for entry in entries:
        if joined and joined[-1][:2] == entry[:2]:
            entry = entry._replace(num_steps=joined.pop().num_steps + entry.num_steps)
        joined.append(entry)
    if not joined:
        raise InputError(f"{path} holds no step: a log has the columns {', '.join(_COLUMNS)}")
    return joined
