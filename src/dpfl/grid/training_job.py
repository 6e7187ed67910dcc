"""A training job: the runs that are trained together, the folders of their data, and the memory for their gradients."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

GPU_SHARE = 0.8  # of what is free on a GPU goes to gradients; data, models and torch's own need the rest
CPU_GB = 1.0


@dataclass(frozen=True)
class Folders:
    """A dataset's own folders: its arrays, and its scattering features."""

    arrays: Path
    features: Path

    @classmethod
    def of(cls, data_folder: Path, dataset: str) -> Folders:
        """Return the folders of `dataset` below the data folder."""
        return cls(arrays=data_folder / "arrays" / dataset, features=data_folder / "features" / dataset)


@dataclass(frozen=True)
class TrainingJob:
    """One training job: the runs that share data, model and batches, and are trained as one stack.

    `cells` are what is stacked (an epsilon of inf is training without privacy); every cell runs once a seed.
    `experiment` is a name that dpfl.experiments finds; `resources` (device, threads, memory_gb) decide how fast it
    runs, not which numbers are drawn.
    """

    paper: str
    experiment: str
    name: str
    settings: dict[str, Any]
    cells: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    resources: dict[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """The key of the dataset that the job trains on."""
        return self.settings["dataset"]

    @property
    def calibration_key(self) -> str:
        """The job's name without its seeds: jobs with the same key have one noise calibration."""
        return self.name.rpartition("_seed")[0]

    @property
    def needs_features(self) -> bool:
        """True where the model reads scattering features instead of pixels."""
        return self.settings.get("model", "").startswith("scatter")

    def digest(self) -> str:
        """Return a hash of everything that decides the job's numbers, except code and resources."""
        text = json.dumps([self.paper, self.experiment, self.settings, self.cells, self.seeds], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_private(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell asks for privacy at all."""
    return not math.isinf(cell["epsilon"])


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
