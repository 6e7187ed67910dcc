"""Write the record of a stage next to its outputs: inputs, outputs, settings, code, software, host."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from dpfl.catalog import keys, load
from dpfl.commands import git
from dpfl.errors import InputError
from dpfl.files import file_sha256, write_atomically
from dpfl.provenance.environment import host, software
from dpfl.provenance.input_checks import check
from dpfl.provenance.record_format import FORMAT
from dpfl.provenance.source_digest import source_digest

COMMIT = "DPFL_COMMIT"
"""Environment variable that names the commit of a source tree without git: on a borrowed machine, in a container."""
_HASH = re.compile("[0-9a-f]{40}")


@dataclass
class StageRecorder:
    """A running stage and the modules that do its work: it `reads` its inputs, and `write`s the record at its end.

    `identity` is what decides the outputs, where they are not made again as long as it is the same (run_identity).
    Paths in the record are relative to the working folder; neither user nor host names are written.
    """

    name: str
    modules: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    device: str = "cpu"
    threads: int = 1
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    clock: float = field(default_factory=time.perf_counter)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    identity: dict[str, str] | None = None

    def reads(self, paths: Iterable[Path]) -> None:
        """Note the files that the stage is about to read.

        Raises InputError where one is not what its record says, or is outside the project, where no record may point.
        """
        paths = list(paths)
        if outside := [path for path in paths if os.path.relpath(path).startswith("..")]:
            raise InputError(f"{outside[0]} is outside the project: copy it here, for its record to name it")
        self.inputs += check(paths)

    def write(self, path: Path, outputs: Iterable[Path]) -> None:
        """Write the record to `path`, with size and SHA-256 of every input and output file."""
        record = {
            "format": FORMAT,
            "stage": self.name,
            "started": self.started,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "inputs": self.inputs,
            **({"identity": self.identity} if self.identity else {}),
            "outputs": [_describe(file) for file in outputs],
            "source": {
                "modules": list(self.modules),
                "digest": source_digest(*self.modules),
                **_published(self.settings),
                **_commit(),
            },
            "software": software(),
            "host": host(self.device, self.threads),
            "seconds": round(time.perf_counter() - self.clock, 3),
        }
        write_atomically(path, json.dumps(record, indent=1) + "\n")


def _describe(path: Path) -> dict[str, Any]:
    """Return path (relative to the working folder), size in bytes and SHA-256 of a file that was just written."""
    return {"path": os.path.relpath(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _published(settings: dict[str, Any]) -> dict[str, str]:
    """Return the hash of a paper's facts, for a stage that reads them."""
    return {"published": published_digest(settings["paper"])} if settings.get("paper") in keys() else {}


def published_digest(paper: str) -> str:
    """Return a hash of what a paper says: settings, published numbers, figures, claims and errata."""
    facts = load(paper)
    text = json.dumps([facts.settings, facts.tables, facts.figures, facts.claims, facts.errata], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _commit() -> dict[str, Any]:
    """Return the commit of the source tree and whether it had changes.

    Where the source tree is no git checkout of its own: the commit that DPFL_COMMIT names, if any, whose code the audit
    compares with the digest.
    Asked for once, as the code of a process is loaded once.
    """
    here = Path(__file__).parent
    tree = here.parents[2]
    commit = git(tree, "rev-parse", "HEAD")
    if commit is None:
        named = os.environ.get(COMMIT, "")
        return {"commit": named if _HASH.fullmatch(named) else None, "dirty": None}
    changes = git(tree, "status", "--porcelain", "--", str(here.parent))
    return {"commit": commit.decode().strip(), "dirty": bool(changes)}
