"""SLURM jobs that a killed workflow left in the queue: cancelled before the next one starts its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_FORMAT = "%i|%k|%Z"  # number, comment, working folder
_COMMENTS = ("rule_", "group_")  # what Snakemake's executor writes there
_PATIENCE_SECONDS = 120.0


def left_behind(folder: Path) -> list[str]:
    """Return the numbers of this user's jobs that Snakemake put into the queue from `folder` and that have not ended.

    None where there is no SLURM, or none that answers.
    """
    rows = _ask("squeue", "--me", "--noheader", f"--format={_FORMAT}").splitlines()
    jobs = [row.split("|", maxsplit=2) for row in rows if row.count("|") >= 2]
    return [
        number
        for number, comment, place in jobs
        if comment.startswith(_COMMENTS) and Path(place).resolve() == folder.resolve()
    ]


def cancel_left_behind(folder: Path) -> None:
    """Cancel the jobs of an earlier workflow in `folder` and wait for their end, so that none writes beside new ones.

    To be called by the workflow that holds the folder's lock, before it submits anything. A training job that is
    cancelled keeps its checkpoint, and its successor goes on from there.
    """
    jobs = left_behind(folder)
    if not jobs:
        return
    print(f"dpfl: an earlier run left {len(jobs)} SLURM jobs here; they are cancelled", file=sys.stderr)
    _ask("scancel", *jobs)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while left_behind(folder) and time.monotonic() < deadline:
        time.sleep(1)


def _ask(*words: str) -> str:
    """Return what a SLURM command prints, or nothing where it is not there or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
