"""Put a SLURM job back into the queue shortly before its time limit, where it has come further: that is no failure.

The same job goes on from its checkpoint with the same memory, and Snakemake counts no attempt. A job that has come no
further runs into its limit; its next attempt asks for more.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dpfl.commands import output_of

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
        threading.Thread(target=_watch, args=(job, has_progressed), daemon=True).start()


def newest(folder: Path, pattern: str) -> float:
    """Return the time of the newest file of a pattern, in seconds since 1970; 0 where there is none."""
    return max((path.stat().st_mtime for path in folder.glob(pattern) if path.exists()), default=0.0)


def _watch(job: str, has_progressed: Callable[[], bool]) -> None:
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
        print(f"dpfl: interrupted by the time limit of job {job}, which goes back into the queue", file=sys.stderr)
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
