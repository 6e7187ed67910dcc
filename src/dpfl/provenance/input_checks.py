"""What a stage is about to read is what an earlier stage wrote: checked against the records before it is used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256
from dpfl.provenance.record_format import read_record

PARANOID = "DPFL_PARANOID"
"""Environment variable: where it is set, no file is taken as unchanged because it looks as old as its record."""


def check(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return path (relative to the working folder), size in bytes and SHA-256 of every file, in order.

    A file that a record beside it lists among its outputs must be what the record says: the same size and, where it is
    newer than the record or the environment asks for it, the same SHA-256. Raises InputError naming the first that is
    not, or that is missing.
    """
    return [_checked(path) for path in paths]


def _checked(path: Path) -> dict[str, Any]:
    """Describe one file."""
    written, record = _written(path)
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path} is not there: an earlier stage has to write it (run make)") from None
    entry = {"path": os.path.relpath(path), "bytes": found.st_size}
    if written is None:
        return {**entry, "sha256": file_sha256(path)}
    if found.st_size == written["bytes"]:
        trusted = not os.environ.get(PARANOID) and record.stat().st_mtime_ns >= found.st_mtime_ns
        entry["sha256"] = written["sha256"] if trusted else file_sha256(path)
        if entry["sha256"] == written["sha256"]:
            return entry
    raise InputError(
        f"{path} is not what its record says was written there: it is damaged or was edited; "
        "have it made anew with dpfl audit --rebuild results/<scale>, then run make again"
    )


def _written(path: Path) -> tuple[dict[str, Any] | None, Path]:
    """Return what a record in the file's own folder says of it, and that record; None where none lists it."""
    return _listed(path.parent).get(path.name, (None, path))


@cache
def _listed(folder: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """Return, by file name, what the records in a folder list; a stage reads the records once."""
    listed = {}
    for record in sorted(folder.glob("*.record.json")):
        for output in read_record(record)["outputs"]:
            listed.setdefault(Path(output["path"]).name, (output, record))
    return listed
