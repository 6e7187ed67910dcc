"""Where a file comes from: the records, followed from an output back to the raw data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.provenance.record import file_sha256, read_record


@dataclass(frozen=True)
class Step:
    """One file of a trace: how deep it lies below the file asked for, and the record of the stage that wrote it."""

    depth: int
    path: str
    record: dict[str, Any] | None


@dataclass(frozen=True)
class Finding:
    """Something an audit found: the file, and what is wrong with it."""

    path: str
    problem: str


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


def audit(folder: Path) -> tuple[int, list[Finding]]:
    """Recompute the hash of every output recorded below `folder`; return how many files were checked, and findings.

    A file that is missing, that differs from its record, or that a later stage read in another state is a finding.
    """
    known = records([folder])
    if not known:
        raise InputError(f"no record below {folder}: nothing to audit; name results/<scale>")
    checked: dict[str, str] = {}
    findings = []
    for _, record in known:
        for output in record["outputs"]:
            path = Path(output["path"])
            if not path.exists():
                findings.append(Finding(output["path"], "is missing"))
                continue
            checked[output["path"]] = file_sha256(path)
            if checked[output["path"]] != output["sha256"]:
                findings.append(Finding(output["path"], f"changed since stage {record['stage']} wrote it"))
    for place, record in known:
        for entry in record["inputs"]:
            if checked.get(entry["path"], entry["sha256"]) != entry["sha256"]:
                findings.append(Finding(str(place), f"was made from another {entry['path']} than the one there now"))
    return len(checked), findings
