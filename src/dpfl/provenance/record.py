"""The record that every stage writes beside its outputs: what went in, what came out, with what it was made."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import write_atomically
from dpfl.provenance.source import source_digest

FORMAT = "dpfl-record/1"
_PACKAGES = ("dpfl", "numpy", "scipy", "pandas", "torch", "opacus", "dp-accounting", "scikit-learn", "kymatio")


@dataclass
class Stage:
    """A running stage and the modules that do its work; `write` the record once its outputs are complete.

    Paths in the record are relative to the working folder; neither user nor host names are written.
    """

    name: str
    modules: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    device: str = "cpu"
    threads: int = 1
    started: float = field(default_factory=time.perf_counter)

    def write(self, path: Path, *, inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
        """Write the record to `path`, with size and SHA-256 of every input and output file."""
        record = {
            "format": FORMAT,
            "stage": self.name,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "inputs": [describe(file) for file in inputs],
            "outputs": [describe(file) for file in outputs],
            "source": {"modules": list(self.modules), "digest": source_digest(*self.modules), **_commit()},
            "software": {"python": platform.python_version(), **_versions()},
            "machine": {"device": self.device, "threads": self.threads, "system": sys.platform},
            "seconds": round(time.perf_counter() - self.started, 3),
        }
        write_atomically(path, json.dumps(record, indent=1) + "\n")


def record_path(output: Path) -> Path:
    """Return where the record of a stage lies: beside its (first) output."""
    return output.with_name(output.name + ".record.json")


def describe(path: Path) -> dict[str, Any]:
    """Return path (relative to the working folder where it lies below it), size in bytes and SHA-256 of a file."""
    size = path.stat().st_size
    return {"path": os.path.relpath(path), "bytes": size, "sha256": _recorded_sha256(path, size) or file_sha256(path)}


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


def _recorded_sha256(path: Path, size: int) -> str | None:
    """Return the hash that a record in the same folder gives, if the file is not newer than it and has its size.

    Features weigh gigabytes: a job that reads them should not spend its time hashing them again.
    """
    for candidate in sorted(path.parent.glob("*.record.json")):
        if candidate.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            for output in read_record(candidate)["outputs"]:
                if Path(output["path"]).name == path.name and output["bytes"] == size:
                    return output["sha256"]
    return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    """Return the versions of the packages that decide numbers."""
    return {name: metadata.version(name) for name in _PACKAGES}


def _commit() -> dict[str, Any]:
    """Return the commit of the source tree and whether it had changes, or nulls outside a git checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", here.parent)) if commit else None}
