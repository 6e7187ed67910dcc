"""What every check returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """Something that an audit found: the file, what is wrong, and what to delete so that it is made anew."""

    path: str
    problem: str
    remove: tuple[Path, ...] = ()


@dataclass
class Audit:
    """What an audit saw: every file's hash by its recorded path, the findings, and inputs that are not here.

    `not_made` lists derived pages that records name and that were not made here. `checked` counts what else was
    checked, by kind; `notes` say what could not be, and why.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, kind: str, number: int = 1) -> None:
        """Count something that was checked."""
        self.checked[kind] = self.checked.get(kind, 0) + number

    def join(self, other: Audit) -> None:
        """Add what another audit saw."""
        self.hashes |= other.hashes
        self.findings += other.findings
        self.absent += [name for name in other.absent if name not in self.absent]
        self.not_made += [name for name in other.not_made if name not in self.not_made]
        self.notes += [note for note in other.notes if note not in self.notes]
        for kind, number in other.checked.items():
            self.count(kind, number)
