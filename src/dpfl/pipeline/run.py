"""Run the workflow: unlocked after a kill, with the cause of a failure at the end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from dpfl.errors import InputError
from dpfl.pipeline import plan, process_cleanup
from dpfl.pipeline.job_batches import put_all_back, put_back
from dpfl.pipeline.live_line import ENGINE_LOG, RunProgress, StartedJob, shown
from dpfl.pipeline.lock import is_stale, only_run
from dpfl.progress import duration
from snakemake_logger_plugin_dpfl import EVENTS

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# End a run that is asked to by SIGTERM: its SLURM jobs with it, and a Snakemake that waits for nothing.

PATIENCE_SECONDS = 240.0
"""Time that Snakemake has to see that its last job has ended: it asks SLURM every three minutes or more often."""
ASK_SECONDS = 5.0


class Ending:
    """End of a run that is asked to end: Snakemake submits nothing more, but waits for its jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next, self._empty_since = clock, float("inf"), float("inf")
        self._used_seconds = float("nan")

    def begin(self) -> None:
        """Begin to cancel jobs; call it at the first signal and at any other."""
        self._next = min(self._next, self._clock())

    def is_in_vain(self, snakemake: int) -> bool:
        """Cancel the SLURM jobs that are left; return whether Snakemake, with this process id, waits for none.

        It does if nothing of it has been in the queue or on this machine for PATIENCE_SECONDS: for a job that SLURM
        has forgotten it would wait for ever. Without SLURM it must have used no processor time either: it asks another
        batch system now and then, but a signal while it chooses jobs makes it wait for a lock of its own. False before
        `begin` and where the queue does not answer.
        """
        if (now := self._clock()) < self._next:
            return False
        self._next = now + ASK_SECONDS
        jobs = process_cleanup.queued(Path())
        if jobs:
            process_cleanup.cancel(jobs)
        before, self._used_seconds = self._used_seconds, _processor_seconds(snakemake)
        is_frozen = process_cleanup.has_submitted(Path()) or self._used_seconds == before
        if jobs != [] or not is_frozen or _has_stages(snakemake):
            self._empty_since = float("inf")
        else:
            self._empty_since = min(self._empty_since, now)
        return now - self._empty_since > PATIENCE_SECONDS


def _has_stages(snakemake: int) -> bool:
    """Return whether a stage of Snakemake runs on this machine."""
    try:
        return any(process_cleanup.is_alive(each.pid) for each in psutil.Process(snakemake).children(recursive=True))
    except psutil.NoSuchProcess:
        return False


def _processor_seconds(snakemake: int) -> float:
    """Return the processor time of Snakemake and of the stages that it has waited for; nan if it has ended."""
    try:
        return sum(psutil.Process(snakemake).cpu_times()[:4])
    except psutil.NoSuchProcess:
        return float("nan")


# Read the words that a user passes on to Snakemake, with Snakemake's own parser, before anything starts.

_CORES = ("cores", "jobs", "local_cores")
OURS = ("config", "configfile", "profile", "snakefile", "directory", "logger")
"""Options that `dpfl run` gives to Snakemake or that say what it works on: a second one would do so for the engine
alone."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of a run of Snakemake: `targets` that it is to make, whether it only asks (a dry run, a list, a graph, a
    summary or a report), and the options among `OURS` that are given."""

    targets: frozenset[str]
    only_asks: bool
    ours: tuple[str, ...]


