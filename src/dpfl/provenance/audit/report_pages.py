"""Compare report.html and README.md, which have no record, with what the results of their scale give."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import is_regular, read_bytes
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.reporting.report_page.contents import Page, contents
from dpfl.reporting.report_page.render import html, markdown

SHORT, FULL = "README.md", "report.html"
_NEWLY = "make pages writes it anew"
_READ = ("accounting", "claims", "figures", "runs", "tables")
"""Folders of results/<scale> from which the pages are written."""


def check_report_pages(report: Audit, folder: Path, config: Mapping[str, Any]) -> None:
    """Write the pages of results/<scale> again from its tables, figures and verdicts, and compare every byte.

    The page with pictures is compared where they are: git does not hold them. A page that is not there is no finding.
    """
    there = [folder / name for name in (SHORT, FULL) if is_regular(folder / name)]
    if not there:
        return
    root = folder.absolute().parents[1]
    entries = [path for kind in _READ for path in (folder / kind).rglob("*")]
    if not all(is_regular(path) or (path.is_dir() and not path.is_symlink()) for path in entries):
        report.notes.append(f"not compared with the results, among which are irregular files: {SHORT} and {FULL}")
        return
    try:
        page = contents(folder, config)
    except InputError as error:
        problem = f"cannot be made again from the results: {error}"
        report.findings += [Finding(str(path.absolute().relative_to(root)), problem) for path in there]
        return
    for path in there:
        name = str(path.absolute().relative_to(root))
        if path.name == FULL and not _has_pictures(folder, page):
            report.notes.append(f"{name} was not compared: pictures that it shows are not here (make pages)")
            continue
        report.count("pages for readers")
        if line := _first_difference(markdown(page) if path.name == SHORT else html(page), path):
            problem = f"is not what the results give, first in line {line}: edited, or older than they are; {_NEWLY}"
            report.findings.append(Finding(name, problem, (path.absolute(),)))


def _has_pictures(folder: Path, page: Page) -> bool:
    """Return whether the drawing of every figure of the page is there, not its small copy alone."""
    shown = [(view.paper.key, part) for view in page.papers for part in view.parts.figures if not part.not_run]
    return all(is_regular(folder / "figures" / f"{key}_{part.name}.svg") for key, part in shown)


def _first_difference(right: str, path: Path) -> int:
    """Return the number of the first line of a page that is another than the right text's, 0 where all agree."""
    try:
        content = read_bytes(path)
    except InputError:
        return 1
    if content == right.encode():
        return 0
    pairs = zip_longest(right.encode().split(b"\n"), content.split(b"\n"))
    return next(number for number, (one, two) in enumerate(pairs, 1) if one != two)
