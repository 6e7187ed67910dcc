"""Collect the findings of every check, print them safely, and remove what has to be made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.errors import printable
from dpfl.files import is_regular

OTHER_FEATURES = "read features of other bytes, which another machine computed: {count} stages, as {name}"
"""The note on stages whose features differ from those of their siblings, or from the recorded ones."""


def is_derived(name: str, *features: str) -> bool:
    """Return whether a file is an array of floats computed from data: one below a folder of `features`.

    Machines round them differently. The description beside it and the data's own arrays are the same everywhere.
    """
    return name.startswith(features) and name.endswith(".npy")


@dataclass(frozen=True)
class Finding:
    """One finding of an audit: the file, the problem, and the files to remove so that they are made again."""

    path: str
    problem: str
    remove: tuple[Path, ...] = ()


def one_line(error: Exception) -> str:
    """Return an error for a message: its kind where that is not a ValueError's, and what it says, at most 200
    characters."""
    words = " ".join(str(error).split())
    return (words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}")[:200]


@dataclass
class Audit:
    """The result of an audit: the hash of every file by its recorded path, the findings, and absent inputs.

    `recorded` is the hash that each file's own record states; `not_made` lists derived pages that are absent, `linked`
    data behind a link that leads out of the project. `checked` counts further checks, by kind; `notes` say what could
    not be checked, and why.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, kind: str, number: int = 1) -> None:
        """Count checks of one kind."""
        self.checked[kind] = self.checked.get(kind, 0) + number

    def join(self, other: Audit) -> None:
        """Add the result of another audit."""
        self.hashes |= other.hashes
        self.recorded |= other.recorded
        self.findings += other.findings
        self.absent += [name for name in other.absent if name not in self.absent]
        self.not_made += [name for name in other.not_made if name not in self.not_made]
        self.linked += [name for name in other.linked if name not in self.linked]
        self.notes += [note for note in other.notes if note not in self.notes]
        for kind, number in other.checked.items():
            self.count(kind, number)

    def lines(self) -> list[str]:
        """Return the report: one line per finding, then what could not be checked, then the counts.

        Texts of records are untrusted input: control characters are escaped.
        """
        lines = [f"{finding.path} {finding.problem}" for finding in self.findings] + self.notes
        if self.absent:
            lines.append(f"not on this machine, so not checked: {len(self.absent)} files, as {self.absent[0]}")
        if self.linked:
            some = f"{len(self.linked)} files, as {self.linked[0]}"
            lines.append(f"behind a link that leads out of the project, so not opened: {some}")
        if self.not_made:
            lines.append(f"not made here (make pages): {len(self.not_made)} files, as {self.not_made[0]}")
        lines += [f"{count} {kind} checked" for kind, count in self.checked.items()]
        lines.append(f"{len(self.hashes)} files checked, {len(self.findings)} findings")
        return [printable(line) for line in lines]


def remove_damaged(audit: Audit, root: Path, records: Mapping[Path, dict[str, Any]]) -> tuple[int, list[Path]]:
    """Remove the files that the findings name, and everything below `root` that was made from other bytes of them.

    `records`: every record that could be read, by its path. Only regular files that resolve below `root` are removed,
    so neither a record nor a link can name a file outside the project. Returns the number of files removed, and those
    that are left: regular files behind a link to another place, as a data folder on another disk.
    """
    doomed = {path for finding in audit.findings for path in finding.remove}
    regular = [path for path in sorted(doomed | _made_from(doomed, root, records)) if is_regular(path)]
    outside = [path for path in regular if not path.resolve().is_relative_to(root.resolve())]
    for path in (path for path in regular if path not in outside):
        path.unlink()
    return len(regular) - len(outside), outside


def _made_from(doomed: set[Path], root: Path, records: Mapping[Path, dict[str, Any]]) -> set[Path]:
    """Return records and outputs of the stages that read a doomed file, directly or not, in another state than its own
    record states: those were made from damage. A stage that read the right bytes keeps its outputs."""
    stated = {root / each["path"]: each["sha256"] for record in records.values() for each in record["outputs"]}
    outputs = {
        record_path: [record_path.with_name(Path(each["path"]).name) for each in record["outputs"]]
        for record_path, record in records.items()
    }
    known, grown = set(doomed), True
    while grown:
        grown = False
        for record_path, record in records.items():
            reads = {root / each["path"]: each["sha256"] for each in record["inputs"]}
            tainted = any(stated.get(path) != reads[path] for path in known & set(reads))
            if tainted and record_path not in known:
                known |= {record_path, *outputs[record_path]}
                grown = True
    return known - doomed
