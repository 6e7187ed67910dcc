"""The caption of a table or figure as a file beside it, from which the report takes it."""

from __future__ import annotations

from pathlib import Path

from dpfl.catalog import load
from dpfl.files import record_path, write_atomically

_TEXT = """**{title}**

{caption}

Every digit: ``{data}``. How it was made: ``{record}``.
"""


def write(kind: str, paper: str, name: str, csv: Path) -> Path:
    """Write title and caption of a paper's page, of `kind` "tables" or "figures", as reStructuredText beside its data;
    return the path."""
    said = getattr(load(paper), kind)[name]
    path = csv.with_suffix(".rst")
    files = {"data": csv.name, "record": record_path(csv).name}
    write_atomically(path, _TEXT.format(title=said["title"], caption=said["caption"], **files))
    return path
