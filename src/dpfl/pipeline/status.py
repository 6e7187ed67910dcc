"""State of a scale's results: finished stages, running, resumable, failed and waiting jobs, and the time left."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from dpfl.catalog import load
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.pipeline import job_batches, lock, process_cleanup
from dpfl.pipeline.cost import ATTEMPTS, estimate, read_benchmark
from dpfl.pipeline.job_batches import kept_folder
from dpfl.pipeline.live_line import is_on_slurm, said_left
from dpfl.pipeline.plan import Stage, open_stages, stages
from dpfl.pipeline.process_cleanup import GONE, INTERRUPTED
from dpfl.pipeline.run import engine_options
from dpfl.progress import duration, is_progress
from dpfl.provenance import run_identity

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Ask before a run what of it is finished: noise that has to be calibrated anew first, targets that are there.


def noise_made_anew(config: Mapping[str, Any]) -> list[Path]:
    """Return the tables of noise that have to be made again before it is known which jobs are finished.

    They are those of papers with run tables here, whose noise is not what today's code and configuration give. Where
    it comes out the same, the runs stay finished.
    """
    folder, jobs = configuration.results_folder(config), expansion.expand(config)
    tables = []
    for paper in config["papers"]:
        own = [job for job in jobs if job.paper == paper]
        table = expansion.noise_table_path(folder, paper)
        has_runs = any(expansion.run_table_path(folder, paper, job.name).exists() for job in own)
        if has_runs and not run_identity.is_calibrated(own, table):
            tables.append(table)
    return tables


def without_finished(options: Sequence[str], config: Mapping[str, Any]) -> list[str] | None:
    """Return Snakemake's options without the run tables and records that they name and that are finished, or None where
    no target is left.

    Each of those is named on standard error. No rule makes what is finished, so Snakemake would not know it.
    """
    folder = configuration.results_folder(config)
    done = {str(path) for path in _finished(expansion.expand(config), folder, set(map(os.path.normpath, options)))}
    for target in sorted(done):
        print(f"dpfl: {target} is finished: training it again would give the same", file=sys.stderr)
    left = [word for word in options if os.path.normpath(word) not in done]
    return left if not done or engine_options(left).targets else None


def _finished(jobs: Iterable[TrainingJob], folder: Path, named: set[str]) -> list[Path]:
    found = []
    for job in jobs:
        table = expansion.run_table_path(folder, job.paper, job.name)
        files = [path for path in (table, record_path(table)) if str(path) in named]
        if files and run_identity.is_finished(job, folder):
            found += files
    return found


# Report the state of a scale's results: done, running, resumable, failed, waiting, and the time left.

_TRAINING_RULES = ("train", "train_gpu")
_RUNS, _WAITS = "RUNNING", "PENDING"  # as SLURM says it
_INTERRUPTED = (GONE, INTERRUPTED)
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception)\b")  # the last line of a traceback
_FINDINGS = re.compile(r"\d+ files checked, [1-9]\d* findings")


class JobState(StrEnum):
    """State of a job."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    RESUMABLE = "resumable"
    WAITING = "waiting"


@dataclass(frozen=True)
class JobStatus:
    """A job, its state, and the last line of its log where that says more."""

    job: TrainingJob
    state: JobState
    last_line: str = ""


def job_status(
    job: TrainingJob, folder: Path, running_since: float | None, on_nodes: Mapping[tuple[str, str], str] | None = None
) -> JobStatus:
    """Return the state of a job of results/<scale>; `running_since`: when the current run began, if there is one.

    `on_nodes`: the states of a cluster's jobs by training job (paper, name), if there is one. Elsewhere a job runs
    as long as its log is younger than a job's time limit.
    """
    if run_identity.is_finished(job, folder):
        return JobStatus(job, JobState.DONE)
    log = expansion.training_log(folder, job.paper, job.name)
    of_this_run = running_since is not None and log.exists() and log.stat().st_mtime >= running_since
    last = _last_line(log)
    is_tried_again = on_nodes is not None and on_nodes.get((job.paper, job.name)) == _WAITS
    if _is_failure(last) and (of_this_run or running_since is None) and not is_tried_again:
        return JobStatus(job, JobState.FAILED, last)
    if of_this_run and _is_at_work(job, log, on_nodes):
        return JobStatus(job, JobState.RUNNING, last if is_progress(last) else "")
    kept = (Path("checkpoints") / folder.name / job.paper).glob("*.pt")
    resumable = any(checkpoint.name.startswith(f"{job.name}-") for checkpoint in kept)
    return JobStatus(job, JobState.RESUMABLE if resumable else JobState.WAITING)


def _is_at_work(job: TrainingJob, log: Path, on_nodes: Mapping[tuple[str, str], str] | None) -> bool:
    """Return whether a job whose log belongs to the current run is in training still."""
    if on_nodes is not None:
        return on_nodes.get((job.paper, job.name)) == _RUNS
    return time.time() - log.stat().st_mtime < 60 * estimate(job).limit_minutes(ATTEMPTS)


def jobs_on_nodes(jobs: list[TrainingJob], folder: Path) -> dict[tuple[str, str], str] | None:
    """Return the states of the SLURM jobs that train, by training job (paper, name), of a workflow in this folder.

    None where the workflow is not on SLURM, or the queue does not answer.
    """
    queued = process_cleanup.queued(Path())
    if queued is None or not (queued or is_on_slurm()):
        return None
    states = {comment: state for _, state, comment in queued}
    known = {(job.paper, job.name): job for job in jobs}
    comments = {f"rule_{rule}_wildcards_{'_'.join(key)}": [key] for key in known for rule in _TRAINING_RULES}
    batched, _ = job_batches.read(kept_folder(folder) / "batches.json", known)
    for batch in batched:
        members = [(job.paper, job.name) for job in batch.jobs]
        comments[f"rule_{batch.rule}_wildcards_{batch.paper}"] = members
    return {key: states[comment] for comment, keys in comments.items() if comment in states for key in keys}


