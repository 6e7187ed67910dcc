"""Reserve a GPU, or a place on one, for each training job, and say how much memory jobs may use."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import product, takewhile
from pathlib import Path

import psutil

from dpfl.commands import output_of
from dpfl.errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # these assign devices to their jobs
_POLL_SECONDS = 0.5
_CONTAINER_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files that hold the limit of this process's container in bytes, by version 2 and 1 of Linux's control groups."""


@contextmanager
def own_gpu(wanted: bool, jobs_per_gpu: int = 1) -> Iterator[None]:
    """Reserve a place on one of the GPUs that are here if one is `wanted`; wait until one is free.

    A GPU has `jobs_per_gpu` places, 1 or more; GPUs without a job are taken first.

    Enter it before torch first looks at CUDA: the environment then shows that GPU alone. A lock file for each GPU and
    user excludes other jobs; the system releases it when the process ends, however it ends. Of a scheduler's job (all
    of an allocation, where dpfl runs inside of one) the file is its own: two jobs of a node may both call theirs 0, and
    shards of one GPU are shared. Raises InputError where the host has no GPU, or a lock file cannot be used.
    """
    job = next((os.environ[name] for name in _SCHEDULERS if name in os.environ), "")
    if not wanted or (job and not visible_gpus()):  # a scheduler may assign what neither variable nor driver lists
        yield
        return
    known = require_gpu()
    with ExitStack() as stack:
        while (taken := _lock_one(known, job, stack, jobs_per_gpu)) is None:
            time.sleep(_POLL_SECONDS)
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = taken
        try:
            yield
        finally:
            os.environ.pop(VISIBLE) if before is None else os.environ.update({VISIBLE: before})


def require_gpu() -> list[str]:
    """Return the GPUs that this process may use. Raises InputError if there is none."""
    if not (known := visible_gpus()):
        raise InputError("this machine has no GPU: train on the CPU (training.device: cpu, or --device cpu)")
    return known


def memory_mb() -> int:
    """Return the memory in MiB that this process may use: the machine's, or less if its container has a limit."""
    limits = [psutil.virtual_memory().total]
    for path in _CONTAINER_MEMORY:
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            limits.append(int(Path(path).read_text(encoding="ascii")))
    return min(limits) >> 20


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, by number or name."""
    if VISIBLE in os.environ:
        names = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
        # As CUDA reads it: -1 hides itself and all that follows.
        return list(takewhile(lambda name: not name.startswith("-"), names))
    listed = output_of("nvidia-smi", "--list-gpus") or b""
    return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith(b"GPU")]


def _lock_one(known: list[str], job: str, stack: ExitStack, jobs_per_gpu: int = 1) -> str | None:
    """Lock the first place that no other process of `job` holds, until `stack` is closed; return its GPU."""
    for number, name in product(range(jobs_per_gpu), known):
        label = re.sub("[^A-Za-z0-9-]", "_", f"{job}-{name}" if job else name) + (f"-{number}" if number else "")
        place = Path(tempfile.gettempdir()) / f"dpfl-gpu-{os.getuid()}-{label}.lock"
        descriptor = _opened(place)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                continue
            raise InputError(f"cannot lock a GPU by {place}: {error.strerror}; name another TMPDIR") from None
        stack.callback(os.close, descriptor)
        return name
    return None


def _opened(place: Path) -> int:
    """Open a lock file of this user, made where it is not there.

    Everybody writes to the folder of temporary files: a link, or another user's file, is refused with InputError.
    """
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot lock a GPU by {place}: {error.strerror}; remove it, or name another TMPDIR") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        os.close(descriptor)
        raise InputError(f"cannot lock a GPU by {place}: it is not your file; remove it, or name another TMPDIR")
    return descriptor
