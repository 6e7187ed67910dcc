"""End stages and SLURM jobs whose workflow was killed, so that none writes results later."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from dpfl.commands import output_of
from dpfl.errors import InputError

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
_LOGS = Path(".snakemake") / "slurm_logs"  # where it writes what jobs print, once it has submitted one
_CANCEL_SECONDS = 180.0
_ANSWER_SECONDS = 60.0
_ASK_SECONDS = 1.0


def has_submitted(folder: Path) -> bool:
    """Return whether Snakemake has put jobs into SLURM's queue from `folder`, in this run or before."""
    return (folder / _LOGS).is_dir()


def queued(folder: Path) -> list[tuple[str, str, str]] | None:
    """Return number, state and comment (which names the rule) of the jobs that have not ended, of this user, that
    Snakemake put into SLURM's queue from `folder`.

    None where the queue does not answer: what is in it is then not known. Where squeue is missing, or fails in a folder
    that nothing was submitted from, there are no jobs.
    """
    answer = output_of("squeue", f"--user={os.getuid()}", "--noheader", f"--format={_FORMAT}")
    if answer is None:
        return None if shutil.which("squeue") and has_submitted(folder) else []
    jobs = [row.split("|", maxsplit=3) for row in answer.decode(errors="replace").splitlines() if row.count("|") >= 3]
    return [
        (number, state, comment)
        for number, state, comment, directory in jobs
        if comment.startswith(_COMMENTS) and Path(directory).resolve() == folder.resolve()
    ]


def cancel(jobs: Iterable[tuple[str, str, str]]) -> None:
    """Cancel the jobs among these that are not ending already."""
    if numbers := [number for number, state, _ in jobs if state != "COMPLETING"]:
        output_of("scancel", *numbers)


def cancel_left_behind(folder: Path, whose: str = "an earlier run left") -> None:
    """Cancel the jobs of a workflow in `folder` that has ended, and wait for their end, so that none writes later.

    Call it with the folder's lock, before anything is submitted. A training job that is cancelled keeps its checkpoint,
    and its successor continues from there. Raises InputError where jobs do not end, or the queue does not answer.
    """
    jobs = _answered(folder)
    if not jobs:
        return
    print(f"dpfl: {whose} {len(jobs)} SLURM jobs here; they are cancelled", file=sys.stderr)
    deadline = time.monotonic() + _CANCEL_SECONDS
    while jobs:
        if time.monotonic() > deadline:
            names = ", ".join(number for number, _, _ in jobs[:3])
            raise InputError(f"{len(jobs)} SLURM jobs of this folder do not end, as {names}: see squeue, then go on")
        cancel(jobs)
        time.sleep(_ASK_SECONDS)
        jobs = _answered(folder)


def _answered(folder: Path) -> list[tuple[str, str, str]]:
    """Return the jobs of `queued`, asking again for a minute; raises InputError where no answer comes."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while (jobs := queued(folder)) is None:
        if time.monotonic() > deadline:
            raise InputError("squeue fails, and jobs of this folder may be in the queue: mend that first")
        time.sleep(_ASK_SECONDS)
    return jobs
