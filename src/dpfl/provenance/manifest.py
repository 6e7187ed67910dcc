"""List every record of a scale's results with its hash, and the jobs that were not run, in one file.

The records of the data are kept with it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256, is_inside, is_regular, parse_json, read_bytes, write_atomically
from dpfl.grid import expansion
from dpfl.provenance.record import LONGEST_RECORD, read_record
from dpfl.provenance.trace import SOURCES, configuration_of, lineage

MANIFEST = "manifest.json"
FORMAT = "dpfl-manifest/2"
_DIGEST = re.compile("[0-9a-f]{64}")
_LONGEST_MANIFEST = 1 << 24
"""Bytes of a manifest; that of the paper's results has a hundredth."""


def write(folder: Path) -> Path:
    """Write <folder>/manifest.json for results/<scale>; return its path.

    The records of the data are copied below <folder>/sources first, so that a number can be traced to the raw files'
    hashes where the data are not. A copy that states the files' hashes already is kept. The same records give the same
    bytes. Raises InputError if there is no record below `folder`, or one cannot be read, and for a damaged
    config.yaml.
    """
    _copy_data_records(folder.absolute())
    path = folder / MANIFEST
    listed = {"format": FORMAT, "scale": folder.absolute().name}
    text = _as_text(listed | {"not_run": not_run_below(folder), "records": records_below(folder)})
    if not (is_regular(path) and path.stat().st_size == len(text.encode()) and read_bytes(path) == text.encode()):
        write_atomically(path, text)
    return path


def read(folder: Path) -> dict[str, str]:
    """Return the hash of every record that <folder>/manifest.json lists, by its path in `folder`.

    Raises InputError where the manifest is missing, damaged, or that of another folder.
    """
    return _content(folder)["records"]


def stated_not_run(folder: Path) -> list[str]:
    """Return the jobs, as paper/job, that <folder>/manifest.json states as not run; raises as `read` does."""
    return _content(folder)["not_run"]


def not_run_below(folder: Path) -> list[str]:
    """Return the jobs of <folder>/config.yaml, as paper/job, that have no run table below `folder`.

    Empty if there is no config.yaml: no run has begun there. Raises InputError for a damaged one.
    """
    if not is_regular(folder / "config.yaml"):
        return []
    return [f"{job.paper}/{job.name}" for job in expansion.not_run(configuration_of(folder), folder)]


def _content(folder: Path) -> dict[str, Any]:
    """Return what <folder>/manifest.json says, checked."""
    path = folder / MANIFEST
    if not is_regular(path):
        problem = "is not a regular file" if os.path.lexists(path) else "is not there"
        raise InputError(f"{path} {problem}: make writes it, and so does dpfl audit --seal")
    try:
        text = read_bytes(path, _LONGEST_MANIFEST).decode("utf-8")
        listed = parse_json(text)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{path} is damaged or unreadable") from None
    if not isinstance(listed, dict) or (listed.get("format"), listed.get("scale")) != (FORMAT, folder.absolute().name):
        raise InputError(f"{path} is not a manifest of format {FORMAT} of this folder")
    records, open_jobs = listed.get("records"), listed.get("not_run")
    is_whole = isinstance(records, dict) and all(map(_is_digest, records.values())) and text == _as_text(listed)
    if not (is_whole and isinstance(open_jobs, list) and all(isinstance(each, str) for each in open_jobs)):
        raise InputError(f"{path} is damaged")
    return listed


def require_current(folder: Path) -> None:
    """Raise InputError where the manifest does not list the records below `folder`, and what was not run, as it is."""
    listed, here = read(folder), records_below(folder)
    changed = {name for name, _ in listed.items() ^ here.items()}
    if other := sorted(changed | set(stated_not_run(folder)) ^ set(not_run_below(folder))):
        raise InputError(
            f"{folder / other[0]} is not as {MANIFEST} lists it: a stage ran since the results were sealed; run make, "
            f"or dpfl audit --files-only --seal {folder}"
        )


def records_below(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every record below `folder`, by its path there; "" for one that is larger than any."""
    places = sorted(path for path in folder.rglob("*.record.json") if is_inside(path, folder))
    return {path.relative_to(folder).as_posix(): _record_sha256(path) for path in places}


def _record_sha256(path: Path) -> str:
    """Return the SHA-256 of a record, "" where it is larger than any."""
    return file_sha256(path) if path.stat().st_size <= LONGEST_RECORD else ""


def _copy_data_records(folder: Path) -> None:
    """Copy the records of the stages before the results below <folder>/sources; remove copies that nothing needs."""
    root, copies, needed = folder.parents[1], folder / SOURCES, set()
    for place, record in lineage(folder, own=True):
        if isinstance(record, InputError):
            raise record
        if place.is_relative_to(folder):
            continue
        copy = copies / place.relative_to(root)
        needed.add(copy)
        if is_regular(place) and not (is_regular(copy) and read_record(copy)["outputs"] == record["outputs"]):
            write_atomically(copy, read_bytes(place, LONGEST_RECORD).decode("utf-8"))
    for path in copies.rglob("*.record.json"):
        if path not in needed and is_regular(path):
            path.unlink()


def _as_text(listed: dict[str, Any]) -> str:
    """Return a manifest as the text that its file has."""
    return json.dumps(listed, indent=1) + "\n"


def _is_digest(value: object) -> bool:
    """Return whether a value is a SHA-256 as hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
