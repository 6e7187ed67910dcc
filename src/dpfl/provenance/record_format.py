"""Read a record from disk. Records are input from strangers: whatever is no record is refused in one line."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import parse_json, read_bytes

FORMAT = "dpfl-record/2"
_EARLIER = "dpfl-record/1"
METADATA = "ro-crate-metadata.json"
"""Where a crate describes itself."""

_LONGEST_NAME, _LONGEST_PATH = 255, 2000
LONGEST_RECORD = 1 << 22
"""Bytes of a record; the longest of ours has a hundredth."""
_MOST_FILES = 10_000
"""Inputs or outputs of a stage; the most of ours has a hundredth."""
_PARTS = {"stage": str, "started": str, "settings": dict, "seeds": list, "inputs": list, "outputs": list}
_PARTS |= {"source": dict, "software": dict, "host": dict, "seconds": int | float}
_FILE = {"path": str, "bytes": int, "sha256": str}
_SOURCE = {"modules": list, "digest": str, "commit": str | None}
_SOFTWARE = {"python": str, "torch": str, "lock": str | None, "not_as_locked": dict, "container": str | None}
_HOST = {"device": str, "threads": int, "cpu": str, "blas": list}
_COMMIT = re.compile("[0-9a-f]{40}")
_MODULE = re.compile(r"dpfl(\.\w+)*(:\w+)?")
_LONGEST_SECONDS = 1e9
"""Of a stage: thirty years."""
_FIRST_YEAR, _LAST_YEAR = 2000, 2200
"""Of a stage's beginning: every time that is computed from it can be represented."""


class EarlierFormatError(InputError):
    """A record that an earlier version of dpfl wrote, in a format that this version does not read."""


def read_record(path: Path) -> dict[str, Any]:
    """Return the record at `path`.

    Raises InputError where it is missing, no regular file, no record of this format, incomplete, or larger than any
    record; where its time is none that a run can have; and where it names a file outside the project: an absolute path,
    or one with `..`. Raises EarlierFormatError for a record that dpfl 0.1 wrote.
    """
    content = read_bytes(path, LONGEST_RECORD)
    try:
        record = parse_json(content.decode("utf-8"))
        json.dumps(record, ensure_ascii=False).encode()  # fails for a lone surrogate, which is no text
    except ValueError:
        raise InputError(f"{path} is damaged or unreadable: delete it and run make again") from None
    if isinstance(record, dict) and record.get("format") == _EARLIER:
        raise EarlierFormatError(f"{path} {_of_an_earlier_version(record)}")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is no record of format {FORMAT}: delete it and run make again")
    if not _is_complete(record):
        raise InputError(f"{path} is damaged: delete it and run make again")
    return record


def _of_an_earlier_version(record: dict[str, Any]) -> str:
    """Return what is to be done with a record of the earlier format."""
    source = record.get("source")
    commit = source.get("commit") if isinstance(source, dict) else None
    named = f", {commit}" if isinstance(commit, str) and _COMMIT.fullmatch(commit) else " (the record names none)"
    words = f"was written by an earlier version of dpfl ({_EARLIER})"
    return f"{words}: verify it with that version's commit{named}, or delete it to make it anew"


def _is_complete(record: dict[str, Any]) -> bool:
    """Return whether every part that readers of a record rely on is present and of its type."""
    return (
        _has(record, _PARTS)
        and _is_a_time(record["started"])
        and _has(record["source"], _SOURCE)
        and all(isinstance(each, str) and _MODULE.fullmatch(each) for each in record["source"]["modules"])
        and _has(record["software"], _SOFTWARE)
        and _has(record["host"], _HOST)
        and 0 <= record["seconds"] <= _LONGEST_SECONDS
        and 0 < len(record["outputs"]) <= _MOST_FILES
        and len(record["inputs"]) <= _MOST_FILES
        and all(map(_is_a_file, record["inputs"] + record["outputs"]))
    )


def _is_a_file(entry: Any) -> bool:
    """Return whether an entry names a file of the project, with its size and hash."""
    return _has(entry, _FILE) and entry["bytes"] >= 0 and _names_a_file(entry["path"])


def _has(part: Any, kinds: dict[str, Any]) -> bool:
    """Return whether `part` is a mapping with these keys, each of its kind."""
    return isinstance(part, dict) and all(name in part and isinstance(part[name], kinds[name]) for name in kinds)


def _is_a_time(text: str) -> bool:
    """Return whether a text is a time with its zone, in a year in which a stage can have run."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return False
    return time.tzinfo is not None and _FIRST_YEAR <= time.year <= _LAST_YEAR


def _names_a_file(path: str) -> bool:
    """Return whether a text can be the path of a file below the project."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    parts = raw.split(b"/")
    below = bool(raw) and not raw.startswith(b"/") and not {b"", b".", b".."} & set(parts)
    return below and len(raw) <= _LONGEST_PATH and b"\0" not in raw and max(map(len, parts)) <= _LONGEST_NAME
