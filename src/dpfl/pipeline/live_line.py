"""One line on the progress of a run: jobs done of all, the time left, and the jobs that run now."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from snakemake_interface_logger_plugins.common import LogEvent

from dpfl.pipeline.process_cleanup import INTERRUPTED
from dpfl.progress import duration, seconds_left_in

ENGINE_LOG = Path(".snakemake") / "engine.log"
"""Lines of Snakemake's last run."""
_POLL_SECONDS = 0.5
_QUIET_SECONDS = 60.0
"""Between two lines where there is no terminal."""
_UNKNOWN_SECONDS = 3.0
"""Of a job that nothing is known of, as fetching a file."""
_CLEAR = "\r\x1b[K"
_OURS = "dpfl: "
_ON_SLURM = "SLURM run ID: "
_BEGINNING = 1 << 20
_LATE, _LATEST = 1.5, 3.0
"""A job that takes longer than it should is taken to be at two thirds of its time; at most so many times that time tell
how slow the machine is, for the job may wait for something else."""
_TRUSTED_SECONDS = 20.0
"""Of work at the speed of the cost model that count as done before the first job: a job of a second is mostly the start
of Python, and does not tell how slow the machine is."""
_OVERDUE_SECONDS = 60.0
"""A job that has ended that long ago by its own log, and runs, says nothing of its time left any more."""
_TAIL = 4096


@dataclass(frozen=True)
class StartedJob:
    """A job as Snakemake starts it: its rule, "<rule> <value of each wildcard>", and its logs."""

    rule: str
    name: str
    logs: tuple[Path, ...]


class RunProgress:
    """Progress of a run, from what Snakemake's logger plugin (snakemake_logger_plugin_dpfl) says about its jobs.

    `expected`: seconds of each job on one core, by rule and wildcards ("train <paper> <job>", "features <dataset>");
    `at_once`: jobs that run side by side. `failed`: jobs that failed and were not tried again, by number. The machine's
    speed is learnt from jobs that have ended, from those whose logs say how long they will take, and from those that
    take longer than they should.
    """

    def __init__(self, expected: Mapping[str, float], at_once: int) -> None:
        self.done, self.total = 0, 0
        self.failed: dict[int, StartedJob] = {}
        self._expected, self._at_once = dict(expected), at_once
        self._jobs: dict[int, StartedJob] = {}
        self._running: dict[int, float] = {}
        self._spent = self._earned = _TRUSTED_SECONDS

    def read(self, event: Mapping[str, Any], now: float) -> None:
        """Take in an event of the plugin; `now` is the time in seconds on any clock."""
        match event["event"]:
            case LogEvent.RUN_INFO:
                self.total = event["total"]
            case LogEvent.PROGRESS:
                self.done, self.total = event["done"], event["total"]
            case LogEvent.JOB_INFO:
                self._start(event, now)
            case LogEvent.JOB_ERROR:
                self._running.pop(event["job"], None)
                self.failed[event["job"]] = _job_of(event)
            case LogEvent.JOB_FINISHED:
                self._finish(event["job"], now)

    def _start(self, event: Mapping[str, Any], now: float) -> None:
        """Take in the start of a job, its first or another one."""
        number = event["job"]
        self.failed.pop(number, None)
        self._jobs[number] = _job_of(event)
        self._running[number] = now

    def _finish(self, number: int, now: float) -> None:
        """Take in the end of a job."""
        if number in self._running:
            self._spent += now - self._running.pop(number)
            self._earned += self._expected.pop(self._jobs[number].name, _UNKNOWN_SECONDS)

    def seconds_left(self, now: float) -> float:
        """Return the time until all jobs are done, from what they should take, what they say, and the machine's speed.

        A job that is late and says nothing is taken to need half as long again as it has run: its time left grows until
        it ends.
        """
        ran = {self._jobs[job].name: now - since for job, since in self._running.items()}
        running = [self._jobs[job] for job in self._running]
        said = {job.name: said_left(job.logs[0]) if job.logs else None for job in running}
        speed = self._slowdown(ran, said)
        left = []
        for name, expected in self._expected.items():
            rest = max(expected * speed - ran.get(name, 0.0), 0.0) or ran.get(name, 0.0) * (_LATE - 1)
            left.append(rest if said.get(name) is None else said[name])
        return max(sum(left) / self._at_once, max(left, default=0.0))

    def _slowdown(self, ran: Mapping[str, float], said: Mapping[str, float | None]) -> float:
        """Return how many times as long as expected the jobs take on this machine."""
        spent, earned = self._spent, self._earned
        known = spent / earned
        for name, seconds in ran.items():
            expected, rest = self._expected.get(name, _UNKNOWN_SECONDS), said[name]
            if rest is not None and seconds > 0:
                spent, earned = spent + seconds, earned + expected * seconds / (seconds + rest)
            elif rest is None and seconds > expected * known:
                spent, earned = spent + min(seconds, _LATEST * expected), earned + expected / _LATE
        return spent / earned

    def line(self, now: float) -> str:
        """Return the line that a reader sees."""
        counted = f"{self.done} of {self.total} jobs" if self.total else "preparing"
        left = f", about {duration(max(60.0, self.seconds_left(now)))} left" if self._expected else ""
        names = list(dict.fromkeys(self._jobs[job].name for job in self._running))
        return f"dpfl: {counted}{left}{'; now: ' if names else ''}{', '.join(names)}"


