"""Whether every file is still what its record says, from the raw data to the last figure."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from hashlib import file_digest
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import checked_content, file_sha256
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.record_format import METADATA
from dpfl.provenance.trace import lineage
from dpfl.reporting.pages import DERIVED

# What reading a damaged archive or its description raises, by the kind of damage.
_NO_CRATE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError,
)  # fmt: skip


def audit(folder: Path) -> Audit:
    """Hash again every file recorded below `folder`, results/<scale> wherever it lies now, and what they came from.

    Findings: a file that is missing, that differs from its record, or that a later stage read in another state; a
    result that a stage read and that is gone; a record that cannot be read; a damaged checkpoint of the scale; a crate
    that is not what it says. Data that are not on this machine at all are no finding: they are listed, and so are
    derived pages (`DERIVED`), which Git does not hold. Raises InputError where there is no record below `folder`.
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
        _check_inputs(seen, root, folder.name, place, record)
    _check_checkpoints(seen, root / "checkpoints" / folder.name)
    _check_crate(seen, root, folder.absolute().with_name(f"{folder.name}.crate.zip"))
    return seen


def _check_outputs(seen: Audit, place: Path, record: dict[str, Any]) -> None:
    """Hash the files that a stage wrote; they lie beside its record, wherever the folder was moved."""
    paths = [place.with_name(Path(output["path"]).name) for output in record["outputs"]]
    for output, path in zip(record["outputs"], paths, strict=True):
        if not path.exists() and path.suffix in DERIVED:
            seen.not_made.append(output["path"])
            continue
        if not path.exists():
            seen.findings.append(Finding(output["path"], "is missing", (place, *paths)))
            continue
        seen.hashes[output["path"]] = file_sha256(path)
        if (seen.hashes[output["path"]], path.stat().st_size) != (output["sha256"], output["bytes"]):
            problem = f"changed since stage {record['stage']} wrote it"
            seen.findings.append(Finding(output["path"], problem, (place, *paths)))


def _check_inputs(seen: Audit, root: Path, scale: str, place: Path, record: dict[str, Any]) -> None:
    """Compare what a stage read with what is there now.

    The table of noise is excepted: it is calibrated anew for other sweeps of the paper, while what a run used stands in
    its own table, which dpfl.provenance.audit.run_tables holds against the noise of its family.
    """
    outputs = tuple(place.with_name(Path(output["path"]).name) for output in record["outputs"])
    changed = {finding.path for finding in seen.findings}
    for entry in record["inputs"]:
        name = entry["path"]
        other = name in seen.hashes and seen.hashes[name] != entry["sha256"] and name not in changed
        if other and not name.startswith(f"results/{scale}/accounting/"):
            problem = f"was made from another {name} than the one there now"
            seen.findings.append(Finding(os.path.relpath(place, root), problem, (place, *outputs)))
        if name in seen.hashes or name in seen.absent or name in changed or (root / name).exists():
            continue
        if name.startswith(f"results/{scale}/"):
            changed.add(name)
            seen.findings.append(Finding(name, f"is gone; stage {record['stage']} read it", (place, *outputs)))
        else:
            seen.absent.append(name)


def _check_checkpoints(seen: Audit, folder: Path) -> None:
    """Find damaged checkpoints, which training would not use."""
    for path in sorted(folder.rglob("*.pt")):
        seen.hashes[str(path)] = file_sha256(path)
        if checked_content(path.read_bytes()) is None:
            seen.findings.append(Finding(str(path), "is damaged: training would start afresh", (path,)))


def _check_crate(seen: Audit, root: Path, path: Path) -> None:
    """Compare what lies in the crate with what the crate says of it; note where results have changed since.

    Results that were made again are no damage: the crate is written when a run is at its end, after the run's audit.
    """
    if not path.exists():
        return
    name = os.path.relpath(path, root)
    try:
        told, held = _crate_hashes(path)
    except _NO_CRATE:
        seen.findings.append(Finding(name, "is no crate, or a damaged one", (path,)))
        return
    seen.hashes[name] = file_sha256(path)
    for member in (each for each in held if told.get(each) != held[each]):
        seen.findings.append(Finding(name, f"holds another {member} than it says", (path,)))
    if older := [each for each in held if seen.hashes.get(each, held[each]) != held[each]]:
        told_how = f"dpfl crate {name.removesuffix('.crate.zip')}"
        seen.notes.append(
            f"{name} is of an earlier state of {len(older)} files, as {older[0]}: {told_how} writes it anew"
        )


def _crate_hashes(path: Path) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the hash of every member of a crate, as its description says and as it is; raises one of `_NO_CRATE`."""
    with zipfile.ZipFile(path) as archive:
        told = {each["@id"]: each.get("sha256") for each in json.loads(archive.read(METADATA))["@graph"]}
        held = {}
        for member in (each for each in archive.namelist() if each != METADATA):
            with archive.open(member) as stream:
                held[member] = file_digest(stream, "sha256").hexdigest()
    return told, held
