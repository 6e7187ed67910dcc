"""A stage ends with the workflow that started it: a killed controller leaves nobody who writes results later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

CONTROLLER = "DPFL_CONTROLLER"
"""Environment variable: process id of the Snakemake process that starts stages (workflow/rules/common.smk sets it)."""

GONE = "dpfl: the workflow (process"
"""How the last line begins of a stage that has lost its workflow."""

_LOOK_EVERY_SECONDS = 0.2
_GRACE_SECONDS = 5.0


def end_with_controller() -> None:
    """End this process soon after the controller named in the environment has gone; do nothing where none is named.

    It ends as by SIGTERM, so that temporary files are removed; where it does not within some seconds, at once.
    """
    named = os.environ.get(CONTROLLER, "")
    if named.isdigit():
        threading.Thread(target=_watch, args=(int(named),), daemon=True).start()


def is_alive(pid: int) -> bool:
    """Return whether a process with this id runs on this machine; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _watch(controller: int) -> None:
    """Wait for the controller's end, then end this process."""
    while is_alive(controller):
        time.sleep(_LOOK_EVERY_SECONDS)
    print(f"{GONE} {controller}) has gone; this stage ends; make starts it again", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(143)


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