def _job_of(event: Mapping[str, Any]) -> StartedJob:
    """Return the job that an event is of."""
    name = " ".join([event["rule"], *map(str, event["wildcards"].values())])
    return StartedJob(event["rule"], name, tuple(map(Path, event["log"])))


def said_left(log: Path) -> float | None:
    """Return the seconds left that the last line of a job's log states, less the time since; None where it states none,
    or where they ended a minute ago."""
    try:
        with log.open("rb") as stream:
            found = os.fstat(stream.fileno())
            stream.seek(max(found.st_size - _TAIL, 0))
            lines = stream.read(_TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    stated = seconds_left_in(lines[-1]) if lines else None
    left = None if stated is None else stated - (time.time() - found.st_mtime)
    return None if left is None or left < -_OVERDUE_SECONDS else max(left, 0.0)


def is_on_slurm() -> bool:
    """Return whether the last run gave its jobs to SLURM, by the beginning of the engine's log."""
    if not ENGINE_LOG.is_file():
        return False
    with ENGINE_LOG.open(encoding="utf-8", errors="replace") as lines:
        return any(line.startswith(_ON_SLURM) for line in lines.readlines(_BEGINNING))


@dataclass
class _Growing:
    """A file that another process appends lines to."""

    stream: BinaryIO
    _rest: bytes = b""

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last time."""
        *whole, self._rest = (self._rest + self.stream.read()).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]


@contextmanager
def shown(log: Path, events: Path, progress: RunProgress, stream: IO[str] = sys.stderr) -> Iterator[None]:
    """Show the progress by the plugin's growing `events` until the block ends.

    In a terminal one line is written over again; elsewhere a line is written now and then. Messages of dpfl in the
    engine's `log` are repeated. Both files have to be there.
    """
    ended = threading.Event()
    with log.open("rb") as said, events.open("rb") as happened:
        files = _Growing(said), _Growing(happened)
        watcher = threading.Thread(target=_watch, args=(*files, progress, stream, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            if stream.isatty():
                stream.write(_CLEAR)
                stream.flush()


def _watch(log: _Growing, events: _Growing, progress: RunProgress, stream: IO[str], ended: threading.Event) -> None:
    """Read the files as they grow, and write the line."""
    last, is_last = -_QUIET_SECONDS, False
    while not is_last:
        is_last, now = ended.wait(_POLL_SECONDS), time.monotonic()
        for line in events.lines():
            with suppress(ValueError):  # cut short where the disk was full
                progress.read(json.loads(line), now)
        for line in log.lines():
            if line.startswith(_OURS) and not line.startswith(INTERRUPTED):  # the run itself says that once
                stream.write(f"{_CLEAR if stream.isatty() else ''}{line}\n")
        if stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            stream.write(f"{_CLEAR}{progress.line(now)[:width]}")
            stream.flush()
        elif now - last >= _QUIET_SECONDS and progress.total:
            last = now
            print(progress.line(now), file=stream, flush=True)
