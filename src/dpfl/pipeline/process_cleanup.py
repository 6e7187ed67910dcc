"""Processes and jobs that must not outlive their reason: orphans, jobs left in a queue, jobs near their time limit."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from dpfl.commands import output_of
from dpfl.errors import InputError

# End stages and SLURM jobs whose workflow was killed, so that none writes results later.

CONTROLLER = "DPFL_CONTROLLER"
"""Environment variable: process id of the Snakemake process that starts stages (workflow/rules/common.smk sets it)."""

GONE = "dpfl: the workflow (process"
"""Beginning of the last log line of a stage whose workflow has ended."""
INTERRUPTED = "dpfl: interrupted"
"""Beginning of the last log line of a stage that was interrupted. dpfl.cli says it before it imports anything."""

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0


def end_with_controller() -> None:
    """End this process soon after the controller named in the environment has gone; do nothing if none is named.

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
    """Return the jobs of `queued`, asking again for a minute; raises InputError if no answer comes."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while (jobs := queued(folder)) is None:
        if time.monotonic() > deadline:
            raise InputError("squeue fails, and jobs of this folder may be in the queue: fix that first")
        time.sleep(_ASK_SECONDS)
    return jobs


# Put a SLURM job back into the queue shortly before its time limit, where it has come further: that is no failure.
#
# The same job goes on from its checkpoint with the same memory, and Snakemake counts no attempt. A job that has come no
# further runs into its limit; its next attempt asks for more.

WATCHED = "DPFL_LIMIT_WATCHED"
"""Environment variable: set where a process above this one watches the time limit."""

_LONGEST_POLL_SECONDS = 60.0
_AGAIN_SECONDS = 10.0
_LARGEST_MARGIN_SECONDS = 90.0
_MARGIN = 0.25  # of the time that a job has, where that is short


def requeue_before_limit(has_progressed: Callable[[], bool]) -> None:
    """Watch the time limit of this process's SLURM job, if it runs in one; requeue the job shortly before.

    `has_progressed` is asked then, from a thread: without progress since the job began, it runs into its limit.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if job.isdigit() and WATCHED not in os.environ and shutil.which("squeue"):  # a container has none
        threading.Thread(target=_watch_time_left, args=(job, has_progressed), daemon=True).start()


def newest(folder: Path, pattern: str) -> float:
    """Return the time of the newest file of a pattern, in seconds since 1970; 0 if there is none."""
    return max((path.stat().st_mtime for path in folder.glob(pattern) if path.exists()), default=0.0)


def _watch_time_left(job: str, has_progressed: Callable[[], bool]) -> None:
    """Ask for the time left until little is left; then requeue the job, if it has come further."""
    while (left := seconds_left(job)) is None:  # SLURM is busy when many jobs begin
        time.sleep(_LONGEST_POLL_SECONDS)
    if left == math.inf:
        return
    margin = min(_LARGEST_MARGIN_SECONDS, _MARGIN * left)
    while left > margin:
        time.sleep(min(_LONGEST_POLL_SECONDS, max(1.0, left - margin)))
        again = seconds_left(job)
        left = left - _LONGEST_POLL_SECONDS if again is None else again
    if has_progressed():
        _requeue(job, time.monotonic() + left)


def _requeue(job: str, limit: float) -> None:
    """Put the job back into the queue; where SLURM refuses, say so and try again until its time limit, and once more.

    What is said before is the last line of a log whose job goes back.
    """
    while True:
        print(f"{INTERRUPTED} by the time limit of job {job}, which goes back into the queue", file=sys.stderr)
        if output_of("scontrol", "requeue", job) is not None:
            return
        print(f"dpfl: job {job} is not put back into the queue: scontrol requeue {job} fails", file=sys.stderr)
        if time.monotonic() > limit:
            return
        time.sleep(_AGAIN_SECONDS)


def seconds_left(job: str) -> float | None:
    """Return the seconds that a SLURM job has left, inf where it has no limit, or None where SLURM does not say."""
    answer = output_of("squeue", "--noheader", f"--jobs={job}", "--format=%L")
    text = "" if answer is None else answer.decode(errors="replace").strip()
    return math.inf if text == "UNLIMITED" else parse_left(text)


def parse_left(text: str) -> float | None:
    """Return the seconds of SLURM's [days-][[hours:]minutes:]seconds, or None for another word (UNLIMITED, INVALID)."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return float(86400 * int(days or 0) + seconds)
