"""End stages and SLURM jobs whose workflow was killed, so that none writes results later."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from dpfl.commands import output_of

CONTROLLER = "DPFL_CONTROLLER"
"""Environment variable: process id of the Snakemake process that starts stages (workflow/rules/common.smk sets it)."""

GONE = "dpfl: the workflow (process"
"""Beginning of the last log line of a stage whose workflow has ended."""

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0


def end_with_controller() -> None:
    """End this process soon after the controller named in the environment has gone; do nothing where none is named.

    It ends as by SIGTERM, so that temporary files are removed; after some seconds it is killed.
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
        time.sleep(_POLL_SECONDS)
    print(f"{GONE} {controller}) has ended, so this stage ends too; make starts it again", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(143)


_FORMAT = "%i|%T|%k|%Z"  # number, state, comment, working folder
_COMMENTS = ("rule_", "group_")  # what Snakemake's executor writes there
_CANCEL_SECONDS = 120.0


def left_behind(folder: Path) -> list[str]:
    """Return the numbers of this user's jobs that Snakemake put into the queue from `folder` and that have not ended.

    The list is empty where there is no SLURM, or none that answers.
    """
    return [number for number, _, _ in queued(folder)]


def queued(folder: Path) -> list[tuple[str, str, str]]:
    """Return number, state and comment (which names the rule) of the jobs of `left_behind`."""
    answer = output_of("squeue", "--me", "--noheader", f"--format={_FORMAT}") or b""
    rows = answer.decode(errors="replace").splitlines()
    jobs = [row.split("|", maxsplit=3) for row in rows if row.count("|") >= 3]
    return [
        (number, state, comment)
        for number, state, comment, directory in jobs
        if comment.startswith(_COMMENTS) and Path(directory).resolve() == folder.resolve()
    ]


def cancel_left_behind(folder: Path) -> None:
    """Cancel the jobs of an earlier workflow in `folder` and wait for their end, so that none writes next to new ones.

    Call it with the folder's lock, before anything is submitted. A training job that is cancelled keeps its checkpoint,
    and its successor continues from there.
    """
    jobs = left_behind(folder)
    if not jobs:
        return
    print(f"dpfl: an earlier run left {len(jobs)} SLURM jobs here; they are cancelled", file=sys.stderr)
    output_of("scancel", *jobs)
    deadline = time.monotonic() + _CANCEL_SECONDS
    while left_behind(folder) and time.monotonic() < deadline:
        time.sleep(1)
