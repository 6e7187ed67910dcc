"""Begin a new paper: a folder of papers/ that has every part and runs at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dpfl import catalog
from dpfl.cli.app import DAILY, app
from dpfl.errors import InputError
from dpfl.files import write_atomically

TEMPLATE = Path("workflow") / "new_paper"
"""The smallest paper that has every part."""
KEY_OF_TEMPLATE = "sixth2026"
_LAST = "paper.yaml"


@app.command(epilog="Example: dpfl new-paper smith2026", rich_help_panel=DAILY)
def new_paper(key: Annotated[str, typer.Argument(help="author and year, as smith2026")]) -> None:
    """Write src/dpfl/papers/KEY: a paper that trains, draws and judges on stand-in data, for you to change."""
    if not re.fullmatch(r"[a-z]+[0-9]{4}[a-z]?", key):
        raise InputError(f"key is {key!r}, should be lower-case letters and a year, as smith2026")
    folder = catalog.PAPERS / key
    if folder.exists():
        raise InputError(f"{folder} is there already: choose another key")
    if not TEMPLATE.is_dir():
        raise InputError(f"no {TEMPLATE} here: run dpfl in the folder of the project")
    # paper.yaml, by which the folder is found, comes last: a folder that is half written is no paper.
    for source in sorted((path for path in TEMPLATE.iterdir() if path.is_file()), key=lambda path: path.name == _LAST):
        write_atomically(folder / source.name, source.read_text(encoding="utf-8").replace(KEY_OF_TEMPLATE, key))
    print(f"{folder} is there. Put `papers: [{key}]` into mine.yaml, then: dpfl run --config mine.yaml")
