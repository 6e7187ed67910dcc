"""Remove pages that are damaged, and links in the places of files, so that the next run makes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import has_bytes, is_folder_inside, is_regular
from dpfl.provenance.audit.completeness import ENDED
from dpfl.provenance.manifest import MANIFEST
from dpfl.provenance.record_format import EarlierFormatError, read_record
from dpfl.reporting.engine_report import PAGE
from dpfl.reporting.pages import DERIVED

_PAGES = ("tables", "figures", "claims")
_AT_THE_END = (ENDED, MANIFEST, "report.html", "README.md", PAGE)
"""Files directly below results/<scale> that `make` writes at its end."""
_OF_THE_ENGINE = ("logs", "benchmarks")


def remove_damaged_pages(folder: Path) -> list[Path]:
    """Remove the tables, figures and verdicts below results/<scale> that are not what their records say; return them.

    A stage's outputs go together, its record too: Snakemake makes again what is missing. Derived pages (`DERIVED`) may
    be absent, as in a fresh clone: Git does not hold them. Records of an earlier version are left alone.

    What is no regular file is removed too where `make` writes a page, its report, README.md, audit, manifest, or a log:
    a link, dead or not, a pipe. A link is never followed: what it points at stays, no folder is removed, and nothing
    that is not below `folder`.
    """
    removed = _removed([path for path in _written_at_every_run(folder) if not is_regular(path)], folder)
    records = sorted(path for kind in _PAGES for path in (folder / kind).glob("*.record.json"))
    for place in (path for path in records if is_folder_inside(path.parent, folder)):
        try:
            record = read_record(place)
        except EarlierFormatError:
            continue
        except InputError:
            removed += _removed([place], folder)
            continue
        files = [place.with_name(Path(each["path"]).name) for each in record["outputs"]]
        if not all(map(_is_intact, files, record["outputs"])):
            removed += _removed([*files, place], folder)
    return removed


def _written_at_every_run(folder: Path) -> list[Path]:
    """Return the paths of files without a record that a run writes without looking at what is there."""
    logs = [path for kind in _OF_THE_ENGINE for path in sorted((folder / kind).rglob("*"))]
    return [*(folder / name for name in _AT_THE_END), *logs]


def _is_intact(path: Path, stated: dict[str, Any]) -> bool:
    """Return whether a file has the bytes that its record states, or is an absent derived page."""
    if path.suffix in DERIVED and not os.path.lexists(path):
        return True
    try:
        return has_bytes(path, stated)
    except OSError:
        return False


def _removed(paths: list[Path], folder: Path) -> list[Path]:
    """Remove the files, links and pipes among paths that are below a folder, and return them; no link is followed."""
    there = [path for path in paths if os.path.lexists(path) and (path.is_symlink() or not path.is_dir())]
    below = [path for path in there if path.parent.resolve().is_relative_to(folder.resolve())]
    for path in below:
        path.unlink()
    return below
