"""Compare every file with its record, from the raw data to the last figure."""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256, is_folder_inside, is_inside, is_intact_sealed, is_regular, parse_json, read_bytes
from dpfl.provenance.audit.completeness import check_completeness
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.crate import packed
from dpfl.provenance.record_format import METADATA, EarlierFormatError
from dpfl.provenance.trace import data_folders, lineage, scale_folder
from dpfl.reporting.pages import DERIVED

_CHECKPOINT = re.compile(r"-[0-9a-f]{32}\.pt$")
"""Of a name that dpfl train gives a checkpoint."""
# What reading a damaged archive or its description raises, by the kind of damage.
_NOT_A_CRATE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError,
    OverflowError,
)  # fmt: skip
_LARGEST_CRATE = 1 << 28
"""Bytes of a crate, packed or unpacked; that of the paper's results has a tenth."""
_LARGEST_METADATA = 1 << 25
_MOST_HASHED = 1 << 36
"""Bytes of all files that the records name, and of all checkpoints; ours have a fifth. A sparse file costs nothing to
send, and minutes to hash."""
_BEHIND_A_LINK = "lies behind a link that leads out of the project, so it was not opened"
_BY_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that zipfile unpacks no further than it is asked to; dpfl writes the second."""


def audit(folder: Path, *, sealed: bool = True) -> Audit:
    """Hash again every file recorded below `folder`, which is results/<scale> of some project, and their inputs.

    Data that its configuration needs are hashed as well, though no result may have read them yet.

    Findings: a file that is missing, that is no regular file, that differs from its record, or that a later stage read
    in another state; a result that a stage read and that is gone; a record that cannot be read; a damaged checkpoint of
    the scale; a crate that does not match its description; all that completeness finds. Without `sealed` manifest and
    crate are left out: both are about to be written, the crate from the files that the manifest lists. Data that are
    not on this machine at all are no finding: they are listed, and so are absent derived pages (`DERIVED`), which Git
    does not hold. Records are input from strangers: nothing outside the project is opened, and a file of another size
    than its record states is not read. Data behind a link to another place are listed, results there are a finding.
    Raises InputError where `folder` is no results/<scale>, there is no record below it, an earlier version wrote one,
    or the files that records name are larger together than any project's.
    """
    folder = scale_folder(folder)
    report = Audit()
    read: dict[Path, dict[str, Any]] = {}
    known = list(lineage(folder, data=data_folders(folder)))
    _require_own(folder, known)
    root = folder.parents[1]
    _require_a_size(folder, (record for _, record in known if not isinstance(record, InputError)))
    for place, record in known:
        if isinstance(record, EarlierFormatError):
            raise record
        if isinstance(record, InputError):
            report.findings.append(Finding(os.path.relpath(place, root), str(record), (place,)))
        else:
            read[place] = record
            _check_outputs(report, (root, folder), place, record)
    for place, record in read.items():
        _check_inputs(report, (root, folder), place, record)
    check_completeness(report, folder, read, sealed=sealed)
    _check_checkpoints(report, root / "checkpoints" / folder.name)
    if sealed:
        _check_crate(report, root, folder.with_name(f"{folder.name}.crate.zip"))
    return report


def _require_own(folder: Path, known: Iterable[tuple[Path, dict[str, Any] | InputError]]) -> None:
    """Raise InputError where all records below `folder` are those of other folders, as where it was renamed."""
    own = [record for place, record in known if place.is_relative_to(folder) and not isinstance(record, InputError)]
    named = {Path(record["outputs"][0]["path"]).parts[:2] for record in own}
    if named and ("results", folder.name) not in named:
        raise InputError(f"{folder} is not the results that its records name: {Path(*sorted(named)[0])}")


def _require_a_size(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """Raise InputError where the files that records name are larger together than any project's."""
    total = sum(output["bytes"] for record in records for output in record["outputs"])
    if total > _MOST_HASHED:
        raise InputError(
            f"the records of {folder} name files of {total >> 30} GiB, more than any of ours: nothing was hashed"
        )


def _check_outputs(report: Audit, roots: tuple[Path, Path], place: Path, record: dict[str, Any]) -> None:
    """Hash the files that a stage wrote; they are in the folder of its record, wherever that was moved.

    `roots`: the project and results/<scale>, out of which no link is followed.
    """
    paths = [place.with_name(Path(output["path"]).name) for output in record["outputs"]]
    for output, path in zip(record["outputs"], paths, strict=True):
        report.recorded[output["path"]] = output["sha256"]
        if path.suffix in DERIVED and not os.path.lexists(path):
            report.not_made.append(output["path"])
            continue
        if not is_folder_inside(path.parent, *roots):
            report.linked.append(output["path"])  # data on another disk: a copy of their record is here
            continue
        if not (os.path.lexists(path) or os.path.lexists(place)):
            report.absent.append(output["path"])  # data that are not here: a copy of their record is
            continue
        if problem := _difference(report, path, output, record["stage"]):
            report.findings.append(Finding(output["path"], problem, (place, *paths)))


