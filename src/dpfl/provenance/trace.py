"""Where a file comes from: the records, followed from an output back to the raw data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.provenance.record_file import read_record


@dataclass(frozen=True)
class Step:
    """One file of a trace: how deep it lies below the file asked for, and the record of the stage that wrote it."""

    depth: int
    path: str
    record: dict[str, Any] | None


def records(folders: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Return every record below the folders with its path, in the order of their paths."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.record.json"))
    return [(path, read_record(path)) for path in paths]


def trace(path: Path, folders: Iterable[Path]) -> Iterator[Step]:
    """Yield the file at `path` and, below it, every file that it was made from, depth first; each file once.

    Raises InputError where no record below the folders tells how the file was made.
    """
    writers = {output["path"]: record for _, record in records(folders) for output in record["outputs"]}
    start = os.path.relpath(path)
    if start not in writers:
        raise InputError(f"no record tells how {path} was made: name a file below results/ or data/")
    seen: set[str] = set()
    waiting = [(0, start)]
    while waiting:
        depth, name = waiting.pop()
        if name not in seen:
            seen.add(name)
            record = writers.get(name)
            yield Step(depth, name, record)
            below = [entry["path"] for entry in record["inputs"]] if record else []
            waiting.extend((depth + 1, entry) for entry in reversed(below))
