"""State the tolerated differences between a run trained again and the run that was recorded."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dpfl import gpu

FLOAT32_EXPERIMENTS = ("fedavg_images",)
"""Experiments that train in single precision; every other one uses float64."""


@dataclass(frozen=True)
class Tolerance:
    """The largest difference of a metric that is not a finding; `unit` is "points" (of accuracy) or "relative"."""

    largest: float
    unit: str

    @property
    def words(self) -> str:
        """The tolerance as text."""
        return f"{self.largest:g} {self.unit}"

    def holds(self, recorded: float, repeated: float) -> bool:
        """Return whether two values agree; nan agrees with nan. Relative to `recorded`, absolute below 1."""
        if recorded != recorded or repeated != repeated:
            return recorded != recorded and repeated != repeated
        if recorded == repeated:
            return True
        scale = 1.0 if self.unit == "points" else max(1.0, abs(recorded))
        return abs(recorded - repeated) <= self.largest * scale


FLOAT32 = Tolerance(1.0, "points")
FLOAT64 = Tolerance(1e-9, "relative")
"""On one machine the same bytes come out. Another instruction set or thread count changes the order of sums: at most
6e-15 in float64 and 0.9 points of accuracy in float32 on the demo's runs. Training without noise can be chaotic: of
ScatterNet + linear, whose features are long for a learning rate of 0.3, one epoch makes 4e-2 of a relative 3e-8
(CIFAR-10: 1.8 points), and CNN + ReLU can die of one rounding (31 points)."""


def tolerance_of(experiment: str) -> Tolerance:
    """Return the tolerance of an experiment's metrics."""
    return FLOAT32 if experiment in FLOAT32_EXPERIMENTS else FLOAT64


def platform_of(software: Mapping[str, str], host: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a record's software and host may change a result: versions without their last number, and the
    device, with the model of a GPU, on which the noise depends."""
    versions = {name: ".".join(software[name].partition("+")[0].split(".")[:2]) for name in ("torch", "python")}
    model = f" ({host['gpu']})" if "gpu" in host else ""
    return versions | {"device": f"{host['device']}{model}"}


def platform_here(device: str) -> dict[str, str]:
    """Return the same of this process."""
    host = {"device": device, **(gpu.facts() if device == "cuda" else {})}
    return platform_of({"torch": metadata.version("torch"), "python": platform.python_version()}, host)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the differences of two platforms, in words: "torch 2.13 to 2.11"."""
    return [f"{name} {before[name]} to {after[name]}" for name in before if before[name] != after[name]]
