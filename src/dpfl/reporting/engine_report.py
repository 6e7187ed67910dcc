"""The workflow engine's own report, made again when a table, figure or verdict is newer than it.

Results may come from strangers: no text of theirs is taken for markup. Tables and verdicts are written again from their
CSV files, captions cannot include files or HTML, and pictures are shown as images, which run no script.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.files import is_regular, replacing
from dpfl.reporting import claims, tables
from dpfl.reporting.results import showing

PAGE = "workflow.html"
_PARTS = ("tables/*.html", "figures/*.svg", "claims/*.html")
_DOCUTILS = "[general]\nfile_insertion_enabled: off\nraw_enabled: off\n"
"""What docutils, which renders captions, reads from the file that DOCUTILSCONFIG names."""


def build(folder: Path, config: Path) -> tuple[Path, bool]:
    """Return <folder>/workflow.html and whether it had to be made. Run it in the folder of the Snakefile.

    Raises InputError where there is nothing to report yet, where a part is no regular file or its CSV is damaged, and
    where Snakemake cannot make the report.
    """
    report = folder / PAGE
    parts = [path for pattern in _PARTS for path in folder.glob(pattern)]
    if not parts:
        raise InputError(f"nothing to report in {folder}: run make first")
    if _is_complete(report) and report.stat().st_mtime >= max(path.stat().st_mtime for path in parts):
        return report, False
    if odd := [path for path in parts if not is_regular(path)]:
        raise InputError(f"{odd[0]} is no regular file: delete it and run make again")
    _write_tables(folder)
    with tempfile.TemporaryDirectory() as scratch:
        made, settings = Path(scratch) / PAGE, Path(scratch) / "docutils.conf"
        command = [sys.executable, "-m", "snakemake", "--configfile", str(config), "--report", str(made)]
        settings.write_text(_DOCUTILS, encoding="utf-8")
        environment = {**os.environ, "DOCUTILSCONFIG": str(settings)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason").splitlines()[-1]
            raise InputError(f"Snakemake could not make the report: {reason}")
        with replacing(report) as temporary:
            shutil.copyfile(made, temporary)
    return report, True


def _write_tables(folder: Path) -> None:
    """Write the HTML of every table and of the verdicts from its CSV, where that is there."""
    for key in keys():
        verdicts = folder / "claims" / f"{key}.csv"
        pages = {name: folder / "tables" / f"{key}_{name}.csv" for name in load(key).tables}
        with showing(folder, key):
            for name, csv in pages.items():
                if is_regular(csv):
                    tables.write_pages(key, name, csv, [".html"])
            if is_regular(verdicts):
                claims.write_page(key, verdicts)


def _is_complete(report: Path) -> bool:
    """Return whether a report is there to its end: one of 0 bytes, or cut off, is made anew."""
    return is_regular(report) and report.read_bytes().rstrip().endswith(b"</html>")
