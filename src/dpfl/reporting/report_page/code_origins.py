"""Run tables that no commit accounts for, counted from the records next to them."""

from __future__ import annotations

from pathlib import Path

from dpfl.files import parse_json, read_bytes, record_path


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
        source = parse_json(read_bytes(record))["source"]
        return bool(source["commit"]) and not source.get("dirty")
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
