"""How far the same run may come out differently: measured, by model, and shipped as determinism.csv."""

from __future__ import annotations

import csv
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

TABLE = Path(__file__).with_name("determinism.csv")
"""Columns: algorithm, model, private (whether noise is added), changed (what was changed), runs (compared), largest
(difference), tolerance, unit. Measured by dpfl.auditing.spread.

unit "points": of accuracy in per cent; "relative": of the value (absolute below 1). A change that no row names (a GPU,
where there is no "device cpu to cuda") was not measured, and `dpfl audit --rerun` says so where it compares across it.
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


def spread_of(algorithm: str, model: str, private: bool) -> Spread:
    """Return the spread of an algorithm's runs with a model, with noise or without; the widest known of the same kind
    where this one was not measured."""
    rows = table_rows()
    kin = [row for row in rows if row["algorithm"] == algorithm]
    alike = [row for row in kin if row["private"] == str(private)]
    own = [row for row in alike if row["model"] == model]
    chosen = max(own or alike or kin or rows, key=lambda row: float(row["tolerance"]))
    return Spread(float(chosen["tolerance"]), chosen["unit"])


def platform_of(software: Mapping[str, str], device: str) -> dict[str, str]:
    """Return what of a record's software and device may change a result, versions without their last number."""
    versions = {name: ".".join(software[name].partition("+")[0].split(".")[:2]) for name in ("torch", "python")}
    return versions | {"device": device}


def platform_here(device: str) -> dict[str, str]:
    """Return the same of this process."""
    return platform_of({"torch": metadata.version("torch"), "python": platform.python_version()}, device)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return in what two platforms differ, in words: "torch 2.13 to 2.11"."""
    return [f"{name} {before[name]} to {after[name]}" for name in before if before[name] != after[name]]


def unmeasured(algorithm: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return those differences of two platforms that determinism.csv does not cover for an algorithm, either way
    round; several that were measured together count as covered."""
    rows = [row for row in table_rows() if row["algorithm"] == algorithm]
    known = {part for row in rows for part in row["changed"].split(", ")}
    both = zip(difference(before, after), difference(after, before), strict=True)
    return [there for there, back in both if not {there, back} & known]


@cache
def table_rows() -> list[dict[str, str]]:
    """The table's rows."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