def lines(config: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each paper, open job and failed stage of the configuration's scale, and the time left.

    Data and features have a line of their own, and count in the time left as all stages do.
    """
    folder = configuration.results_folder(config)
    jobs = expansion.expand(config)
    since = lock.running_since()
    on_nodes = jobs_on_nodes(jobs, folder) if since is not None else None
    open_jobs: list[JobStatus] = []
    timed: list[tuple[TrainingJob, float]] = []
    for paper in config["papers"]:
        known = [job_status(job, folder, since, on_nodes) for job in jobs if job.paper == paper]
        unfinished = [each for each in known if each.state is not JobState.DONE]
        parts = [f"jobs {len(known) - len(unfinished)}/{len(known)}"]
        for kind in ("tables", "figures"):
            names = getattr(load(paper), kind)
            done = sum(expansion.page_path(folder, kind, paper, name).exists() for name in names)
            parts.append(f"{kind} {done}/{len(names)}")
        judged = expansion.verdicts_path(folder, paper).exists()
        parts.append("claims done" if judged else "claims open")
        if judged and unfinished:
            parts.append("pages without the open jobs")
        yield f"{paper}: {', '.join(parts)}"
        for each in unfinished:
            yield f"  {each.job.name}: {each.state}{f' ({each.last_line})' if each.last_line else ''}"
        open_jobs += unfinished
        for each in (done for done in known if done.state is JobState.DONE):
            took = read_benchmark(expansion.training_benchmark(folder, paper, each.job.name)).seconds
            if not math.isnan(took):
                timed.append((each.job, took))
    yield _prepared(stages(config, jobs))
    yield from _other_failures([Path(config["data"]["folder"]), folder], since)
    yield _run_in_progress(since)
    others = open_stages(config, [each.job for each in open_jobs])
    if open_jobs or others:
        yield _time_left(open_jobs, timed, others, folder)


def _run_in_progress(since: float | None) -> str:
    """Return whether a run is in progress, and where its states come from the times of logs alone, that they do."""
    if since is None:
        return "no run is in progress here"
    unknown = is_on_slurm() and process_cleanup.queued(Path()) is None
    by_logs = "; squeue fails, so jobs are running by the times of their logs" if unknown else ""
    return f"a run is in progress here{by_logs}"


def _prepared(known: list[Stage]) -> str:
    """Return how many datasets and features are prepared, of those that the jobs need."""
    parts = []
    for rule in ("arrays", "features"):
        outputs = [stage.is_done for stage in known if stage.rule == rule]
        parts.append(f"{rule} {sum(outputs)}/{len(outputs)}")
    return f"data: {', '.join(parts)}"


def _other_failures(folders: list[Path], running_since: float | None) -> Iterator[str]:
    """Yield a line for each stage other than training whose log ends with an error; a run in progress retries it."""
    for log in (path for folder in folders for path in sorted((folder / "logs").glob("*.log"))):
        again = running_since is not None and log.stat().st_mtime < running_since
        if not (log.name.startswith("train_") or again) and _is_failure(last := _last_line(log)):
            yield f"{log.stem}: {JobState.FAILED} ({last})"


def _is_failure(line: str) -> bool:
    """Return whether a log's last line is that of a failed stage; an interrupted one did not fail."""
    is_message = line.startswith("dpfl: ") and not line.startswith(_INTERRUPTED)
    return is_message or _ERROR.match(line) is not None or _FINDINGS.fullmatch(line) is not None


def _last_line(path: Path) -> str:
    """Return the last line of a file that is not blank."""
    return next((line for line in reversed(_text(path).splitlines()) if line.strip()), "")


def _time_left(
    open_jobs: list[JobStatus], timed: list[tuple[TrainingJob, float]], others: list[Stage], folder: Path
) -> str:
    """Return the time that all open jobs take one after the other.

    A job that runs takes what its log says. Another takes as long as finished ones of its calibration key, else what
    the cost model says, as other stages do, at the speed of this machine. `timed`: finished jobs of this scale with the
    seconds that they took, which tell that speed.
    """
    by_key: dict[tuple[str, str], list[float]] = {}
    for job, took in timed:
        by_key.setdefault((job.paper, job.calibration_key), []).append(took)
    modelled = sum(estimate(job).seconds for job, _ in timed)
    slowdown = sum(took for _, took in timed) / modelled if modelled else 1.0
    left, by_model = slowdown * sum(stage.seconds for stage in others), len(others)
    alike: dict[tuple[str, str, int], list[TrainingJob]] = {}
    for each in open_jobs:
        log = expansion.training_log(folder, each.job.paper, each.job.name)
        said = said_left(log) if each.state is JobState.RUNNING else None
        if said is None:
            alike.setdefault((each.job.paper, each.job.calibration_key, len(each.job.seeds)), []).append(each.job)
        else:
            left += said
    for (paper, key, _), jobs in alike.items():
        known = by_key.get((paper, key))
        left += len(jobs) * (mean(known) if known else slowdown * estimate(jobs[0]).seconds)
        by_model += 0 if known else len(jobs)
    modelled_jobs = f" ({by_model} jobs by the cost model)" if by_model else ""
    return f"left, one job at a time: about {duration(left)}{modelled_jobs}"


def _text(path: Path) -> str:
    """Return a file's text, empty where the file is missing."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
