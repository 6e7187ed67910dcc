"""Run tables that no commit accounts for, counted from the records next to them."""

from __future__ import annotations

import json
from pathlib import Path

from dpfl.files import is_regular, record_path


def untraced_runs(folder: Path, paper: str) -> str:
    """Return how many run tables of a paper in results/<scale> no commit accounts for, as a sentence; "" for none.

    Those are the ones whose record names no commit, or a source tree with changes, or that have no readable record.
    """
    tables = sorted((folder / "runs" / paper).glob("*.csv.gz"))
    count = sum(not _has_commit(record_path(table)) for table in tables)
    if not count:
        return ""
    return f"{count} of {len(tables)} run tables were trained from a changed source tree or name no commit."


def _has_commit(record: Path) -> bool:
    """Return whether a record names the commit of an unchanged tree."""
    try:
        source = json.loads(record.read_text(encoding="utf-8"))["source"] if is_regular(record) else {}
        return bool(source["commit"]) and not source.get("dirty")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