def engine_options(words: Sequence[str]) -> EngineOptions:
    """Return what `words` say, in every spelling that Snakemake takes: attached (-c0), joined (-np), cut (--core).

    Raises InputError, one line, for an option that Snakemake does not have, a value that it cannot read, and fewer
    cores or jobs than one, for which it would wait for ever.
    """
    from snakemake.cli import get_argument_parser
    from snakemake.exceptions import CliException

    parser = get_argument_parser()
    # Its own would print the usage of 150 options, and end the process.
    parser.error = _refuse  # pyright: ignore[reportAttributeAccessIssue]
    try:
        known = parser.parse_args(list(words))
    except InputError:
        raise
    except (CliException, ValueError) as error:
        _refuse(str(error))
    for name in _CORES:
        number = getattr(known, name)
        if number is not None and number < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {number}")
    usual = parser.parse_args([])  # what the environment says (SNAKEMAKE_PROFILE) was not said in words
    ours = tuple(f"--{name}" for name in OURS if getattr(known, name) != getattr(usual, name))
    asks = known.dryrun or known.executor == "dryrun"
    asks = asks or any(getattr(known, name) != getattr(usual, name) for name in _QUESTIONS)
    asks = asks and not known.report_after_run
    return EngineOptions(frozenset(known.targets), asks, ours)


_QUESTIONS = (
    "list_rules", "list_target_rules", "list_changes", "list_input_changes", "list_params_changes", "list_untracked",
    "dag", "rulegraph", "filegraph", "d3dag", "summary", "detailed_summary", "lint", "report",
)  # fmt: skip
"""Options with which Snakemake answers and makes no file of a rule; `dpfl.pipeline.lock` knows their words."""


def _refuse(reason: str) -> NoReturn:
    """Raise InputError with what Snakemake says about its options."""
    raise InputError(f"options for Snakemake cannot be used: {' '.join(reason.split())}") from None


_LAST_LINES = 5
_POLL_SECONDS = 1.0
_LEAST_BYTES = 1 << 20
_LAST_ENGINE_LINES = 15
_NOT_MADE = re.compile(r"^No rule to produce (.+) \(", re.MULTILINE)
"""What Snakemake says of a target that no rule makes."""
_LOGGER = ["--logger", "dpfl"]
"""The plugin that says what happens to the jobs: snakemake_logger_plugin_dpfl."""


_INTERRUPTED = 130
"""Exit status of a run that Ctrl-C has ended, as shells have it."""


def run(
    arguments: list[str],
    *,
    again: str,
    results: Path | None = None,
    jobs: Sequence[TrainingJob] = (),
    forced: Callable[[], list[str]] = list,
    progress: RunProgress | None = None,
    what: str = "the run",
) -> int:
    """Run Snakemake with what `forced` returns and `arguments` in the working folder; return its exit status.

    Raises InputError if another run is in progress here, where the folder has no Snakefile, for options that
    Snakemake cannot use, and for a target that no rule makes. A dry run or a question, however it is spelled, takes no
    lock and removes nothing. A lock that a killed run left is removed first, and so are damaged pages below `results`:
    Snakemake makes them again. Of `jobs`, those that a batch had finished before it was ended are put back into
    `results`, before and after; `forced` is asked in between, when it is known what is open. Snakemake's lines go
    to ENGINE_LOG, its events to EVENTS, and one line says how far the run is. On failure the last lines on standard
    error name the rules that failed, the end of their logs, and `again`, the command to continue with; else it says
    how long `what` took.
    """
    if not Path("Snakefile").is_file():
        raise InputError("no Snakefile here: run dpfl in the folder of the project")
    plan.require_no_brace(Path.cwd())
    snakemake = [sys.executable, "-m", "snakemake"]
    if engine_options(arguments).only_asks:
        return subprocess.run([*snakemake, *forced(), *arguments], check=False).returncode
    from dpfl.provenance.audit.files import remove_damaged_pages  # takes long to import, and plans do without

    with only_run() as lock:
        if is_stale():
            print("dpfl: an earlier run was killed here; its lock is removed", file=sys.stderr)
            subprocess.run([*snakemake, *arguments, "--unlock"], check=False, capture_output=True)
        if results is not None and (damaged := remove_damaged_pages(results)):
            print(f"dpfl: {len(damaged)} files of damaged pages are made anew, as {damaged[0]}", file=sys.stderr)
        # Before the copies go: a batch that is cancelled deletes the run tables that it has finished.
        process_cleanup.cancel_left_behind(Path())
        if results is not None:
            put_all_back(jobs, results)
        progress = progress or RunProgress({}, 1)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # jobs call `dpfl`
        environment = {**os.environ, "PATH": path}
        began = time.monotonic()
        EVENTS.write_bytes(b"")  # an earlier run has left its events
        with ENGINE_LOG.open("wb") as lines, shown(ENGINE_LOG, EVENTS, progress):
            words = [*snakemake, *_LOGGER, *forced(), *arguments]
            process = subprocess.Popen(words, env=environment, pass_fds=[lock], stdout=lines, stderr=lines)
            status = _wait(process)
        if results is not None and status >= 0:
            _put_back_after_the_last_job(jobs, results, status)
        if status == _INTERRUPTED:
            return status  # the command line says so, once
        if status and (unknown := _NOT_MADE.search(ENGINE_LOG.read_text(encoding="utf-8", errors="replace"))):
            raise InputError(f"nothing makes {unknown[1]}: a target is download, or a file that a stage makes")
        if status:
            _explain_failure(status, list(progress.failed.values()), again)
        else:
            took = duration(time.monotonic() - began)
            print(f"dpfl: {what} took {took}; the engine's lines are in {ENGINE_LOG}", file=sys.stderr)
    return status


