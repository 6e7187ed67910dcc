"""Remove pages that are damaged, so that the next run makes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import file_sha256, is_regular
from dpfl.provenance.record_format import EarlierFormatError, read_record
from dpfl.reporting.pages import DERIVED

_PAGES = ("tables", "figures", "claims")


def remove_damaged_pages(folder: Path) -> list[Path]:
    """Remove the tables, figures and verdicts below results/<scale> that are not what their records say; return them.

    A stage's outputs go together, its record too: Snakemake makes again what is missing. Only regular files next to
    their record are removed. Derived pages (`DERIVED`) may be absent, as in a fresh clone: Git does not hold them.
    Records of an earlier version are left alone.
    """
    removed = []
    for place in sorted(path for kind in _PAGES for path in (folder / kind).glob("*.record.json")):
        try:
            record = read_record(place)
        except EarlierFormatError:
            continue
        except InputError:
            removed += _removed([place])
            continue
        files = [place.with_name(Path(each["path"]).name) for each in record["outputs"]]
        if not all(map(_is_intact, files, record["outputs"])):
            removed += _removed([*files, place])
    return removed


def _is_intact(path: Path, stated: dict[str, Any]) -> bool:
    """Return whether a file has the bytes that its record states, or is an absent derived page."""
    if path.suffix in DERIVED and not os.path.lexists(path):
        return True
    try:
        return is_regular(path) and file_sha256(path) == stated["sha256"]
    except OSError:
        return False


def _removed(paths: list[Path]) -> list[Path]:
    """Remove the regular files among paths, and return them."""
    there = [path for path in paths if is_regular(path)]
    for path in there:
        path.unlink()
    return there
