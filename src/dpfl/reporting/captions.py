"""Captions of tables and figures, as files from which the report takes them."""

from __future__ import annotations

from pathlib import Path

from dpfl.catalog import load
from dpfl.files import record_path, write_atomically

_TEXT = """**{title}**

{caption}

Every digit: ``{data}``. How it was made: ``{record}``.
"""


def text(kind: str, paper: str, name: str, csv: Path) -> str:
    """Return title and caption of a paper's page, of `kind` "tables" or "figures", as reStructuredText."""
    page = getattr(load(paper), kind)[name]
    files = {"data": csv.name, "record": record_path(csv).name}
    return _TEXT.format(title=page["title"], caption=page["caption"], **files)


def write(kind: str, paper: str, name: str, csv: Path) -> Path:
    """Write the caption of a page to a file next to its data, as <page>.rst; return the path."""
    path = csv.with_suffix(".rst")
    write_atomically(path, text(kind, paper, name, csv))
    return path
