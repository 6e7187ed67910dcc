"""Decide which tables, figures and verdicts are finished: made from today's inputs, by today's code and paper.yaml."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256, has_bytes, record_path
from dpfl.provenance.record import published_digest, read_record
from dpfl.provenance.source_digest import is_current
from dpfl.reporting.pages import DERIVED


def is_page_current(csv: Path, paper: str, inputs: Iterable[Path]) -> bool:
    """Return whether the record of a page's CSV states these inputs, code and paper as they are, and its files are so.

    Derived pages (`DERIVED`) may be absent: they are made from the rest.
    """
    try:
        record = read_record(record_path(csv))
    except InputError:
        return False
    stated = {each["path"]: each["sha256"] for each in record["inputs"]}
    source = record["source"]
    return (
        source.get("published") == published_digest(paper)
        and stated == {os.path.relpath(path): file_sha256(path) for path in inputs}
        and is_current(source)
        and all(_is_intact(csv, output) for output in record["outputs"] if Path(output["path"]).suffix not in DERIVED)
    )


def _is_intact(csv: Path, output: dict[str, Any]) -> bool:
    """Return whether an output of the stage that wrote `csv` is there with the bytes that its record states."""
    return has_bytes(csv.with_name(Path(output["path"]).name), output)