def _difference(report: Audit, path: Path, output: dict[str, Any], stage: str) -> str:
    """Return what is wrong with a file that a record lists, "" for nothing; a file of its size is hashed."""
    if not is_regular(path):
        return "is no regular file" if os.path.lexists(path) else "is missing"
    if path.stat().st_size != output["bytes"]:
        report.hashes[output["path"]] = ""  # of other bytes than any that a record states
        return f"changed since stage {stage} wrote it"
    try:
        report.hashes[output["path"]] = file_sha256(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if report.hashes[output["path"]] == output["sha256"] else f"changed since stage {stage} wrote it"


def _check_inputs(report: Audit, roots: tuple[Path, Path], place: Path, record: dict[str, Any]) -> None:
    """Compare what a stage read with what is there now.

    A stage that read other bytes than their writer recorded was made from damage, even where the file is repaired. The
    table of noise is excepted: it is calibrated again for other sweeps of the paper, while the noise that a run used is
    in its own table, which dpfl.provenance.audit.run_tables compares with that of its family.
    """
    root, scale = roots[0], roots[1].name
    outputs = tuple(place.with_name(Path(output["path"]).name) for output in record["outputs"])
    changed = {finding.path for finding in report.findings}
    for entry in record["inputs"]:
        name = entry["path"]
        other = report.recorded.get(name, entry["sha256"]) != entry["sha256"]
        if other and not name.startswith(f"results/{scale}/accounting/"):
            problem = f"was made from another {name} than the one there now"
            report.findings.append(Finding(os.path.relpath(place, root), problem, (place, *outputs)))
        if name in report.hashes or name in changed:
            continue
        if not is_folder_inside((root / name).parent, *roots):
            if name.startswith(f"results/{scale}/"):
                changed.add(name)
                report.findings.append(Finding(name, _BEHIND_A_LINK, (root / name,)))
            elif name not in report.linked:
                report.linked.append(name)
            continue
        if name in report.absent or os.path.lexists(root / name):
            continue
        if name.startswith(f"results/{scale}/"):
            changed.add(name)
            report.findings.append(Finding(name, f"is gone; stage {record['stage']} read it", (place, *outputs)))
        else:
            report.absent.append(name)


def _check_checkpoints(report: Audit, folder: Path) -> None:
    """Find damaged checkpoints, which training would not use. A file of another name is none, and nobody's business."""
    left = _MOST_HASHED
    for path in (each for each in sorted(folder.rglob("*.pt")) if _CHECKPOINT.search(each.name)):
        if not is_inside(path, folder.parents[1]):
            continue
        left -= path.stat().st_size
        try:
            is_intact = left >= 0 and is_intact_sealed(path)
        except OSError as error:
            report.findings.append(Finding(str(path), f"cannot be read: {error.strerror}"))
            continue
        report.count("checkpoints")
        if not is_intact:
            report.findings.append(Finding(str(path), "is damaged: training would start from the beginning", (path,)))


def _check_crate(report: Audit, root: Path, path: Path) -> None:
    """Compare the crate's members with its description; note where results have changed since.

    Results that were made again are no damage: the crate is written after a run, by `dpfl crate`.
    """
    name = os.path.relpath(path, root)
    if not is_regular(path):
        if os.path.lexists(path):
            report.findings.append(Finding(name, "is no regular file"))
        return
    try:
        described, members = _crate_hashes(path)
    except _NOT_A_CRATE:
        report.findings.append(Finding(name, "is no crate, or a damaged one", (path,)))
        return
    report.hashes[name] = file_sha256(path)
    for member in (each for each in members if described.get(each) != members[each]):
        report.findings.append(Finding(name, f"contains another {member} than it describes", (path,)))
    for member in (each for each in described if each not in members and _is_a_member(each, described[each])):
        report.findings.append(Finding(name, f"lacks {member}, which it describes", (path,)))
    if older := [each for each in members if report.hashes.get(each, members[each]) != members[each]]:
        command = f"dpfl crate {name.removesuffix('.crate.zip')}"
        report.notes.append(
            f"{name} is of an earlier state of {len(older)} files, as {older[0]}: renew it with {command}"
        )


def _crate_hashes(path: Path) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the hash of every member of a crate, as described and as computed; raises one of `_NOT_A_CRATE`."""
    content = _members(path)
    if len(content[METADATA]) > _LARGEST_METADATA:
        raise zipfile.BadZipFile("a description that is too large")
    described = {str(each["@id"]): each.get("sha256") for each in parse_json(content[METADATA])["@graph"]}
    _require_own_bytes(path, content)
    return described, {name: sha256(each).hexdigest() for name, each in content.items() if name != METADATA}


def _is_a_member(identifier: str, digest: str | None) -> bool:
    """Return whether a crate's description is of a file in the crate: not of one at an address or named by its hash."""
    return digest is not None and not identifier.startswith("#") and "://" not in identifier


def _members(path: Path) -> dict[str, bytes]:
    """Return the content of an archive; raises one of `_NOT_A_CRATE`, also where it is larger than any of dpfl's.

    A member that declares more than is left is not unpacked, and one that declares less is unpacked no further.
    """
    content: dict[str, bytes] = {}
    left = _LARGEST_CRATE
    if path.stat().st_size > left:
        raise zipfile.BadZipFile("too large")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename in content or member.compress_type not in _BY_PIECES or member.file_size > left:
                raise zipfile.BadZipFile("a member twice, in another compression, or too large")
            with archive.open(member) as stream:
                content[member.filename] = stream.read(member.file_size + 1)  # one more: its checksum is compared
            left -= member.file_size
    return content


def _require_own_bytes(path: Path, content: dict[str, bytes]) -> None:
    """Raise BadZipFile where the bytes around an archive's members are not those that dpfl writes.

    Where another version of zlib has compressed the members, their streams differ: then nothing can be said.
    """
    whole, again = read_bytes(path, _LARGEST_CRATE), packed(content)
    if whole != again and _streams(whole) == _streams(again):
        raise zipfile.BadZipFile("other bytes around the members")


def _streams(archive: bytes) -> list[bytes]:
    """Return the compressed members of an archive of dpfl's, whose headers have no extra field."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        starts = [
            (each.header_offset + 30 + len(each.filename.encode()), each.compress_size) for each in opened.infolist()
        ]
    return [archive[start : start + size] for start, size in starts]
