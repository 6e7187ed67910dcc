"""Tables as text: rows of cells, how a row is traced and coloured, and what its reader may do with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of a table: cells, the heading above it ("" for that of the row before), how to trace and colour it."""

    cells: tuple[str, ...]
    heading: str = ""
    where: str = ""
    style: str = ""


@dataclass(frozen=True)
class TextTable:
    """A table as text; `keeps_first`: its first column stays in sight where a reader scrolls sideways."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    keeps_first: bool = False

    @property
    def can_sort(self) -> bool:
        """True where its rows may change places: not below headings."""
        return len(self.rows) > 2 and not any(row.heading for row in self.rows)

    @property
    def has_traces(self) -> bool:
        """True where its rows can be traced one by one."""
        return any(row.where for row in self.rows)
