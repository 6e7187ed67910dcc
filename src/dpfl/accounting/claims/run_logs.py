"""Logs of runs: how much noise, which sampling rate, how many steps, as Opacus's accountants record them.

A log is one of
    a CSV file with the columns noise_multiplier, sample_rate and num_steps, the steps of that row;
    a file of JSON lines, each an object with these keys;
    a JSON file of an accountant's `state_dict()`: {"history": [[noise_multiplier, sample_rate, num_steps], ...]}.
Nothing about steps is guessed: a log without num_steps needs `steps_per_row`, one whose num_steps rises from row to row
needs `num_steps` (each row's own, or the sum so far), and any other column or key is refused, as it may count steps.
A log does not say how batches were drawn: Opacus's accountants assume Poisson samples, whatever the loader does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.claims.claim_files import _without_duplicates
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.samplers import BallsInBins, Poisson, Sampler, ShuffledEpochs
from dpfl.errors import InputError

_COLUMNS = ("noise_multiplier", "sample_rate", "num_steps")
_MECHANISMS = ("rdp", "prv", "gdp", "dpfl_pld")
"""Accountants whose history has one meaning: entries of their own steps, equal neighbours joined."""


class StepCount(StrEnum):
    """Unit of the num_steps of a row."""

    PER_ROW = "per_row"
    """The steps of that row."""
    CUMULATIVE = "cumulative"
    """All steps of the run up to the end of that row."""


class Entry(NamedTuple):
    """Steps that share noise multiplier and sampling rate: an entry of Opacus's `accountant.history`."""

    noise_multiplier: float
    sample_rate: float
    num_steps: int


def read_rows(path: Path, *, steps_per_row: int | None = None, num_steps: StepCount | str | None = None) -> list[Entry]:
    """Return the entries of a log of rows, a CSV file or JSON lines (.jsonl), equal neighbours joined.

    `steps_per_row` >= 1 stands for the column num_steps where the log has none; `num_steps` says what that column
    counts where it rises. Source: the definition of the format, in the module. Raises InputError naming the file and
    the line, or the option that is missing or too much.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # with the mark that Excel writes first, or without
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    rows = _json_lines(lines, path) if path.suffix == ".jsonl" else _csv_rows(lines, path)
    _require_known({name: None for _, row in rows for name in row}, _COLUMNS, path)
    counted = any("num_steps" in row for _, row in rows)
    if counted and steps_per_row is not None:
        raise InputError(f"{path} has the column num_steps: leave out --steps-per-row")
    if not counted and num_steps is not None:
        raise InputError(f"{path} has no column num_steps: leave out --num-steps")
    if rows and not counted and steps_per_row is None:
        raise InputError(
            f"{path} does not say how many steps a row is: add the column num_steps, or give --steps-per-row "
            "(1 if each row is one noisy step, more if it is an epoch or a round)"
        )
    entries = [_entry(row, f"{path}, line {number}", steps_per_row) for number, row in rows]
    return _joined(_own_steps(entries, path, num_steps), path)


def history_of(content: Mapping[str, Any], path: Path, *, num_steps: StepCount | str | None = None) -> list[Entry]:
    """Return the entries of an accountant's `state_dict()`, read from JSON, equal neighbours joined.

    `num_steps` as in `read_rows`: it is not needed where the state names its mechanism, one of Opacus's.
    Source: the definition of the format, in the module. Raises InputError naming the file and the entry.
    """
    _require_known(content, ("history", "mechanism"), path)
    mechanism = content.get("mechanism")
    if mechanism is not None and mechanism not in _MECHANISMS:
        raise InputError(f"{path}: mechanism should be one of {', '.join(_MECHANISMS)}, got {mechanism!r}")
    rows = content["history"]
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise InputError(f"{path}: history should be a list of [noise_multiplier, sample_rate, num_steps]")
    entries = [
        _entry(dict(zip(_COLUMNS, row, strict=True)), f"{path}, entry {number} of history", None)
        for number, row in enumerate(rows, 1)
    ]
    if mechanism is not None and num_steps is None and all(one[:2] != two[:2] for one, two in pairwise(entries)):
        num_steps = StepCount.PER_ROW  # as Opacus writes it
    return _joined(_own_steps(entries, path, num_steps), path)


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


def _json_lines(lines: Sequence[str], path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the rows of a file of JSON lines with their numbers."""
    return [(number, _parsed(line, path, number)) for number, line in enumerate(lines, 1) if line.strip()]


def _csv_rows(lines: Sequence[str], path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the rows of a CSV file with the numbers of their lines. Raises InputError."""
    reader = csv.DictReader(lines)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num + 1}: {error}") from None
    names = list(reader.fieldnames or ())
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a column stands twice in the header")
    missing = [name for name in _COLUMNS[:2] if name not in names]
    if missing:
        raise InputError(
            f"{path} has no column {' and no column '.join(missing)}: the first line of a log names the columns "
            f"{', '.join(_COLUMNS)}, with commas in between, and this one reads {','.join(names)[:80]!r}"
        )
    _require_known(dict.fromkeys(names), _COLUMNS, path)
    for number, row in rows:
        if None in row or None in row.values():
            raise InputError(f"{path}, line {number}: has {'more' if None in row else 'fewer'} cells than the header")
    return rows


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


def _require_known(names: Iterable[str], known: Sequence[str], path: Path) -> None:
    """Raise InputError for names that are not of the format: they may count steps, as rounds or local_epochs do."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"{path}: {', '.join(map(repr, unknown))} is not of a log, whose names are {', '.join(known)}: leave it "
            "out if num_steps has all steps of the row, noisy steps and not epochs or rounds"
        )


def _own_steps(entries: Sequence[Entry], path: Path, num_steps: StepCount | str | None) -> list[Entry]:
    """Return entries with their own steps. Raises InputError where num_steps rises and nobody says what it counts."""
    counts = [entry.num_steps for entry in entries]
    if num_steps is None:
        if counts and counts[0] < counts[-1] and all(one <= two for one, two in pairwise(counts)):
            raise InputError(
                f"{path}: num_steps rises from row to row, up to {counts[-1]}: say whether it has the steps of each "
                f"row ({sum(counts)} together), --num-steps per_row, or all so far, --num-steps cumulative"
            )
        return list(entries)
    try:
        counted = member("num_steps", StepCount, num_steps)
    except ValueError as problem:
        raise InputError(f"--{str(problem).replace('_', '-', 1)}") from None
    if counted is StepCount.PER_ROW:
        return list(entries)
    if any(one > two for one, two in pairwise(counts)):
        raise InputError(f"{path}: num_steps falls, so it is not cumulative")
    return [
        entry._replace(num_steps=two - one) for entry, (one, two) in zip(entries, pairwise([0, *counts]), strict=True)
    ]


def _entry(row: Mapping[str, Any], place: str, steps_per_row: int | None) -> Entry:
    """Return one entry, of `steps_per_row` steps where that is given. Raises InputError naming the place."""
    try:
        return Entry(
            real("noise_multiplier", _number(row, "noise_multiplier"), above=0),
            real("sample_rate", _number(row, "sample_rate"), above=0, at_most=1),
            integer("num_steps", _number(row, "num_steps"))
            if steps_per_row is None
            else integer("steps_per_row", steps_per_row, at_least=1),
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
