"""Budget of memory for gradients: a job's own, or what its machine has to give."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

GPU_SHARE = 0.8  # of what is free on a GPU goes to gradients; data, models and torch's own need the rest
CPU_GB = 1.0


def with_memory(job: TrainingJob, jobs_per_gpu: int = 1) -> TrainingJob:
    """Return the job with a budget of memory: its own, or if it has none, most of what is free on its GPU, and of the
    whole GPU's memory at most the share of one of `jobs_per_gpu` jobs.

    To be called where the job's GPU is held (`own_gpu`). A job on a CPU without a budget gets one gigabyte: it cannot
    know how many others share the machine.
    """
    if job.resources["memory_gb"] is not None:
        return job
    if job.resources["device"] == "cpu":
        return replace(job, resources={**job.resources, "memory_gb": CPU_GB})
    import torch

    free, total = torch.cuda.mem_get_info()
    own = GPU_SHARE * min(free, total / jobs_per_gpu)
    return replace(job, resources={**job.resources, "memory_gb": own / 2**30})


def on_cpu(job: TrainingJob) -> TrainingJob:
    """Return the job for work that needs no GPU, whatever the job trains on: calibration asks for none."""
    return with_memory(replace(job, resources={**job.resources, "device": "cpu"}))
