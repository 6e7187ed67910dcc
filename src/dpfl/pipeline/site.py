"""Read what differs between clusters: site.yaml of a profile, completed and checked. Profile and plan both ask here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpfl.commands import output_of
from dpfl.errors import InputError
from dpfl.grid.strict_yaml import load_mapping

DEFAULTS: dict[str, Any] = {
    "slurm_account": None,
    "slurm_extra": None,
    "partitions": {},
    "cores_per_node": 16,
    "memory_mb_per_node": 60000,
    "longest_minutes": None,
    "jobs": 100,
    "side_by_side": 4,
    "gpu_model": None,
    "gpu_gres": None,
    "status_command": "squeue",
    "seconds_between_status_checks": 20,
}
"""Keys of site.yaml; it says what each of them means."""

_COUNTS = ("cores_per_node", "memory_mb_per_node", "jobs", "side_by_side", "seconds_between_status_checks")
_FALLBACK_MINUTES = 1440


def read(path: Path) -> dict[str, Any]:
    """Return a site's keys, those that it leaves out as in DEFAULTS, `side_by_side` at most the cores of a node.

    Without `longest_minutes` the longest time of a job is that of the largest of its partitions, else of SLURM's own
    default; 1440 where SLURM sets none or does not answer. `gpu` has the resources that its two keys make. Raises
    InputError for an unknown key, a count below 1, and partitions that are not {name: {max_runtime: minutes, ...}}.
    """
    given = load_mapping(path)
    if unknown := [key for key in given if key not in DEFAULTS]:
        raise InputError(f"{path}: unknown key {unknown[0]}; the keys are {', '.join(DEFAULTS)}")
    site = {**DEFAULTS, **given}
    for key in (*_COUNTS, *(["longest_minutes"] if site["longest_minutes"] is not None else [])):
        site[key] = count(path, key, site[key])
    _require_partitions(path, site["partitions"])
    site["side_by_side"] = min(site["side_by_side"], site["cores_per_node"])
    # What a job that needs a GPU asks for besides: a type, or another resource in place of an entire GPU.
    site["gpu"] = {"gpu_model": site["gpu_model"]} if site["gpu_model"] else {}
    site["gpu"] |= {"gres": site["gpu_gres"], "gpu": 0} if site["gpu_gres"] else {}
    if site["longest_minutes"] is None:
        site["longest_minutes"] = _longest_minutes(site["partitions"])
    return site


def count(path: Path, key: str, value: Any) -> int:
    """Return a count of a profile as a number; raises InputError where it is none of at least 1."""
    if not str(value).isdecimal() or int(value) < 1:
        raise InputError(f"{path}: {key} is {value!r}, should be a number of at least 1")
    return int(value)


def _require_partitions(path: Path, partitions: Any) -> None:
    """Raise InputError where partitions are no mapping of names to their limits, or a time is no number of minutes."""
    if not isinstance(partitions, dict) or not all(isinstance(limits, dict) for limits in partitions.values()):
        raise InputError(f"{path}: partitions is {partitions!r}, should be as {{cpu: {{max_runtime: 1440}}}}")
    for name, limits in partitions.items():
        if type(longest := limits.get("max_runtime", 1)) is not int or longest < 1:
            raise InputError(f"{path}: partitions.{name}.max_runtime is {longest!r}, should be a number of minutes")


def _longest_minutes(partitions: dict[str, dict[str, Any]]) -> int:
    """Return the longest time of a job: the largest of these partitions, else of the default one, by sinfo."""
    if stated := [limits["max_runtime"] for limits in partitions.values() if "max_runtime" in limits]:
        return max(stated)
    from dpfl.pipeline.time_limit import parse_left

    answer = output_of("sinfo", "--noheader", "--format=%P %l") or b""
    rows = (line.split() for line in answer.decode(errors="replace").splitlines())
    limits = [parse_left(limit) for name, limit in rows if name.endswith("*")]
    return int(limits[0] // 60) if limits and limits[0] else _FALLBACK_MINUTES
