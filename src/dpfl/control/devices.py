"""GPUs: every training job has one to itself, and fills what is free on it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from dpfl.errors import InputError
from dpfl.sweeps import Sweep

VISIBLE = "CUDA_VISIBLE_DEVICES"
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # these hand devices out themselves
_LOOK_EVERY_SECONDS = 0.5
GPU_SHARE = 0.8  # of what is free on a GPU goes to gradients; data, models and torch's own need the rest
CPU_GB = 1.0


@contextmanager
def own_gpu(wanted: bool) -> Iterator[None]:
    """Hold one of the host's GPUs where it is `wanted` and no scheduler has handed one out; wait until one is free.

    To be entered before torch first looks at CUDA: the environment then shows that GPU alone. A lock file for each GPU
    and user keeps others away, and the system gives it up when the process ends, however it ends.
    Raises InputError where the host has no GPU.
    """
    if not wanted or any(name in os.environ for name in _SCHEDULERS):
        yield
        return
    known = _gpus()
    if not known:
        raise InputError("device: cuda is not there; set training.device to cpu")
    with ExitStack() as stack:
        while (taken := _take(known, stack)) is None:
            time.sleep(_LOOK_EVERY_SECONDS)
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = taken
        try:
            yield
        finally:
            os.environ.pop(VISIBLE) if before is None else os.environ.update({VISIBLE: before})


def with_memory(sweep: Sweep) -> Sweep:
    """Return the sweep with a budget of memory: its own, or where it has none, most of what is free on its GPU.

    To be called where the sweep's GPU is held (`own_gpu`). A job on a CPU without a budget gets one gigabyte: it cannot
    know how many others share the machine.
    """
    if sweep.machine["memory_gb"] is not None:
        return sweep
    if sweep.machine["device"] == "cpu":
        return replace(sweep, machine={**sweep.machine, "memory_gb": CPU_GB})
    import torch

    free, _ = torch.cuda.mem_get_info()
    return replace(sweep, machine={**sweep.machine, "memory_gb": GPU_SHARE * free / 2**30})


def on_cpu(sweep: Sweep) -> Sweep:
    """Return the sweep for work that needs no GPU, whatever the sweep trains on: calibration asks for none."""
    return with_memory(replace(sweep, machine={**sweep.machine, "device": "cpu"}))


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, by number or name."""
    if VISIBLE in os.environ:
        return [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU")]


def _take(known: list[str], stack: ExitStack) -> str | None:
    """Lock the first GPU that is free, until `stack` is closed."""
    for name in known:
        path = Path(tempfile.gettempdir()) / f"dpfl-gpu-{os.getuid()}-{name}.lock"
        stream = path.open("w")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            continue
        stack.callback(stream.close)
        return name
    return None
