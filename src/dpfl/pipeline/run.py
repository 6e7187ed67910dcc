"""Run the workflow: one run at a time, unlocked after a kill, with the cause of a failure at the end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dpfl.errors import InputError
from dpfl.grid.sweep import Sweep
from dpfl.pipeline import orphans, patterns
from dpfl.pipeline.batch_training import put_all_back, put_back
from dpfl.pipeline.ending import Ending
from dpfl.pipeline.engine_options import engine_options
from dpfl.pipeline.live_line import ENGINE_LOG, RunProgress, shown
from dpfl.pipeline.lock import is_stale, only_run
from dpfl.progress import duration
from dpfl.provenance.audit.mending import remove_damaged_pages

_LOGS = Path(".snakemake") / "log"
_LAST_LINES = 5
_POLL_SECONDS = 1.0
_LEAST_BYTES = 1 << 20
_LAST_ENGINE_LINES = 15
_FAILED = re.compile(r"^(?:Error in|RuleException in) rule (\w+)", re.MULTILINE)
_LOG = re.compile(r"^ +log: (.+?)(?: \(check log file\(s\) for error details\))?$", re.MULTILINE)


_INTERRUPTED = 130
"""Exit status of a run that Ctrl-C has ended, as shells have it."""


def run(
    arguments: list[str],
    *,
    again: str,
    results: Path | None = None,
    sweeps: Sequence[Sweep] = (),
    forced: Callable[[], list[str]] = list,
    progress: RunProgress | None = None,
    what: str = "the run",
) -> int:
    """Run Snakemake with what `forced` returns and `arguments` in the working folder; return its exit status.

    Raises InputError where another run is in progress here, where the folder has no Snakefile, and for options that
    Snakemake cannot use. A dry run, however it is spelled, takes no lock and removes nothing. A lock that a killed run
    left is removed first, and so are damaged pages below `results`: Snakemake makes them anew. Of `sweeps`, those that
    a batch had finished before it was ended are put back into `results`, before and after; `forced` is asked in
    between, when it is known what is open. Snakemake's lines go to ENGINE_LOG, and one line says how far the run is. On
    failure the last lines on standard error name the rules that failed, the end of their logs, and `again`, the command
    to continue with; else it says how long `what` took.
    """
    if not Path("Snakefile").is_file():
        raise InputError("no Snakefile here: run dpfl in the folder of the project")
    patterns.require_no_brace(Path.cwd())
    snakemake = [sys.executable, "-m", "snakemake"]
    if engine_options(arguments).is_dry_run:
        return subprocess.run([*snakemake, *forced(), *arguments], check=False).returncode
    with only_run() as lock:
        if is_stale():
            print("dpfl: an earlier run was killed here; its lock is removed", file=sys.stderr)
            subprocess.run([*snakemake, *arguments, "--unlock"], check=False, capture_output=True)
        if results is not None and (damaged := remove_damaged_pages(results)):
            print(f"dpfl: {len(damaged)} files of damaged pages are made anew, as {damaged[0]}", file=sys.stderr)
        # Before the copies go: a batch that is cancelled deletes the run tables that it has finished.
        orphans.cancel_left_behind(Path())
        if results is not None:
            put_all_back(sweeps, results)
        before = set(_LOGS.glob("*.snakemake.log"))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # jobs call `dpfl`
        environment = {**os.environ, "PATH": path}
        began = time.monotonic()
        with ENGINE_LOG.open("wb") as lines, shown(ENGINE_LOG, progress or RunProgress({}, 1)):
            words = [*snakemake, *forced(), *arguments]
            process = subprocess.Popen(words, env=environment, pass_fds=[lock], stdout=lines, stderr=lines)
            status = _wait(process)
        if results is not None and status >= 0:
            _put_back_after_the_last_job(sweeps, results, status)
        if status == _INTERRUPTED:
            return status  # the command line says so, once
        if status:
            _explain_failure(status, set(_LOGS.glob("*.snakemake.log")) - before, again)
        else:
            took = duration(time.monotonic() - began)
            print(f"dpfl: {what} took {took}; the engine's lines are in {ENGINE_LOG}", file=sys.stderr)
    return status


def _put_back_after_the_last_job(sweeps: Sequence[Sweep], results: Path, status: int) -> None:
    """Put finished run tables back once no job is left that could delete them; else the next run does.

    Of another batch system than SLURM it is not known when jobs that were cancelled have ended: the copies stay.
    """
    if status and not orphans.has_submitted(Path()):
        for sweep in sweeps:
            put_back(sweep, results)
        return
    try:
        orphans.cancel_left_behind(Path(), "this run leaves")
    except InputError as error:
        print(f"dpfl: {error}; until then finished run tables are in checkpoints", file=sys.stderr)
    else:
        put_all_back(sweeps, results)


def _explain_failure(status: int, logs: set[Path], again: str) -> None:
    """Print why Snakemake ended with `status`, from its `logs` of this run, and the command to continue with."""
    if status < 0:
        print(f"dpfl: Snakemake was ended by {signal.Signals(-status).name}", file=sys.stderr)
    causes = list(explain(max(logs).read_text(encoding="utf-8", errors="replace") if logs else ""))
    for line in causes or _last_lines(ENGINE_LOG, _LAST_ENGINE_LINES):
        print(line, file=sys.stderr)
    if shutil.disk_usage(Path()).free < _LEAST_BYTES:
        print(f"dpfl: the disk of {Path().absolute()} is full: make room first", file=sys.stderr)
    print(f"dpfl: not finished; what is done is kept. Continue with: {again}", file=sys.stderr)


def explain(log: str) -> Iterator[str]:
    """Yield, for each rule that failed according to Snakemake's `log`, its name and the last lines of its own log."""
    blocks = re.split(r"^\[.*\]$\n", log, flags=re.MULTILINE)
    for block in blocks:
        if failed := _FAILED.search(block):
            match = _LOG.search(block)
            path = Path(match.group(1)) if match else None
            yield f"dpfl: rule {failed.group(1)} failed" + (f"; {path} ends with:" if path else "")
            if path:
                yield from (f"  {line}" for line in _last_lines(path, _LAST_LINES))


def _last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, none where it is missing."""
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:] if path.is_file() else []


def _wait(process: subprocess.Popen) -> int:
    """Wait for Snakemake; return its status, 130 where it failed after Ctrl-C.

    Pass SIGTERM on to it, each time it comes, and cancel its SLURM jobs from then on.

    Snakemake then waits for the end of its jobs. One that SLURM has forgotten never ends: where Snakemake waits for
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
                    print("dpfl: Snakemake waits for jobs that are in no queue any more; it is killed", file=sys.stderr)
                    process.kill()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
