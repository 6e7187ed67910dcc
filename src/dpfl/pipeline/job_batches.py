"""Batches of short training jobs, one job of the cluster each: their division, and their training side by side."""

from __future__ import annotations

import heapq
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpfl.files import record_path, replacing, write_atomically
from dpfl.grid import expansion
from dpfl.pipeline.cost import ATTEMPTS, JOB_SECONDS, MEMORY_MARGIN, Cost, JobLimits, UnitCost, beside, estimate
from dpfl.pipeline.process_cleanup import CONTROLLER, WATCHED
from dpfl.provenance.run_identity import is_finished

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Divide short jobs among batches: each is one job of the cluster, which trains its members side by side.


@dataclass(frozen=True)
class Batch(JobLimits):
    """Jobs of one paper and dataset that one job of the cluster trains, as many at the same time as it has `cores`."""

    label: str
    jobs: tuple[TrainingJob, ...]
    cores: int
    seconds: float
    memory_mb: float

    @property
    def rule(self) -> str:
        """The name of the rule that trains the batch."""
        return f"train_{self.label}"

    @property
    def paper(self) -> str:
        """The key of the jobs' paper."""
        return self.jobs[0].paper


def divide(
    jobs: Iterable[TrainingJob], cores: int, memory_mb: float = math.inf, units: Mapping[str, UnitCost] | None = None
) -> tuple[list[Batch], list[TrainingJob]]:
    """Return batches of the short jobs, and the jobs that are trained alone.

    `cores`: of a batch, and so the jobs that it trains at the same time; with one there are no batches. A batch has
    jobs of one paper and dataset, work of about JOB_SECONDS a core, and takes at most `memory_mb`. `units` replaces
    the shipped unit costs.
    """
    alone: list[TrainingJob] = []
    short: dict[tuple[str, str], list[TrainingJob]] = {}
    costs = {}
    for job in jobs:
        cost = costs[id(job)] = estimate(job, units)
        fits = cores > 1 and cost.is_short and cost.limit_mb(ATTEMPTS) <= memory_mb
        (short.setdefault((job.paper, job.dataset), []) if fits else alone).append(job)
    batches = []
    for (paper, dataset), members in short.items():
        members.sort(key=lambda job: (-costs[id(job)].seconds, job.name))
        chunks = _chunks([costs[id(job)].seconds for job in members], cores * JOB_SECONDS)
        for number, chunk in enumerate(chunks):
            taken = members[chunk.start : chunk.stop]
            if len(taken) == 1:
                alone += taken
            else:
                needed = [costs[id(job)] for job in taken]
                batches.append(_batch(f"{paper}_{dataset}_{number}", taken, needed, cores, memory_mb))
    return batches, alone


def _batch(label: str, jobs: list[TrainingJob], costs: list[Cost], cores: int, memory_mb: float) -> Batch:
    """Return a batch that has as many cores as its memory allows, at most `cores` and one for each job."""
    largest = sorted((cost.memory_mb for cost in costs), reverse=True)
    room = memory_mb / (MEMORY_MARGIN * largest[0])
    at_once = int(min(cores, len(jobs), room))
    seconds = makespan([beside(cost.seconds, at_once) for cost in costs], at_once)
    return Batch(label, tuple(jobs), at_once, seconds, sum(largest[:at_once]))


def _chunks(seconds: list[float], limit: float) -> list[range]:
    """Return ranges of neighbours whose sums are about equal, each of at most about `limit`."""
    count = max(1, math.ceil(sum(seconds) / limit))
    ends, total, cuts = sum(seconds) / count, 0.0, [0]
    for index, each in enumerate(seconds):
        if total >= ends * len(cuts) - 1e-9 and len(cuts) < count:
            cuts.append(index)
        total += each
    return [range(start, stop) for start, stop in zip(cuts, [*cuts[1:], len(seconds)], strict=True) if stop > start]


def makespan(seconds: Iterable[float], at_once: int) -> float:
    """Return the seconds until all jobs are done, `at_once` in parallel, the longest first."""
    ends = [0.0] * at_once
    for each in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + each)
    return max(ends)


def write(batches: Iterable[Batch], cores: Mapping[tuple[str, str], int], path: Path) -> None:
    """Write the composition of batches, and the `cores` of jobs that are trained alone, for jobs on other nodes."""
    stated = [[batch.label, [[s.paper, s.name] for s in batch.jobs], batch.cores] for batch in batches]
    alone = [[*key, count] for key, count in cores.items() if count > 1]
    write_atomically(path, json.dumps({"batches": stated, "cores": alone}, indent=1) + "\n")


def read(path: Path, jobs: Mapping[tuple[str, str], TrainingJob]) -> tuple[list[Batch], dict[tuple[str, str], int]]:
    """Return what `write` has written: the batches, without what they need, and the cores of jobs that have more than
    one; nothing if there is no file."""
    if not path.is_file():
        return [], {}
    stated = json.loads(path.read_text(encoding="utf-8"))
    known = [
        (label, [jobs[tuple(key)] for key in keys if tuple(key) in jobs], cores)
        for label, keys, cores in stated["batches"]
    ]
    batches = [Batch(label, tuple(members), cores, 0.0, 0.0) for label, members, cores in known if members]
    return batches, {(paper, name): count for paper, name, count in stated["cores"]}


