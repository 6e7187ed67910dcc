"""The workflow engine's own report, made again when a table, figure or verdict is newer than it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dpfl.errors import InputError

PAGE = "workflow.html"
_PARTS = ("tables/*.html", "figures/*.svg", "claims/*.html")


def build(folder: Path, config: Path) -> tuple[Path, bool]:
    """Return <folder>/workflow.html and whether it had to be made. Run it in the folder of the Snakefile.

    Raises InputError where there is nothing to report yet, or where Snakemake cannot make the report.
    """
    report = folder / PAGE
    parts = [path for pattern in _PARTS for path in folder.glob(pattern)]
    if not parts:
        raise InputError(f"nothing to report in {folder}: run make first")
    if _is_complete(report) and report.stat().st_mtime >= max(path.stat().st_mtime for path in parts):
        return report, False
    temporary = report.with_suffix(".partial.html")
    command = [sys.executable, "-m", "snakemake", "--configfile", str(config), "--report", str(temporary)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(
            f"Snakemake could not make the report: {(done.stderr.strip() or 'no reason').splitlines()[-1]}"
        )
    temporary.replace(report)
    return report, True


def _is_complete(report: Path) -> bool:
    """Return whether a report is there to its end: one of 0 bytes, or cut off, is made anew."""
    return report.is_file() and report.read_bytes().rstrip().endswith(b"</html>")
