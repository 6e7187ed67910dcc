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


def lineage(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | InputError]]:
    """Yield every record below `folder` (results/<scale>, wherever it lies) and those of the stages before, each once.

    In place of a record that cannot be read comes the error that says so. Raises InputError where there is no record.
    """
    root = folder.absolute().parents[1]
    waiting = sorted(folder.absolute().rglob("*.record.json"))
    if not waiting:
        raise InputError(f"no record below {folder}: nothing is known of it; name results/<scale>")
    seen: set[Path] = set()
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            try:
                record = read_record(place)
            except InputError as error:
                yield place, error
                continue
            yield place, record
            sources = {(root / entry["path"]).parent for entry in record["inputs"]}
            waiting += [each for source in sorted(sources) for each in sorted(source.glob("*.record.json"))]


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