# Train the jobs of a batch side by side; none that is finished is trained again, however the batch was ended.
#
# Snakemake deletes all outputs of a job that fails or is requeued. So a batch keeps a copy of each finished run table
# in a folder that Snakemake does not know, and a batch that starts again takes it from there.

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 20.0


@dataclass
class BatchTraining:
    """The jobs that are to be trained, those in training, and how they ended."""

    results: Path
    config: Path
    at_once: int
    waiting: deque[TrainingJob]
    running: dict[int, _Process] = field(default_factory=dict)
    trained: list[TrainingJob] = field(default_factory=list)
    failed: list[TrainingJob] = field(default_factory=list)

    @classmethod
    def of(cls, jobs: Iterable[TrainingJob], results: Path, config: Path, at_once: int) -> BatchTraining:
        """Return a training of these jobs for results/<scale>, `at_once` at a time; `config`: for their commands."""
        return cls(results, config, at_once, deque(jobs))

    def run(self) -> None:
        """Train all, `at_once` at a time, the first first. Ends the processes that train however it is left."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.at_once:
                    self._start(self.waiting.popleft())
                self._reap()
        finally:
            self._end_all()

    def _start(self, job: TrainingJob) -> None:
        """Start the training of a job, unless it is finished already."""
        put_back(job, self.results)
        if is_finished(job, self.results):
            _say(job, "was finished before")
            keep(job, self.results)
            return
        process = _Process.of(job, self.results, self.config)
        self.running[process.popen.pid] = process

    def _reap(self) -> None:
        """Take the next process that has ended off the list, or wait a moment."""
        for pid, process in list(self.running.items()):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended:
                continue
            del self.running[pid]
            code = process.popen.returncode = os.waitstatus_to_exitcode(status)
            if code == 0 and is_finished(process.job, self.results):
                process.write_benchmark(self.results, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
                keep(process.job, self.results)
                self.trained.append(process.job)
                _say(process.job, f"trained in {time.monotonic() - process.started:.0f} s")
            else:
                self.failed.append(process.job)
                log = expansion.training_log(self.results, process.job.paper, process.job.name)
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
                _say(process.job, f"failed with exit status {code}; {log} ends with: {lines[-1] if lines else '-'}")
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
    """The process that trains a job."""

    job: TrainingJob
    popen: subprocess.Popen
    started: float

    @classmethod
    def of(cls, job: TrainingJob, results: Path, config: Path) -> _Process:
        """Start a process for a job; its messages go into its own log."""
        command = [sys.executable, "-m", "dpfl", "train", "--paper", job.paper, "--job", job.name]
        log = expansion.training_log(results, job.paper, job.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, CONTROLLER: str(os.getpid()), WATCHED: "1"}
        with log.open("wb") as stream:
            popen = subprocess.Popen([*command, "--config", str(config)], stderr=stream, env=environment)
        return cls(job, popen, time.monotonic())

    def write_benchmark(self, results: Path, processor_seconds: float, memory_mb: float) -> None:
        """Write what Snakemake does for a job of its own: time on the clock, memory, processor time."""
        taken = time.monotonic() - self.started
        text = f"s\tmax_rss\tcpu_time\n{taken:.4f}\t{memory_mb:.2f}\t{processor_seconds:.2f}\n"
        write_atomically(expansion.training_benchmark(results, self.job.paper, self.job.name), text)


def kept_folder(results: Path) -> Path:
    """Return where results/<scale> keeps copies of the run tables of batches that have not ended."""
    return results.absolute().parents[1] / "checkpoints" / results.name


def keep(job: TrainingJob, results: Path) -> None:
    """Copy a job's run table and its record to where Snakemake does not delete them; the record last."""
    table = expansion.run_table_path(results, job.paper, job.name)
    copied = expansion.run_table_path(kept_folder(results), job.paper, job.name)
    for source, target in ((table, copied), (record_path(table), record_path(copied))):
        _copy(source, target)


def put_back(job: TrainingJob, results: Path) -> None:
    """Copy a kept run table and its record back where results/<scale> has lost one of them."""
    table = expansion.run_table_path(results, job.paper, job.name)
    kept = expansion.run_table_path(kept_folder(results), job.paper, job.name)
    pairs = ((kept, table), (record_path(kept), record_path(table)))
    if all(source.is_file() for source, _ in pairs) and not all(target.exists() for _, target in pairs):
        for source, target in pairs:
            _copy(source, target)


def put_all_back(jobs: Sequence[TrainingJob], results: Path) -> None:
    """Copy the kept run tables of these jobs back, and remove the copies; nothing may be training.

    Those of other jobs stay: a run of a narrower configuration has no use for them, a later one may.
    """
    for job in jobs:
        put_back(job, results)
        kept = expansion.run_table_path(kept_folder(results), job.paper, job.name)
        for path in (kept, record_path(kept)):
            path.unlink(missing_ok=True)
    for folder in (*kept_folder(results).glob("runs/*"), kept_folder(results) / "runs", kept_folder(results)):
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()


def _copy(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def _say(job: TrainingJob, what: str) -> None:
    """Print one line about a job."""
    print(f"{job.paper}/{job.name}: {what}", file=sys.stderr, flush=True)
