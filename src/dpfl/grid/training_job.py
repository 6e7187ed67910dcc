"""A training job: the runs that are trained together, and the folders of the data that they train on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
