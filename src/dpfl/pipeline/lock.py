"""Allow one run of the workflow at a time in a folder, and detect the lock of a killed one."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import psutil

from dpfl.errors import InputError
from dpfl.files import require_writable
from dpfl.pipeline import process_cleanup

_LOCK = Path(".snakemake") / "dpfl.lock"
_LOCKS = Path(".snakemake") / "locks"
_PROGRAMS = ("snakemake", ".snakemake-wrapped", "__main__.py")
_READ_ONLY = {
    "--dry-run", "--dryrun", "--list-rules", "--list", "-l", "--list-target-rules", "--lt", "--list-changes", "--lc",
    "--list-input-changes", "--li", "--list-params-changes", "--lp", "--list-untracked", "--lu", "--dag", "--rulegraph",
    "--filegraph", "--d3dag", "--summary", "-S", "--detailed-summary", "-D", "--lint", "--report", "--unlock",
}  # fmt: skip
_RUNS_AFTER_ALL = "--report-after-run"
_INSIDE_A_JOB = {"--nolock"}
_DRY = re.compile(r"-[A-Za-z]*n[A-Za-z]*")  # -n, or together with others: -np


@contextmanager
def only_run(project: Path = Path(), what: str = "") -> Iterator[int]:
    """Lock the project's folder for this run; yield the lock's file descriptor, for children to inherit.

    `what` names a command that works on the results and is no run of the workflow.

    The system releases the lock when the last process with the descriptor ends, however it ends: a Snakemake that
    outlives `dpfl run` keeps it. (That is why it is not a filelock.FileLock, whose descriptor is private.) Raises
    InputError if another run has the lock, or a Snakemake that was started without it works in the folder.
    """
    place = project / _LOCK
    require_writable(place.parent)
    place.parent.mkdir(exist_ok=True)
    with place.open("a+", encoding="utf-8") as stream:
        try:
            _flock(stream, fcntl.LOCK_EX)
        except BlockingIOError:
            if (holder := _lock_holder(project)) is None:
                raise InputError(
                    "a stage that was started by hand is at work in this folder; wait for it, or end it"
                ) from None
            raise _at_work(holder) from None
        stream.truncate(0)
        stream.write(", ".join(filter(None, [str(os.getpid()), what])))
        stream.flush()
        if others := _snakemakes(project.absolute()):
            raise _at_work(others[0])
        yield stream.fileno()


def running_since() -> float | None:
    """Return the start of the run that has the folder's lock, in seconds since 1970, or None if there is none."""
    holder = _lock_holder()
    return None if holder is None or "," in holder else _LOCK.stat().st_mtime


@contextmanager
def beside_no_run(project: Path = Path()) -> Iterator[None]:
    """Keep runs and `dpfl pages` out of a project's folder while a stage that was started by hand is at work: it would
    write what a run reads or writes. Several stages may work side by side; a run's own stages name their controller in
    the environment. Raises InputError where a run is at work.
    """
    if process_cleanup.CONTROLLER in os.environ:
        yield
        return
    if (holder := _lock_holder(project)) is not None:
        raise _at_work(holder)
    if others := _snakemakes(project.absolute()):
        raise _at_work(others[0])
    with ExitStack() as held:
        if (project / "Snakefile").is_file() and os.access(project, os.W_OK):
            place = project / _LOCK
            place.parent.mkdir(exist_ok=True)
            stream = held.enter_context(place.open("a+", encoding="utf-8"))
            try:
                _flock(stream, fcntl.LOCK_SH)
            except BlockingIOError:  # a run began since
                raise _at_work(_lock_holder(project) or "unknown") from None
        yield


def _lock_holder(project: Path = Path()) -> str | None:
    """Return what the holder of the folder's lock wrote of itself, or None if nothing has it."""
    place = project / _LOCK
    try:
        with place.open(encoding="utf-8") as stream:
            _flock(stream, fcntl.LOCK_SH)  # shared: the project may be read-only
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return place.read_text(encoding="utf-8").strip() or "unknown"
    return None


def _flock(stream: IO[str] | int, kind: int) -> None:
    """Lock an open file or folder, without waiting. Raises BlockingIOError where another process has it, InputError
    where the file system has no locks."""
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        remedy = "work on a file system with locks (Lustre: mount -o flock)"
        raise InputError(f"this folder cannot be locked ({error.strerror}): {remedy}") from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for this out of a folder, which exists. Raises InputError if one is in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _flock(descriptor, fcntl.LOCK_EX)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"another run is at work in {folder}: wait for it, or name another folder") from None
    try:
        yield
    finally:
        os.close(descriptor)


def is_stale() -> bool:
    """Return whether the folder has Snakemake's own lock: to the holder of the run lock, a killed run's."""
    return any(_LOCKS.glob("*"))


def _at_work(process: object) -> InputError:
    return InputError(f"another run is at work in this folder (process {process}); wait for it, or end it")


def _snakemakes(folder: Path) -> list[int]:
    """Return the processes of this machine that control a run of Snakemake in `folder`.

    One that a cluster's job runs does not count: it has no lock, and its controller may have been killed.
    """
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd", "status"])
        if process.info["cwd"] == str(folder)
        and _runs_a_workflow(process.info["cmdline"] or [])
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def _runs_a_workflow(command: list[str]) -> bool:
    """Return whether a command is a Snakemake that changes files and does not belong to a job."""
    called = any(Path(word).name in _PROGRAMS and "snakemake" in word for word in command[:4])
    options = {word.split("=")[0] for word in command}
    asks = not options.isdisjoint(_READ_ONLY) and _RUNS_AFTER_ALL not in options
    return called and not asks and options.isdisjoint(_INSIDE_A_JOB) and not any(map(_DRY.fullmatch, command))