def _put_back_after_the_last_job(jobs: Sequence[TrainingJob], results: Path, status: int) -> None:
    """Put finished run tables back once no job is left that could delete them; else the next run does.

    Of another batch system than SLURM it is not known when jobs that were cancelled have ended: the copies stay.
    """
    if status and not process_cleanup.has_submitted(Path()):
        for job in jobs:
            put_back(job, results)
        return
    try:
        process_cleanup.cancel_left_behind(Path(), "this run leaves")
    except InputError as error:
        print(f"dpfl: {error}; until then finished run tables are in checkpoints", file=sys.stderr)
    else:
        put_all_back(jobs, results)


def _explain_failure(status: int, failed: Sequence[StartedJob], again: str) -> None:
    """Print why Snakemake ended with `status`: the jobs that `failed`, and the command to continue with."""
    if status < 0:
        print(f"dpfl: Snakemake was ended by {signal.Signals(-status).name}", file=sys.stderr)
    for line in list(explain(failed)) or _last_lines(ENGINE_LOG, _LAST_ENGINE_LINES):
        print(line, file=sys.stderr)
    if shutil.disk_usage(Path()).free < _LEAST_BYTES:
        print(f"dpfl: the disk of {Path().absolute()} is full: make room first", file=sys.stderr)
    print(f"dpfl: not finished; what is done is kept. Continue with: {again}", file=sys.stderr)


def explain(failed: Iterable[StartedJob]) -> Iterator[str]:
    """Yield, for each job that failed, the name of its rule and the last lines of its log."""
    for job in failed:
        yield f"dpfl: rule {job.rule} failed" + (f"; {job.logs[0]} ends with:" if job.logs else "")
        for log in job.logs[:1]:
            yield from (f"  {line}" for line in _last_lines(log, _LAST_LINES))


def _last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, none where it is missing."""
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:] if path.is_file() else []


def _wait(process: subprocess.Popen) -> int:
    """Wait for Snakemake; return its status, 130 where it failed after Ctrl-C.

    Pass SIGTERM on to it, each time it comes, and cancel its SLURM jobs from then on.

    Snakemake then waits for the end of its jobs. One that SLURM has forgotten never ends: if Snakemake waits for
    nothing that there is, it is killed.
    """
    ending, interrupts = Ending(), []

    def forward(number: int, _frame: object) -> None:
        ending.begin()
        process.send_signal(number)

    # Ctrl-C in a terminal reaches the entire process group: only a SIGTERM has to be passed on.
    old = {signal.SIGTERM: signal.signal(signal.SIGTERM, forward)}
    old[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        while True:
            try:
                status = process.wait(_POLL_SECONDS)
                return _INTERRUPTED if status and interrupts else status
            except subprocess.TimeoutExpired:
                if ending.is_in_vain(process.pid):
                    print("dpfl: Snakemake waits for nothing that there is; it is killed", file=sys.stderr)
                    process.kill()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
