"""End a run that is asked to by SIGTERM: its SLURM jobs with it, and a Snakemake that waits for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from dpfl.pipeline import orphans

PATIENCE_SECONDS = 240.0
"""Time that Snakemake has to see that its last job has ended: it asks SLURM every three minutes or more often."""
ASK_SECONDS = 5.0


class Ending:
    """End of a run that is asked to end: Snakemake submits nothing more, but waits for its jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next, self._empty_since = clock, float("inf"), float("inf")

    def begin(self) -> None:
        """Begin to cancel jobs; call it at the first signal and at any other."""
        self._next = min(self._next, self._clock())

    def is_in_vain(self, snakemake: int) -> bool:
        """Cancel the SLURM jobs that are left; return whether Snakemake, with this process id, waits for none.

        It does where nothing of it has been in the queue or on this machine for PATIENCE_SECONDS: for a job that SLURM
        has forgotten it would wait for ever. False before `begin`, without SLURM, and where the queue does not answer.
        """
        if (now := self._clock()) < self._next:
            return False
        self._next = now + ASK_SECONDS
        jobs = orphans.queued(Path())
        if jobs:
            orphans.cancel(jobs)
        if jobs != [] or not orphans.has_submitted(Path()) or _has_stages(snakemake):
            self._empty_since = float("inf")
        else:
            self._empty_since = min(self._empty_since, now)
        return now - self._empty_since > PATIENCE_SECONDS


def _has_stages(snakemake: int) -> bool:
    """Return whether a stage of Snakemake runs on this machine."""
    try:
        return any(orphans.is_alive(each.pid) for each in psutil.Process(snakemake).children(recursive=True))
    except psutil.NoSuchProcess:
        return False
