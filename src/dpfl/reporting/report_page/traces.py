"""Origin of a shown number: the command that traces it, and the hash of the record next to its file."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dpfl.files import is_regular, read_bytes, record_path

_SIGN = "="
"""Of the conditions of `dpfl trace --where`: a value that has it cannot be asked for."""


@dataclass(frozen=True)
class Trace:
    """Origin of a file: its path in the project, and the SHA-256 of its record, "" where there is none."""

    file: str
    record_sha256: str

    @property
    def command(self) -> str:
        """The command that shows where all numbers of the file come from."""
        return f"dpfl trace {shlex.quote(self.file)}"


def trace_of(csv: Path, root: Path) -> Trace:
    """Return the origin of a CSV file below `root`, the folder of the project."""
    record = record_path(csv)
    digest = hashlib.sha256(read_bytes(record)).hexdigest() if is_regular(record) else ""
    return Trace(csv.absolute().relative_to(root.absolute()).as_posix(), digest)


def row_conditions(rows: pd.DataFrame) -> list[str]:
    """Return for each row the value of --where that names it and no other; "" where no column can tell rows apart.

    Columns are taken from the left until every row differs. Columns whose values contain an equals sign are passed
    over.
    """
    texts = rows.astype(object).map(_text)
    usable = [name for name in texts if not texts[name].str.contains(_SIGN, regex=False).any()]
    chosen: list[str] = []
    for name in usable:
        if texts[name].nunique() < 2:
            continue
        chosen.append(name)
        if not texts.duplicated(chosen).any():
            return [",".join(f"{name}={row[name]}" for name in chosen) for _, row in texts.iterrows()]
    return [""] * len(rows)


def _text(value: object) -> str:
    """Return a cell as it is compared with a condition."""
    return repr(value) if isinstance(value, float) else str(value)
