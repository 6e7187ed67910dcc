"""A record on disk: where it lies, how it is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dpfl.errors import InputError

FORMAT = "dpfl-record/1"
METADATA = "ro-crate-metadata.json"
"""Where a crate describes itself."""


def record_path(output: Path) -> Path:
    """Return where the record of a stage lies: beside its (first) output."""
    return output.with_name(output.name + ".record.json")


def read_record(path: Path) -> dict[str, Any]:
    """Return the record at `path`; raises InputError where it is no record of this format."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is not there: an earlier stage has to write it (run make)") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"{path} is damaged: delete it and run make again") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is no record of format {FORMAT}: delete it and run make again")
    return record


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
