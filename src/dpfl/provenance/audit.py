"""Whether every file is still what its record says, from the raw data to the last figure."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.provenance.record_file import file_sha256
from dpfl.provenance.trace import lineage
from dpfl.sealed import unseal


@dataclass(frozen=True)
class Finding:
    """Something that an audit found: the file, what is wrong, and what to delete so that it is made anew."""

    path: str
    problem: str
    remove: tuple[Path, ...] = ()


@dataclass
class Audit:
    """What an audit saw: every file's hash by its recorded path, the findings, and inputs that are not here."""

    hashes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def audit(folder: Path) -> Audit:
    """Hash again every file recorded below `folder`, results/<scale> wherever it lies now, and what they came from.

    Findings: a file that is missing, that differs from its record, or that a later stage read in another state; a
    record that cannot be read; a damaged checkpoint of the scale. Files of earlier stages that are not on this machine
    at all (data) are no finding: they are listed. Raises InputError where there is no record below `folder`.
    """
    root = folder.absolute().parents[1]
    seen = Audit()
    read: dict[Path, dict[str, Any]] = {}
    for place, record in lineage(folder):
        if isinstance(record, InputError):
            seen.findings.append(Finding(os.path.relpath(place, root), str(record), (place,)))
        else:
            read[place] = record
            _check_outputs(seen, place, record)
    for place, record in read.items():
        _check_inputs(seen, root, place, record)
    _check_checkpoints(seen, root / "checkpoints" / folder.name)
    return seen


def _check_outputs(seen: Audit, place: Path, record: dict[str, Any]) -> None:
    """Hash the files that a stage wrote; they lie beside its record, wherever the folder was moved."""
    paths = [place.with_name(Path(output["path"]).name) for output in record["outputs"]]
    for output, path in zip(record["outputs"], paths, strict=True):
        if not path.exists():
            seen.findings.append(Finding(output["path"], "is missing", (place, *paths)))
            continue
        seen.hashes[output["path"]] = file_sha256(path)
        if seen.hashes[output["path"]] != output["sha256"]:
            problem = f"changed since stage {record['stage']} wrote it"
            seen.findings.append(Finding(output["path"], problem, (place, *paths)))


def _check_inputs(seen: Audit, root: Path, place: Path, record: dict[str, Any]) -> None:
    """Compare what a stage read with what is there now."""
    outputs = tuple(place.with_name(Path(output["path"]).name) for output in record["outputs"])
    changed = {finding.path for finding in seen.findings}
    for entry in record["inputs"]:
        name = entry["path"]
        if name in seen.hashes and seen.hashes[name] != entry["sha256"] and name not in changed:
            problem = f"was made from another {name} than the one there now"
            seen.findings.append(Finding(os.path.relpath(place, root), problem, (place, *outputs)))
        if name not in seen.hashes and name not in seen.absent and not (root / name).exists():
            seen.absent.append(name)


def _check_checkpoints(seen: Audit, folder: Path) -> None:
    """Find damaged checkpoints, which training would not use."""
    for path in sorted(folder.rglob("*.pt")):
        seen.hashes[str(path)] = file_sha256(path)
        if unseal(path.read_bytes()) is None:
            seen.findings.append(Finding(str(path), "is damaged: training would start afresh", (path,)))
