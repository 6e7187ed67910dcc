"""Read a record from disk. Records are input from strangers: whatever is no record is refused in one line."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import is_regular

FORMAT = "dpfl-record/1"
METADATA = "ro-crate-metadata.json"
"""Where a crate describes itself."""

_LONGEST_NAME = 255
_PARTS = {"stage": str, "started": str, "settings": dict, "seeds": list, "inputs": list, "outputs": list}
_PARTS |= {"source": dict, "software": dict, "machine": dict, "seconds": int | float}
_FILE = {"path": str, "bytes": int, "sha256": str}
_SOURCE = {"modules": list, "digest": str, "commit": str | None}
_MACHINE = {"device": str, "threads": int}


def read_record(path: Path) -> dict[str, Any]:
    """Return the record at `path`.

    Raises InputError where it is missing, no regular file, no record of this format, or incomplete; and where it names
    a file outside the project: an absolute path, or one with `..`.
    """
    if path.exists() and not is_regular(path):
        raise InputError(f"{path} is no regular file: delete it and run make again")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is not there: an earlier stage has to write it (run make)") from None
    except (ValueError, RecursionError, OSError):
        raise InputError(f"{path} is damaged or unreadable: delete it and run make again") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is no record of format {FORMAT}: delete it and run make again")
    if not _is_complete(record):
        raise InputError(f"{path} is damaged: delete it and run make again")
    return record


def _is_complete(record: dict[str, Any]) -> bool:
    """Return whether every part that readers of a record rely on is present and of its type."""
    try:
        datetime.fromisoformat(record["started"])
    except (KeyError, TypeError, ValueError):
        return False
    return (
        _has(record, _PARTS)
        and _has(record["source"], _SOURCE)
        and _has(record["machine"], _MACHINE)
        and bool(record["outputs"])
        and all(_has(file, _FILE) and _names_a_file(file["path"]) for file in record["inputs"] + record["outputs"])
    )


def _has(part: Any, kinds: dict[str, Any]) -> bool:
    """Return whether `part` is a mapping with these keys, each of its kind."""
    return isinstance(part, dict) and all(name in part and isinstance(part[name], kinds[name]) for name in kinds)


def _names_a_file(path: str) -> bool:
    """Return whether a text can be the path of a file below the project."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    parts = raw.split(b"/")
    below = bool(raw) and not raw.startswith(b"/") and not {b"", b".", b".."} & set(parts)
    return below and b"\0" not in raw and max(map(len, parts)) <= _LONGEST_NAME
