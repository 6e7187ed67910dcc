"""Train the sweeps of a batch side by side; none that is finished is trained again, however the batch was ended.

Snakemake deletes all outputs of a job that fails or is requeued. So a batch keeps a copy of each finished run table in
a folder that Snakemake does not know, and a batch that starts again takes it from there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dpfl.files import record_path, replacing, write_atomically
from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.pipeline.orphans import CONTROLLER
from dpfl.pipeline.time_limit import WATCHED
from dpfl.provenance.run_identity import is_finished

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 20.0


@dataclass
class BatchTraining:
    """The sweeps that are to be trained, those in training, and how they ended."""

    results: Path
    config: Path
    at_once: int
    waiting: deque[Sweep]
    running: dict[int, _Process] = field(default_factory=dict)
    trained: list[Sweep] = field(default_factory=list)
    failed: list[Sweep] = field(default_factory=list)

    @classmethod
    def of(cls, sweeps: Iterable[Sweep], results: Path, config: Path, at_once: int) -> BatchTraining:
        """Return a training of these sweeps for results/<scale>, `at_once` at a time; `config`: for their commands."""
        return cls(results, config, at_once, deque(sweeps))

    def run(self) -> None:
        """Train all, `at_once` at a time, the first first. Ends the processes that train however it is left."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.at_once:
                    self._start(self.waiting.popleft())
                self._reap()
        finally:
            self._end_all()

    def _start(self, sweep: Sweep) -> None:
        """Start the training of a sweep, unless it is finished already."""
        put_back(sweep, self.results)
        if is_finished(sweep, self.results):
            _say(sweep, "was finished before")
            keep(sweep, self.results)
            return
        process = _Process.of(sweep, self.results, self.config)
        self.running[process.popen.pid] = process

    def _reap(self) -> None:
        """Take the next process that has ended off the list, or wait a moment."""
        for pid, process in list(self.running.items()):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended:
                continue
            del self.running[pid]
            code = process.popen.returncode = os.waitstatus_to_exitcode(status)
            if code == 0 and is_finished(process.sweep, self.results):
                process.write_benchmark(self.results, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
                keep(process.sweep, self.results)
                self.trained.append(process.sweep)
                _say(process.sweep, f"trained in {time.monotonic() - process.started:.0f} s")
            else:
                self.failed.append(process.sweep)
                log = expansion.training_log(self.results, process.sweep.paper, process.sweep.name)
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
                _say(process.sweep, f"failed with exit status {code}; {log} ends with: {lines[-1] if lines else '-'}")
            return
        time.sleep(_POLL_SECONDS)

    def _end_all(self) -> None:
        """Ask the processes that still train to end, and wait for their end; kill what does not."""
        for process in self.running.values():
            process.popen.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in self.running.values():
            try:
                process.popen.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()


@dataclass(frozen=True)
class _Process:
    """The process that trains a sweep."""

    sweep: Sweep
    popen: subprocess.Popen
    started: float

    @classmethod
    def of(cls, sweep: Sweep, results: Path, config: Path) -> _Process:
        """Start a process for a sweep; its messages go into the sweep's own log."""
        command = [sys.executable, "-m", "dpfl", "train", "--paper", sweep.paper, "--sweep", sweep.name]
        log = expansion.training_log(results, sweep.paper, sweep.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, CONTROLLER: str(os.getpid()), WATCHED: "1"}
        with log.open("wb") as stream:
            popen = subprocess.Popen([*command, "--config", str(config)], stderr=stream, env=environment)
        return cls(sweep, popen, time.monotonic())

    def write_benchmark(self, results: Path, processor_seconds: float, memory_mb: float) -> None:
        """Write what Snakemake does for a job of its own: time on the clock, memory, processor time."""
        taken = time.monotonic() - self.started
        text = f"s\tmax_rss\tcpu_time\n{taken:.4f}\t{memory_mb:.2f}\t{processor_seconds:.2f}\n"
        write_atomically(expansion.training_benchmark(results, self.sweep.paper, self.sweep.name), text)


def kept_folder(results: Path) -> Path:
    """Return where results/<scale> keeps copies of the run tables of batches that have not ended."""
    return results.absolute().parents[1] / "checkpoints" / results.name


def keep(sweep: Sweep, results: Path) -> None:
    """Copy a sweep's run table and its record to where Snakemake does not delete them; the record last."""
    table = expansion.run_table(results, sweep.paper, sweep.name)
    copied = expansion.run_table(kept_folder(results), sweep.paper, sweep.name)
    for source, target in ((table, copied), (record_path(table), record_path(copied))):
        _copy(source, target)


def put_back(sweep: Sweep, results: Path) -> None:
    """Copy a kept run table and its record back where results/<scale> has lost one of them."""
    table = expansion.run_table(results, sweep.paper, sweep.name)
    kept = expansion.run_table(kept_folder(results), sweep.paper, sweep.name)
    pairs = ((kept, table), (record_path(kept), record_path(table)))
    if all(source.is_file() for source, _ in pairs) and not all(target.exists() for _, target in pairs):
        for source, target in pairs:
            _copy(source, target)


def put_all_back(sweeps: Sequence[Sweep], results: Path) -> None:
    """Copy the kept run tables of these sweeps back, and remove the copies; nothing may be training.

    Those of other sweeps stay: a run of a narrower configuration has no use for them, a later one may.
    """
    for sweep in sweeps:
        put_back(sweep, results)
        kept = expansion.run_table(kept_folder(results), sweep.paper, sweep.name)
        for path in (kept, record_path(kept)):
            path.unlink(missing_ok=True)
    for folder in (*kept_folder(results).glob("runs/*"), kept_folder(results) / "runs", kept_folder(results)):
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()


def _copy(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def _say(sweep: Sweep, what: str) -> None:
    """Print one line about a sweep."""
    print(f"{sweep.paper}/{sweep.name}: {what}", file=sys.stderr, flush=True)
