"""How far the same run may come out differently: measured, by model, and shipped as determinism.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("determinism.csv")
"""Columns: algorithm, model, changed (what was changed), runs (compared), largest (difference), tolerance, unit.
Measured by dpfl.auditing.spread.

unit "points": of accuracy in per cent; "relative": of the value (absolute below 1).
"""


@dataclass(frozen=True)
class Spread:
    """By how much a metric may differ."""

    tolerance: float
    unit: str

    @property
    def words(self) -> str:
        """The tolerance as text."""
        return f"{self.tolerance:g} {self.unit}"

    def holds(self, stated: float, again: float) -> bool:
        """Return whether two values are the same within the tolerance; nan is the same as nan."""
        if stated != stated or again != again:
            return stated != stated and again != again
        if stated == again:
            return True
        scale = 1.0 if self.unit == "points" else max(1.0, abs(stated))
        return abs(stated - again) <= self.tolerance * scale


def spread_of(algorithm: str, model: str) -> Spread:
    """Return the spread of an algorithm's runs with a model; the widest known where this one was not measured."""
    rows = _rows()
    kin = [row for row in rows if row["algorithm"] == algorithm]
    own = [row for row in kin if row["model"] == model]
    chosen = max(own or kin or rows, key=lambda row: float(row["tolerance"]))
    return Spread(float(chosen["tolerance"]), chosen["unit"])


@cache
def _rows() -> list[dict[str, str]]:
    """The table's rows."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
