"""Patterns by which Snakemake's rules match some names only: short, for they are part of every path of a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dpfl.errors import InputError


def require_no_brace(folder: Path) -> None:
    """Raise InputError where the path of the project or of its data has a brace: Snakemake takes it for a wildcard."""
    if {"{", "}"} & set(str(folder)):
        raise InputError(f"{folder} has a brace in its path, which Snakemake takes for a wildcard: rename the folder")


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for exactly these words; it matches nothing where there are none."""
    known = [re.escape(word) for word in words]
    return "|".join(known) if known else "(?!)"


def names(words: Iterable[str]) -> str:
    """Return a pattern for exactly these names; those that differ behind their last underscore alone, as the seeds of a
    sweep do, are written once.

    Snakemake reads the pattern each time it fills in a path: with thousands of names it took most of a dry run.
    """
    ends: dict[str, list[str]] = {}
    for word in words:
        beginning, mark, end = word.rpartition("_")
        ends.setdefault(beginning, []).append(mark + end)
    beginnings: dict[tuple[str, ...], list[str]] = {}
    for beginning, known in ends.items():
        beginnings.setdefault(tuple(known), []).append(beginning)
    return "|".join(f"({any_of(some)})({any_of(known)})" for known, some in beginnings.items()) or "(?!)"
