"""Check the inputs of a stage against the records of the stages that wrote them, before they are used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256, is_regular
from dpfl.provenance.record_format import read_record


def check(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return path (relative to the working folder), size in bytes and SHA-256 of every file, in order.

    Every file is hashed, however old it looks: the hash in a record is that of the bytes that were there. Raises
    InputError naming the first file that is missing, no regular file, or not what the record next to it says.
    """
    return [_checked(path) for path in paths]


def _checked(path: Path) -> dict[str, Any]:
    """Describe one file."""
    if not path.exists():
        raise InputError(f"{path} is not there: an earlier stage has to write it (run make)")
    if not is_regular(path):
        raise InputError(f"{path} is no regular file: delete it and run make again")
    written, size = _outputs(path.parent.absolute()).get(path.name), path.stat().st_size
    if written is None or written["bytes"] == size:
        entry = {"path": os.path.relpath(path), "bytes": size, "sha256": file_sha256(path)}
        if written is None or written["sha256"] == entry["sha256"]:
            return entry
    raise InputError(
        f"{path} is not what its record says: it is damaged or was edited; "
        "have it made again with dpfl audit --rebuild results/<scale>, then run make again"
    )


@cache
def _outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return, by file name, the outputs that the records of a folder list; a stage reads the records once.

    `folder` is absolute: a process that changes its working folder must not find the records of the one before.
    """
    outputs = {}
    for record in sorted(folder.glob("*.record.json")):
        for output in read_record(record)["outputs"]:
            outputs.setdefault(Path(output["path"]).name, output)
    return outputs
